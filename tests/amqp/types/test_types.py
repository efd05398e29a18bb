"""The type system: byte vectors typed from AMQP 1.0 part 1, and what must hold for all values and all bytes."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.wire_values import any_value, same

from penstock_amqp.errors import DecodeError, EncodeError
from penstock_amqp.types import values
from penstock_amqp.types.decoder import MAX_DEPTH, decode, decode_one
from penstock_amqp.types.encoder import array_of, encode
from penstock_amqp.types.values import Array, Described, Symbol, Value

# Part 1, 1.1 (the described book), and 1.6: one line per encoding, the bytes as the specification draws them.
BOOK = (
    "00 a3 11" + b"example:book:list".hex() + "c0 40 03"
    "a1 15" + b"AMQP for & by Dummies".hex() + "e0 25 02 a1"
    "0e" + b"Rob J. Godfrey".hex() + "13" + b"Rafael H. Schloming".hex() + "40"
)
VECTORS = [
    pytest.param("40", None, id="null"),
    pytest.param("56 01", True, id="boolean-byte"),
    pytest.param("41", True, id="true"),
    pytest.param("42", False, id="false"),
    pytest.param("50 ff", values.UByte(255), id="ubyte"),
    pytest.param("60 ffff", values.UShort(65535), id="ushort"),
    pytest.param("70 fffffffe", values.UInt(4294967294), id="uint"),
    pytest.param("52 ff", values.UInt(255), id="smalluint"),
    pytest.param("43", values.UInt(0), id="uint0"),
    pytest.param("80 ffffffffffffffff", values.ULong(18446744073709551615), id="ulong"),
    pytest.param("53 24", values.ULong(36), id="smallulong"),
    pytest.param("44", values.ULong(0), id="ulong0"),
    pytest.param("51 80", values.Byte(-128), id="byte"),
    pytest.param("61 8000", values.Short(-32768), id="short"),
    pytest.param("71 80000000", values.Int(-2147483648), id="int"),
    pytest.param("54 ff", values.Int(-1), id="smallint"),
    pytest.param("81 8000000000000000", values.Long(-9223372036854775808), id="long"),
    pytest.param("55 fe", values.Long(-2), id="smalllong"),
    pytest.param("72 3fc00000", values.Float32(1.5), id="float"),
    pytest.param("82 c000000000000000", -2.0, id="double"),
    pytest.param("74 22500001", values.Decimal32(b"\x22\x50\x00\x01"), id="decimal32"),
    pytest.param("84 2238000000000001", values.Decimal64(b"\x22\x38\x00\x00\x00\x00\x00\x01"), id="decimal64"),
    pytest.param("94" + "00" * 15 + "07", values.Decimal128(b"\x00" * 15 + b"\x07"), id="decimal128"),
    pytest.param("73 0001f600", values.Char("\N{GRINNING FACE}"), id="char"),
    pytest.param("83 000000e8d4a51000", values.Timestamp(1_000_000_000_000), id="timestamp"),
    pytest.param("98 f81d4fae7dec11d0a76500a0c91e6bf6", uuid.UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6"), id="uuid"),
    pytest.param("a0 03 010203", b"\x01\x02\x03", id="vbin8"),
    pytest.param("b0 00000001 ff", b"\xff", id="vbin32"),
    pytest.param("a1 1e" + b"Hello Glorious Messaging World".hex(), "Hello Glorious Messaging World", id="str8"),
    pytest.param("b1 00000002 c3a4", "ä", id="str32"),
    pytest.param("a3 05 746f706963", Symbol("topic"), id="sym8"),
    pytest.param("b3 00000005 746f706963", Symbol("topic"), id="sym32"),
    pytest.param("45", [], id="list0"),
    pytest.param("c0 03 02 41 40", [True, None], id="list8"),
    pytest.param("d0 00000006 00000002 41 40", [True, None], id="list32"),
    pytest.param("c1 05 02 a3 01 61 43", {Symbol("a"): values.UInt(0)}, id="map8"),
    pytest.param("d1 00000008 00000002 a3 01 61 43", {Symbol("a"): values.UInt(0)}, id="map32"),
    pytest.param("e0 06 02 a3 01 61 01 62", Array(0xA3, (Symbol("a"), Symbol("b"))), id="array8"),
    pytest.param("f0 00000007 00000001 60 0102", Array(0x60, (values.UShort(258),)), id="array32"),
    pytest.param("e0 02 03 41", Array(0x41, (True, True, True)), id="array-of-true"),
    pytest.param(
        "e0 09 02 00 53 24 c0 01 00 01 00", Array(0xC0, ([], []), values.ULong(0x24)), id="array-of-described-lists"
    ),
    pytest.param(
        BOOK,
        Described(
            Symbol("example:book:list"),
            ["AMQP for & by Dummies", Array(0xA1, ("Rob J. Godfrey", "Rafael H. Schloming")), None],
        ),
        id="described-book-of-section-1.1",
    ),
]


@pytest.mark.parametrize(("drawn", "value"), VECTORS)
def test_the_encodings_of_the_specification_are_read(drawn: str, value: Value) -> None:
    data = bytes.fromhex(drawn)
    assert same(decode_one(data), value)
    # The same value at another place of a longer buffer.
    assert decode(b"\x41" + data + b"\x40", 1)[1] == 1 + len(data)


@pytest.mark.parametrize(
    ("value", "drawn"),
    [
        pytest.param(values.UInt(0), "43", id="uint0"),
        pytest.param(values.UInt(255), "52 ff", id="smalluint"),
        pytest.param(values.UInt(256), "70 00000100", id="uint"),
        pytest.param(values.ULong(0), "44", id="ulong0"),
        pytest.param(7, "55 07", id="plain-int-is-long"),
        pytest.param(128, "81 0000000000000080", id="long"),
        pytest.param(values.Int(-129), "71 ffffff7f", id="int"),
        pytest.param(0.5, "82 3fe0000000000000", id="plain-float-is-double"),
        pytest.param("a", "a1 01 61", id="plain-str-is-string"),
        pytest.param(Symbol("a"), "a3 01 61", id="symbol"),
        pytest.param((), "45", id="empty-tuple-is-list0"),
        pytest.param((True,), "c0 02 01 41", id="tuple-is-list"),
        pytest.param({}, "c1 01 00", id="empty-map"),
        pytest.param(Array(0xA3, (Symbol("ab"),)), "e0 05 01 a3 02 6162", id="array"),
        pytest.param("x" * 256, "b1 00000100" + "78" * 256, id="str32"),
        pytest.param(b"\0" * 255, "a0 ff" + "00" * 255, id="vbin8"),
        pytest.param([True] * 255, "d0 00000103 000000ff" + "41" * 255, id="list32-when-the-size-needs-it"),
        pytest.param([True] * 254, "c0 ff fe" + "41" * 254, id="list8-to-the-last-byte"),
    ],
)
def test_a_value_is_written_in_its_shortest_encoding(value: object, drawn: str) -> None:
    assert encode(value) == bytes.fromhex(drawn)


@given(any_value)
def test_what_is_written_is_read_again_as_the_same_type(value: Value) -> None:
    assert same(decode_one(encode(value)), value)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_decode_error(data: bytes) -> None:
    try:
        _, end = decode(data)
    except DecodeError as error:
        assert 0 <= error.offset <= len(data)
    else:
        assert 0 < end <= len(data)


@given(any_value, st.data())
def test_a_value_cut_short_is_a_decode_error(value: Value, data: st.DataObject) -> None:
    encoded = encode(value)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(DecodeError):
        decode(encoded[:cut])


@pytest.mark.parametrize(
    ("drawn", "offset"),
    [
        pytest.param("", 0, id="nothing"),
        pytest.param("3f", 0, id="unknown-code"),
        pytest.param("56 02", 1, id="boolean-of-two"),
        pytest.param("a1 05 6162", 2, id="string-longer-than-the-data"),
        pytest.param("a1 01 ff", 2, id="not-utf-8"),
        pytest.param("a3 01 e4", 2, id="not-ascii"),
        pytest.param("73 0000d800", 1, id="surrogate"),
        pytest.param("73 00110000", 1, id="beyond-unicode"),
        pytest.param("c0 01 05", 3, id="more-items-than-bytes"),
        pytest.param("c0 03 01 41 41", 4, id="more-bytes-than-items"),
        pytest.param("c0 02 01 60 0001", 4, id="item-that-leaves-its-list"),
        pytest.param("c1 02 01 41", 4, id="key-without-value"),
        pytest.param("c1 03 02 45 41", 5, id="list-as-a-key"),
        pytest.param("c1 09 04 a3 01 61 41 a3 01 61 42", 11, id="same-key-twice"),
        pytest.param("00 a1 03 55524c 41", 1, id="descriptor-of-a-reserved-type"),
        pytest.param("e0 04 01 00 44 00", 5, id="array-with-two-descriptors"),
    ],
)
def test_an_error_names_the_offset(drawn: str, offset: int) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_one(bytes.fromhex(drawn))
    assert caught.value.offset == offset
    assert f"byte {offset}" in str(caught.value)


def test_bytes_between_the_items_of_a_list_and_its_end_are_an_error() -> None:
    # A list of one list, which says one item and holds two.
    with pytest.raises(DecodeError, match="1 bytes too many at the end of a compound value"):
        decode(bytes.fromhex("c0 06 01 c0 03 01 41 41"))


def test_bytes_behind_the_only_value_are_an_error() -> None:
    with pytest.raises(DecodeError, match="1 bytes too many"):
        decode_one(b"\x41\x41")


def nested_list(depth: int) -> bytes:
    data = b"\x45"
    for _ in range(depth):
        data = b"\xd0" + (len(data) + 4).to_bytes(4, "big") + b"\0\0\0\x01" + data
    return data


def test_depth_is_bounded() -> None:
    assert decode_one(nested_list(MAX_DEPTH)) is not None
    with pytest.raises(DecodeError, match="nested deeper"):
        decode_one(nested_list(MAX_DEPTH + 1))


def test_a_chain_of_descriptors_is_bounded_like_any_nesting() -> None:
    with pytest.raises(DecodeError, match="nested deeper"):
        decode_one(b"\x00\x44" * 5000 + b"\x40")


def test_array_items_that_take_no_bytes_are_bounded_over_the_whole_value() -> None:
    one = b"\xf0\x00\x00\x00\x05\x00\x00\x80\x00\x40"  # 32,768 nulls in ten bytes
    twice = b"\xc0" + bytes((1 + 2 * len(one), 2)) + one * 2
    assert len(twice) == 23
    decode_one(twice)
    thrice = b"\xc0" + bytes((1 + 3 * len(one), 3)) + one * 3
    with pytest.raises(DecodeError, match="65536 array items"):
        decode_one(thrice)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(values.UInt(-1), id="negative-uint"),
        pytest.param(values.UInt(2**32), id="uint-too-large"),
        pytest.param(2**63, id="long-too-large"),
        pytest.param(Symbol("ä"), id="symbol-beyond-ascii"),
        pytest.param("\ud800", id="lone-surrogate"),
        pytest.param(values.Char("ab"), id="two-characters"),
        pytest.param(values.Decimal32(b"1"), id="short-decimal"),
        pytest.param(object(), id="no-amqp-type"),
        pytest.param({"a": {1, 2}}, id="no-amqp-type-inside"),
        pytest.param(Array(0xA3, (5,)), id="array-item-of-another-type"),
        pytest.param(Array(0x41, (False,)), id="array-of-true-with-false"),
        pytest.param(Array(0xD0, ("x",)), id="array-of-lists-with-a-string"),
        pytest.param(Array(0x3F, (1,)), id="unknown-array-code"),
        pytest.param(Array(0xA1, ("x" * 256,)), id="array-item-too-long-for-its-code"),
    ],
)
def test_what_amqp_cannot_carry_is_an_encode_error(value: object) -> None:
    with pytest.raises(EncodeError):
        encode(value)


def test_array_of_chooses_a_code_that_fits_all_items() -> None:
    assert array_of((values.UInt(0), values.UInt(300))).code == 0x70
    assert array_of((Symbol("a"), Symbol("b" * 300))).code == 0xB3
    assert array_of((True, False)).code == 0x56
    assert array_of((Symbol("a"),)).code == 0xA3
    with pytest.raises(EncodeError):
        array_of((Symbol("a"), "a"))
