"""What the first bytes of a message tell of its order, and that no group is overlooked."""

from __future__ import annotations

import pytest
from broker.queue.ordered_messages import entry, message, order_flags
from hypothesis import given
from hypothesis import strategies as st
from support.encoded_messages import amqp_value, described, fields, mapping, string, symbol

from penstock_amqp.messages.fields import Field, properties_field
from penstock_amqp.messages.message_head import read_head
from penstock_broker.queue.flags import (
    GROUPED,
    LOOK_INSIDE,
    MAX_UNGROUPED,
    group_of,
    priority_of,
    properties_count,
)
from penstock_broker.queue.message_prefix import UNKNOWN, MessagePrefix

NULL = b"\x40"
BODY = amqp_value("x")
ANNOTATIONS = described(0x72, mapping(symbol("x-opt-jms-dest"), b"\x51\x00"))
"""00 53 72 c1 13 02 a3 0e x-opt-jms-dest 51 00: 24 bytes."""


@pytest.mark.parametrize(
    ("priority", "group", "flags"),
    [(4, None, 0), (4, "g", 8), (0, None, 64), (9, None, 208), (200, "g", 216), (5, None, 16)],
)
def test_the_flags_of_a_message_say_its_priority_and_whether_it_has_a_group(
    priority: int, group: str | None, flags: int
) -> None:
    data = message(priority, group)
    assert order_flags(data) == flags


@pytest.mark.parametrize("priority", range(10))
def test_the_level_is_read_back_from_the_flags(priority: int) -> None:
    assert priority_of(entry(1, message(priority), flags=7)) == priority


def test_an_empty_or_unreadable_group_is_none() -> None:
    for data in (
        message(group=""),
        described(0x73, fields(*([NULL] * 10), NULL, b"\x43")) + BODY,  # a group-sequence alone
        b"\x00\x53\x73\xc0\x05\x0b\xa1\xff" + BODY,
    ):
        assert order_flags(data) & GROUPED == 0


def test_the_group_and_its_end_are_read() -> None:
    data = message(group="orders")
    assert group_of(entry(1, data), read_head(data)) == ("orders", False)
    data = message(group="orders", closing=True)
    assert group_of(entry(1, data), read_head(data)) == ("orders", True)


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        (described(0x73, fields(NULL)), (4, 5)),
        (described(0x73, fields(NULL, wide=True)), (4, 11)),
        (described(0x73, b"\x45"), (4, 0)),
        (b"", (3, 0)),
        (ANNOTATIONS, (27, 0)),
        (ANNOTATIONS + described(0x73, fields(NULL)), (28, 29)),
        (described(0x72, mapping(wide=True)), LOOK_INSIDE),
        (b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x73" + fields(NULL), LOOK_INSIDE),
        (b"\x00\x53\x73\xc1\x01\x00", LOOK_INSIDE),
    ],
)
def test_where_the_number_of_properties_is_written(sections: bytes, expected: tuple[int, int]) -> None:
    assert properties_count(sections + BODY, 0) == expected


def test_a_message_cut_short_is_looked_into() -> None:
    for data in (b"", b"\x00\x53\x73", b"\x00\x53\x73\xc0\x01", b"\x00\x53\x73\xd0\x00", b"\x00\x53\x72\xc1"):
        assert properties_count(data, 0) in (LOOK_INSIDE, (3, 0))


def test_what_begins_alike_has_the_same_header() -> None:
    begins = MessagePrefix(message(9), read_head(message(9)))
    assert (begins.flags, begins.durable, begins.ttl_us, begins.start) == (208, False, 0, 9)
    assert message(9, "g").startswith(begins.prefix) is False
    assert begins.prefix == message(9)[:12]
    assert not message().startswith(UNKNOWN.prefix)


def test_delivery_annotations_are_dropped_and_nothing_is_taken_for_alike() -> None:
    data = described(0x71, mapping()) + described(0x73, fields(NULL)) + BODY
    begins = MessagePrefix(data, read_head(data))
    assert not data.startswith(begins.prefix)
    assert (begins.start, begins.head.start) == (0, 0)


def test_only_what_has_annotations_that_are_common_to_delays_may_be_one() -> None:
    """`x-opt-delivery-time` and `x-opt-delivery-delay`; `x-opt-jms-dest` is none of them."""
    delay = described(0x72, mapping(symbol("x-opt-delivery-delay"), b"\x55\x05"))
    late = described(0x71, mapping()) + delay + BODY
    for data, delays in ((delay + BODY, True), (ANNOTATIONS + BODY, False), (late, True), (BODY, False)):
        assert MessagePrefix(data, read_head(data)).delays is delays


def at_time(milliseconds: int) -> bytes:
    return b"\x83" + milliseconds.to_bytes(8, "big")


@pytest.mark.parametrize(
    ("behind_the_encoding", "said"),
    [
        ([NULL, at_time(1_000)], (0, 0)),  # as JMS clients write a message that does not expire
        ([at_time(5_000), at_time(1_000)], (5_000, 0)),
        ([at_time(5_000)], (5_000, 0)),
        ([at_time(0x1740), at_time(1_000)], (0x1740, 0)),  # the byte before the creation time looks like a null
        ([at_time(5_000), NULL], (5_000, 0)),
        ([NULL, at_time(1_000), string("g")], (0, GROUPED)),
        ([at_time(5_000), at_time(1_000), string("g")], (5_000, GROUPED)),
        ([], (0, 0)),
    ],
)
@pytest.mark.parametrize("wide", [False, True])
def test_what_a_message_says_of_its_expiry_and_its_group(
    behind_the_encoding: list[bytes], said: tuple[int, int], *, wide: bool
) -> None:
    data = described(0x73, fields(*([NULL] * 8), *behind_the_encoding, wide=wide)) + BODY
    assert MessagePrefix(data, read_head(data)).look(data) == said


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    header = draw(
        st.sampled_from((b"", described(0x70, fields(b"\x41")), described(0x70, fields(b"\x42", b"\x50\x07"))))
    )
    annotations = draw(st.sampled_from((b"", ANNOTATIONS, described(0x72, mapping(wide=True)))))
    count = draw(st.integers(0, 13))
    items = [string("g") if index == Field.GROUP_ID else NULL for index in range(count)]
    properties = draw(
        st.sampled_from((b"", described(0x73, fields(*items)), described(0x73, fields(*items, wide=True))))
    )
    return header + annotations + properties + BODY


@given(messages(), messages())
def test_a_glance_overlooks_no_group(one: bytes, other: bytes) -> None:
    begins = MessagePrefix(one, read_head(one))
    if other.startswith(begins.prefix) and other[begins.count_at] <= MAX_UNGROUPED:
        assert not properties_field(other, read_head(other).start, Field.GROUP_ID)
        assert begins.durable == read_head(other).durable
