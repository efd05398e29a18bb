"""How many permanent subscriptions clients may make by attaching, and what does not count."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.raw_client import RawClient, symbols
from support.stepped_broker import SteppedBroker, SteppedStream

from penstock_amqp.frames.performatives import Attach, Detach, Source
from penstock_amqp.types.values import Symbol, Value
from penstock_api.management import EntityType
from penstock_broker.management.declare import declare
from penstock_broker.management.entity_states import broker_state

SHARED = symbols("topic", "shared", "global")
NEVER = Symbol("never")
LASTING = Source(address="amq.topic", durable=1, expiry_policy=NEVER, capabilities=SHARED)
IN_MEMORY = Source(address="amq.topic", durable=0, expiry_policy=NEVER, capabilities=SHARED)
PASSING = Source(address="amq.topic", durable=0, expiry_policy=Symbol("session-end"), capabilities=SHARED)
OWNER: Value = {"clusterId": "local", "kind": "Subscription", "namespace": "shop", "name": "s0", "uid": "u1"}
LIMITED = ("amqp:resource-limit-exceeded", "LimitExceeded")


@pytest.fixture
def two() -> Iterator[SteppedBroker]:
    """A broker that takes two permanent subscriptions of clients."""
    stepped = SteppedBroker({"limits": {"subscriptions": 2}})
    yield stepped
    stepped.close()


@pytest.fixture
def client(two: SteppedBroker) -> Iterator[RawClient]:
    with RawClient(0, "client", stream=SteppedStream(two)) as raw:
        raw.begin()
        yield raw


def attach(client: RawClient, name: str, source: Source = LASTING) -> bool:
    """True if the link is there."""
    return client.attach_receiver(f"{name}|1", source).source is not None


def refused(client: RawClient) -> tuple[str, Value]:
    error = client.expect(Detach).error
    assert error is not None
    return error.condition, (error.info or {})[Symbol("penstock:reason")]


def fill(client: RawClient) -> None:
    assert attach(client, "s0")
    assert attach(client, "s1")


def test_beyond_the_limit_none_is_made_and_those_that_are_there_are_joined(
    two: SteppedBroker, client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    fill(client)
    for name in ("s2", "s3"):
        client.attach_receiver(name, LASTING)
        assert refused(client) == LIMITED
    assert caplog.text.count("can't subscribe") == 1, "of each user once a minute"
    assert [each.name for each in two.broker.topology.subscriptions] == ["s0", "s1"]
    assert client.attach_receiver("s0|2", LASTING).source is not None


def test_what_is_not_durable_counts_if_it_is_permanent(client: RawClient) -> None:
    """It stays until somebody ends it, or the broker: decision 158."""
    assert attach(client, "s0", IN_MEMORY)
    assert attach(client, "passing", PASSING)
    assert attach(client, "s1", IN_MEMORY)
    assert attach(client, "passing as well", PASSING)
    client.attach_receiver("s2|1", IN_MEMORY)
    assert refused(client) == LIMITED


def test_one_that_has_ended_makes_room(client: RawClient) -> None:
    fill(client)
    client.attach_receiver("s2|1", LASTING, handle=50)
    assert refused(client) == LIMITED
    client.attach_receiver("s0|2", LASTING, handle=60)
    client.send(Detach(handle=60, closed=True))
    client.expect(Detach)
    client.attach_receiver("s1|2", LASTING, handle=61)
    client.send(Detach(handle=0, closed=True))
    client.expect(Detach)
    assert attach(client, "s2")


def test_what_came_back_at_a_start_counts(two: SteppedBroker) -> None:
    with RawClient(0, "client", stream=SteppedStream(two)) as before:
        before.begin()
        fill(before)
    two.restart()
    with RawClient(0, "client", stream=SteppedStream(two)) as client:
        client.begin()
        client.attach_receiver("s2|1", LASTING)
        assert refused(client) == LIMITED


def test_what_a_resource_takes_over_or_declares_does_not_count(two: SteppedBroker, client: RawClient) -> None:
    fill(client)
    wanted: dict[Value, Value] = {"subscriptionName": "s0", "exchange": "amq.topic", "owner": OWNER}
    assert declare(two.broker, EntityType.SUBSCRIPTION, None, wanted, update=False).refuse is None
    assert broker_state(two.broker)["clientSubscriptions"] == 1
    assert attach(client, "s2")
    wanted = {"subscriptionName": "of an administrator", "exchange": "amq.topic"}
    assert declare(two.broker, EntityType.SUBSCRIPTION, None, wanted, update=False).refuse is None
    client.attach_receiver("s3|1", LASTING)
    assert refused(client) == LIMITED


def test_each_user_may_have_a_limit_too() -> None:
    stepped = SteppedBroker({"limits": {"subscriptionsPerUser": 1}})
    with RawClient(0, "client", stream=SteppedStream(stepped)) as client:
        client.begin()
        assert attach(client, "s0")
        client.attach_receiver("s1|1", LASTING)
        assert refused(client) == LIMITED
    stepped.close()


def test_attach_frames_are_the_only_ones(client: RawClient) -> None:
    """The refusal is an attach without a source, and a detach behind it (AMQP 1.0 part 2, 2.6.3)."""
    fill(client)
    answer = client.attach_receiver("s2|1", LASTING)
    assert isinstance(answer, Attach)
    assert answer.source is None
    assert refused(client) == LIMITED
