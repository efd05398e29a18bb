"""Clients that ask for much at once, and a witness that works meanwhile: what each gets of a turn, by count."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from amqp.raw_client import RawClient
from broker.test_standing import Turned
from broker.timed_broker import TimedBroker
from proton import Message
from support.broker_process import BrokerProcess

from penstock_amqp.frames.frames import encode_frame
from penstock_amqp.frames.performatives import Attach, Begin, Detach, End, Flow, Source, Target

BEGINS = encode_frame(Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10), 1) + encode_frame(End(), 1)
ATTACHES = encode_frame(
    Attach(name="a", handle=5, role=True, source=Source(address="amq.topic/x"), target=Target())
) + encode_frame(Detach(handle=5, closed=True))
ECHO = encode_frame(
    Flow(
        next_incoming_id=0,
        incoming_window=1000,
        next_outgoing_id=0,
        outgoing_window=1000,
        handle=0,
        delivery_count=0,
        link_credit=1,
        echo=True,
    )
)
MOST_PER_TURN = 260
"""Expensive frames of one connection that are answered in a turn: at most 8 KiB of small ones at the very first."""


@pytest.fixture
def timed() -> Iterator[TimedBroker]:
    broker = TimedBroker()
    yield broker
    broker.close()


def answers(stream: Turned) -> int:
    """Bytes that have come by now."""
    return len(stream.take())


@pytest.mark.parametrize(("unit", "count"), [(ATTACHES, 500), (BEGINS, 1000), (ECHO, 800)])
def test_who_asks_for_much_gets_a_little_of_each_turn_and_all_in_the_end(
    timed: TimedBroker, unit: bytes, count: int
) -> None:
    stream = Turned(timed)
    with RawClient(0, "busy", stream=stream) as client:
        client.begin()
        client.attach_receiver("r", Source(address="amq.topic/y"))
        for _ in range(10):
            timed.turn()
        stream.take()
        stream.sendall(unit)
        timed.turn()
        timed.turn()
        one = answers(stream)
        assert one > 0
        stream.sendall(unit * count)
        got: list[int] = []
        while sum(got) < one * count:
            timed.turn()
            got.append(answers(stream))
            assert got[-1] <= one * MOST_PER_TURN
            assert len(got) < 3 * count
        assert not timed.broker.dirty


def test_more_sessions_than_there_are_channels_come_and_go_within_one_read(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, RawClient(broker.port, "busy") as client:
        client.begin()
        client.send_bytes(BEGINS * 1500)
        ended = 0
        while ended < 1500:
            ended += isinstance(client.receive().performative, End)
        client.begin(2)


def test_a_witness_works_while_others_attach_without_end(timed: TimedBroker) -> None:
    """All queues are served in turn, however many come and go."""
    timed.make_queue("work", durable=False)
    attackers = [Turned(timed) for _ in range(3)]
    clients = [RawClient(0, f"busy-{number}", stream=stream) for number, stream in enumerate(attackers)]
    for client in clients:
        client.begin()
    witness = timed.connect()
    witness.receive("work", credit=1000)
    for stream in attackers:
        stream.sendall(ATTACHES * 1000)
    for number in range(20):
        assert witness.send("work", Message(body=number)) == ["accepted"]
        assert witness.bodies() == [number]
        witness.take()
    assert any(stream.take() for stream in attackers)
    for client in clients:
        client.socket.close()
