"""A volume that topology has filled: no more is made, and what is there is served, changed and ended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.raw_client import RawClient, symbols
from support.stepped_broker import SteppedBroker, SteppedStream

from penstock_amqp.frames.performatives import Detach, Source, Target
from penstock_amqp.types.values import Symbol, Value
from penstock_api.management import EntityType
from penstock_broker.management.declare import declare
from penstock_broker.management.replies import ManagementReply
from penstock_core.reason import Reason

SEGMENT = 64 * 1024
SHARED = symbols("topic", "shared", "global")


def ask(stepped: SteppedBroker, kind: EntityType, name: str | None, body: dict[Value, Value]) -> ManagementReply:
    response = declare(stepped.broker, kind, name, body, update=False)
    stepped.turn()
    return response


def subscription(name: str, *, durable: bool = True) -> dict[Value, Value]:
    selector = " OR ".join(f"property = {number}" for number in range(200))
    return {"subscriptionName": name, "exchange": "amq.topic", "selector": selector, "durable": durable}


@pytest.fixture
def full() -> Iterator[SteppedBroker]:
    """A broker that took subscriptions until there was no room for more."""
    stepped = SteppedBroker({"auto_create": True}, segment_bytes=SEGMENT)
    stepped.files.space = 12 * SEGMENT
    for number in range(1000):
        if ask(stepped, EntityType.SUBSCRIPTION, None, subscription(f"s{number}")).refuse is not None:
            break
    yield stepped
    stepped.close()


def reason(response: ManagementReply) -> Reason | None:
    return None if response.refuse is None else response.refuse.reason


def test_nothing_more_is_declared(full: SteppedBroker) -> None:
    assert full.log.failed is None
    assert len(full.broker.topology.subscriptions) > 60
    more = ask(full, EntityType.SUBSCRIPTION, None, subscription("more"))
    assert reason(more) is Reason.STORAGE_FULL
    assert reason(ask(full, EntityType.QUEUE, "more", {})) is Reason.STORAGE_FULL
    assert reason(ask(full, EntityType.EXCHANGE, "more", {"exchangeType": "Topic"})) is Reason.STORAGE_FULL


def test_what_is_there_may_be_declared_again_and_what_does_not_last_is_made(full: SteppedBroker) -> None:
    assert reason(ask(full, EntityType.SUBSCRIPTION, None, subscription("s0"))) is None
    assert reason(ask(full, EntityType.SUBSCRIPTION, None, subscription("short", durable=False))) is None
    assert reason(ask(full, EntityType.QUEUE, "short", {"durable": False})) is None


def test_clients_make_nothing_that_lasts_and_join_what_is_there(full: SteppedBroker) -> None:
    lasting = Source(address="amq.topic", durable=1, expiry_policy=Symbol("never"), capabilities=SHARED)
    with RawClient(0, "client", stream=SteppedStream(full)) as raw:
        raw.begin()
        assert raw.attach_receiver("s0|1", lasting).source is not None
        raw.attach_receiver("more|1", lasting)
        assert condition_of(raw.expect(Detach)) == ("amqp:resource-limit-exceeded", "StorageFull")
        raw.attach_sender("to a new queue", Target(address="queue://more", capabilities=symbols("queue")))
        assert condition_of(raw.expect(Detach)) == ("amqp:resource-limit-exceeded", "StorageFull")
    assert full.log.failed is None


def condition_of(detach: Detach) -> tuple[str, Value]:
    assert detach.error is not None
    return detach.error.condition, (detach.error.info or {})[Symbol("penstock:reason")]
