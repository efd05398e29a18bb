"""Connections with many links, which end over several turns: nobody notices but by what has ended already.

The clock moves by a millisecond whenever it is looked at, so that two steps of such an end are done at a time: twice in
the first turn, once in each other.
"""

# pyright: reportUnknownMemberType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import Endpoint, Message
from support.broker_site import HeldSyncer
from support.stepped_broker import Peer, SteppedBroker

from penstock_amqp.endpoint.events import AmqpError
from penstock_broker.access.connection import Connection, Phase
from penstock_broker.attach import close, connection_end
from penstock_broker.log import FileLayer

QUEUES = 24


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Iterator[SteppedBroker]:
    monkeypatch.setattr(connection_end, "LINKS_PER_STEP", 1)
    made = SteppedBroker()
    yield made
    made.step_seconds = 0.0
    made.close()


def consuming(timed: SteppedBroker, messages: int = 2) -> tuple[Peer, Connection]:
    """A client that consumes from 24 queues and has `messages` of each."""
    sender = timed.connect("sender")
    peer = timed.connect("leaving")
    for number in range(QUEUES):
        timed.make_queue(f"q{number}")
        peer.receive(f"q{number}", credit=10)
        sender.send(f"q{number}", *(Message(each, durable=True) for each in range(messages)))
    assert len(peer.bodies()) == QUEUES * messages
    sender.close()
    for _ in range(3):
        timed.turn()
    (connection,) = timed.broker.clients.connections.values()
    timed.step_seconds = 0.001
    return peer, connection


def is_leaving(connection: Connection) -> bool:
    return connection.phase is Phase.LEAVING


def consumers(timed: SteppedBroker) -> int:
    return sum(len(node.queue.links.consumers) for node in timed.broker.topology.queues.values())


def waiting(timed: SteppedBroker) -> int:
    return sum(node.queue.waiting for node in timed.broker.topology.queues.values())


def test_a_lost_connection_ends_a_few_links_per_turn(timed: SteppedBroker) -> None:
    peer, connection = consuming(timed)
    peer.drop()
    left: list[int] = []
    while timed.broker.clients.connections:
        timed.turn()
        left.append(consumers(timed))
        assert waiting(timed) == 2 * (QUEUES - left[-1])
    assert left[:11] == [20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0]
    assert (connection.phase, connection.ending) == (Phase.GONE, None)


def test_a_close_is_answered_behind_the_last_link(timed: SteppedBroker) -> None:
    peer, connection = consuming(timed)
    peer.connection.close()
    peer.flush()
    timed.turn()
    assert is_leaving(connection)
    while consumers(timed):
        peer.read()
        assert not peer.connection.state & Endpoint.REMOTE_CLOSED
        timed.turn()
    for _ in range(8):
        timed.turn()
    peer.read()
    assert peer.connection.state & Endpoint.REMOTE_CLOSED
    assert peer.connection.remote_condition is None
    assert connection.phase is Phase.GONE


@pytest.mark.parametrize("lost", [True, False])
def test_nothing_is_delivered_to_a_connection_that_is_leaving(timed: SteppedBroker, lost: bool) -> None:
    peer, connection = consuming(timed, messages=0)
    if lost:
        peer.drop()
    else:
        peer.connection.close()
        peer.flush()
    timed.turn()
    *_, last = [node.queue for node in timed.broker.topology.queues.values() if node.queue.links.consumers]
    timed.broker.work.touch(connection)  # as whoever has something to tell it does
    last.put([(timed.broker.log.next_messages(1), b"\x00\x53\x75\xa0\x01x", timed.broker.clock.now_us, 0, 0)])
    timed.broker.work.schedule(last)
    while last.links.consumers:
        timed.turn()
        assert (last.waiting, last.in_flight) == (1, 0)


