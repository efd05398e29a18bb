"""The head of a message, read and rewritten; bytes typed from part 3, section 3.2."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.encoded_messages import amqp_value, described, fields, mapping, string, symbol

from penstock_amqp.errors import DecodeError
from penstock_amqp.messages import message_head
from penstock_amqp.messages.message_head import (
    Head,
    forwarded,
    read_head,
    with_annotations,
    with_delivery_count,
    with_header,
)
from penstock_amqp.types.values import Symbol

BODY = amqp_value("hello")
# durable, priority 9, ttl 60,000, first-acquirer, delivery-count 2
FULL_HEADER = bytes.fromhex("005370 c0 0c 05 41 50 09 70 0000ea60 41 52 02")
DURABLE = bytes.fromhex("005370 c0 02 01 41")
DELIVERY_ANNOTATIONS = described(0x71, mapping(symbol("x-opt-hop"), b"\x41"))


@pytest.fixture(autouse=True)
def forget_headers() -> Iterator[None]:
    message_head._memo.clear()  # pyright: ignore[reportPrivateUsage]  # each test starts without a memory
    yield


HEADS = [
    pytest.param(FULL_HEADER + BODY, Head(True, 9, 60_000, True, 2, 17, 17), id="full"),
    pytest.param(DURABLE + BODY, Head(True, 4, None, False, 0, 7, 7), id="durable"),
    pytest.param(bytes.fromhex("005370 45") + BODY, Head(False, 4, None, False, 0, 4, 4), id="empty"),
    pytest.param(bytes.fromhex("005370 c0 01 00") + BODY, Head(False, 4, None, False, 0, 6, 6), id="empty-list8"),
    pytest.param(
        bytes.fromhex("005370 d0 00000005 00000001 41") + BODY, Head(True, 4, None, False, 0, 13, 13), id="list32"
    ),
    pytest.param(BODY, Head(False, 4, None, False, 0, 0, 0), id="no-header"),
    pytest.param(
        bytes.fromhex("00 80 0000000000000070 c0 02 01 41") + BODY, Head(True, 4, None, False, 0, 14, 14), id="ulong"
    ),
    pytest.param(
        b"\x00" + symbol("amqp:header:list") + fields(b"\x41") + BODY,
        Head(True, 4, None, False, 0, 23, 23),
        id="symbolic",
    ),
    pytest.param(
        DURABLE + DELIVERY_ANNOTATIONS + BODY,
        Head(True, 4, None, False, 0, 7, 7 + len(DELIVERY_ANNOTATIONS)),
        id="delivery-annotations",
    ),
    pytest.param(
        DURABLE + b"\x00" + symbol("amqp:delivery-annotations:map") + mapping() + BODY,
        Head(True, 4, None, False, 0, 7, 42),
        id="symbolic-delivery-annotations",
    ),
    pytest.param(
        DELIVERY_ANNOTATIONS + BODY,
        Head(False, 4, None, False, 0, 0, len(DELIVERY_ANNOTATIONS)),
        id="delivery-annotations-alone",
    ),
]


@pytest.mark.parametrize(("data", "head"), HEADS)
def test_the_head_is_read_the_first_time_and_every_other_time(data: bytes, head: Head) -> None:
    assert read_head(data) == head
    assert read_head(data) == head
    assert read_head(data + b"") == head


@pytest.mark.parametrize(("data", "head"), HEADS)
def test_a_remembered_header_is_not_mistaken_for_another_message(data: bytes, head: Head) -> None:
    read_head(data)
    for other in HEADS:
        assert read_head(other.values[0]) == other.values[1]  # type: ignore[arg-type]  # values of the table above


def test_delivery_annotations_of_another_length_are_measured_again() -> None:
    for name in ("x-opt-a", "x-opt-longer", "x-opt-b"):
        annotations = described(0x71, mapping(symbol(name), b"\x41"))
        assert read_head(DURABLE + annotations + BODY).start == len(DURABLE + annotations)


def test_a_plain_header_is_remembered() -> None:
    assert read_head(DURABLE + BODY) is read_head(DURABLE + amqp_value("another body"))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x00\x53", id="half-a-descriptor"),
        pytest.param(DURABLE[:5], id="header-cut-short"),
        pytest.param(bytes.fromhex("005370 a1 01 61") + BODY, id="header-is-a-string"),
        pytest.param(bytes.fromhex("005370 c0 02 01 43") + BODY, id="durable-is-a-uint"),
        pytest.param(bytes.fromhex("005370 c0 07 06 404040404040") + BODY, id="six-fields"),
        pytest.param(DURABLE + b"\x41", id="a-bare-value-behind-the-header"),
        pytest.param(DURABLE + DURABLE + BODY, id="two-headers"),
        pytest.param(DELIVERY_ANNOTATIONS + DURABLE + BODY, id="header-behind-annotations"),
        pytest.param(DURABLE + bytes.fromhex("005379 45"), id="unknown-section"),
        pytest.param(DURABLE + DELIVERY_ANNOTATIONS[:-1], id="annotations-cut-short"),
        pytest.param(DELIVERY_ANNOTATIONS, id="delivery-annotations-alone"),
    ],
)
def test_a_malformed_head_is_a_decode_error(data: bytes) -> None:
    for _ in range(2):
        with pytest.raises(DecodeError):
            read_head(data)


def test_the_message_goes_on_as_it_came() -> None:
    data = FULL_HEADER + BODY
    assert forwarded(data, read_head(data)) is data


def test_delivery_annotations_stay_here() -> None:
    data = FULL_HEADER + DELIVERY_ANNOTATIONS + BODY
    assert forwarded(data, read_head(data)) == FULL_HEADER + BODY


@pytest.mark.parametrize("header", [DURABLE, bytes.fromhex("00537045")])
def test_what_is_forwarded_of_a_message_without_body_can_be_read_again(header: bytes) -> None:
    data = header + DELIVERY_ANNOTATIONS
    head = read_head(data)
    assert read_head(forwarded(data, head)) == head._replace(start=head.header_end)


def test_the_delivery_count_is_rewritten_and_nothing_else() -> None:
    data = FULL_HEADER + DELIVERY_ANNOTATIONS + BODY
    expected = bytes.fromhex("005370 c0 0c 05 41 50 09 70 0000ea60 40 52 03") + BODY
    assert with_delivery_count(data, read_head(data), 3) == expected


def test_a_message_without_header_gets_one() -> None:
    assert with_delivery_count(BODY, read_head(BODY), 1) == bytes.fromhex("005370 c0 07 05 40 40 40 40 52 01") + BODY


def test_the_time_left_to_live_is_rewritten() -> None:
    data = FULL_HEADER + BODY
    expected = bytes.fromhex("005370 c0 09 05 41 50 09 52 7b 41 52 02") + BODY
    assert with_header(data, read_head(data), ttl=123, delivery_count=2, first_acquirer=True) == expected


def test_nobody_is_called_the_first_acquirer_unless_that_is_known() -> None:
    data = FULL_HEADER + BODY
    expected = bytes.fromhex("005370 c0 09 05 41 50 09 52 7b 40 52 02") + BODY
    assert with_header(data, read_head(data), ttl=123, delivery_count=2) == expected
    data = DURABLE + BODY
    kept = with_header(data, read_head(data), ttl=None, delivery_count=0, first_acquirer=True)
    assert not read_head(kept).first_acquirer


def test_what_the_header_can_not_say_is_left_out_or_the_highest_number() -> None:
    most = 2**32 - 1
    for ttl, said in ((most, most), (most + 1, None), (2**62, None)):
        data = with_header(BODY, read_head(BODY), ttl=ttl, delivery_count=most + 1)
        assert (read_head(data).ttl, read_head(data).delivery_count) == (said, most)


def test_annotations_are_merged_into_those_that_are_there() -> None:
    annotations = described(0x72, mapping(symbol("a"), string("old"), symbol("b"), b"\x41"))
    data = DURABLE + annotations + BODY
    changed = described(0x72, mapping(symbol("a"), string("new"), symbol("b"), b"\x41", symbol("c"), b"\x42"))
    merged = with_annotations(data, read_head(data), {Symbol("a"): "new", Symbol("c"): False})
    assert merged == DURABLE + changed + BODY


def test_annotations_are_added_where_there_are_none() -> None:
    data = DURABLE + BODY
    expected = DURABLE + described(0x72, mapping(symbol("a"), b"\x41")) + BODY
    assert with_annotations(data, read_head(data), {Symbol("a"): True}) == expected


def test_the_memory_is_bounded() -> None:
    for ttl in range(message_head.MEMO_ENTRIES + 10):
        read_head(b"\x00\x53\x70\xc0\x08\x03\x40\x40\x70" + ttl.to_bytes(4, "big") + BODY)
    assert len(message_head._memo) <= message_head.MEMO_ENTRIES  # pyright: ignore[reportPrivateUsage]


@given(
    st.one_of(st.none(), st.booleans()),
    st.integers(0, 255),
    st.one_of(st.none(), st.integers(0, 2**32 - 1)),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
)
def test_what_is_rewritten_reads_as_it_was_meant(
    durable: bool | None, priority: int, ttl: int | None, count: int, new_count: int
) -> None:
    flag = b"\x40" if durable is None else b"\x41" if durable else b"\x42"
    life = b"\x40" if ttl is None else b"\x70" + ttl.to_bytes(4, "big")
    header = fields(flag, bytes((0x50, priority)), life, b"\x40", b"\x70" + count.to_bytes(4, "big"))
    data = described(0x70, header) + BODY
    head = read_head(data)
    assert head[:5] == (bool(durable), priority, ttl, False, count)
    rewritten = with_delivery_count(data, head, new_count)
    assert read_head(rewritten)[:5] == (bool(durable), priority, ttl, False, new_count)
    assert rewritten.endswith(BODY)


@given(st.binary(max_size=60), st.integers(0, 40), st.binary(max_size=6))
def test_no_bytes_make_it_raise_anything_else(junk: bytes, at: int, patch: bytes) -> None:
    whole = FULL_HEADER + DELIVERY_ANNOTATIONS + BODY
    for data in (junk, b"\x00\x53\x70" + junk, whole[:at] + patch + whole[at + len(patch) :]):
        try:
            head = read_head(data)
        except DecodeError:
            continue
        assert 0 <= head.header_end <= head.start <= len(data)
