"""The orphan collector and pending removals: a resource was deleted while its broker was away; the broker is back, and
its entity is deleted without a wait of ten minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, cast

import pytest
from support.api_server_in_memory import ApiServerInMemory
from support.resources import broker, broker_state, manifest_of

from penstock_api.management import Owner
from penstock_api.state_documents import BrokerState
from penstock_operator.brokers.sessions import BrokerSessions
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.cluster.controller import Controller
from penstock_operator.metrics import Metrics
from penstock_operator.plans.decisions import BrokerReply, DeleteEntity, Reach
from penstock_operator.plans.orphans import MarkedEntity
from penstock_operator.reconcile.broker_findings import BrokerFindings
from penstock_operator.reconcile.orphan_collector import OrphanCollector
from penstock_operator.settings import OperatorSettings

BROKER = ResourceKey("Broker", "shop", "main")


@dataclass
class Session:
    """The session of a broker that has one subscription, whose resource does not exist any more."""

    reach: Reach = Reach.CONNECTED
    left: list[MarkedEntity] = field(default_factory=list[MarkedEntity])
    state: BrokerState = field(default_factory=broker_state)
    ended: list[str] = field(default_factory=list[str])
    """Entities whose rights were ended."""

    async def marked_entities(self) -> Sequence[MarkedEntity]:
        return list(self.left)

    async def delete(self, entry: DeleteEntity) -> BrokerReply:
        if entry.rights_only:
            self.ended.append(entry.name)
            return BrokerReply(status=204)
        self.left = [it for it in self.left if it.name != entry.name]
        return BrokerReply(status=204)


@dataclass
class Every:
    """The sessions of all Brokers: always that one."""

    session: Session

    def get(self, broker: str) -> Session:
        return self.session


def left(name: str, uid: str) -> MarkedEntity:
    owner = Owner(cluster_id="c1", kind="Subscription", namespace="shop", name=name, uid=uid, deletion_policy="Delete")
    return MarkedEntity(name, owner)


async def test_what_is_owed_goes_when_the_broker_is_back_and_all_else_waits() -> None:
    cache, session = Cache(), Session(left=[left("seen", "u1"), left("unseen", "u2")])
    cache.put(manifest_of("Broker", broker().spec.model_dump(mode="json", by_alias=True, exclude_none=True), None, {}))
    findings = {BROKER: BrokerFindings(pending_removals={"u1", "long-gone"})}
    settings = OperatorSettings(broker_image="b", lag_image="l")
    sessions = cast(BrokerSessions, Every(session))
    collector = OrphanCollector(cache, sessions, settings, "c1", findings, lambda: 1000.0, lambda key: None)
    await collector.run()
    assert [it.name for it in session.left] == ["unseen"]
    assert findings[BROKER].pending_removals == {"u1"}
    await collector.run()
    assert findings[BROKER].pending_removals == set(), "what the broker no longer has is forgotten"
    assert [(it["name"], it["reason"]) for it in findings[BROKER].orphans] == [("unseen", "NotYetDue")]


async def test_what_is_made_again_while_others_are_deleted_keeps_its_messages() -> None:
    """Thousands of deletions take a while, and a GitOps tool makes their resources again meanwhile."""
    cache, queues = Cache(), [f"psub:durable:global:{name}" for name in ("first", "second", "third")]

    class Slow(Session):
        async def delete(self, entry: DeleteEntity) -> BrokerReply:
            for name, exchange in (("second", "orders"), ("third", "orders")):
                spec = {"exchangeRef": {"name": exchange}, "subscriptionName": "else" if name == "third" else name}
                cache.put(manifest_of("Subscription", spec, None, {"name": name, "uid": "another"}))
            return await Session.delete(self, entry)

    owners = [left(name.rsplit(":", 1)[1], f"u{number}").owner for number, name in enumerate(queues)]
    session = Slow(left=[MarkedEntity(name, owner) for name, owner in zip(queues, owners, strict=True)])
    cache.put(manifest_of("Broker", broker().spec.model_dump(mode="json", by_alias=True, exclude_none=True), None, {}))
    findings = {BROKER: BrokerFindings(pending_removals={"u0", "u1", "u2"})}
    settings = OperatorSettings(broker_image="b", lag_image="l")
    sessions = cast(BrokerSessions, Every(session))
    await OrphanCollector(cache, sessions, settings, "c1", findings, lambda: 1000.0, lambda key: None).run()
    assert [it.name for it in session.left] == [queues[1]], "the third resource declares another queue"


async def test_a_bug_with_one_broker_does_not_keep_the_orphans_of_others() -> None:
    """It would end the task that lists the resources, and so the operator, again and again."""

    class Faulty(Session):
        async def marked_entities(self) -> Sequence[MarkedEntity]:
            raise RuntimeError("a bug")

    class ByName:
        found: ClassVar = {"shop/first": Faulty(), "shop/main": Session(left=[left("seen", "u1")])}

        def get(self, broker: str) -> Session:
            return self.found[broker]

    cache = Cache()
    for name in ("first", "main"):
        spec = broker().spec.model_dump(mode="json", by_alias=True, exclude_none=True)
        cache.put(manifest_of("Broker", spec, None, {"name": name, "uid": name}))
    findings = {BROKER: BrokerFindings(pending_removals={"u1"})}
    settings = OperatorSettings(broker_image="b", lag_image="l")
    sessions = cast(BrokerSessions, ByName())
    collector = OrphanCollector(cache, sessions, settings, "c1", findings, lambda: 1000.0, lambda key: None)
    await collector.run()
    assert ByName.found["shop/main"].left == []


@pytest.mark.parametrize(
    ("understands", "expected"),
    [
        pytest.param(("subscription.consumers",), ["kept"], id="knows-rights"),
        pytest.param(("subscription.owner",), [], id="of-an-earlier-release"),
        pytest.param(None, [], id="says-nothing"),
    ],
)
async def test_what_is_retained_loses_its_rights_when_its_resource_is_missing_for_long(
    understands: tuple[str, ...] | None, expected: list[str]
) -> None:
    """Its broker was away when the resource was deleted."""
    owner = left("kept", "u1").owner.model_copy(update={"deletion_policy": "Retain"})
    session = Session(left=[MarkedEntity("kept", owner)], state=broker_state(understands=understands))
    cache, now = Cache(), [0.0]
    cache.put(manifest_of("Broker", broker().spec.model_dump(mode="json", by_alias=True, exclude_none=True), None, {}))
    settings = OperatorSettings(broker_image="b", lag_image="l")
    sessions = cast(BrokerSessions, Every(session))
    collector = OrphanCollector(cache, sessions, settings, "c1", {}, lambda: now[0], lambda key: None)
    await collector.run()
    assert session.ended == []
    now[0] = 600.0
    await collector.run()
    assert session.ended == expected
    assert [it.name for it in session.left] == ["kept"]


async def test_a_list_can_be_had_sooner() -> None:
    controller = Controller(Cache(), Metrics(), lambda: 0.0)
    looked: list[int] = []
    twice = asyncio.Event()

    async def after() -> None:
        looked.append(len(looked))
        if len(looked) == 2:
            twice.set()

    task = asyncio.create_task(controller.resync(ApiServerInMemory(), (), 3600, after))
    await controller.listed.wait()
    controller.resync_soon()
    async with asyncio.timeout(60):
        await twice.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
