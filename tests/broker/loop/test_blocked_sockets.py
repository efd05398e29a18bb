"""A peer that reads slowly gets everything in the end, whichever look at its socket finds that it takes bytes again."""

# pyright: reportUnknownMemberType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import Message
from support.stepped_broker import Peer, SteppedBroker

from penstock_broker.access.connection import HEARTBEAT, Connection
from penstock_broker.loop import connections

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


class Layer:
    """Something between a socket and AMQP. It may hold back what came, and says something of its own to what comes."""

    def __init__(self, *, held: bytes = b"", own: bytes = b"") -> None:
        self._held, self._own = held, own
        self._said = b""
        self.has_ended, self.peer_certificate = False, None

    def feed(self, ciphertext: bytes | memoryview) -> bytes:
        given, self._held = self._held + bytes(ciphertext), b""
        self._said += self._own
        return given

    @property
    def has_more(self) -> bool:
        return bool(self._held)

    def send(self, plaintext: bytes | memoryview) -> None:
        self._said += bytes(plaintext)

    def output(self) -> bytes:
        said, self._said = self._said, b""
        return said

    def known(self) -> None:
        pass

    def close(self) -> None:
        pass


def connection_of(timed: SteppedBroker, container: str) -> Connection:
    (found,) = (each for each in timed.broker.clients.connections.values() if each.client.container_id == container)
    return found


def test_what_a_layer_holds_is_read_once_a_turn_has_sent_what_was_too_much(
    timed: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the peer leaves much unread nothing is read of it. No event of its socket tells of what TLS has kept."""
    monkeypatch.setattr(connections, "MAX_BACKLOG_BYTES", 0)
    consumer = blocked(timed)
    slow = connection_of(timed, "consumer")
    layer = slow.transport.wrapping = Layer(held=HEARTBEAT)
    timed.turn()
    assert layer.has_more
    while slow.is_blocked:
        assert consumer.read()
        timed.broker.work.touch(slow)
        timed.loop.connections.flush()
    for _ in range(3):
        timed.turn()
    assert not layer.has_more
