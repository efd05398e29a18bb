"""Queues whose only consumers share a connection wait in line for its output: each gets its part, none is forgotten,
and none is visited in every turn for nothing.

A connection gets 128 KiB of a turn, which is thirteen of the messages of these tests.
"""

# pyright: reportUnknownMemberType=false
# proton's own types are not complete.

from __future__ import annotations

from collections import Counter

import pytest
from proton import Message, Receiver
from support.stepped_broker import Peer, SteppedBroker

from penstock_broker.messages import dispatch
from penstock_broker.messages.dispatch import Visit
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker

BODY = "x" * 9_900
QUEUES = 60
NAMES = [f"q{number}" for number in range(QUEUES)]


@pytest.fixture
def visits(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each queue was visited."""
    counted: Counter[str] = Counter()

    def serve(broker: Broker, queue: Queue) -> Visit:
        counted[queue.name] += 1
        return dispatch_serve(broker, queue)

    dispatch_serve = dispatch.serve
    monkeypatch.setattr(dispatch, "serve", serve)
    return counted


def filled(timed: SteppedBroker, each: int) -> None:
    """So many messages in each of the queues: their numbers, in the order in which they came."""
    producer = timed.connect("producer")
    for name in NAMES:
        timed.make_queue(name, durable=False)
    for number in range(each):
        for name in NAMES:
            assert producer.send(name, Message(subject=f"{number}", address=name, body=BODY)) == ["accepted"]


def consuming_all(timed: SteppedBroker, credit: int) -> tuple[Peer, dict[str, Receiver]]:
    """A client that consumes from all queues on one connection, and whose credit has just come, and its links."""
    consumer = timed.connect("consumer")
    receivers = {name: consumer.receive(name, 0) for name in NAMES}
    for receiver in receivers.values():
        receiver.flow(credit)
    consumer.flush()
    return consumer, receivers


def got(peer: Peer) -> list[tuple[str | None, str | None]]:
    """What came, in order: queue and number."""
    return [(message.address, message.subject) for message, _ in peer.got]


def test_queues_that_wait_are_not_visited_until_there_is_room(timed: SteppedBroker, visits: Counter[str]) -> None:
    """At the first look all are visited, since all have got credit; then each once or twice, for what it holds."""
    filled(timed, 1)
    consumer, _ = consuming_all(timed, 1)
    visits.clear()
    turns = 0
    while len(consumer.got) < QUEUES:
        timed.turn()
        consumer.read()
        turns += 1
        assert turns < 3 * QUEUES
    assert turns >= QUEUES // 14
    assert visits.total() <= 3 * QUEUES
    assert got(consumer) == [(name, "0") for name in NAMES]
    assert not timed.broker.work.output_lines.lines
    assert not timed.broker.work.output_lines.called


def test_messages_that_come_to_a_queue_in_line_wait_with_it(timed: SteppedBroker, visits: Counter[str]) -> None:
    filled(timed, 1)
    consumer, _ = consuming_all(timed, 10)
    producer = timed.connect("another producer")
    first, last = NAMES[0], NAMES[-1]
    visits.clear()
    for number in range(1, 4):
        producer.send(last, Message(subject=f"{number}", address=last, body=BODY))
        producer.send(first, Message(subject=f"{number}", address=first, body=BODY))
    for _ in range(40):
        timed.turn()
        consumer.read()
    assert [number for name, number in got(consumer) if name == last] == ["0", "1", "2", "3"]
    assert [number for name, number in got(consumer) if name == first] == ["0", "1", "2", "3"]
    assert len(consumer.got) == QUEUES + 6


def test_every_queue_gets_its_part_of_a_connection_that_is_always_full(timed: SteppedBroker) -> None:
    """Nobody gets a third message before all have got their first."""
    filled(timed, 4)
    consumer, _ = consuming_all(timed, 4)
    came: Counter[str | None] = Counter()
    for _ in range(100):
        timed.turn()
        consumer.read()
    for name, _ in got(consumer):
        came[name] += 1
        assert came[name] <= 4
    assert came == Counter(dict.fromkeys(NAMES, 4))
    firsts = [at for at, (_, number) in enumerate(got(consumer)) if number == "0"]
    assert [got(consumer)[at][0] for at in firsts] == NAMES


def waiting_behind_a_blocked_socket(timed: SteppedBroker) -> tuple[Peer, dict[str, Receiver]]:
    """A consumer of all queues that does not read any more; most queues wait for its connection."""
    consumer, links = consuming_all(timed, 10)
    for _ in range(30):
        timed.turn()
    work = timed.broker.work
    assert any(each.is_blocked for each in timed.broker.clients.connections.values())
    (line,) = work.output_lines.lines.values()
    assert len(line.queues) > QUEUES // 2
    assert not work.ready
    assert not work.output_lines.are_moving
    return consumer, links


def test_a_line_at_a_blocked_socket_goes_on_once_its_peer_reads(timed: SteppedBroker) -> None:
    filled(timed, 3)
    consumer, _ = waiting_behind_a_blocked_socket(timed)
    for _ in range(100):
        consumer.read()
        timed.turn()
    assert Counter(got(consumer)) == Counter((name, f"{number}") for name in NAMES for number in range(3))


def test_credit_for_queues_in_line_has_none_of_them_visited(timed: SteppedBroker, visits: Counter[str]) -> None:
    filled(timed, 3)
    consumer, links = waiting_behind_a_blocked_socket(timed)
    (line,) = timed.broker.work.output_lines.lines.values()
    in_line = {queue.name for queue in line.queues}
    visits.clear()
    for link in links.values():
        link.flow(1)
    consumer.flush()
    for _ in range(5):
        timed.turn()
    assert not in_line & visits.keys()
    consumer.read()
    timed.turn()
    timed.turn()
    assert 0 < len(in_line & visits.keys()) < len(in_line)


def test_a_queue_of_two_consumers_waits_for_neither(timed: SteppedBroker) -> None:
    """The one with room gets what comes, also after the other one has got its part and then does not read."""
    filled(timed, 3)
    timed.make_queue("shared", durable=False)
    quick, slow, producer = timed.connect("quick"), timed.connect("slow"), timed.connect("another producer")
    receivers = [slow.receive(name, 0) for name in ("shared", *NAMES)]
    receivers[0].flow(100)
    slow.pump()
    quick.receive("shared", 100)
    sender = producer.session.sender("sender")
    sender.target.address = "shared"
    sender.open()
    producer.pump()
    for receiver in receivers[1:]:
        receiver.flow(10)
    slow.flush()
    for number in range(40):  # four in a turn: each of the two consumers is asked
        sender.send(Message(body="x"), tag=f"{number}")
        if number % 4 == 3:
            producer.flush()
            timed.turn()
    assert any(each.is_blocked for each in timed.broker.clients.connections.values())
    assert timed.queue("shared").totals.enqueued == 40
    assert timed.queue("shared").waiting == 0


def test_another_consumer_gets_what_waits_for_one_that_does_not_read(timed: SteppedBroker) -> None:
    filled(timed, 3)
    consumer, _ = waiting_behind_a_blocked_socket(timed)
    waiting = timed.queue(NAMES[-1])
    assert waiting.awaits_output_of is not None
    other = timed.connect("other")
    other.receive(NAMES[-1], 2)
    assert got(other) == [(NAMES[-1], "0"), (NAMES[-1], "1")]
    assert waiting.awaits_output_of is None
    producer = timed.connect("another producer")
    producer.send(NAMES[-1], Message(subject="3", address=NAMES[-1], body=BODY))
    other.take()
    other.take()
    other.receive(NAMES[-1], 5, name="again")
    assert got(other) == [(NAMES[-1], "2"), (NAMES[-1], "3")]
    assert len(consumer.got) == 0


def test_what_waited_for_a_connection_that_is_lost_goes_to_the_next_consumers(timed: SteppedBroker) -> None:
    filled(timed, 3)
    waiting_behind_a_blocked_socket(timed)[0].drop()
    for _ in range(5):
        timed.turn()
    assert not timed.broker.work.output_lines.lines
    assert not timed.broker.work.output_lines.called
    assert all(timed.queue(name).awaits_output_of is None for name in NAMES)
    next_one, _ = consuming_all(timed, 10)
    next_one.pump()
    assert Counter(got(next_one)) == Counter((name, f"{number}") for name in NAMES for number in range(3))


def test_a_consumer_that_drains_gets_what_waits_in_line_before_its_credit_goes_back(timed: SteppedBroker) -> None:
    filled(timed, 2)
    consumer = timed.connect("consumer")
    receivers = [consumer.receive(name, 0) for name in NAMES]
    for receiver in receivers:
        receiver.drain(5)
    consumer.pump()
    assert Counter(got(consumer)) == Counter((name, f"{number}") for name in NAMES for number in range(2))
    assert all(receiver.credit == 0 for receiver in receivers)


def test_a_link_that_leaves_while_its_queue_waits_leaves_the_others_in_line(timed: SteppedBroker) -> None:
    filled(timed, 2)
    consumer, links = waiting_behind_a_blocked_socket(timed)
    (line,) = timed.broker.work.output_lines.lines.values()
    gone = next(iter(line.queues)).name
    links[gone].close()
    for _ in range(100):
        consumer.flush()
        timed.turn()
        consumer.read()
    others = Counter((name, number) for name, number in got(consumer) if name != gone)
    assert others == Counter((name, f"{number}") for name in NAMES if name != gone for number in range(2))
    assert timed.queue(gone).links.consumers == []
