"""Absolute expiry, delivery time and delay in encoded messages; bytes typed by hand from AMQP 1.0 part 1, 1.6."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.encoded_messages import amqp_value, described, fields, mapping, string, symbol

from penstock_amqp.errors import DecodeError
from penstock_amqp.messages.message_codec import Message, Properties, decode_message, encode_message
from penstock_amqp.messages.message_head import read_head
from penstock_amqp.messages.times import may_expire, requested_times, without_expiry
from penstock_core.message_times import NO_REQUESTED_TIMES, RequestedTimes

NULL = b"\x40"


def time(milliseconds: int) -> bytes:
    return b"\x83" + milliseconds.to_bytes(8, "big", signed=True)


def long(value: int) -> bytes:
    return b"\x81" + value.to_bytes(8, "big", signed=True)


def annotated(*items: bytes) -> bytes:
    return described(0x72, mapping(*items)) + amqp_value("x")


def said(data: bytes) -> RequestedTimes:
    return requested_times(data, read_head(data))


# What the JMS client writes: id, user, to, subject, reply-to, correlation, type, encoding, expiry, creation.
ID = string("ID:7f2b:1:1:1-1")
JMS = (ID, NULL, string("orders"), NULL, NULL, NULL, NULL, NULL)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    ("items", "expiry"),
    [
        ((), None),
        ((ID,), None),
        (JMS, None),
        ((*JMS, time(77)), 77),
        ((*JMS, NULL, time(5)), None),
        ((*JMS, time(77), time(5)), 77),
        ((*JMS, time(0x40), time(5)), 0x40),  # ends like a null
        ((*JMS, time(77), NULL), 77),
        ((*JMS, NULL, NULL), None),
        ((*JMS, NULL, time(5), string("group")), None),
        ((*JMS, time(77), time(5), string("group")), 77),
    ],
)
def test_the_absolute_expiry_is_found(items: tuple[bytes, ...], expiry: int | None, wide: bool) -> None:
    data = described(0x73, fields(*items, wide=wide)) + amqp_value("x")
    assert said(data).absolute_expiry_ms == expiry


def test_messages_of_jms_clients_need_no_further_look() -> None:
    section = fields(*JMS, NULL, time(1_700_000_000_000))
    assert not may_expire(described(0x73, section), 3)
    assert may_expire(described(0x73, fields(*JMS, time(1), time(2))), 3)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1) | st.none(), st.text(max_size=20))
def test_no_expiry_is_ever_overlooked(expiry: int, creation: int | None, subject: str) -> None:
    items = (ID, NULL, NULL, string(subject), NULL, NULL, NULL, NULL, time(expiry))
    data = described(0x73, fields(*items, NULL if creation is None else time(creation))) + amqp_value("x")
    assert said(data).absolute_expiry_ms == expiry


@pytest.mark.parametrize(
    ("items", "wished"),
    [
        ((symbol("x-opt-jms-dest"), b"\x51\x00"), NO_REQUESTED_TIMES),
        ((symbol("x-opt-delivery-time"), long(99)), RequestedTimes(delivery_time_ms=99)),
        ((symbol("x-opt-delivery-time"), time(99)), RequestedTimes(delivery_time_ms=99)),
        ((symbol("x-opt-delivery-delay"), b"\x52\x07"), RequestedTimes(delivery_delay_ms=7)),
        ((symbol("x-opt-delivery-time"), string("tomorrow")), NO_REQUESTED_TIMES),
        ((symbol("x-opt-delivery-time"), b"\x41"), NO_REQUESTED_TIMES),
        ((symbol("x"), string("x-opt-delivery-time")), NO_REQUESTED_TIMES),
    ],
)
def test_the_delivery_time_is_found(items: tuple[bytes, ...], wished: RequestedTimes) -> None:
    assert said(annotated(*items)) == wished


def test_a_message_of_a_body_alone_wishes_nothing() -> None:
    assert said(amqp_value("x")) is NO_REQUESTED_TIMES


@pytest.mark.parametrize("end", [3, 4, 5])
def test_properties_that_are_cut_short_are_malformed(end: int) -> None:
    data = described(0x73, fields(*JMS, NULL, time(5)))[:end]
    with pytest.raises(DecodeError):
        requested_times(data, read_head(b"\x00\x53\x77\x40")._replace(start=0))


def test_a_message_without_expiry_is_the_same_otherwise() -> None:
    data = described(0x70, fields(b"\x41", NULL, b"\x52\x63", NULL, b"\x52\x02")) + encode_message(
        Message(
            annotations={"x-opt-a": 1},
            properties=Properties(message_id="m", absolute_expiry_time=9, creation_time=8, group_id="g"),
            application_properties={"k": "v"},
            body="x",
        )
    )
    again = decode_message(without_expiry(data, read_head(data)))
    assert (again.header.durable, again.header.ttl, again.header.delivery_count) == (True, None, None)
    assert again.properties == Properties(message_id="m", creation_time=8, group_id="g")
    assert (again.annotations, again.application_properties, again.body) == ({"x-opt-a": 1}, {"k": "v"}, "x")


def test_properties_without_expiry_are_left_byte_by_byte() -> None:
    section = described(0x73, fields(ID, wide=True)) + amqp_value("x")
    assert without_expiry(section, read_head(section)).endswith(section)
