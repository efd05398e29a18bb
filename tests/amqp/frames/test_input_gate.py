"""What the engine gets of a connection's input. Frames are written as part 2, 2.3.1 says, names as part 1, 1.3.2."""

from __future__ import annotations

import pytest

from penstock_amqp.frames.frames import AMQP_HEADER, encode_frame, frame_of
from penstock_amqp.frames.input_gate import InputGate
from penstock_amqp.frames.performatives import (
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
)

OPEN = encode_frame(Open(container_id="c"))
BEGIN = encode_frame(Begin(next_outgoing_id=0, incoming_window=5, outgoing_window=5))
TRANSFER = encode_frame(Transfer(handle=0, delivery_id=0, delivery_tag=b"t"), payload=b"\0" * 300)
FLOW = encode_frame(Flow(incoming_window=5, next_outgoing_id=0, outgoing_window=5))
DISPOSITION = encode_frame(Disposition(role=True, first=0, settled=True, state=Accepted()))
HEARTBEAT = encode_frame(None)
DETACH = encode_frame(Detach(handle=0))


def attach(name: str, channel: int = 0) -> bytes:
    return encode_frame(Attach(name=name, handle=0, role=True, target=Target()), channel)


def given(gate: InputGate, data: bytes, *, step: int = 1 << 20) -> list[bytes]:
    """What the engine gets of `data`, in the pieces in which it gets it; the engine holds what is incomplete."""
    pieces: list[bytes] = []
    held = unread = b""
    for start in range(0, len(data), step):
        unread += data[start : start + step]
        while unread:
            missing = max(int.from_bytes(held[:4]) - len(held), 0) if len(held) >= 4 else 0
            dealt, instead = gate.next(memoryview(unread), len(held), missing, 512)
            assert dealt > 0
            piece = unread[:dealt] if instead is None else instead
            unread = unread[dealt:]
            if piece:
                pieces.append(piece)
                held = rest_of(held + piece)
    return pieces


def rest_of(data: bytes) -> bytes:
    """The frame that is not whole at the end."""
    while data.startswith(b"AMQP") or (len(data) >= 8 and len(data) >= int.from_bytes(data[:4])):
        data = data[8 if data.startswith(b"AMQP") else int.from_bytes(data[:4]) :]
    return data


def test_what_comes_often_is_given_as_it_comes() -> None:
    data = TRANSFER + FLOW + DISPOSITION + HEARTBEAT + DETACH
    assert given(InputGate(65_536), data) == [data]


@pytest.mark.parametrize("often", [TRANSFER, FLOW, DISPOSITION])
def test_a_begin_or_an_attach_behind_what_comes_often_is_given_apart(often: bytes) -> None:
    """2.4.1, 2.6.1: what comes before is handled first."""
    gate = InputGate(65_536)
    given(gate, attach("l"))
    gate.attached(0, "l")
    data = often + BEGIN + often + HEARTBEAT + attach("l") + often
    assert given(gate, data) == [often, BEGIN, often + HEARTBEAT, attach("l\x1f1"), often]


@pytest.mark.parametrize("cut", range(1, 40))
def test_an_attach_behind_what_comes_often_may_be_cut_anywhere(cut: int) -> None:
    gate = InputGate(65_536)
    gate.attached(0, "l")
    data = FLOW + attach("l")
    assert b"".join(given(gate, data, step=len(FLOW) + cut)) == FLOW + attach("l\x1f1")


@pytest.mark.parametrize("before", range(1, 12))
def test_an_attach_is_given_apart_where_a_piece_ends_in_its_first_bytes(before: int) -> None:
    gate = InputGate(65_536)
    gate.attached(0, "l")
    bare = encode_frame(Transfer(handle=0))
    filling = encode_frame(Transfer(handle=0), payload=bytes(512 - before - len(bare)))
    assert given(gate, filling + attach("l")) == [filling, attach("l\x1f1")]


@pytest.mark.parametrize("descriptor", [b"\x00\xa3\x0famqp:begin:list", b"\x00\x80" + bytes(7) + b"\x11"])
def test_a_descriptor_in_another_encoding_is_looked_at_behind_what_comes_often(descriptor: bytes) -> None:
    assert given(InputGate(65_536), FLOW + frame_of(descriptor + BEGIN[11:])) == [FLOW, BEGIN]


