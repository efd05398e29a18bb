"""A peer that reads slowly gets everything in the end, whichever look at its socket finds that it takes bytes again."""

# pyright: reportUnknownMemberType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import Message
from support.stepped_broker import Peer, SteppedBroker

BODY = "x" * 10_000
COUNT = 200
"""Two megabytes, of which a socket holds some hundred kilobytes."""


@pytest.fixture
def timed() -> Iterator[SteppedBroker]:
    broker = SteppedBroker()
    yield broker
    broker.close()


def blocked(timed: SteppedBroker) -> Peer:
    """A consumer that has credit for all that waits in "jobs", and does not read."""
    timed.make_queue("jobs", durable=False)
    consumer = timed.connect("consumer")
    receiver = consumer.receive("jobs", credit=0)
    producer = timed.connect("producer")
    for _ in range(COUNT // 10):
        assert producer.send("jobs", *[Message(body=BODY)] * 10) == ["accepted"] * 10
    receiver.flow(COUNT)
    consumer.flush()
    for _ in range(10):
        timed.turn()
    assert any(each.is_blocked for each in timed.broker.clients.connections.values())
    return consumer


def read_all(timed: SteppedBroker, consumer: Peer) -> int:
    """Messages that have come when the broker has nothing more to do."""
    for _ in range(100):
        while consumer.read():
            pass
        timed.turn()
    return len(consumer.got)


def test_a_peer_that_reads_again_gets_the_rest(timed: SteppedBroker) -> None:
    assert read_all(timed, blocked(timed)) == COUNT


def test_a_peer_that_reads_while_a_turn_is_under_way_gets_the_rest(timed: SteppedBroker) -> None:
    """The turn's own flush, not epoll, finds that the socket takes bytes again."""
    consumer = blocked(timed)
    (slow,) = (each for each in timed.broker.clients.connections.values() if each.is_blocked)
    while slow.is_blocked:
        assert consumer.read()
        timed.broker.work.touch(slow)
        timed.loop.connections.flush()
    assert read_all(timed, consumer) == COUNT
