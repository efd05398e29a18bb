"""Blocks that are read with few objects: the same records, in the same order, as if each had been decoded by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from broker.log.recoveries import SmallRule
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.log.format.record_codec import (
    Malformed,
    ack_record,
    commit_record,
    decode_records,
    part_prefix,
    put_record,
    route_record,
)
from penstock_broker.log.format.records import Put, Record
from penstock_broker.log.recovery import bulk_reader
from penstock_broker.log.recovery.bulk_reader import bulk_records
from penstock_broker.log.recovery.live_puts import PlainPuts

BEFORE = b"of the block before"
Told = tuple[int, int, int] | Record
"""Of a put that may stay in the log: route set, number and length."""


def read(records: bytes, highest: int = 0) -> list[Record | PlainPuts]:
    data = BEFORE + records + b"of the block behind"
    return bulk_records(data, len(BEFORE), len(BEFORE) + len(records), highest, SmallRule())


def told(records: Sequence[Record | PlainPuts]) -> Iterator[Told]:
    for each in records:
        if isinstance(each, PlainPuts):
            yield from ((each.route_set, *pair) for pair in zip(each.numbers, each.lengths, strict=True))
        else:
            yield each


def expected(records: bytes, highest: int) -> Iterator[Told]:
    rule = SmallRule()
    for each in decode_records(memoryview(records)):
        if isinstance(each, Put) and not each.flags and each.message > highest:
            highest = each.message
            if rule.expiry(each.payload, 0, len(each.payload), each.arrival) >= 0:
                yield each.route_set, each.message, len(each.payload)
                continue
        yield each


def test_equal_puts_become_one_list() -> None:
    puts = b"".join(put_record(1, number, 1000 + number, b"d" * 50) for number in range(5, 45))
    (found,) = read(puts)
    assert isinstance(found, PlainPuts)
    assert (found.route_set, found.numbers, found.lengths) == (1, list(range(5, 45)), [50] * 40)
    assert (found.arrival, found.expires) == (1005, 0)


def test_the_first_expiry_is_that_of_all() -> None:
    puts = b"".join(put_record(1, number, 1000 - number, b"cx") for number in range(5, 45))  # c is 99: 3 divides it
    (found,) = read(puts)
    assert isinstance(found, PlainPuts)
    assert (found.numbers, found.expires) == (list(range(5, 45)), 1000 - 44 + 99)


def test_messages_that_came_before_are_decoded_as_usual() -> None:
    puts = b"".join(put_record(1, number, 7, b"dd") for number in range(1, 21))
    first, *rest = list(told(read(puts, highest=10)))
    assert first == Put(1, 1, 7, b"dd", 0)
    assert rest[9:] == [(1, number, 2) for number in range(11, 21)]


@pytest.mark.parametrize("cut", [1, 30, 60])
def test_records_whose_lengths_do_not_add_up_are_damage(cut: int) -> None:
    puts = b"".join(put_record(1, number, 7, b"d" * 20) for number in range(1, 31))
    with pytest.raises(Malformed):
        read(puts[:-cut] if cut != 60 else puts[:-60])


PAYLOADS = st.sampled_from([b"d" * 30, b"d" * 31, b"e" * 30, b"\x01" * 30, b"c" * 30, b"", b"d"])
STEPS = st.lists(
    st.tuples(
        st.integers(1, 30), PAYLOADS, st.integers(1, 2), st.sampled_from([0, 0, 0, 2]), st.sampled_from("-----arcp")
    ),
    min_size=1,
    max_size=8,
)


@given(STEPS, st.integers(0, 12), st.sampled_from([1, 1, 1, 2]))
def test_all_records_are_found(steps: list[tuple[int, bytes, int, int, str]], highest: int, stride: int) -> None:
    records = bytearray()
    number = 1
    for count, payload, route_set, flags, other in steps:
        for _ in range(count):
            records += put_record(route_set, number, 50 + number, payload, flags)
            number += stride
        match other:
            case "a":
                records += ack_record(9, [1, 2, 5])
            case "r":
                records += route_record(route_set, [9, 10])
            case "c":
                records += commit_record([put_record(1, number, 3, b"d" * 30)])
                number += 1
            case "p":
                records += part_prefix(number, 0, 4) + b"part"
                number += 1
            case _:
                pass
    found = read(bytes(records), highest)
    assert list(told(found)) == list(expected(bytes(records), highest))


def test_few_steps_are_taken_for_equal_puts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Counting(SmallRule):
        def expiry(self, data: bytes, start: int, end: int, arrival: int) -> int:
            asked.append(start)
            return super().expiry(data, start, end, arrival)

    data = b"".join(put_record(1, number, 7, b"d" * 50) for number in range(1, 1001))
    bulk_reader.bulk_records(data, 0, len(data), 0, Counting())
    assert len(asked) == 1
