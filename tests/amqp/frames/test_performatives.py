"""Composite types: bytes typed by hand from the tables of the specification, and what is refused."""

from __future__ import annotations

import pytest

from penstock_amqp.errors import DecodeError
from penstock_amqp.frames.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Performative,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
)
from penstock_amqp.types.composites import Composite, from_value, to_value
from penstock_amqp.types.decoder import decode_one
from penstock_amqp.types.encoder import encode
from penstock_amqp.types.values import Array, Described, Symbol, UByte, UInt, ULong, UShort, Value

DRAWN = [
    pytest.param(
        Open(
            container_id="c",
            hostname="h",
            max_frame_size=512,
            channel_max=7,
            idle_time_out=1000,
            offered_capabilities=(Symbol("a"), Symbol("b")),
            properties={Symbol("p"): "v"},
        ),
        "005310 c0 28 0a a1 01 63 a1 01 68 70 00000200 60 0007 70 000003e8 40 40 e0 06 02 a3 01 61 01 62 40"
        "c1 07 02 a3 01 70 a1 01 76",
        id="open",
    ),
    pytest.param(
        Begin(remote_channel=1, next_outgoing_id=0, incoming_window=5, outgoing_window=6),
        "005311 c0 09 04 60 0001 43 52 05 52 06",
        id="begin",
    ),
    pytest.param(
        Attach(name="l", handle=1, role=False, snd_settle_mode=2, source=Source(address="q"), initial_delivery_count=0),
        "005312 c0 17 0a a1 01 6c 52 01 42 50 02 40 005328 c0 04 01 a1 01 71 40 40 40 43",
        id="attach",
    ),
    pytest.param(
        Flow(incoming_window=1, next_outgoing_id=2, outgoing_window=3, handle=0, link_credit=9, drain=True),
        "005313 c0 0e 09 40 52 01 52 02 52 03 43 40 52 09 40 41",
        id="flow",
    ),
    pytest.param(
        Transfer(handle=0, delivery_id=1, delivery_tag=b"t", message_format=0, settled=True, more=False),
        "005314 c0 0a 06 43 52 01 a0 01 74 43 41 42",
        id="transfer",
    ),
    pytest.param(
        Disposition(role=True, first=0, last=3, settled=True, state=Accepted()),
        "005315 c0 0a 05 41 43 52 03 41 005324 45",
        id="disposition-accepted",
    ),
    pytest.param(
        Disposition(role=True, first=0, state=Rejected(error=Error(condition=Symbol("x"), description="d"))),
        "005315 c0 17 05 41 43 40 40 005325 c0 0d 01 00531d c0 07 02 a3 01 78 a1 01 64",
        id="disposition-rejected",
    ),
    pytest.param(
        Disposition(role=True, first=0, state=Modified(delivery_failed=True)),
        "005315 c0 0c 05 41 43 40 40 005327 c0 02 01 41",
        id="disposition-modified",
    ),
    pytest.param(
        Disposition(role=True, first=0, state=Released()), "005315 c0 09 05 41 43 40 40 005326 45", id="released"
    ),
    pytest.param(
        Transfer(handle=0, state=Received(section_number=1, section_offset=2)),
        "005314 c0 12 08 43 40 40 40 40 40 40 005323 c0 05 02 52 01 53 02",
        id="transfer-received",
    ),
    pytest.param(
        Disposition(role=True, first=0, state=Described(ULong(0x3F), [b"id"])),
        "005315 c0 0f 05 41 43 40 40 00533f c0 05 01 a0 02 6964",
        id="a-state-that-is-not-ours",
    ),
    pytest.param(Detach(handle=2, closed=True), "005316 c0 04 02 52 02 41", id="detach"),
    pytest.param(End(), "005317 45", id="end"),
    pytest.param(Close(error=Error(condition=Symbol("x"))), "005318 c0 0a 01 00531d c0 04 01 a3 01 78", id="close"),
]


@pytest.mark.parametrize(("composite", "drawn"), DRAWN)
def test_composites_are_written_and_read_as_drawn(composite: Performative, drawn: str) -> None:
    raw = bytes.fromhex(drawn)
    assert encode(to_value(composite)) == raw
    assert from_value(decode_one(raw), Performative) == composite


def listed(descriptor: int, *items: Value) -> Described:
    return Described(ULong(descriptor), list(items))


def test_trailing_nulls_are_the_same_as_absent_fields() -> None:
    long = listed(0x16, UInt(2), None, None)
    assert from_value(long, Detach) == Detach(handle=2)


def test_a_single_symbol_and_an_empty_array_stand_for_several() -> None:
    one = listed(0x29, *[None] * 6, Symbol("topic"))
    assert from_value(one, Target).capabilities == ("topic",)
    none = listed(0x29, *[None] * 6, Array(0xA3, ()))
    assert from_value(none, Target).capabilities == ()


def test_string_keys_are_taken_for_symbols() -> None:
    source = listed(0x28, *[None] * 7, {"selector": "x"})
    assert from_value(source, Source).filter == {"selector": "x"}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        pytest.param("x", "a described list was expected", id="not-described"),
        pytest.param(listed(0x77), "0x77 describes nothing", id="unknown"),
        pytest.param(listed(0x28), "amqp:source:list describes nothing", id="not-a-performative"),
        pytest.param(Described(ULong(0x16), "x"), "is a list, not string", id="not-a-list"),
        pytest.param(listed(0x16), "mandatory field handle", id="missing"),
        pytest.param(listed(0x16, None), "mandatory field handle", id="null"),
        pytest.param(listed(0x16, UInt(0), None, None, None), "has 3 fields, not 4", id="too-many"),
        pytest.param(listed(0x16, UShort(0)), "uint expected, not ushort", id="ushort-for-uint"),
        pytest.param(listed(0x16, UInt(0), UByte(1)), "boolean expected, not ubyte", id="ubyte-for-boolean"),
        pytest.param(listed(0x16, UInt(0), True, listed(0x24)), "describes nothing", id="wrong-inside"),
        pytest.param(
            listed(0x10, "c", *[None] * 6, "x"), "array of symbols expected, not string", id="string-for-symbols"
        ),
        pytest.param(
            listed(0x10, "c", *[None] * 6, Array(0xA1, ("x",))), "not an array of type string", id="strings-for-symbols"
        ),
        pytest.param(listed(0x10, "c", *[None] * 8, []), "map expected, not list", id="list-for-map"),
        pytest.param(
            listed(0x10, "c", *[None] * 8, {UInt(1): None}),
            "keys of this map are symbols, not uint",
            id="number-as-key",
        ),
        pytest.param(listed(0x15, True, UInt(0), None, None, "x"), "delivery state", id="state-is-text"),
    ],
)
def test_what_does_not_fit_is_a_decode_error_that_names_the_field(value: Value, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        from_value(value, Performative, at=4)


def test_a_composite_is_never_read_as_another() -> None:
    with pytest.raises(DecodeError):
        from_value(to_value(Accepted()), Released)
    assert from_value(to_value(Accepted()), Composite) == Accepted()
