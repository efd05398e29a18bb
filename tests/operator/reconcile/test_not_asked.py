"""Nothing says that a broker does not answer before an attempt to ask it has failed. The sessions are the operator's
own; the way to the broker is a gate that a test holds shut, so that an attempt to connect is under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from support.management_in_memory import BrokerInMemory, ManagementInMemory
from support.operator_in_memory import World, resource
from support.waiting import wait_until

from penstock_operator.brokers.management import BrokerManagement, ManagementAccess
from penstock_operator.brokers.session import BrokerSession
from penstock_operator.cluster.cache import ResourceKey
from penstock_operator.plans.decisions import BrokerReply, DeclareEntity, Reach, Retry

MAIN = ResourceKey("Broker", "shop", "main")
ORDERS = ResourceKey("Exchange", "shop", "orders")
S0, S1, LATE = (ResourceKey("Subscription", "shop", name) for name in ("s0", "s1", "late"))
NOT_ASKED = (
    "Unknown",
    "BrokerNotAsked",
    "The operator has not asked Broker main yet; its condition Ready says what it waits for. This resource is declared "
    "on it when it answers.",
)
READY = ("True", "Ready", "Declared on the broker.")


@dataclass
class Gate:
    """The way to the broker. While it is shut, an attempt to connect does not end, and a declaration gets no reply."""

    broker: BrokerInMemory = field(default_factory=BrokerInMemory)
    attempts: int = 0
    held: int = 0
    """Declarations that wait for their reply."""
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    async def connect(self, access: ManagementAccess) -> BrokerManagement:
        self.attempts += 1
        await self.opened.wait()
        return Passing(self.broker, gate=self)


@dataclass(slots=True)
class Passing(ManagementInMemory):
    gate: Gate = field(kw_only=True)

    async def declare(self, entries: Sequence[DeclareEntity]) -> Sequence[BrokerReply]:
        self.gate.held += 1
        await self.gate.opened.wait()
        self.gate.held -= 1
        return await ManagementInMemory.declare(self, entries)


@dataclass
class Scene:
    """A Broker whose pod serves, an Exchange and two Subscriptions, all Ready; then the gate is shut."""

    world: World
    gate: Gate

    @property
    def session(self) -> BrokerSession:
        found = self.world.reconciler.sessions.get("shop/main")
        assert found is not None
        return found

    async def pass_on(self) -> None:
        """What the API server tells is told, and all that is due is reconciled."""
        self.world.tell(len(self.world.api.events))
        await self.world.reconcile_next(100)

    async def connect(self) -> None:
        """The gate is opened, and stays open until everything that follows from it is done."""
        self.gate.opened.set()

        async def is_connected() -> bool:
            return self.session.reach is Reach.CONNECTED

        await wait_until(is_connected)
        self.world.now += 10
        await self.pass_on()

    async def take_another_password(self) -> None:
        """Somebody has deleted the Secret, and the operator makes another one."""
        before = self.session.access.password
        del self.world.api.objects["Secret", "shop", "main-management"]
        self.world.api.user_annotates("Broker", "shop", "main", {"penstock.dev/reconcile-at": "now"})
        self.world.tell(len(self.world.api.events))
        await self.world.reconciler.reconcile(MAIN)
        assert self.session.access.password != before

    def says(self, key: ResourceKey, kind: str = "Ready") -> tuple[str, str, str] | None:
        shown = self.world.api.objects[key].get("status", {}).get("conditions", [])
        return next(((it["status"], it["reason"], it["message"]) for it in shown if it["type"] == kind), None)

    def warnings(self) -> list[tuple[str, str]]:
        """The Events of type Warning, each with the object and the reason."""
        sent: list[Any] = [it for (kind, *_), it in self.world.api.objects.items() if kind == "Event"]
        return [(it["involvedObject"]["name"], it["reason"]) for it in sent if it["type"] == "Warning"]


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    gate = Gate()
    made = Scene(World(connect=gate.connect, broker=gate.broker), gate)
    show_pod(made.world)
    for manifest in (resource("Broker", "main"), resource("Exchange", "orders")):
        made.world.api.user_applies(manifest)
    for name in ("s0", "s1"):
        made.world.api.user_applies(resource("Subscription", name))
    await made.world.controller.list_all(made.world.api, ())
    await made.pass_on()
    await made.connect()
    await made.pass_on()
    assert [made.says(key) for key in (ORDERS, S0, S1)] == [READY] * 3
    gate.opened.clear()
    yield made
    gate.opened.set()
    await made.world.reconciler.sessions.close()


def show_pod(world: World) -> None:
    """The kubelet says that the broker's container serves."""
    world.api.objects["Pod", "shop", "main-0"] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "main-0", "namespace": "shop", "uid": "uid-pod"},
        "status": {"containerStatuses": [{"name": "broker", "ready": True}]},
    }


def use(scene: Scene) -> None:
    """A user makes a Subscription, changes one and deletes one."""
    scene.world.api.user_applies(resource("Subscription", "late"))
    scene.world.api.user_applies(resource("Subscription", "s0", bindingKeys=["eu.#"]))
    scene.world.api.user_deletes("Subscription", "shop", "s1")