def test_an_attach_that_waits_for_the_log_is_not_answered_on_a_connection_that_is_leaving(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its consumer would get messages, and what it gets once the end has begun would never go back."""
    monkeypatch.setattr(connection_end, "LINKS_PER_STEP", 1)
    syncers: list[HeldSyncer] = []

    def made(files: FileLayer) -> HeldSyncer:
        syncers.append(HeldSyncer(files))
        return syncers[-1]

    stepped = SteppedBroker(syncer=made)
    for number in range(QUEUES):
        stepped.make_queue(f"q{number}", durable=False)
    queue = stepped.make_queue("work", durable=False)
    for _ in range(4):
        syncers[-1].complete()
        stepped.pass_ms(10)
    sender, peer = stepped.connect("sender"), stepped.connect("leaving")
    for number in range(QUEUES):
        peer.receive(f"q{number}", credit=1)
    sender.send("work", *(Message(each) for each in range(5)))
    stepped.make_queue("another")  # a change of the topology, which attaches wait for
    peer.receive("work", credit=2)
    _, connection = stepped.broker.clients.connections.values()
    stepped.step_seconds = 0.001
    peer.drop()
    syncers[-1].complete()
    phases: set[Phase] = set()
    while stepped.broker.clients.connections.get(connection.number):
        phases.add(connection.phase)
        stepped.turn()
    assert phases == {Phase.LEAVING}
    assert (queue.waiting, queue.in_flight) == (5, 0)
    stepped.step_seconds = 0.0
    stepped.close()


def test_links_of_one_queue_end_together(timed: SteppedBroker) -> None:
    """Two consumers of one connection hold messages 0 to 2 and 3 to 5 of a queue, and 6 to 9 wait."""
    timed.make_queue("shared")
    sender, peer = timed.connect("sender"), timed.connect("leaving")
    peer.receive("shared", credit=3, name="first")
    sender.send("shared", *(Message(number, durable=True) for number in range(3)))
    for number in range(20):
        timed.make_queue(f"q{number}")
        peer.receive(f"q{number}", credit=1)
    peer.receive("shared", credit=3, name="second")
    sender.send("shared", *(Message(number, durable=True) for number in range(3, 10)))
    other = timed.connect("other")
    link = other.receive("shared", credit=0)
    timed.step_seconds = 0.001
    peer.drop()
    timed.turn()
    link.flow(20)
    other.flush()
    for _ in range(20):
        timed.turn()
    assert other.bodies() == list(range(10))


def test_a_successor_need_not_wait_for_the_last_link(timed: SteppedBroker) -> None:
    peer, connection = consuming(timed)
    peer.drop()
    timed.turn()
    assert is_leaving(connection)
    assert "leaving" not in timed.broker.clients.containers
    successor = timed.connect("leaving")
    timed.step_seconds = 0.0
    for number in range(QUEUES):
        successor.receive(f"q{number}", credit=10)
    assert len(successor.bodies()) == 2 * QUEUES


def test_who_is_closed_while_it_is_leaving_ends_at_once(timed: SteppedBroker) -> None:
    peer, connection = consuming(timed)
    peer.connection.close()
    peer.flush()
    timed.turn()
    assert is_leaving(connection)
    connection_end.close_connection(timed.broker, connection, AmqpError("amqp:connection:forced", "Stop."))
    assert consumers(timed) == 0
    for _ in range(6):
        timed.turn()
    peer.read()
    assert peer.connection.remote_condition is not None
    assert peer.connection.remote_condition.name == "amqp:connection:forced"
    assert connection.phase is Phase.GONE
    assert not timed.broker.clients.connections


def test_a_mistake_in_a_later_turn_costs_the_connection_and_no_message(
    timed: SteppedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    peer, connection = consuming(timed)
    peer.drop()
    timed.turn()
    assert is_leaving(connection)

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("as if a step were wrong")

    with monkeypatch.context() as patch:
        patch.setattr(close, "remove_link", fail)
        timed.turn()
    assert connection.phase is Phase.GONE
    assert (consumers(timed), waiting(timed)) == (0, 2 * QUEUES)
    assert "did not end in order" in caplog.text
    caplog.clear()


def test_a_connection_that_lives_on_keeps_nothing_of_subscriptions_that_have_ended(timed: SteppedBroker) -> None:
    """Each consumer of a topic that is not shared has a subscription of its own."""
    peer = timed.connect("long-lived")
    (connection,) = timed.broker.clients.connections.values()
    for number in range(3):
        link = peer.receive("amq.topic", name=f"consumer {number}")
        assert len(connection.subscriptions) == 1
        link.close()
        peer.pump()
        if number == 1:
            peer.session.close()
            peer.pump()
            peer.session = peer.connection.session()
            peer.session.open()
    assert not timed.broker.topology.subscriptions
    assert not connection.subscriptions
