"""What came with a message whose accept waits for the disk is answered at once, and the accept comes with the sync."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.held_broker import HeldBroker
from support.raw_client import RawClient, symbols
from support.stepped_broker import SteppedStream

from penstock_amqp.endpoint.buffers import OUTPUT_BYTES
from penstock_amqp.frames.frames import encode_frame
from penstock_amqp.frames.performatives import Attach, Flow, Source, Target, Transfer
from penstock_amqp.messages.message_codec import Message, encode_message
from penstock_amqp.types.values import Symbol
from penstock_broker.messages import internal_publish
from penstock_broker.state.routes import QueueTarget

DURABLE = b"\x00\x53\x70\xc0\x02\x01\x41\x00\x53\x75\xa0\x01x"
SENT = encode_frame(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0), 0, DURABLE)
ECHO = encode_frame(Flow(next_incoming_id=0, incoming_window=1000, next_outgoing_id=1, outgoing_window=1000, echo=True))


@pytest.fixture
def held() -> Iterator[HeldBroker]:
    broker = HeldBroker()
    yield broker
    broker.timed.close()


def producer(held: HeldBroker) -> tuple[SteppedStream, RawClient]:
    held.timed.make_queue("work")
    held.catch_up()
    stream = SteppedStream(held.timed)
    client = RawClient(0, "waits", stream=stream)
    client.begin()
    client.attach_sender("s", Target(address="work"))
    held.catch_up()
    stream.take()
    return stream, client


def test_an_accept_waits_for_the_sync_and_comes_with_it(held: HeldBroker) -> None:
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


def test_an_echo_that_came_with_a_message_does_not_wait_for_the_sync(held: HeldBroker) -> None:
    stream, client = producer(held)
    stream.sendall(SENT + ECHO)
    for _ in range(3):
        held.timed.turn()
    assert held.timed.queue("work").waiting == 1
    assert stream.take() != b""
    held.catch_up()
    assert stream.take() != b""
    client.socket.close()


def test_a_sync_that_ends_within_a_turn_is_answered_in_that_turn(held: HeldBroker) -> None:
    stream, client = producer(held)
    stream.sendall(SENT)
    held.timed.turn()
    held.timed.turn()
    assert stream.take() == b""
    held.timed.loop.after(0, held.syncer.complete)  # the poll of the next turn has not seen it
    held.timed.turn()
    assert stream.take() != b""
    client.socket.close()


def test_a_client_that_is_gone_when_its_attaches_are_answered_costs_its_connection_only(
    held: HeldBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Its socket breaks within a message that is longer than the output's buffer: what is left of that is not taken for
    the frames of the second answer.
    """
    held.timed.make_queue("work", durable=False)
    held.catch_up()
    longer = encode_message(Message(body="x" * (2 * OUTPUT_BYTES)))
    internal_publish.publish_internally(
        held.timed.broker, QueueTarget(held.timed.broker.topology.queues["work"]), longer
    )
    stream = SteppedStream(held.timed)
    client = RawClient(0, "leaves", stream=stream, max_frame_size=1000)  # the buffer ends within one
    client.begin()
    client.attach_receiver("r", Source(address="work"))
    source = Source(address="amq.topic", durable=2, expiry_policy=Symbol("never"), capabilities=symbols("topic"))
    for handle in (1, 2):
        client.send(Attach(name=f"s{handle}", handle=handle, role=True, source=source, target=Target()))
    held.timed.turn()
    client.flow(0, credit=1)
    client.socket.close()
    held.timed.loop.after(0, held.syncer.complete)  # it ends within the turn in which the message is sent
    for _ in range(5):
        held.timed.turn()
    assert not held.timed.broker.clients.connections
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
    assert held.timed.queue("work").waiting == 1