async def see_nothing_said_and_all_done_later(scene: Scene) -> None:
    """While the first attempt is under way, the new, the changed and the deleted resource say nothing new."""
    use(scene)
    await scene.pass_on()
    assert (scene.says(LATE), scene.says(S0), scene.says(S1)) == (None, READY, READY)
    assert scene.says(S1, "DeletionBlocked") is None
    assert scene.session.reach is Reach.NOT_ASKED
    await scene.connect()
    await scene.pass_on()
    assert (scene.says(LATE), scene.says(S0)) == (READY, READY)
    assert S1 not in scene.world.api.objects
    assert scene.warnings() == []


async def test_while_another_password_is_tried_nothing_says_that_the_broker_does_not_answer(scene: Scene) -> None:
    await scene.take_another_password()
    assert scene.says(MAIN) == ("True", "Ready", "The broker serves its clients.")
    await see_nothing_said_and_all_done_later(scene)


async def test_a_broker_that_did_not_answer_is_not_better_because_of_another_password(scene: Scene) -> None:
    scene.gate.broker.is_up = False
    scene.gate.opened.set()
    for _ in range(2):  # the first pass loses the connection, and the second one is about that
        scene.world.api.user_annotates("Broker", "shop", "main", {"penstock.dev/reconcile-at": "before"})
        scene.world.api.user_applies(resource("Subscription", "s0", bindingKeys=["eu.#"]))
        await scene.pass_on()
    assert scene.session.reach is Reach.UNREACHABLE
    scene.gate.opened.clear()
    await scene.take_another_password()
    assert scene.says(MAIN, "Available") == ("Unknown", "BrokerUnreachable", "It is down.")
    scene.world.api.user_applies(resource("Subscription", "late"))
    await scene.pass_on()
    said = scene.says(LATE)
    assert said is not None
    assert said[:2] == ("Unknown", "BrokerUnreachable")


async def test_a_broker_that_is_scaled_up_was_not_asked_before_its_first_attempt_has_ended(scene: Scene) -> None:
    scene.world.api.user_applies(resource("Broker", "main", replicas=0))
    await scene.pass_on()
    await scene.pass_on()
    stopped = scene.says(ORDERS)
    assert stopped is not None
    assert stopped[1] == "BrokerStopped"
    scene.world.api.user_applies(resource("Broker", "main"))
    use(scene)
    await scene.pass_on()
    assert scene.says(MAIN) == ("Unknown", "BrokerNotAsked", "The operator has not connected yet.")
    assert (scene.says(LATE), scene.says(ORDERS)) == (None, stopped)
    assert ("main", "BrokerNotAsked") not in scene.warnings()
    await scene.connect()
    await scene.pass_on()
    assert [scene.says(key) for key in (ORDERS, S0, LATE)] == [READY] * 3


async def test_a_spec_that_is_changed_during_the_first_attempt_is_not_told_that_the_broker_does_not_answer(
    scene: Scene,
) -> None:
    await scene.take_another_password()
    scene.world.api.user_applies(resource("Broker", "main", allowedNamespaces=["team"]))
    await scene.pass_on()
    assert scene.says(MAIN) == ("Unknown", "BrokerNotAsked", "The operator has not connected yet.")
    assert scene.says(MAIN, "Available") == scene.says(MAIN)
    await scene.connect()
    await scene.pass_on()
    assert scene.says(MAIN) == ("True", "Ready", "The broker serves its clients.")
    assert scene.warnings() == []


async def test_without_a_session_what_is_new_and_what_is_deleted_say_that_nobody_has_asked(scene: Scene) -> None:
    """The name of a Service is another owner's, so an operator that starts gets no address to connect to."""
    scene.world.api.objects["Service", "shop", "main-amqp"]["metadata"].update({"ownerReferences": [], "labels": {}})
    again = Scene(World(api=scene.world.api, connect=scene.gate.connect, broker=scene.gate.broker), scene.gate)
    again.world.forget()
    use(again)
    await again.world.controller.list_all(again.world.api, ())
    await again.pass_on()
    assert again.world.reconciler.sessions.get("shop/main") is None
    accepted, available = again.says(MAIN, "Accepted"), again.says(MAIN, "Available")
    assert accepted is not None
    assert accepted[1] == "NameTaken"
    assert available == ("Unknown", "BrokerNotAsked", "The operator has not connected yet.")
    assert (again.says(LATE), again.says(S0, "Bound")) == (NOT_ASKED, NOT_ASKED)
    assert again.says(S1, "DeletionBlocked") == (
        "True",
        "BrokerNotAsked",
        "Deletion waits for the broker: The operator has not connected to Broker main yet. Annotate with "
        "`penstock.dev/force-delete=true` to delete without waiting.",
    )
    assert scene.gate.attempts == 1, "the one of the operator before"


async def test_a_session_that_ends_during_a_declaration_is_not_the_broker_s_silence(scene: Scene) -> None:
    scene.world.api.user_applies(resource("Subscription", "late"))
    scene.world.tell(len(scene.world.api.events))
    declaring = asyncio.create_task(scene.world.reconciler.reconcile(LATE))

    async def is_held() -> bool:
        return scene.gate.held == 1

    await wait_until(is_held)
    access = replace(scene.session.access, password="another")
    await scene.world.reconciler.sessions.ensure("shop/main", access, lambda _: None)
    assert await declaring is Retry.BACKOFF
    assert (scene.says(LATE), scene.session.reach) == (None, Reach.NOT_ASKED)
