"""A message for very many queues: in every one of them before it is accepted, in order, a bounded number per turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import Delivery, Message
from support.stepped_broker import Peer, SteppedBroker
from support.wide_exchange import QUEUES, wide_exchange

from penstock_broker.access.connection import Connection
from penstock_broker.attach import failed_connection
from penstock_broker.messages import queue_limits
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[SteppedBroker]:
    with wide_exchange(monkeypatch) as broker:
        yield broker


def queues(site: SteppedBroker) -> list[Queue]:
    return [each.queue for each in site.broker.topology.subscriptions.values()]


def depths(site: SteppedBroker) -> list[int]:
    return [each.depth for each in queues(site)]


def send(site: SteppedBroker, peer: Peer, address: str, *bodies: str, durable: bool = True) -> list[Delivery]:
    """Send without waiting for an answer."""
    sender = peer.session.sender(f"to {address} {bodies[0]}")
    sender.target.address = address
    sender.open()
    peer.pump()
    deliveries: list[Delivery] = []
    for body in bodies:
        deliveries.append(sender.delivery(body))
        sender.send(Message(body=body, durable=durable).encode())
        sender.advance()
    peer.flush()
    return deliveries


@pytest.mark.parametrize("durable", [True, False])
def test_it_is_accepted_once_it_is_in_every_queue(site: SteppedBroker, durable: bool) -> None:
    peer = site.connect()
    (delivery,) = send(site, peer, "amq.fanout", "one", durable=durable)
    seen: list[tuple[int, bool]] = []
    for _ in range(5):
        site.turn()
        peer.read()
        seen.append((sum(depths(site)), delivery.remote_state == Delivery.ACCEPTED))
    assert seen == [(0, False), (3, False), (6, False), (7, True), (7, True)]


def test_what_comes_behind_waits_and_every_queue_keeps_the_order(site: SteppedBroker) -> None:
    peer, other = site.connect(), site.connect("other")
    send(site, peer, "amq.fanout", "one", "two")
    site.turn()
    last = queues(site)[-1]
    assert last.depth == 0
    direct = site.make_queue("jobs")  # its turn goes on with the others
    accepted = send(site, other, "jobs", "behind")
    other.pump()
    peer.pump()
    assert accepted[0].remote_state == Delivery.ACCEPTED
    assert depths(site) == [2] * QUEUES
    assert [entry[1][-3:] for entry in last] == [b"one", b"two"]
    assert direct.depth == 1
    site.restart()
    assert depths(site) == [2] * QUEUES


def test_a_queue_that_ends_meanwhile_gets_nothing(site: SteppedBroker) -> None:
    peer = site.connect()
    (delivery,) = send(site, peer, "amq.fanout", "one")
    site.turn()
    topology = site.broker.topology
    ended = list(topology.subscriptions.values())[-1]
    queue = ended.queue
    topology.end(ended)
    peer.pump()
    assert delivery.remote_state == Delivery.ACCEPTED
    assert (queue.depth, depths(site)) == (0, [1] * (QUEUES - 1))


def test_what_is_on_its_way_is_accepted_before_the_broker_stops(site: SteppedBroker) -> None:
    peer = site.connect()
    (delivery,) = send(site, peer, "amq.fanout", "one")
    site.turn()
    site.loop.stop()
    peer.pump()
    assert delivery.remote_state == Delivery.ACCEPTED


def test_what_is_on_its_way_survives_that_another_connection_is_taken_apart(
    site: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = site.connect("publisher")
    other = site.connect("broken")
    other.receive("amq.fanout")
    site.broker.topology.end(next(iter(site.broker.topology.subscriptions.values())))
    (delivery,) = send(site, peer, "amq.fanout", "one")
    (broken,) = [each for each in site.broker.clients.connections.values() if each.client.container_id == "broken"]
    read = site.loop.connections.serve

    def serve(connection: Connection, mask: int) -> None:
        read(connection, mask)
        if site.broker.work.fan_outs:
            failed_connection.remove(site.broker, broken)

    monkeypatch.setattr(site.loop.connections, "serve", serve)
    site.turn()
    peer.pump()
    assert delivery.remote_state == Delivery.ACCEPTED
    durable = [each for each in site.broker.topology.subscriptions.values() if each.identity.durable]
    assert [each.queue.depth for each in durable] == [1] * (QUEUES - 1)
    site.restart()
    assert depths(site) == [1] * (QUEUES - 1)


@pytest.mark.parametrize("durable", [True, False])
def test_a_queue_that_fails_keeps_no_other_from_a_message_which_is_not_accepted_then(
    site: SteppedBroker, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    peer, other = site.connect("publisher"), site.connect("other")
    deliveries = send(site, peer, "amq.fanout", "one", "two", durable=durable)
    site.turn()
    failing = queues(site)[4]
    failing.policy.max_messages = 100

    def fails(broker: Broker, queue: Queue, count: int, size: int) -> None:
        assert queue is failing
        queue.depth_bytes += 1000
        raise RuntimeError("a mistake in the code")

    monkeypatch.setattr(queue_limits, "enforce", fails)
    while site.broker.work.fan_outs:
        site.turn()
    monkeypatch.undo()
    peer.pump()
    assert depths(site) == [2] * QUEUES
    assert len({each.depth_bytes for each in queues(site)}) == 1, "the queue was counted anew"
    assert [each.remote_state for each in deliveries] == [0, 0], "they are not accepted"
    assert peer.connection.remote_condition is not None
    assert peer.connection.remote_condition.name == "amqp:internal-error"
    (behind,) = send(site, other, "amq.fanout", "behind", durable=durable)
    other.pump()
    assert behind.remote_state == Delivery.ACCEPTED
    assert depths(site) == [3] * QUEUES
