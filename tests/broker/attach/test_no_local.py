"""No-local (decision 17) on bare frames: by container for durable subscriptions, by connection for volatile ones.

Across reconnects, restarts and rebinds; the reply's filter shows what is in place.
"""

from __future__ import annotations

import itertools

import pytest
from support.broker_process import BrokerProcess
from support.raw_client import RawClient, symbols
from support.topic_links import LINK_DETACH, NEVER, Connections, drained_bodies, publish

from penstock_amqp.frames.performatives import Attach, Detach, Source
from penstock_amqp.types.values import Described, Symbol, ULong, Value

NO_LOCAL = Described(ULong(0x0000_468C_0000_0003), "NoLocalFilter{}")
BY_SYMBOL = Described(Symbol("apache.org:no-local-filter:list"), [])
counter = itertools.count()


@pytest.fixture
def address() -> str:
    """A key that no other test uses."""
    return f"news/no-local-{next(counter)}"


def subscribe(
    client: RawClient,
    name: str,
    address: str,
    *capabilities: str,
    durable: bool = False,
    asked: Value = NO_LOCAL,
    credit: int = 10,
) -> Attach:
    source = Source(
        address=address,
        durable=2 if durable else 0,
        expiry_policy=NEVER if durable else LINK_DETACH,
        filter={Symbol("no-local"): asked},
        capabilities=symbols("topic", *capabilities),
    )
    reply = client.attach_receiver(name, source)
    if credit:
        client.flow(client.last_handle, credit=credit)
    return reply


def in_place(reply: Attach) -> object:
    assert reply.source is not None
    return dict(reply.source.filter or {})


def test_a_volatile_one_leaves_out_its_connection_alone(connect: Connections, address: str) -> None:
    mine, same_container, other = connect("c1"), connect("c1"), connect("c2")
    assert in_place(subscribe(mine, "reads", address)) == {Symbol("no-local"): NO_LOCAL}
    for client, body in ((mine, "own"), (same_container, "same container"), (other, "other")):
        publish(client, address, body)
        client.begin(1)  # answered behind what was published
    assert drained_bodies(mine, 0) == ["same container", "other"]


def test_a_rebound_volatile_one_leaves_out_the_connection_that_has_it_now(connect: Connections, address: str) -> None:
    first, second = connect("c1"), connect("c1")
    subscribe(first, "reads", address, credit=0)
    assert in_place(subscribe(second, "reads", f"{address}.b", asked=BY_SYMBOL)) == {Symbol("no-local"): BY_SYMBOL}
    assert first.expect(Detach).closed is True  # the link was stolen
    publish(second, f"{address}.b", "own")
    second.begin(1)
    publish(first, f"{address}.b", "other")
    first.begin(1)
    assert drained_bodies(second, 0) == ["other"]


def test_a_durable_one_leaves_out_its_container_while_nobody_consumes_and_after_a_restart(
    rows_broker: BrokerProcess, address: str
) -> None:
    def said(container: str, body: str) -> None:
        with RawClient(rows_broker.port, container) as client:
            client.begin()
            publish(client, address, body)
            client.begin(1)

    name = address.replace("/", "-")
    with RawClient(rows_broker.port, "app") as client:
        client.begin()
        assert in_place(subscribe(client, name, address, durable=True, credit=0)) == {Symbol("no-local"): NO_LOCAL}
        client.detach(client.last_handle, closed=False)
        publish(client, address, "own")
        client.begin(1)
    said("app", "own, another connection")
    rows_broker.kill()
    rows_broker.start()
    said("app", "own, after the restart")
    said("somebody", "other")
    with RawClient(rows_broker.port, "app") as client:
        client.begin()
        assert in_place(subscribe(client, name, address, durable=True, credit=0)) == {Symbol("no-local"): NO_LOCAL}
        publish(client, address, "own, attached again")
        client.begin(1)
        assert drained_bodies(client, 0) == ["other"]


def test_a_global_one_with_an_owner_goes_by_the_owner_s_container(rows_broker: BrokerProcess, address: str) -> None:
    name = address.replace("/", "-")
    with RawClient(rows_broker.port, "app") as client:
        client.begin()
        subscribe(client, name, address, "global", durable=True, credit=0)
    rows_broker.kill()
    rows_broker.start()
    with RawClient(rows_broker.port, "app") as client, RawClient(rows_broker.port, "other") as other:
        client.begin()
        other.begin()
        publish(client, address, "own")
        client.begin(1)
        publish(other, address, "other")
        other.begin(1)
        subscribe(client, name, address, "global", durable=True)
        assert drained_bodies(client, 1) == ["other"]


def test_a_shared_one_takes_everybody_s_and_does_not_say_otherwise(connect: Connections, address: str) -> None:
    mine = connect("c1")
    assert in_place(subscribe(mine, f"{address.replace('/', '-')}|1", address, "shared")) == {}
    publish(mine, address, "own")
    assert drained_bodies(mine, 0) == ["own"]
