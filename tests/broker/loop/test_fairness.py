"""Clients that ask for much at once, and a witness that works meanwhile: what each gets of a turn, by count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from proton import Message
from support.broker_process import BrokerProcess
from support.raw_client import RawClient
from support.stepped_broker import SteppedBroker, SteppedStream

from penstock_amqp.endpoint.links import InLink
from penstock_amqp.frames.frames import encode_frame
from penstock_amqp.frames.performatives import (
    Attach,
    Begin,
    Coordinator,
    Detach,
    End,
    Flow,
    Source,
    Target,
    Transfer,
)
from penstock_amqp.messages.message_codec import Message as WholeMessage
from penstock_amqp.messages.message_codec import encode_message
from penstock_amqp.messages.transaction_types import Declare
from penstock_amqp.types.composites import to_value
from penstock_amqp.types.values import Described, Symbol, ULong, Value

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


def answers(stream: SteppedStream) -> int:
    """Bytes that have come by now."""
    return len(stream.take())


@pytest.mark.parametrize(("unit", "count"), [(ATTACHES, 500), (BEGINS, 1000), (ECHO, 800)])
def test_who_asks_for_much_gets_a_little_of_each_turn_and_all_in_the_end(
    timed: SteppedBroker, unit: bytes, count: int
) -> None:
    stream = SteppedStream(timed)
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
        assert not timed.broker.work.dirty


def test_more_sessions_than_there_are_channels_come_and_go_within_one_read(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, RawClient(broker.port, "busy") as client:
        client.begin()
        client.send_bytes(BEGINS * 1500)
        ended = 0
        while ended < 1500:
            ended += isinstance(client.receive().performative, End)
        client.begin(2)


def test_a_witness_works_while_others_attach_without_end(timed: SteppedBroker) -> None:
    """All queues are served in turn, however many come and go."""
    timed.make_queue("work", durable=False)
    attackers = [SteppedStream(timed) for _ in range(3)]
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


# -- what can't be cut is paid for by turns without -------------------------------------------------------------------


def attach_of(source: Source, properties: Mapping[Symbol, Value] | None = None) -> bytes:
    attach = Attach(name="a", handle=5, role=True, source=source, target=Target(), properties=properties)
    return encode_frame(attach) + encode_frame(Detach(handle=5, closed=True))


LIST_OF_4000 = "a IN (" + ", ".join(f"'{number:04}'" for number in range(500)) + ")"
FILTER = {Symbol("jms-selector"): Described(ULong(0x0000468C00000004), LIST_OF_4000)}


def nulls(count: int) -> dict[Symbol, Value]:
    items: list[Value] = [None] * count
    return {Symbol("nulls"): items}


@pytest.mark.parametrize(
    ("unit", "turns"),
    [
        (attach_of(Source(address="amq.topic/x", filter=FILTER)), 8),  # 4,000 characters / 8 weigh eight budgets of 64
        (attach_of(Source(address="amq.topic/x"), nulls(4032)), 1),  # 4,096 bytes / 64 weigh one
        (attach_of(Source(address="amq.topic/x"), nulls(32_700)), 8),
    ],
)
def test_a_frame_that_costs_much_is_followed_by_turns_for_others(timed: SteppedBroker, unit: bytes, turns: int) -> None:
    stream = SteppedStream(timed)
    with RawClient(0, "busy", stream=stream) as client:
        client.begin()
        stream.sendall(unit)
        for _ in range(2 * turns + 2):
            timed.turn()
        assert answers(stream) > 0
        stream.sendall(unit * 4)
        answered: list[int] = []
        for number in range(5 * turns + 20):
            timed.turn()
            if answers(stream):
                answered.append(number)
        pauses = [later - earlier for earlier, later in pairwise(answered)]
        assert sum(pause >= turns for pause in pauses) >= 3, answered


def test_requests_that_come_at_once_are_answered_some_per_turn(timed: SteppedBroker) -> None:
    stream = SteppedStream(timed)
    with RawClient(0, "busy", stream=stream) as client:
        client.begin()
        for number in range(10):  # each coordinator gives credit for 64 requests
            client.attach_sender(f"control-{number}", Coordinator())
        declare = encode_message(WholeMessage(body=to_value(Declare())))
        requests = [
            Transfer(handle=number // 60, delivery_id=number, delivery_tag=b"t", message_format=0)
            for number in range(600)
        ]
        stream.sendall(b"".join(encode_frame(request, 0, declare) for request in requests))
        (connection,) = timed.broker.clients.connections.values()
        unread = [len(connection.reading.unread)]
        for _ in range(100):
            timed.turn()
            stream.take()
            unread.append(len(connection.reading.unread))
        size = len(encode_frame(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0), 0, declare))
        taken = [before - after for before, after in pairwise(unread[1:])]
        assert max(taken) <= 64 * size  # a request weighs 2 of the 64, but pieces of input are what is weighed
        assert unread[-1] == 0


def test_requests_that_come_behind_their_attach_are_answered_some_per_turn(timed: SteppedBroker) -> None:
    """Nobody knows yet, when they are read, that they are requests."""
    stream = SteppedStream(timed)
    with RawClient(0, "busy", stream=stream) as client:
        client.begin()
        control = Attach(
            name="c", handle=0, role=False, source=Source(), target=Coordinator(), initial_delivery_count=0
        )
        declare = encode_message(WholeMessage(body=to_value(Declare())))
        numbered = Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0)
        size = len(encode_frame(numbered, 0, declare))
        stream.sendall(encode_frame(control))
        stream.sendall(b"".join(encode_frame(replace(numbered, delivery_id=each), 0, declare) for each in range(600)))
        (connection,) = timed.broker.clients.connections.values()
        timed.turn()
        assert len(connection.reading.unread) >= (600 - 200) * size  # pieces of 8 KiB are what is weighed


def test_empty_frames_are_taken_some_per_turn(timed: SteppedBroker) -> None:
    stream = SteppedStream(timed)
    with RawClient(0, "busy", stream=stream) as client:
        client.begin()
        (connection,) = timed.broker.clients.connections.values()
        stream.sendall(encode_frame(None) * 8192)
        timed.turn()
        # 2,048 / 32 weigh 64, and a piece has 1,024
        assert 8 * 3000 < len(connection.reading.unread) <= 8 * (8192 - 2048)
        while connection.has_unread:
            timed.turn()


BEGINS_A_MESSAGE = Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0, more=True)
A_PART = Transfer(handle=0, more=True)


def test_parts_of_a_byte_are_taken_some_per_turn_and_held_as_one_piece(timed: SteppedBroker) -> None:
    timed.make_queue("work", durable=False)
    stream = SteppedStream(timed)
    with RawClient(0, "busy", stream=stream) as client:
        client.begin()
        client.attach_sender("s", Target(address="work"))
        (connection,) = timed.broker.clients.connections.values()
        (link,) = connection.endpoint.all_links()
        assert isinstance(link, InLink)
        stream.sendall(encode_frame(BEGINS_A_MESSAGE, 0, b"\x00\x53\x75\xb0\x00\x01\x00\x00"))
        stream.sendall(encode_frame(A_PART, 0, b"x") * 2000)
        came = [0]
        while came[-1] < 2008:
            timed.turn()
            came.append(link.partial.bytes)
            assert len(came) < 200
        assert max(after - before for before, after in pairwise(came)) <= 500
        assert b"".join(link.partial.parts) == b"\x00\x53\x75\xb0\x00\x01\x00\x00" + b"x" * 2000
        assert len(link.partial.parts) <= 2


def test_messages_that_never_end_take_so_much_memory_of_a_connection(timed: SteppedBroker) -> None:
    timed.make_queue("work", durable=False)
    stream = SteppedStream(timed)
    with RawClient(0, "busy", stream=stream) as client:
        client.begin()
        for number in range(40):
            client.attach_sender(f"s{number}", Target(address="work"))
        (connection,) = timed.broker.clients.connections.values()
        links = [each for each in connection.endpoint.all_links() if isinstance(each, InLink)]
        head = b"\x00\x53\x75\xb0\x00\x10\x00\x00"
        for number in range(40):
            begins = Transfer(handle=number, delivery_id=number, delivery_tag=b"t", message_format=0, more=True)
            stream.sendall(encode_frame(begins, 0, head))
            for _ in range(15):
                stream.sendall(encode_frame(Transfer(handle=number, more=True), 0, bytes(60_000)))
                timed.turn()
        while connection.has_unread or links[-1].partial.bytes < 15 * 60_000:
            timed.turn()
        held = sum(len(part) for each in links for part in each.partial.parts)
        assert held == links[0].partial.memory.bytes
        assert held <= 16 * 1024 * 1024 + 40 * 65_536  # of 36 MB
        assert all(each.partial.bytes == 15 * 60_000 + len(head) for each in links)
