"""What the log can't hold in one record is refused before anything is changed, by attach and by declaration."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.raw_client import RawClient, symbols
from support.stepped_broker import SteppedBroker, SteppedStream

from penstock_amqp.frames.performatives import Detach, Source
from penstock_amqp.types.values import Described, Symbol, ULong, Value
from penstock_api.management import EntityType
from penstock_broker.attach.unused_nodes import SWEEP_MS
from penstock_broker.log import document_bytes
from penstock_broker.management.declare import declare
from penstock_broker.topology import documents
from penstock_broker.topology.document_lengths import GROWTH_BYTES
from penstock_core.reason import Reason, Refuse

SEGMENT = 64 * 1024
SHARED = symbols("topic", "shared", "global")
LONG_KEYS = [f"{number:0200}" for number in range(200)]
"""40,000 bytes, and half a segment has 32,768 at most."""


@pytest.fixture
def stepped() -> Iterator[SteppedBroker]:
    stepped = SteppedBroker(segment_bytes=SEGMENT)
    yield stepped
    stepped.close()


@pytest.fixture
def client(stepped: SteppedBroker) -> Iterator[RawClient]:
    with RawClient(0, "client", stream=SteppedStream(stepped)) as raw:
        raw.begin()
        yield raw


def source(keys: list[str], *, durable: bool = True) -> Source:
    code = ULong(0x0000_468C_0000_0001)
    return Source(
        address="amq.topic",
        durable=int(durable),
        expiry_policy=Symbol("never"),
        capabilities=SHARED,
        filter={Symbol("keys"): Described(code, list[Value](keys))},
    )


def refused(client: RawClient) -> str:
    error = client.expect(Detach).error
    assert error is not None
    assert error.condition == "amqp:resource-limit-exceeded"
    assert (error.info or {})[Symbol("penstock:reason")] == "LimitExceeded"
    return error.description or ""


def keys_of(stepped: SteppedBroker, name: str) -> frozenset[str]:
    (found,) = [each for each in stepped.broker.topology.subscriptions.values() if each.identity.name == name]
    return found.binding.keys


def test_an_attach_is_refused_and_the_connection_goes_on(stepped: SteppedBroker, client: RawClient) -> None:
    client.attach_receiver("long|1", source(LONG_KEYS))
    told = refused(client)
    assert told.startswith("What the log has to keep of the durable subscription 'long' (global) takes 4")
    assert "half a segment: use fewer or shorter names" in told
    assert not stepped.broker.topology.subscriptions
    assert client.attach_receiver("short|1", source(["a"])).source is not None
    assert client.attach_receiver("volatile|1", source(LONG_KEYS, durable=False)).source is not None


def test_a_long_name_is_refused_in_the_same_way(stepped: SteppedBroker, client: RawClient) -> None:
    client.attach_receiver("n" * 20_000, source(["a"]))
    assert len(refused(client)) < 1000
    assert not stepped.broker.topology.subscriptions


def test_a_refused_rebind_leaves_subscription_and_link_as_they_are(stepped: SteppedBroker, client: RawClient) -> None:
    """Decision 010. The new attach would steal the link, and drop the backlog."""
    assert client.attach_receiver("sub|1", source(["a"]), handle=7).source is not None
    incarnation = next(iter(stepped.broker.topology.by_incarnation))
    with RawClient(0, "client", stream=SteppedStream(stepped)) as other:
        other.begin()
        other.attach_receiver("sub|1", source(LONG_KEYS))
        refused(other)
    assert keys_of(stepped, "sub") == {"a"}
    assert list(stepped.broker.topology.by_incarnation) == [incarnation]
    client.send(Detach(handle=7, closed=False))
    assert client.expect(Detach).error is None, "the link was not stolen"


def declared(stepped: SteppedBroker, keys: list[str], **more: Value) -> Refuse | None:
    body: dict[Value, Value] = {
        "subscriptionName": "sub",
        "exchange": "amq.topic",
        "rebindPolicy": "InPlace",
        "bindingKeys": list[Value](keys),
        **dict[Value, Value](more.items()),
    }
    return declare(stepped.broker, EntityType.SUBSCRIPTION, None, body, update=False).refuse


def test_a_declaration_is_refused_and_changes_nothing(stepped: SteppedBroker) -> None:
    refuse = declared(stepped, LONG_KEYS, delivery={"deadLetter": "dead"})
    assert refuse is not None
    assert refuse.reason is Reason.LIMIT_EXCEEDED
    assert not stepped.broker.topology.subscriptions
    assert not stepped.broker.topology.queues, "not even the queue for dead letters"
    assert declared(stepped, ["a"]) is None
    refuse = declared(stepped, LONG_KEYS)
    assert refuse is not None
    assert refuse.reason is Reason.LIMIT_EXCEEDED
    assert keys_of(stepped, "sub") == {"a"}
    users: list[Value] = [f"{number:0200}" for number in range(200)]
    refuse = declared(stepped, ["a"], consumers=users)
    assert refuse is not None
    assert refuse.reason is Reason.LIMIT_EXCEEDED
    (subscription,) = stepped.broker.topology.subscriptions.values()
    assert subscription.declared_consumers == ()
    assert declared(stepped, LONG_KEYS, durable=False) is None
    stepped.turn()
    stepped.restart()
    assert keys_of(stepped, "sub") == {"a"}


def test_an_exchange_is_refused_and_stays_as_it_was(stepped: SteppedBroker) -> None:
    def declared(users: list[str]) -> Refuse | None:
        body: dict[Value, Value] = {"exchangeType": "Topic", "publishers": list[Value](users)}
        return declare(stepped.broker, EntityType.EXCHANGE, "news", body, update=False).refuse

    assert declared(["ann"]) is None
    refuse = declared(LONG_KEYS)
    assert refuse is not None
    assert refuse.reason is Reason.LIMIT_EXCEEDED
    assert stepped.broker.topology.exchanges["news"].publishers == ("ann",)


def test_what_just_fits_may_be_told_that_it_is_unused(stepped: SteppedBroker, client: RawClient) -> None:
    """A document becomes longer once the last consumer has gone, which nobody asks for and nobody could refuse."""
    most, many = stepped.log.longest_document, LONG_KEYS[:130]
    assert client.attach_receiver("s1|1", source([*many, "x"])).source is not None
    (first,) = stepped.broker.topology.subscriptions.values()
    left = most - GROWTH_BYTES - document_bytes(documents.SUBSCRIPTION, first.name, documents.dump(first))
    left -= len(str(stepped.now_ms * 1000)) - 1  # a new one is unused since now
    more, last = [f"{number}{'y' * 197}" for number in range(100, 100 + left // 203)], "x" * (1 + left % 203)
    assert client.attach_receiver("s2|1", source([*many, *more, last])).source is not None
    client.attach_receiver("s3|1", source([*many, *more, last + "x"]))
    refused(client)
    client.close()
    stepped.pass_ms(SWEEP_MS)
    stepped.pass_ms(SWEEP_MS)
    noted = {each.identity.name: each.noted_unused_us for each in stepped.broker.topology.subscriptions.values()}
    assert sorted(noted) == ["s1", "s2"]
    assert all(noted.values())
    assert stepped.log.failed is None
