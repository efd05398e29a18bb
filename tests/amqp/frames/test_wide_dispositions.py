"""Dispositions that name very many deliveries, by AMQP 1.0 part 2, 2.7.6, with serial numbers as RFC 1982 has them."""

from __future__ import annotations

import pytest
from support.engine_pair import EnginePair

from penstock_amqp.endpoint.endpoint import Endpoint
from penstock_amqp.endpoint.events import Event
from penstock_amqp.frames.frames import HEAD_BYTES, encode_frame
from penstock_amqp.frames.performatives import Accepted, Disposition, Flow, Received
from penstock_amqp.frames.wide_dispositions import width
from penstock_amqp.messages.message_codec import Message, encode_message

DATA = encode_message(Message(body="x"))
HELD = 4200
TURN = 64


def frame(first: int, last: int | None, **fields: object) -> bytes:
    return encode_frame(Disposition(role=True, first=first, last=last, **fields))  # type: ignore[arg-type] # its fields


@pytest.mark.parametrize(
    ("first", "last", "wanted"),
    [
        (0, None, 0),
        (0, 0, 0),
        (7, 262, 255),
        (7, 263, 256),
        (0, 2**31 - 1, 2**31 - 1),
        (2**32 - 1, 200, 201),
        (2**32 - 100, 256, 356),
        (2**31 - 1, 2**31, 1),
        (5, 4, 2**32 - 1),
    ],
)
def test_the_range_is_that_of_serial_numbers(first: int, last: int | None, wanted: int) -> None:
    assert width(memoryview(frame(first, last, settled=True, state=Accepted())[HEAD_BYTES:])) == wanted


@pytest.mark.parametrize("size", range(12))
def test_what_is_cut_short_names_nothing(size: int) -> None:
    assert width(memoryview(frame(0, 2**31 - 1)[HEAD_BYTES : HEAD_BYTES + size])) == 0


@pytest.fixture
def pair() -> EnginePair:
    """A consumer that has settled none of its messages."""
    pair = EnginePair()
    _, link = pair.attach_receiver(pair.open(), credit=HELD)
    pair.endpoint.send(link, [(number, DATA, 0, 0, 0) for number in range(HELD)], 0)
    pair.exchange()
    return pair


def turn(endpoint: Endpoint, data: bytes) -> int:
    """How many bytes are read of it in one turn."""
    events: list[Event] = []
    return endpoint.receive_bytes(data, events, TURN)


@pytest.mark.parametrize("before", [b"", frame(0, None) * 3], ids=["first", "behind others"])
@pytest.mark.parametrize(
    "wide",
    [
        frame(0, HELD),
        frame(0, HELD, state=Received(section_number=0, section_offset=0)),
        frame(0, HELD, settled=True, state=Accepted()),
        frame(2**32 - 2**30, HELD),
    ],
    ids=["nothing said", "received", "accepted", "from beyond 0"],
)
def test_a_turn_takes_one(pair: EnginePair, wide: bytes, before: bytes) -> None:
    """Each lets the engine look at all deliveries: hundreds of them would come in one read."""
    data = before + wide * 20
    taken = turn(pair.endpoint, data)
    assert taken == len(before + wide)
    assert turn(pair.endpoint, data[taken:]) == len(wide)


def test_what_it_settles_is_settled(pair: EnginePair) -> None:
    turn(pair.endpoint, frame(2**32 - 5, HELD - 2, settled=True, state=Accepted()))
    assert [held[1][0] for held in pair.endpoint.engine.unsettled.values()] == [HELD - 1]


def test_outcomes_that_change_nothing_are_counted(pair: EnginePair) -> None:
    """Also if their frame is read in two parts."""
    wide = frame(0, HELD)
    assert turn(pair.endpoint, wide[:12]) == 12
    turn(pair.endpoint, wide[12:])
    assert pair.endpoint.input.left < -TURN


@pytest.mark.parametrize(("named", "turns"), [(256, 1), (1000, 1), (3968, 1), (4096, 2)])
def test_the_credit_behind_it_is_read_in_the_same_turn_unless_it_costs_a_turn(
    pair: EnginePair, named: int, turns: int
) -> None:
    """A consumer accepts what it has got of its window, and gives credit again, by one write."""
    wide = frame(0, named, settled=True, state=Accepted())
    data = wide + encode_frame(
        Flow(next_incoming_id=named, incoming_window=9000, next_outgoing_id=0, outgoing_window=1, handle=0,
             delivery_count=HELD, link_credit=17)
    )  # fmt: skip
    taken = turn(pair.endpoint, data)
    assert taken == (len(data) if turns == 1 else len(wide))
    assert taken == len(data) or turn(pair.endpoint, data[taken:]) == len(data) - taken


def test_narrow_ones_are_read_together(pair: EnginePair) -> None:
    data = b"".join(frame(number, number + 4, settled=True, state=Accepted()) for number in range(0, HELD, 5))
    assert turn(pair.endpoint, data) == len(data)
    assert not pair.endpoint.engine.unsettled
