"""An operator that does not lead any more changes nothing on brokers, also in the middle of what it had begun."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest
from support.management_in_memory import BrokerInMemory, ManagementInMemory
from support.resources import NOW, exchange, subscription
from support.waiting import wait_until

from penstock_api import declaration
from penstock_api.management import EntityType
from penstock_operator.brokers.fenced_management import FencedManagement, fenced
from penstock_operator.brokers.management import BrokerManagement, ManagementAccess, Unreachable
from penstock_operator.brokers.sessions import BrokerSessions
from penstock_operator.plans.decisions import BrokerReply, DeclareEntity, DeleteEntity, Reach

TARGET = ManagementAccess(host="127.0.0.1", port=1, server_name="b", ca=b"", user="u", password="p")
EXCHANGE = DeclareEntity(EntityType.EXCHANGE, "orders", declaration.exchange_declaration(exchange()))
SUBSCRIPTION = DeclareEntity(
    EntityType.SUBSCRIPTION, None, declaration.subscription_declaration(subscription(), exchange="orders")
)
REMOVAL = DeleteEntity(entity=EntityType.QUEUE, name="jobs", if_unused=True, if_empty=False, owner_uid="u")
Request = Callable[[FencedManagement], Awaitable[object]]

READS: dict[str, Request] = {
    "state": lambda management: management.state(),
    "changes": lambda management: management.changes(None),
    "bound_subscriptions": lambda management: management.bound_subscriptions(),
    "close": lambda management: management.close(),
}
WRITES: dict[str, Request] = {
    "declare": lambda management: management.declare([EXCHANGE]),
    "delete": lambda management: management.delete([REMOVAL]),
}


@dataclass
class Asked(ManagementInMemory):
    """The broker in memory; it notes each change, and may take the Lease away while it works on one."""

    changes_made: list[str] = field(default_factory=list[str])
    leads: bool = True
    lost_during: str = ""
    """The kind of request during which another operator takes the Lease."""

    async def declare(self, entries: Sequence[DeclareEntity]) -> Sequence[BrokerReply]:
        self._note("declare")
        return await ManagementInMemory.declare(self, entries)

    async def delete(self, entries: Sequence[DeleteEntity]) -> Sequence[BrokerReply]:
        self._note("delete")
        return await ManagementInMemory.delete(self, entries)

    def _note(self, kind: str) -> None:
        self.changes_made.append(kind)
        self.leads = self.leads and kind != self.lost_during


def test_every_request_is_in_one_of_the_two_tables() -> None:
    asked = {name for name, it in vars(BrokerManagement).items() if callable(it) and not name.startswith("_")}
    assert asked == READS.keys() | WRITES.keys()


@pytest.mark.parametrize("name", [*READS, *WRITES])
async def test_who_leads_may_do_everything(name: str) -> None:
    broker = Asked(BrokerInMemory())
    await (READS | WRITES)[name](FencedManagement(cast(BrokerManagement, broker), lambda: True))
    assert broker.changes_made == [name for _ in range(1) if name in WRITES]


@pytest.mark.parametrize("name", READS)
async def test_who_does_not_lead_reads(name: str) -> None:
    await READS[name](FencedManagement(cast(BrokerManagement, Asked(BrokerInMemory())), lambda: False))


@pytest.mark.parametrize("name", WRITES)
async def test_who_does_not_lead_sends_no_change(name: str) -> None:
    broker = Asked(BrokerInMemory())
    with pytest.raises(Unreachable, match="does not lead any more"):
        await WRITES[name](FencedManagement(cast(BrokerManagement, broker), lambda: False))
    assert broker.changes_made == []


@pytest.mark.parametrize(
    ("lost_during", "made", "is_declared"),
    [
        pytest.param("", ["delete", "declare"], True, id="never"),
        pytest.param("delete", ["delete"], False, id="between-the-deletions-and-the-declarations-of-one-batch"),
    ],
)
async def test_a_session_stops_where_the_lease_was_lost(lost_during: str, made: list[str], is_declared: bool) -> None:
    broker = Asked(BrokerInMemory(), lost_during=lost_during)

    async def connect(_: ManagementAccess) -> BrokerManagement:
        return cast(BrokerManagement, broker)

    sessions = BrokerSessions(fenced(connect, lambda: broker.leads), 60, lambda: NOW)
    session = await sessions.ensure("shop/main", TARGET, lambda _: None)

    async def is_connected() -> bool:
        return session.reach is Reach.CONNECTED

    await wait_until(is_connected)
    answers = await asyncio.gather(session.delete(REMOVAL), session.declare(EXCHANGE), return_exceptions=True)
    assert isinstance(answers[0], BrokerReply)
    assert isinstance(answers[1], BrokerReply) is is_declared
    assert (broker.changes_made, "orders" in broker.broker.exchanges) == (made, is_declared)
    await sessions.close()


async def test_a_plan_of_two_steps_ends_after_the_first() -> None:
    """The exchange is declared; then another operator leads, and the subscription must not follow."""
    broker = Asked(BrokerInMemory(), lost_during="declare")
    management = FencedManagement(cast(BrokerManagement, broker), lambda: broker.leads)
    await management.declare([EXCHANGE])
    with pytest.raises(Unreachable, match="changes nothing on brokers"):
        await management.declare([SUBSCRIPTION])
    assert (list(broker.broker.exchanges), broker.broker.subscriptions) == (["orders"], {})
