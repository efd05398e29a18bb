"""Sections and single fields of a message put together by hand, as the JMS client sends it."""

from __future__ import annotations

import contextlib
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.encoded_messages import amqp_value, described, fields, mapping, string, symbol

from penstock_amqp.errors import DecodeError
from penstock_amqp.messages.fields import (
    Field,
    annotation,
    application_properties,
    encoded_keys,
    expiry_and_group,
    group_fields,
    properties_field,
)
from penstock_amqp.messages.message_head import read_head
from penstock_amqp.messages.sections import Section, check_sections, end_of, find_section
from penstock_amqp.messages.selected_fields import SelectedFields
from penstock_amqp.types.values import Byte, Int, Timestamp, ULong, Value

HEADER = described(0x70, fields(b"\x41", b"\x50\x07"))
ANNOTATIONS = described(
    0x72,
    mapping(
        symbol("x-opt-jms-msg-type"), b"\x51\x05",
        symbol("x-opt-delivery-time"), b"\x83\x00\x00\x00\xe8\xd4\xa5\x10\x00",
    ),
)  # fmt: skip
ID = b"\x98" + bytes(range(16))
PROPERTIES = described(
    0x73,
    fields(
        string("ID:1"), b"\xa0\x05alice", string("prices"), string("gold"), string("answers"), ID,
        symbol("text/plain"), symbol("gzip"), b"\x83\x00\x00\x00\xe8\xd4\xa5\x10\x01",
        b"\x83\x00\x00\x00\xe8\xd4\xa5\x10\x02", string("group"), b"\x52\x07", string("back"),
    ),
)  # fmt: skip
APPLICATION = described(
    0x74,
    mapping(string("colour"), string("röt"), string("weight"), b"\x71\x00\x00\x01\x00", string("raw"), b"\xa0\x01x",
            string("none"), b"\x40", string("ok"), b"\x41", string("price"), b"\x82\x40\x08\x00\x00\x00\x00\x00\x00"),
)  # fmt: skip
BODY = amqp_value("hello")
FOOTER = described(0x78, mapping(symbol("x-crc"), b"\x51\x05"))
MESSAGE = HEADER + ANNOTATIONS + PROPERTIES + APPLICATION + BODY
START = len(HEADER)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (Field.MESSAGE_ID, "ID:1"),
        (Field.USER_ID, b"alice"),
        (Field.TO, "prices"),
        (Field.SUBJECT, "gold"),
        (Field.REPLY_TO, "answers"),
        (Field.CORRELATION_ID, uuid.UUID(bytes=bytes(range(16)))),
        (Field.CONTENT_TYPE, "text/plain"),
        (Field.CONTENT_ENCODING, "gzip"),
        (Field.ABSOLUTE_EXPIRY_TIME, Timestamp(1_000_000_000_001)),
        (Field.CREATION_TIME, Timestamp(1_000_000_000_002)),
        (Field.GROUP_ID, "group"),
        (Field.GROUP_SEQUENCE, 7),
        (Field.REPLY_TO_GROUP_ID, "back"),
    ],
)
def test_each_field_of_the_properties_is_found(field: Field, value: Value) -> None:
    assert properties_field(MESSAGE, START, field) == value


def test_a_field_that_is_absent_is_none() -> None:
    short = described(0x73, fields(string("ID:1"), b"\x40")) + BODY
    assert properties_field(short, 0, Field.USER_ID) is None
    assert properties_field(short, 0, Field.SUBJECT) is None
    assert properties_field(described(0x73, b"\x45") + BODY, 0, Field.MESSAGE_ID) is None
    assert properties_field(BODY, 0, Field.MESSAGE_ID) is None
    assert properties_field(APPLICATION + BODY, 0, Field.MESSAGE_ID) is None


def test_wide_lists_and_maps_are_read_too() -> None:
    data = described(0x72, mapping(symbol("a"), string("1"), wide=True))
    data += described(0x73, fields(b"\x40", b"\x40", string("to"), wide=True))
    data += described(0x74, mapping(string("k"), b"\x54\x05", wide=True)) + BODY
    assert annotation(data, 0, "a") == "1"
    assert properties_field(data, 0, Field.TO) == "to"
    assert application_properties(data, 0, encoded_keys(["k"])) == {"k": 5}


def test_an_annotation_is_found_by_its_name() -> None:
    assert annotation(MESSAGE, START, "x-opt-delivery-time") == Timestamp(1_000_000_000_000)
    assert type(annotation(MESSAGE, START, "x-opt-jms-msg-type")) is Byte
    assert annotation(MESSAGE, START, "x-opt-other") is None
    assert annotation(PROPERTIES + BODY, 0, "x-opt-delivery-time") is None


_EXPIRY = b"\x83\x00\x00\x00\xe8\xd4\xa5\x10\x01"
_NO = b"\x40"


