"""The tap against bytes put together by hand, and against any bytes."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_amqp.errors import DecodeError, TapError, WireError
from penstock_amqp.frames.frames import AMQP_HEADER, encode_frame
from penstock_amqp.frames.input_tap import InputTap, TappedAttach
from penstock_amqp.frames.performatives import Attach, Coordinator, Flow, Modified, Source, Target, Transfer
from penstock_amqp.types.values import Described, Symbol, UInt, ULong

ROOM = 8192
"""What the engine's input buffer takes at first."""


def text(letters: str, code: int = 0xA1) -> bytes:
    return bytes((code, len(letters))) + letters.encode()


def symbol(letters: str) -> bytes:
    return text(letters, 0xA3)


def symbols(*names: str) -> bytes:
    items = b"".join(bytes((len(name),)) + name.encode() for name in names)
    return bytes((0xE0, len(items) + 2, len(names), 0xA3)) + items


def list32(*fields: bytes) -> bytes:
    body = b"".join(fields)
    return b"\xd0" + (len(body) + 4).to_bytes(4, "big") + len(fields).to_bytes(4, "big") + body


def map8(*items: bytes) -> bytes:
    body = b"".join(items)
    return bytes((0xC1, len(body) + 1, len(items))) + body


def frame(channel: int, descriptor: bytes, fields: bytes) -> bytes:
    body = b"\x00" + descriptor + fields
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big") + body


NULL, TRUE, ZERO = b"\x40", b"\x41", b"\x43"
ATTACH = b"\x53\x12"

# What the JMS client sends for a shared durable subscription without ClientID and with a selector.
DRAWN_FIELDS = list32(
    text("sub|global"),
    ZERO,  # handle
    TRUE,  # receiver
    b"\x50\x00",  # snd-settle-mode unsettled
    b"\x50\x00",  # rcv-settle-mode first
    b"\x00\x53\x28"
    + list32(
        text("prices"),
        b"\x52\x02",  # durable: unsettled-state
        symbol("never"),
        ZERO,  # timeout
        b"\x42",  # dynamic
        NULL,
        symbol("copy"),
        map8(symbol("jms-selector"), b"\x00\x80\x00\x00\x46\x8c\x00\x00\x00\x04" + text("p > 100")),
        b"\x00\x53\x27\xc0\x02\x01\x41",  # modified(delivery-failed=true)
        symbols("amqp:accepted:list", "amqp:rejected:list"),
        symbols("topic", "shared", "global"),
    ),
    b"\x00\x53\x29\x45",  # a target without address
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    symbols("SHARED-SUBS"),
)
DRAWN = frame(0, ATTACH, DRAWN_FIELDS)
EXPECTED = Attach(
    name="sub|global",
    handle=0,
    role=True,
    snd_settle_mode=0,
    rcv_settle_mode=0,
    source=Source(
        address="prices",
        durable=2,
        expiry_policy=Symbol("never"),
        timeout=0,
        dynamic=False,
        distribution_mode=Symbol("copy"),
        filter={Symbol("jms-selector"): Described(ULong(0x0000468C00000004), "p > 100")},
        default_outcome=Modified(delivery_failed=True),
        outcomes=(Symbol("amqp:accepted:list"), Symbol("amqp:rejected:list")),
        capabilities=(Symbol("topic"), Symbol("shared"), Symbol("global")),
    ),
    target=Target(),
    desired_capabilities=(Symbol("SHARED-SUBS"),),
)


def tapped(data: bytes, *names: str) -> list[TappedAttach]:
    tap = InputTap(ROOM)
    tap.pushed(data, ROOM)
    return [tap.take_attach(name) for name in names]


def test_every_field_of_an_attach_is_read() -> None:
    assert tapped(DRAWN, "sub|global") == [TappedAttach(0, EXPECTED)]


def test_the_channel_is_that_of_the_frame() -> None:
    assert tapped(frame(7, ATTACH, DRAWN_FIELDS), "sub|global")[0].channel == 7


@pytest.mark.parametrize(
    "descriptor",
    [
        pytest.param(b"\x53\x12", id="smallulong"),
        pytest.param(b"\x80\x00\x00\x00\x00\x00\x00\x00\x12", id="ulong"),
        pytest.param(symbol("amqp:attach:list"), id="symbol"),
    ],
)
def test_a_descriptor_is_read_in_each_of_its_encodings(descriptor: bytes) -> None:
    assert tapped(frame(0, descriptor, DRAWN_FIELDS), "sub|global") == [TappedAttach(0, EXPECTED)]


