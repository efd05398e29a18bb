"""The compiled readers of fields: what each reads, and that it reads what its twin in Python reads, or nothing."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.encoded_messages import amqp_value, described, fields, mapping, string, symbol

import penstock_native
from penstock_amqp.errors import DecodeError
from penstock_amqp.messages import fields as readers
from penstock_amqp.messages import selected_fields
from penstock_amqp.messages.fields import CLASSES, Field, encoded_keys
from penstock_amqp.messages.message_head import read_head
from penstock_amqp.messages.sections import Section
from penstock_amqp.messages.selected_fields import SelectedFields
from penstock_amqp.types import values

native: Any = penstock_native.messages
pytestmark = pytest.mark.skipif(native is None, reason="the engine in Python was chosen")

BODY = amqp_value("m")
KEY = string("k")
WANTED = encoded_keys(["k", "other"])
pick: Callable[..., dict[str, Any]] = readers._pick  # pyright: ignore[reportPrivateUsage]
field_of: Callable[..., Any] = readers._properties_field  # pyright: ignore[reportPrivateUsage]


def picked(data: bytes, start: int = 0, wanted: dict[bytes, str] = WANTED) -> Any:
    return native.picked(data, start, Section.APPLICATION_PROPERTIES, wanted, CLASSES)


def applied(*items: bytes, wide: bool = False) -> bytes:
    return described(0x74, mapping(*items, wide=wide)) + BODY


READ: tuple[tuple[str, object, type], ...] = (
    ("40", None, type(None)),
    ("41", True, bool),
    ("42", False, bool),
    ("56 00", False, bool),
    ("56 01", True, bool),
    ("43", 0, values.UInt),
    ("44", 0, values.ULong),
    ("50 ff", 255, values.UByte),
    ("51 80", -128, values.Byte),
    ("52 ff", 255, values.UInt),
    ("53 ff", 255, values.ULong),
    ("54 ff", -1, values.Int),
    ("55 80", -128, values.Long),
    ("60 ffff", 65_535, values.UShort),
    ("61 8000", -32_768, values.Short),
    ("70 ffffffff", 4_294_967_295, values.UInt),
    ("71 80000000", -2_147_483_648, values.Int),
    ("71 7fffffff", 2_147_483_647, values.Int),
    ("72 3fc00000", 1.5, values.Float32),
    ("72 bf800000", -1.0, values.Float32),
    ("80 ffffffffffffffff", 18_446_744_073_709_551_615, values.ULong),
    ("81 8000000000000000", -9_223_372_036_854_775_808, values.Long),
    ("81 0102030405060708", 72_623_859_790_382_856, values.Long),
    ("82 bff0000000000000", -1.0, float),
    ("83 000000e8d4a51000", 1_000_000_000_000, values.Timestamp),
    ("a1 00", "", str),
    ("a1 02 c3a9", "é", str),
    ("b1 00000003 f09f98", NotImplemented, type(NotImplemented)),
    ("b1 00000004 f09f9880", "😀", str),
)
LEFT_TO_PYTHON = (
    *("56 02", "45", "4f", "73 00000041", "74 00000000", "84 0000000000000000", f"94 {'00' * 16}", f"98 {'00' * 16}"),
    *("a0 01 61", "a3 01 61", "b0 00000001 61", "c0 01 00", "d1 00000004 00000000", "e0 02 00 40", "00 53 01 40"),
    *("a1 01 ff", "a1 03 eda080", "a2 00", "b1 7fffffff 61", "b1 ffffffff 61"),
)


@pytest.mark.parametrize(("encoded", "value", "kind"), READ)
def test_each_usual_value_is_read_as_its_type(encoded: str, value: object, kind: type) -> None:
    raw = bytes.fromhex(encoded)
    found = picked(applied(KEY, raw, string("other"), b"\x41"))
    at = native.properties_field(described(0x73, fields(b"\x40", raw)) + BODY, 0, 1, CLASSES)
    if value is NotImplemented:
        assert found is at is NotImplemented
        return
    assert (found, type(found["k"])) == ({"k": value, "other": True}, kind)
    assert (at, type(at)) == (value, kind)


@pytest.mark.parametrize("encoded", LEFT_TO_PYTHON)
def test_any_other_value_is_left_to_python(encoded: str) -> None:
    raw = bytes.fromhex(encoded)
    assert picked(applied(KEY, raw)) is NotImplemented
    assert native.properties_field(described(0x73, fields(b"\x40", raw)) + BODY, 0, 1, CLASSES) is NotImplemented


@pytest.mark.parametrize("encoded", [encoded for encoded, *_ in READ if len(bytes.fromhex(encoded)) > 1])
def test_a_value_that_is_cut_short_is_left_to_python(encoded: str) -> None:
    raw = bytes.fromhex(encoded)[:-1]
    for behind in (b"", BODY):
        assert picked(described(0x74, mapping(KEY, raw)) + behind) is NotImplemented
        assert native.properties_field(described(0x73, fields(b"\x40", raw)) + behind, 0, 1, CLASSES) is NotImplemented


def test_a_value_that_nobody_wants_is_stepped_over() -> None:
    odd = (string("id"), b"\x98" + bytes(16), string("list"), fields(KEY), symbol("k"), b"\xa0\x01x")
    assert picked(applied(*odd, KEY, b"\x54\x05")) == {"k": 5}
    assert native.properties_field(described(0x73, fields(b"\xa0\x01u", *odd[1:4], b"\x41")), 0, 4, CLASSES) is True


def test_what_is_absent_has_no_value() -> None:
    assert picked(BODY) == picked(b"") == picked(applied()) == picked(applied(string("x"), b"\x41")) == {}
    out_of_order = applied(KEY, b"\x41") + described(0x73, fields(b"\x40", b"\x41"))
    for data in (BODY, b"", described(0x73, b"\x45"), described(0x73, fields(b"\x41")), out_of_order):
        assert native.properties_field(data, 0, 1, CLASSES) is None


def test_what_follows_the_last_that_is_wanted_is_not_looked_at() -> None:
    data = described(0x74, b"\xc1\x08\x04" + KEY + b"\x41" + b"\x00\x00\x00")
    assert picked(data, wanted=encoded_keys(["k"])) == pick(data, 0, 0x74, encoded_keys(["k"])) == {"k": True}
    assert picked(data) is NotImplemented
    assert picked(data, wanted={}) is NotImplemented


def test_a_key_that_comes_twice_has_its_last_value() -> None:
    assert picked(applied(KEY, b"\x41", KEY, b"\x42", string("other"), b"\x40")) == {"k": False, "other": None}


def test_wide_lists_and_maps_are_read_and_one_too_short_for_its_count_is_not() -> None:
    assert picked(applied(KEY, b"\x41", wide=True)) == {"k": True}
    assert native.properties_field(described(0x73, fields(b"\x40", b"\x41", wide=True)), 0, 1, CLASSES) is True
    for head in (b"\xd1\x00\x00\x00\x03\x00\x00\x00", b"\xc1\x00", b"\x45", fields(KEY, b"\x41"), b"\x40"):
        assert picked(described(0x74, head) + BODY) is NotImplemented
    for head in (b"\xd0\x00\x00\x00\x03\x00\x00\x00", b"\xc0\x00", mapping(KEY, b"\x41"), b"\x40"):
        assert native.properties_field(described(0x73, head) + BODY, 0, 1, CLASSES) is NotImplemented


def test_a_map_may_promise_more_than_it_has() -> None:
    """Four thousand million pairs in a few bytes: the end comes first."""
    promised = b"\xd1\x00\x00\x00\x08\xff\xff\xff\xff" + KEY + b"\x41"
    assert picked(described(0x74, promised)) is NotImplemented
    many = b"\xd0\x00\x00\x00\x05\xff\xff\xff\xff\x41"
    assert native.properties_field(described(0x73, many), 0, 255, CLASSES) is NotImplemented


@pytest.mark.parametrize(
    "before",
    [
        pytest.param("00 a3 17 616d71703a70726f706572746965733a6c697374 45", id="named-by-a-symbol"),
        pytest.param("00 80 0000000000000073 45", id="long-descriptor"),
        pytest.param("00 53 79 45", id="unknown-section"),
        pytest.param("00 53 6f 45", id="no-section"),
        pytest.param("00 53 73 00 53 01 45", id="described-value"),
        pytest.param("40", id="no-descriptor"),
        pytest.param("00 40 73 45", id="described-by-null"),
        pytest.param("00 53 73 c0 ff 00", id="beyond-the-end"),
        pytest.param("00 53 73 d0 ffffffff", id="far-beyond-the-end"),
    ],
)
def test_unusual_sections_are_left_to_python(before: str) -> None:
    assert picked(bytes.fromhex(before) + applied(KEY, b"\x41")) is NotImplemented


def test_a_streamed_message_is_left_to_python() -> None:
    class Long(bytes):
        """Its length is not that of its bytes."""

    assert picked(Long(applied(KEY, b"\x41"))) is NotImplemented
    assert native.properties_field(Long(BODY), 0, 0, CLASSES) is NotImplemented


def test_a_start_behind_the_message_is_left_to_python() -> None:
    data = applied(KEY, b"\x41")
    assert picked(data, len(data)) == {}
    assert picked(data, len(data) + 1) is picked(data, 2**62) is NotImplemented
    assert native.properties_field(data, len(data) + 1, 0, CLASSES) is NotImplemented


VALUES = [bytes.fromhex(encoded) for encoded in [*(encoded for encoded, *_ in READ), *LEFT_TO_PYTHON]]
items = (
    st.sampled_from(VALUES) | st.text(max_size=6).map(string) | st.floats().map(lambda it: struct.pack(">Bd", 0x82, it))
)
keys = st.sampled_from([KEY, string("other"), string("third"), symbol("k"), b"\xb1\x00\x00\x00\x01k", b"\x41"])
pairs = st.lists(st.tuples(keys, items), max_size=5)


def a_map(them: list[tuple[bytes, bytes]], *, wide: bool) -> bytes:
    return mapping(*[each for pair in them for each in pair], wide=wide)


def a_list(them: list[bytes], *, wide: bool) -> bytes:
    return fields(*them, wide=wide)


maps = st.builds(a_map, pairs, wide=st.booleans())
sections = {
    0x70: st.builds(a_list, st.lists(items, max_size=3), wide=st.booleans()),
    0x71: maps,
    0x72: maps,
    0x73: st.just(b"\x45") | st.builds(a_list, st.lists(items, max_size=13), wide=st.booleans()),
    0x74: maps,
    0x77: items,
}


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """Whole ones, such with some bytes changed, and such that are cut short."""
    chosen = [code for code in sections if draw(st.booleans())]
    data = b"".join(described(code, draw(sections[code])) for code in chosen)
    for _ in range(draw(st.sampled_from((0, 0, 1, 2)))):
        at, patch = draw(st.integers(0, len(data))), draw(st.binary(max_size=3))
        data = data[:at] + patch + data[at + draw(st.integers(0, 3)) :]
    return data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 3)) == 0 else data


def typed(found: dict[str, Any]) -> dict[str, tuple[type, str]]:
    """Values with their types, and such that a NaN is equal to itself."""
    return {name: (type(each), repr(each)) for name, each in found.items()}


@settings(max_examples=400)
@given(messages(), st.sampled_from((0, 0, 0, 1, 4)))
@example(applied(KEY, b"\x72\x7f\x80\x00\x01"), 0)
@example(applied(KEY, b"\xa1\x01\xff"), 0)
def test_what_is_read_is_what_python_reads(data: bytes, start: int) -> None:
    for section in (Section.MESSAGE_ANNOTATIONS, Section.APPLICATION_PROPERTIES):
        for wanted in (WANTED, encoded_keys(["k"])):
            found = native.picked(data, start, section, wanted, CLASSES)
            if found is not NotImplemented:
                assert typed(found) == typed(pick(data, start, section, wanted))
    for field in Field:
        value = native.properties_field(data, start, field, CLASSES)
        if value is not NotImplemented:
            assert typed({"": value}) == typed({"": field_of(data, start, field)})


def read(names: tuple[str, ...], data: bytes) -> object:
    """What a selector gets, or that nothing can be read."""
    try:
        return typed(SelectedFields(names).read(data, read_head(data)))
    except DecodeError:
        return DecodeError


NAMES = ("k", "other", "third", "JMSType", "JMSCorrelationID", "JMSTimestamp", "JMSPriority")


@settings(max_examples=300)
@given(messages())
@example(applied(KEY, b"\x40", string("other"), b"\xa0\x01x"))
def test_a_selector_gets_the_same_values_with_either_engine(data: bytes) -> None:
    for names in (NAMES, NAMES[:2], NAMES[3:]):
        compiled = read(names, data)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(readers, "_native", None)
            patch.setattr(selected_fields, "_native", None)
            assert compiled == read(names, data)