@pytest.mark.parametrize(
    ("items", "expiry", "group", "sequence"),
    [
        pytest.param([_NO] * 8, None, None, None, id="too-short-for-either"),
        pytest.param([*[_NO] * 8, _EXPIRY], 1_000_000_000_001, None, None, id="an-expiry-alone"),
        pytest.param([*[_NO] * 10, string("g")], None, "g", None, id="a-group-alone"),
        pytest.param([*[_NO] * 8, _EXPIRY, _NO, string("g"), b"\x52\x07"], 1_000_000_000_001, "g", 7, id="all"),
        pytest.param([string("id"), *[_NO] * 9, b"\xb1\x00\x00\x00\x01g", b"\x43"], None, "g", 0, id="wide-text"),
    ],
)
def test_expiry_and_group_are_read_in_one_go(items: list[bytes], expiry: Value, group: Value, sequence: Value) -> None:
    data = described(0x73, fields(*items)) + BODY
    assert expiry_and_group(data, 0) == (expiry, group is not None)
    assert group_fields(data, 0) == (group, sequence)


def test_a_message_without_properties_has_neither_expiry_nor_group() -> None:
    assert expiry_and_group(APPLICATION + BODY, 0) == (None, False)
    assert group_fields(APPLICATION + BODY, 0) == (None, None)


@pytest.mark.parametrize("group", [b"\xa1\x00", b"\xa1\x01\xff", b"\xa1\xf0g"])
def test_a_group_that_is_empty_or_can_not_be_read_is_none(group: bytes) -> None:
    data = described(0x73, fields(*[_NO] * 8, _EXPIRY, _NO, group))
    assert expiry_and_group(data, 0) == (1_000_000_000_001, False)


@pytest.mark.parametrize("sequence", [b"\xa1\x01\xff", b"\x52", b"\xff"])
def test_a_sequence_that_can_not_be_read_is_none(sequence: bytes) -> None:
    """A queue asks for it when it hands out: an error there would come with each visit."""
    assert group_fields(described(0x73, fields(*[_NO] * 10, string("g"), sequence)), 0) == ("g", None)


def test_only_wanted_application_properties_are_read() -> None:
    found = application_properties(MESSAGE, START, encoded_keys(["weight", "colour", "absent"]))
    assert found == {"colour": "röt", "weight": 256}
    assert type(found["weight"]) is Int


def test_a_property_that_nobody_wants_may_be_of_any_type() -> None:
    odd = mapping(string("list"), fields(string("x")), string("map"), mapping(), string("last"), b"\x41")
    assert application_properties(described(0x74, odd), 0, encoded_keys(["last"])) == {"last": True}


@pytest.mark.parametrize(
    ("data", "at", "end"),
    [
        pytest.param("40", 0, 1, id="null"),
        pytest.param("71 00000000 40", 0, 5, id="int"),
        pytest.param("98" + "00" * 16, 0, 17, id="uuid"),
        pytest.param("a1 02 6162 40", 0, 4, id="str8"),
        pytest.param("b1 00000001 61 40", 0, 6, id="str32"),
        pytest.param("00 53 70 45 40", 0, 4, id="described"),
        pytest.param("00 a3 01 61 00 44 45 40", 0, 7, id="described-twice"),
    ],
)
def test_values_are_stepped_over_by_their_width(data: str, at: int, end: int) -> None:
    assert end_of(bytes.fromhex(data), at) == end


@pytest.mark.parametrize("data", ["", "a1", "a1 02 61", "71 0000", "b1 0000", "00 53", "00 00 40", "10", "3f"])
def test_what_cannot_be_stepped_over_is_a_decode_error(data: str) -> None:
    with pytest.raises(DecodeError):
        end_of(bytes.fromhex(data), 0)


def test_sections_are_found_in_order() -> None:
    assert MESSAGE[find_section(MESSAGE, START, Section.AMQP_VALUE) :] == string("hello")
    assert find_section(MESSAGE, START, Section.DATA) == -1
    assert find_section(MESSAGE, START, Section.FOOTER) == -1
    check_sections(MESSAGE, 0)


def test_a_footer_may_stand_before_the_body() -> None:
    """rhea writes it there."""
    check_sections(PROPERTIES + FOOTER + BODY, 0)
    with pytest.raises(DecodeError, match="not in order"):
        check_sections(BODY + FOOTER + PROPERTIES, 0)


def test_sections_out_of_order_or_cut_short_are_told() -> None:
    with pytest.raises(DecodeError, match="not in order"):
        check_sections(PROPERTIES + ANNOTATIONS + BODY, 0)
    with pytest.raises(DecodeError):
        check_sections(MESSAGE[:-1], 0)


@pytest.mark.parametrize(
    "section",
    [
        pytest.param(described(0x73, b"\xa1\x01a"), id="string"),
        pytest.param(described(0x73, b"\xc0\x00"), id="list-without-count"),
        pytest.param(described(0x73, b"\xc0\x09\x05"), id="list-cut-short"),
        pytest.param(described(0x73, b"\xc0\x02\x04\xa1"), id="item-cut-short"),
        pytest.param(described(0x73, b""), id="no-value"),
        pytest.param(b"\x00\x53\x79\x45", id="unknown-section"),
    ],
)
def test_a_malformed_section_is_a_decode_error_when_it_is_looked_at(section: bytes) -> None:
    with pytest.raises(DecodeError):
        properties_field(section, 0, Field.SUBJECT)