def attach_with_source(source: bytes) -> Attach:
    data = frame(0, ATTACH, list32(text("x"), ZERO, TRUE, NULL, NULL, source))
    return tapped(data, "x")[0].attach


def test_a_null_source_is_told_from_a_source_with_a_null_address() -> None:
    assert attach_with_source(NULL).source is None
    assert attach_with_source(b"\x00\x53\x28\x45").source == Source()
    assert attach_with_source(b"\x00\x53\x28" + list32(NULL)).source == Source()


def test_an_absent_expiry_policy_is_told_from_session_end() -> None:
    absent = attach_with_source(b"\x00\x53\x28" + list32(text("t"), b"\x52\x02")).source
    given_ = attach_with_source(b"\x00\x53\x28" + list32(text("t"), b"\x52\x02", symbol("session-end"))).source
    assert absent is not None
    assert absent.expiry_policy is None
    assert given_ is not None
    assert given_.expiry_policy == "session-end"


def test_one_symbol_stands_for_an_array_of_one() -> None:
    source = attach_with_source(b"\x00\x53\x28" + list32(text("t"), *[NULL] * 9, symbol("topic"))).source
    assert source is not None
    assert source.capabilities == ("topic",)


def test_a_coordinator_is_told_from_a_target() -> None:
    coordinator = b"\x00\x53\x30" + list32(symbols("amqp:local-transactions"))
    data = frame(0, ATTACH, list32(text("x"), ZERO, b"\x42", NULL, NULL, NULL, coordinator, NULL, NULL, ZERO))
    attach = tapped(data, "x")[0].attach
    assert attach.target == Coordinator(capabilities=(Symbol("amqp:local-transactions"),))
    assert attach.initial_delivery_count == 0


def test_an_empty_unsettled_map_is_told_from_none() -> None:
    data = frame(0, ATTACH, list32(text("x"), ZERO, TRUE, NULL, NULL, NULL, NULL, map8()))
    assert tapped(data, "x")[0].attach.unsettled == {}


def test_frames_of_other_kinds_between_attaches_are_passed_over() -> None:
    other = encode_frame(Transfer(handle=0, delivery_id=1, delivery_tag=b"t"), 0, b"payload \x00\x53\x12 of a message")
    data = AMQP_HEADER + encode_frame(None) + DRAWN + other + other + DRAWN + encode_frame(None)
    assert len(tapped(data, "sub|global", "sub|global")) == 2


def test_another_name_than_the_engine_reports_is_an_error() -> None:
    with pytest.raises(TapError, match=r"names 'sub\|global'"):
        tapped(DRAWN, "other")


def test_an_attach_the_input_does_not_hold_is_an_error() -> None:
    with pytest.raises(TapError, match="holds no such attach"):
        tapped(DRAWN, "sub|global", "sub|global")


