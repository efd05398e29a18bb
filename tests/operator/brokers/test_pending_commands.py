"""What travels to a broker in one request, and in which order."""

from __future__ import annotations

import asyncio

import pytest
from support.resources import exchange, subscription

from penstock_api import declaration
from penstock_api.management import EntityType
from penstock_operator.brokers.management import Unreachable
from penstock_operator.brokers.pending_commands import BATCH, PendingCommands, set_replies
from penstock_operator.plans.decisions import BrokerReply, DeclareEntity, DeleteEntity

EXCHANGE = DeclareEntity(EntityType.EXCHANGE, "orders", declaration.exchange_declaration(exchange()))


def declared(number: int) -> DeclareEntity:
    made = subscription(metadata={"name": f"s{number}"})
    return DeclareEntity(EntityType.SUBSCRIPTION, None, declaration.subscription_declaration(made, exchange="orders"))


def removal(entity: EntityType, name: str) -> DeleteEntity:
    return DeleteEntity(entity=entity, name=name, if_unused=True, if_empty=False, owner_uid="u")


async def test_an_exchange_comes_before_the_subscriptions_that_waited_longer_also_if_they_fill_a_request() -> None:
    pending = PendingCommands()
    for number in range(BATCH + 50):
        pending.add(declared(number))
    pending.add(EXCHANGE)
    first, second = pending.take(), pending.take()
    assert first.declarations[0].command is EXCHANGE
    assert (len(first.declarations), len(second.declarations), len(pending)) == (BATCH, 51, 0)
    names = [it.command.body for batch in (first, second) for it in batch.declarations][1:]
    assert names == [declared(number).body for number in range(BATCH + 50)], "who came first is served first"


async def test_an_exchange_is_deleted_after_the_subscriptions() -> None:
    pending = PendingCommands()
    pending.add(removal(EntityType.EXCHANGE, "orders"))
    for number in range(BATCH):
        pending.add(removal(EntityType.SUBSCRIPTION, f"s{number}"))
    assert {it.command.name for it in pending.take().deletions} == {f"s{number}" for number in range(BATCH)}
    assert [it.command.name for it in pending.take().deletions] == ["orders"]


async def test_who_waits_when_the_broker_goes_is_told_so_and_a_cancelled_one_is_passed_over() -> None:
    pending = PendingCommands()
    waiting, cancelled = pending.add(EXCHANGE), pending.add(declared(1))
    cancelled.cancel()
    pending.fail("it is down")
    with pytest.raises(Unreachable, match="it is down"):
        await waiting
    assert len(pending) == 0


async def test_what_nobody_waits_for_any_more_is_not_sent() -> None:
    """A pass took too long and was ended; then its resource is deleted. Deletions go first, so the older declaration
    would make it again.
    """
    pending = PendingCommands()
    pending.add(declared(1)).cancel()
    pending.add(removal(EntityType.QUEUE, "q1")).cancel()
    pending.add(removal(EntityType.SUBSCRIPTION, "s1"))
    pending.add(EXCHANGE)
    batch = pending.take()
    assert [it.command.name for it in batch.deletions] == ["s1"]
    assert [it.command for it in batch.declarations] == [EXCHANGE]
    assert len(pending) == 0


async def test_each_gets_his_own_reply() -> None:
    pending = PendingCommands()
    replies = [pending.add(declared(number)) for number in range(3)]
    batch = pending.take()
    replies[1].cancel()
    set_replies(batch.declarations, [BrokerReply(status=status) for status in (201, 200, 409)])
    assert [it.status for it in await asyncio.gather(replies[0], replies[2])] == [201, 409]