def test_the_identifiers_of_jms_stand_for_fields_of_amqp() -> None:
    names = ["JMSDeliveryMode", "JMSPriority", "JMSXDeliveryCount", "JMSMessageID", "JMSCorrelationID", "JMSType",
             "JMSTimestamp", "JMSExpiration", "JMSDestination", "JMSReplyTo", "JMSXUserID", "JMSXGroupID",
             "JMSXGroupSeq"]  # fmt: skip
    assert SelectedFields(names).read(MESSAGE, read_head(MESSAGE)) == {
        "JMSDeliveryMode": "PERSISTENT",
        "JMSPriority": 7,
        "JMSXDeliveryCount": 1,
        "JMSMessageID": "ID:1",
        "JMSCorrelationID": "ID:AMQP_UUID:00010203-0405-0607-0809-0a0b0c0d0e0f",
        "JMSType": "gold",
        "JMSTimestamp": 1_000_000_000_002,
        "JMSExpiration": 1_000_000_000_001,
        "JMSDestination": "prices",
        "JMSReplyTo": "answers",
        "JMSXUserID": "alice",
        "JMSXGroupID": "group",
        "JMSXGroupSeq": 7,
    }


def test_every_other_identifier_is_an_application_property() -> None:
    names = ["colour", "weight", "ok", "price", "raw", "none", "absent"]
    read = SelectedFields(names).read(MESSAGE, read_head(MESSAGE))
    assert read == {"colour": "röt", "weight": 256, "ok": True, "price": 3.0, "raw": None, "none": None}


def test_what_a_message_lacks_has_no_value() -> None:
    names = ["JMSType", "JMSMessageID", "JMSTimestamp", "colour", "JMSDeliveryMode", "JMSPriority"]
    read = SelectedFields(names).read(BODY, read_head(BODY))
    assert read == {"JMSDeliveryMode": "NON_PERSISTENT", "JMSPriority": 4}


@pytest.mark.parametrize(
    ("encoded", "shown"),
    [
        pytest.param(string("ID:abc"), "ID:abc", id="usual"),
        pytest.param(string("abc"), "ID:AMQP_NO_PREFIX:abc", id="no-prefix"),
        pytest.param(string("ID:AMQP_UUID:x"), "ID:AMQP_STRING:ID:AMQP_UUID:x", id="looks-typed"),
        pytest.param(b"\x80\x00\x00\x00\x00\x00\x00\x01\x00", "ID:AMQP_ULONG:256", id="ulong"),
        pytest.param(b"\xa0\x02\xab\x01", "ID:AMQP_BINARY:AB01", id="binary"),
    ],
)
def test_a_message_id_is_shown_as_the_jms_client_shows_it(encoded: bytes, shown: str) -> None:
    data = described(0x73, fields(encoded)) + BODY
    assert SelectedFields(["JMSMessageID"]).read(data, read_head(data)) == {"JMSMessageID": shown}


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        pytest.param("order 7", "order 7", id="no-prefix-of-ours"),
        pytest.param("ID:AMQP_ULONG:7", "ID:AMQP_STRING:ID:AMQP_ULONG:7", id="looks-typed"),
    ],
)
def test_a_correlation_id_is_shown_as_the_jms_client_shows_it(sent: str, shown: str) -> None:
    data = described(0x73, fields(*[b"\x40"] * 5, string(sent))) + BODY
    assert SelectedFields(["JMSCorrelationID"]).read(data, read_head(data)) == {"JMSCorrelationID": shown}


def test_a_ulong_is_told_from_other_integers() -> None:
    assert isinstance(properties_field(described(0x73, fields(b"\x44")), 0, Field.MESSAGE_ID), ULong)


@pytest.mark.parametrize(
    "descriptor",
    [
        pytest.param(b"\x45", id="list0"),
        pytest.param(b"\xc1\x01\x00", id="map8"),
        pytest.param(b"\x82\x40\x5d\x00\x00\x00\x00\x00\x00", id="double-116"),  # equals 0x74 as a number
    ],
)
def test_only_a_number_or_a_symbol_describes_a_section(descriptor: bytes) -> None:
    with pytest.raises(DecodeError, match="not the descriptor of a section"):
        check_sections(b"\x00" + descriptor + b"\xa1\x05hello", 0)


@given(st.integers(0, len(MESSAGE) - START), st.binary(max_size=5))
def test_no_bytes_make_it_raise_anything_else(at: int, patch: bytes) -> None:
    data = MESSAGE[: START + at] + patch + MESSAGE[START + at + len(patch) :]
    for look in (
        lambda: properties_field(data, START, Field.REPLY_TO_GROUP_ID),
        lambda: annotation(data, START, "x-opt-delivery-time"),
        lambda: application_properties(data, START, encoded_keys(["ok", "price"])),
        lambda: expiry_and_group(data, START),
        lambda: group_fields(data, START),
        lambda: check_sections(data, START),
    ):
        with contextlib.suppress(DecodeError):
            look()
