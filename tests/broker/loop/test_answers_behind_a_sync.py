"""What came with a message whose accept waits for the disk is answered at once, and the accept comes with the sync."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.broker_site import HeldSyncer
from support.raw_client import RawClient
from support.stepped_broker import SteppedBroker, SteppedStream

from penstock_amqp.frames.frames import encode_frame
from penstock_amqp.frames.performatives import Flow, Target, Transfer
from penstock_broker.log import FileLayer

DURABLE = b"\x00\x53\x70\xc0\x02\x01\x41\x00\x53\x75\xa0\x01x"
SENT = encode_frame(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0), 0, DURABLE)
ECHO = encode_frame(Flow(next_incoming_id=0, incoming_window=1000, next_outgoing_id=1, outgoing_window=1000, echo=True))


class Held:
    """A broker whose log is synced when the test says so."""

    def __init__(self) -> None:
        self.timed = SteppedBroker(syncer=self._make)

    def _make(self, files: FileLayer) -> HeldSyncer:
        self.syncer = HeldSyncer(files)
        return self.syncer

    def catch_up(self) -> None:
        for _ in range(4):
            self.syncer.complete()
            self.timed.pass_ms(10)


@pytest.fixture
def held() -> Iterator[Held]:
    broker = Held()
    yield broker
    broker.timed.close()


def producer(held: Held) -> tuple[SteppedStream, RawClient]:
    held.timed.make_queue("work")
    held.catch_up()
    stream = SteppedStream(held.timed)
    client = RawClient(0, "waits", stream=stream)
    client.begin()
    client.attach_sender("s", Target(address="work"))
    held.catch_up()
    stream.take()
    return stream, client


def test_an_accept_waits_for_the_sync_and_comes_with_it(held: Held) -> None:
    stream, client = producer(held)
    (connection,) = held.timed.broker.clients.connections.values()
    stream.sendall(SENT)
    held.timed.turn()
    held.timed.turn()
    assert held.timed.queue("work").waiting == 1
    assert stream.take() == b""
    assert not connection.is_dirty
    held.catch_up()
    assert stream.take() != b""
    client.socket.close()


def test_an_echo_that_came_with_a_message_does_not_wait_for_the_sync(held: Held) -> None:
    stream, client = producer(held)
    stream.sendall(SENT + ECHO)
    for _ in range(3):
        held.timed.turn()
    assert held.timed.queue("work").waiting == 1
    assert stream.take() != b""
    held.catch_up()
    assert stream.take() != b""
    client.socket.close()


def test_a_sync_that_ends_within_a_turn_is_answered_in_that_turn(held: Held) -> None:
    stream, client = producer(held)
    stream.sendall(SENT)
    held.timed.turn()
    held.timed.turn()
    assert stream.take() == b""
    held.timed.loop.after(0, held.syncer.complete)  # the poll of the next turn has not seen it
    held.timed.turn()
    assert stream.take() != b""
    client.socket.close()