def test_what_looks_like_an_attach_in_a_payload_is_given_as_it_comes() -> None:
    trap = encode_frame(Transfer(handle=0), payload=BEGIN + attach("l"))
    assert given(InputGate(65_536), trap + TRANSFER) == [trap + TRANSFER]


@pytest.mark.parametrize("rest", [b"\0", b"\0\0\0\x40", b"\0\0\0\x40\x02\0\0\0\0\x53"])
def test_a_frame_of_which_too_little_is_here_is_kept(rest: bytes) -> None:
    gate = InputGate(65_536)
    assert given(gate, FLOW + rest) == [FLOW]
    assert gate.kept == rest


@pytest.mark.parametrize("step", [1 << 20, 1, 3, 50])
def test_an_open_and_each_begin_end_a_piece(step: int) -> None:
    data = AMQP_HEADER + HEARTBEAT + OPEN + BEGIN + attach("l") + TRANSFER + DETACH + BEGIN + TRANSFER
    pieces = given(InputGate(65_536), data, step=step)
    assert b"".join(pieces) == data
    assert all(BEGIN not in piece[: -len(BEGIN)] and OPEN not in piece[: -len(OPEN)] for piece in pieces)


@pytest.mark.parametrize("step", [1 << 20, 1, 40])
def test_a_name_that_the_engine_has_gets_a_number(step: int) -> None:
    gate = InputGate(65_536)
    given(gate, attach("l"))
    assert gate.attached(0, "l") == "l"
    (renamed,) = given(gate, attach("l"), step=step)
    assert renamed == attach("l\x1f1")
    assert gate.attached(0, "l\x1f1") == "l"
    assert given(gate, attach("l", 1)) == [attach("l", 1)]
    gate.detached(0, "l")
    assert given(gate, attach("l")) == [attach("l")]
    gate.attached(0, "l")
    gate.ended(0)
    assert given(gate, attach("l")) == [attach("l")]


def test_namesakes_in_one_write_are_told_apart() -> None:
    gate = InputGate(65_536)
    dealt, instead = gate.next(memoryview(attach("l") * 2), 0, 0, 512)
    assert (dealt, instead) == (len(attach("l")), None)


def test_other_ways_to_write_a_descriptor_become_the_usual_one() -> None:
    fields = BEGIN[11:]
    by_symbol, by_long = b"\x00\xa3\x0famqp:begin:list", b"\x00\x80" + bytes(7) + b"\x11"
    for descriptor in (by_symbol, by_long):
        assert given(InputGate(65_536), frame_of(descriptor + fields)) == [BEGIN]
    gate = InputGate(65_536)
    given(gate, frame_of(by_symbol + fields))
    assert given(gate, TRANSFER + frame_of(by_symbol + fields)) == [TRANSFER, BEGIN], "now every frame is looked at"


def with_symbol(frame: bytes, number: bytes, symbol: bytes) -> bytes:
    """A short frame where the empty list within it that `number` describes is described by `symbol`."""
    at = frame.index(b"\x00" + number + b"\x45")
    grown = frame[12] + len(symbol) - len(number)
    fields = frame[13 : at + 1] + symbol + frame[at + 1 + len(number) :]
    return frame_of(frame[8:11] + b"\xc0" + bytes((grown,)) + fields)


def test_symbols_within_an_attach_count_as_well() -> None:
    """Whoever describes a source so may describe outcomes so."""
    gate = InputGate(65_536)
    by_number = encode_frame(Attach(name="l", handle=0, role=True, source=Source(), target=Target()))
    assert given(gate, with_symbol(by_number, b"\x53\x28", b"\xa3\x10amqp:source:list")) == [by_number]
    accepts = encode_frame(Disposition(role=True, first=0, settled=True, state=Accepted()))
    symbolic = with_symbol(accepts, b"\x53\x24", b"\xa3\x12amqp:accepted:list")
    assert given(gate, symbolic) == [accepts]


@pytest.mark.parametrize(
    "data", [b"\0\0\0\x04\x02\0\0\0", b"\x7f\0\0\x04\x02\0\0\0" + b"?" * 20, frame_of(b"\x00\xa3"), frame_of(b"\xff")]
)
def test_what_can_t_be_read_is_for_the_engine_to_refuse(data: bytes) -> None:
    assert b"".join(given(InputGate(65_536), data)) == data
