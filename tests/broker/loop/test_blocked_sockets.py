"""A peer that reads slowly gets everything in the end, whichever look at its socket finds that it takes bytes again."""

# pyright: reportUnknownMemberType=false
# proton's own types are not complete.

from __future__ import annotations

import socket
from typing import Any

import pytest
from proton import Delivery, Message
from support.stepped_broker import Peer, SteppedBroker

from penstock_broker.access.connection import HEARTBEAT, Connection, Phase
from penstock_broker.loop import connections
from penstock_broker.loop.time_outs import CLOSE_MS

BODY = "x" * 10_000
COUNT = 200
"""Two megabytes, of which a socket holds some hundred kilobytes."""


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


def test_a_peer_that_never_reads_again_is_dropped_in_the_end(timed: SteppedBroker) -> None:
    """Its idle time-out closes the connection; the Close waits behind what its socket does not take."""
    timed.loop.time_outs.sweep()
    blocked(timed)
    (hung,) = (each for each in timed.broker.clients.connections.values() if each.is_blocked)
    phases = {hung.phase: 0}
    for second in range(120):
        timed.pass_ms(1000)
        phases.setdefault(hung.phase, second)
    assert list(phases) == [Phase.OPEN, Phase.CLOSING, Phase.GONE]
    assert phases[Phase.GONE] - phases[Phase.CLOSING] >= CLOSE_MS // 1000
    assert hung not in timed.broker.clients.connections.values()
    assert hung.transport.sock.fileno() == -1
    assert timed.queue("jobs").depth == COUNT


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


class FullSocket:
    """A socket that takes nothing while it is full."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.is_full = True

    def send(self, data: bytes) -> int:
        if self.is_full:
            raise BlockingIOError
        return self._sock.send(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


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


def test_what_a_layer_says_itself_leaves_when_the_socket_takes_it(timed: SteppedBroker) -> None:
    """As a WebSocket's pong, with accepts in the same read, to which the broker has nothing to say."""
    timed.make_queue("jobs", durable=False)
    consumer, producer = timed.connect("consumer"), timed.connect("producer")
    consumer.receive("jobs", credit=10)
    assert producer.send("jobs", Message(body="one")) == ["accepted"]
    consumer.pump()
    ((_, delivery),) = consumer.got
    served = connection_of(timed, "consumer")
    served.transport.wrapping = Layer(own=HEARTBEAT)
    sock: Any = FullSocket(served.transport.sock)
    served.transport.sock = sock
    delivery.update(Delivery.ACCEPTED)
    delivery.settle()
    consumer.flush()
    timed.turn()
    assert served.is_blocked
    sock.is_full = False
    assert producer.send("jobs", Message(body="two")) == ["accepted"]
    for _ in range(3):
        timed.turn()
    assert not served.is_blocked
    consumer.pump()
    assert len(consumer.got) == 2
