"""Whole messages, against bytes put together by hand and against the real engine."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.encoded_messages import amqp_value, described, fields, mapping, string, symbol

from penstock_amqp.errors import DecodeError
from penstock_amqp.messages.message_codec import Message, Properties, decode_message, encode_message
from penstock_amqp.messages.message_head import Header
from penstock_amqp.types.values import Symbol

proton: Any = importlib.import_module("proton")  # it has no complete type information

FULL = Message(
    header=Header(durable=True, priority=7),
    annotations={Symbol("x-opt-a"): True},
    properties=Properties(message_id="1", reply_to="me", correlation_id="1"),
    application_properties={"operation": "READ", "count": 5},
    body={"a": [1, None]},
)
DRAWN = (
    described(0x70, fields(b"\x41", b"\x50\x07"))
    + described(0x72, mapping(symbol("x-opt-a"), b"\x41"))
    + described(0x73, fields(string("1"), b"\x40", b"\x40", b"\x40", string("me"), string("1")))
    + described(0x74, mapping(string("operation"), string("READ"), string("count"), b"\x55\x05"))
    + described(0x77, mapping(string("a"), fields(b"\x55\x01", b"\x40")))
)


def test_a_message_is_written_and_read_as_drawn() -> None:
    assert encode_message(FULL) == DRAWN
    assert decode_message(DRAWN) == FULL


def test_sections_that_say_nothing_are_left_out() -> None:
    assert encode_message(Message()) == described(0x77, b"\x40")
    assert decode_message(b"") == Message()


@pytest.mark.parametrize(
    "body",
    [pytest.param(described(0x75, b"\xa0\x01x") * 2, id="data"), pytest.param(described(0x76, fields()), id="list")],
)
def test_other_bodies_are_read_as_none(body: bytes) -> None:
    assert decode_message(described(0x73, fields(string("1"))) + body + described(0x78, mapping())).body is None


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(DRAWN[:-1], id="cut-short"),
        pytest.param(described(0x74, fields()) + amqp_value("x"), id="properties-are-a-list"),
        pytest.param(described(0x73, mapping()), id="properties-are-a-map"),
        pytest.param(b"\x41", id="no-section"),
    ],
)
def test_a_malformed_message_is_a_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_message(data)


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8),
        st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), st.booleans()),
        max_size=4,
    ),
)
def test_the_engine_reads_what_we_write_and_we_read_what_it_writes(
    body: str, properties: dict[str, str | bool]
) -> None:
    ours = Message(properties=Properties(correlation_id="7"), application_properties=properties, body=body)
    theirs = proton.Message()
    theirs.decode(encode_message(ours))
    assert (theirs.correlation_id, dict(theirs.properties or {}), theirs.body) == ("7", properties, body)
    again = decode_message(proton.Message(correlation_id="7", properties=properties, body=body).encode())
    assert (again.properties.correlation_id, again.application_properties, again.body) == ("7", properties, body)


@given(st.integers(0, len(DRAWN)), st.binary(max_size=6))
def test_no_bytes_make_it_raise_anything_else(at: int, patch: bytes) -> None:
    try:
        decode_message(DRAWN[:at] + patch + DRAWN[at + len(patch) :])
    except DecodeError:
        return