def test_an_attach_without_its_event_is_an_error_with_the_next_chunk() -> None:
    tap = InputTap(ROOM)
    tap.pushed(DRAWN + DRAWN, ROOM)
    tap.take_attach("sub|global")
    with pytest.raises(TapError, match="no event"):
        tap.pushed(DRAWN, ROOM)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(frame(0, ATTACH, list32(text("x"), ZERO)), "lacks its mandatory field role", id="no-role"),
        pytest.param(
            frame(0, ATTACH, list32(text("x"), TRUE, TRUE)),
            "field handle: uint expected, not boolean",
            id="handle-is-true",
        ),
        pytest.param(frame(0, ATTACH, list32(*[NULL] * 15)), "has 14 fields, not 15", id="too-many-fields"),
        pytest.param(frame(0, ATTACH, text("x")), "is a list, not str", id="not-a-list"),
        pytest.param(frame(0, ATTACH, list32(text("x"), ZERO, TRUE, NULL, NULL, text("t"))), "source", id="bad-source"),
        pytest.param(frame(0, ATTACH, b"\xc0\x10\x01\x41"), "16 bytes where 2 are left", id="beyond-the-frame"),
        pytest.param(b"\x00\x00\x00\x07\x02\x00\x00\x00", "a frame of 7 bytes", id="frame-shorter-than-its-header"),
        pytest.param(b"\x00\x00\x00\x08\x01\x00\x00\x00", "a header of 1 words", id="header-too-short"),
        pytest.param(b"\x00\x00\x00\x08\x03\x00\x00\x00", "a header of 3 words", id="header-beyond-the-frame"),
        pytest.param(frame(0, b"\x53\x12", b"")[:-1], "a frame of 11 bytes where 10 are left", id="not-whole"),
    ],
)
def test_a_malformed_frame_is_a_decode_error(data: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        tapped(data, "x")


def echoing(channel: int, handle: int | None, echo: bool | None) -> bytes:
    flow = Flow(incoming_window=1, next_outgoing_id=0, outgoing_window=1, handle=handle, echo=echo)
    return encode_frame(flow, channel)


def test_only_flows_that_ask_for_an_echo_are_reported() -> None:
    tap = InputTap(ROOM)
    tap.pushed(echoing(1, 4, True) + echoing(2, 5, None) + echoing(3, 6, False) + echoing(4, None, True), ROOM)
    assert [(tapped.channel, tapped.flow.handle) for tapped in tap.echoes()] == [(1, 4), (4, None)]
    tap.pushed(echoing(2, 5, None), ROOM)
    assert tap.echoes() == ()


def test_an_echo_in_a_wide_list_is_seen() -> None:
    fields = list32(NULL, b"\x52\x01", ZERO, b"\x52\x01", b"\x52\x09", NULL, NULL, NULL, NULL, TRUE)
    tap = InputTap(ROOM)
    tap.pushed(frame(0, b"\x53\x13", fields), ROOM)
    assert [(tapped.channel, tapped.flow.handle) for tapped in tap.echoes()] == [(0, 9)]


def in_pieces(tap: InputTap, data: bytes, size: int) -> None:
    """Let the engine take whole frames and keep the rest, as it does in a buffer that never fills."""
    whole = 0
    for at in range(0, len(data), size):
        chunk = data[at : at + size]
        while whole + 4 <= at + len(chunk) and whole + int.from_bytes(data[whole : whole + 4]) <= at + len(chunk):
            whole += int.from_bytes(data[whole : whole + 4])
        tap.pushed(chunk, ROOM - (at + len(chunk) - whole))


@pytest.mark.parametrize("size", [1, 3, 100, 4096, 5000])
def test_a_frame_that_comes_in_pieces_is_read_whole(size: int) -> None:
    transfer = frame(0, b"\x53\x14", list32(ZERO)) + bytes(6000)
    transfer = len(transfer).to_bytes(4, "big") + transfer[4:]
    tap = InputTap(ROOM)
    in_pieces(tap, transfer + DRAWN, size)
    assert tap.take_attach("sub|global") == TappedAttach(0, EXPECTED)
    assert tap.missing == 0


@pytest.mark.parametrize("size", [1, 7, 500, 5990])
def test_what_is_missing_of_a_frame_is_known_once_its_size_is(size: int) -> None:
    tap = InputTap(ROOM)
    sent = (6000).to_bytes(4, "big") + bytes(size - 4) if size >= 4 else bytes(size)
    in_pieces(tap, sent, 2)
    assert tap.missing == (6000 - size if size >= 4 else 0)


@pytest.mark.parametrize("held", [0, 5, 9, 10, 20])
def test_a_flow_of_a_session_is_found_behind_a_large_frame_and_where_it_began_before(held: int) -> None:
    large = (6000).to_bytes(4, "big") + b"\x02\x00\x00\x00" + b"\x00\x53\x14\x45" + bytes(5988)
    data = large + echoing(4, None, True)
    split = len(data) - len(echoing(4, None, True)) + held
    for first in (split, 5900):
        tap = InputTap(ROOM)
        tap.pushed(data[:first], ROOM - (first - 6000 if first >= 6000 else first))
        tap.pushed(data[first:], ROOM)
        assert [(tapped.channel, tapped.flow.handle) for tapped in tap.echoes_of_sessions()] == [(4, None)]


@given(st.binary(max_size=400), st.integers(0, 60), st.binary(max_size=8))
def test_mutated_input_is_attaches_or_an_error_of_the_wire(junk: bytes, at: int, patch: bytes) -> None:
    for data in (junk, DRAWN[:at] + patch + DRAWN[at + len(patch) :], DRAWN + junk):
        tap = InputTap(ROOM)
        try:
            tap.pushed(data, ROOM)
            tap.take_attach("sub|global")
            tap.echoes()
        except WireError:
            pass


def test_attaches_are_compared_field_by_field() -> None:
    # What the comparisons above rest on.
    assert dataclasses.replace(EXPECTED, handle=UInt(1)) != EXPECTED
