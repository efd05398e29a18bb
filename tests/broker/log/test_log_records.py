"""Every record type against bytes typed by hand from docs/reference/log-format.md."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.log.format.blocks import NewerFormat
from penstock_broker.log.format.record_codec import (
    Malformed,
    ack_record,
    checkpoint_records,
    closed_record,
    commit_record,
    count_record,
    decode_records,
    deleted_record,
    delivered_up_to_record,
    document_record,
    moved_part,
    part_prefix,
    put_record,
    remark_record,
    route_difference_record,
    route_record,
    staged_put_record,
    start_record,
)
from penstock_broker.log.format.records import (
    Ack,
    CheckpointBegin,
    CheckpointEnd,
    Closed,
    Commit,
    Count,
    Deleted,
    DeliveredUpTo,
    Document,
    EndReason,
    Part,
    Put,
    Record,
    Remark,
    RouteDifference,
    RouteSet,
    StagedPut,
    Start,
)

BOOT = bytes.fromhex("a0a1a2a3a4a5a6a7a8a9aaabacadaeaf")
BEGIN, END = checkpoint_records(0x55, [])

CASES = [
    pytest.param(
        start_record(BOOT, 0x0102, 0x03),
        "01000000 20000000 a0a1a2a3a4a5a6a7a8a9aaabacadaeaf 0201000000000000 0300000000000000",
        Start(BOOT, 0x0102, 3),
        id="start",
    ),
    pytest.param(
        document_record("queue", "é", 9, b"{}"),
        "02000000 15000000 0900000000000000 05 00 0200 7175657565 c3a9 7b7d",
        Document("queue", "é", 9, b"{}"),
        id="document",
    ),
    pytest.param(
        deleted_record("queue", "a"),
        "03000000 0a000000 05 00 0100 7175657565 61",
        Deleted("queue", "a"),
        id="deleted",
    ),
    pytest.param(
        route_record(4, (1, 0x0203)),
        "04000000 18000000 04000000 00000000 0100000000000000 0302000000000000",
        RouteSet(4, (1, 0x0203)),
        id="route",
    ),
    pytest.param(
        route_difference_record(5, 4, (1,), (7, 0x0203)),
        "14000000 28000000 05000000 04000000 01000000 00000000 0100000000000000 0700000000000000 0302000000000000",
        RouteDifference(5, 4, (1,), (7, 0x0203)),
        id="route-difference",
    ),
    pytest.param(
        put_record(4, 0x0506, 0x0708, b"abc", 0x81),
        "05810000 1b000000 04000000 00000000 0605000000000000 0807000000000000 616263",
        Put(4, 0x0506, 0x0708, b"abc", 0x81),
        id="put",
    ),
    pytest.param(
        ack_record(1, [5, 7], EndReason.EXPIRED),
        "06020000 18000000 0100000000000000 0500000000000000 0700000000000000",
        Ack(1, (5, 7), 2),
        id="ack",
    ),
    pytest.param(
        ack_record(1, [5, 6, 7]),
        "07000000 18000000 0100000000000000 0500000000000000 0700000000000000",
        Ack(1, (5, 6, 7), 0),
        id="ack-range",
    ),
    pytest.param(
        delivered_up_to_record([(1, 5), (2, 6)]),
        "08000000 20000000 0100000000000000 0500000000000000 0200000000000000 0600000000000000",
        DeliveredUpTo(((1, 5), (2, 6))),
        id="delivered up to",
    ),
    pytest.param(
        count_record([(1, 5, 3)]),
        "09000000 18000000 0100000000000000 0500000000000000 03000000 00000000",
        Count(((1, 5, 3),)),
        id="count",
    ),
    pytest.param(
        remark_record(1, 5, b"abc"),
        "0d000000 13000000 0100000000000000 0500000000000000 616263",
        Remark(1, 5, b"abc"),
        id="remark",
    ),
    pytest.param(
        part_prefix(0x0304, 0x0200, 3) + b"abc",
        "10000000 13000000 0403000000000000 0002000000000000 616263",
        Part(0x0304, 0x0200, 24, 3),
        id="part",
    ),
    pytest.param(
        moved_part(part_prefix(0x0304, 0x0200, 3) + b"abc"),
        "15000000 13000000 0403000000000000 0002000000000000 616263",
        Part(0x0304, 0x0200, 24, 3),
        id="moved-part",
    ),
    pytest.param(
        staged_put_record(4, 0x0506, 0x0708, 0x81, (0x0304, 2, 0x0900), b"abc"),
        "11810000 33000000 04000000 00000000 0605000000000000 0807000000000000"
        "0403000000000000 0200000000000000 0009000000000000 616263",
        StagedPut(Put(4, 0x0506, 0x0708, b"abc", 0x81), 0x0304, 2, 0x0900),
        id="staged-put",
    ),
    pytest.param(
        commit_record([put_record(4, 5, 6, b"abc"), ack_record(1, [5], EndReason.REJECTED)]),
        "12000000 43000000 05000000 1b000000 04000000 00000000 0500000000000000 0600000000000000 616263"
        "07010000 18000000 0100000000000000 0500000000000000 0500000000000000",
        Commit((Put(4, 5, 6, b"abc", 0), Ack(1, (5,), 1))),
        id="commit",
    ),
    pytest.param(BEGIN, "0a000000 08000000 5500000000000000", CheckpointBegin(0x55), id="checkpoint-begin"),
    pytest.param(END, "0b000000 08000000 5500000000000000", CheckpointEnd(0x55), id="checkpoint-end"),
    pytest.param(closed_record(), "0c000000 00000000", Closed(), id="closed"),
]


def plain(record: Record) -> Record:
    """Ack numbers come as arrays and ranges; compare them as tuples."""
    match record:
        case Ack():
            return Ack(record.incarnation, tuple(record.messages), record.reason)
        case Commit():
            return Commit(tuple(plain_within(each) for each in record.records))
        case Part():
            return Part(record.body, record.offset, 24, record.length)  # where it lies depends on what is before it
        case _:
            return record


def plain_within(record: Put | StagedPut | Ack) -> Put | StagedPut | Ack:
    return Ack(record.incarnation, tuple(record.messages), record.reason) if isinstance(record, Ack) else record


@pytest.mark.parametrize(("written", "by_hand", "meaning"), CASES)
def test_a_record_has_the_bytes_of_the_page(written: bytes, by_hand: str, meaning: Record) -> None:
    assert written == bytes.fromhex(by_hand)
    assert [plain(record) for record in decode_records(memoryview(written))] == [meaning]


def test_records_follow_each_other() -> None:
    data = b"".join(case.values[0] for case in CASES)  # type: ignore[misc]  # values are untyped in pytest
    assert [plain(record) for record in decode_records(memoryview(data))] == [case.values[2] for case in CASES]


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(NewerFormat, match="record type 200 is unknown"):
        list(decode_records(memoryview(bytes.fromhex("c8000000 00000000"))))


@given(st.sampled_from([case.values[0] for case in CASES]), st.data())
def test_a_shortened_record_is_malformed_never_misread(written: object, data: st.DataObject) -> None:
    assert isinstance(written, bytes)
    cut = data.draw(st.integers(1, len(written) - 1))
    with pytest.raises(Malformed):
        list(decode_records(memoryview(written[:cut])))


def test_only_puts_and_acks_can_be_in_a_commit() -> None:
    with pytest.raises(NewerFormat, match="type 12 in a commit"):
        list(decode_records(memoryview(commit_record([closed_record()]))))


def test_a_body_too_short_for_its_type_is_malformed() -> None:
    with pytest.raises(Malformed, match="record of type 5"):
        list(decode_records(memoryview(bytes.fromhex("05000000 04000000 00000000"))))


@given(st.lists(st.integers(1, 1 << 64 - 1), min_size=1, max_size=30, unique=True))
def test_acks_of_any_numbers_read_back(numbers: list[int]) -> None:
    numbers.sort()
    [record] = decode_records(memoryview(ack_record(3, numbers)))
    assert isinstance(record, Ack)
    assert list(record.messages) == numbers
