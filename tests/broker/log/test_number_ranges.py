"""Sets of numbers as ranges: they hold what a set of numbers would."""

from itertools import pairwise
from random import Random
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.log.recovery import number_ranges
from penstock_broker.log.recovery.number_ranges import MOST_IN_BLOCK, NumberRanges

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=20)
SHORT_SPANS = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 3) | st.integers(0, 60)), max_size=60)


def test_ranges_that_touch_become_one() -> None:
    ranges = NumberRanges()
    for first, last in ((10, 19), (30, 39), (20, 29), (50, 50)):
        ranges.add(first, last)
    assert list(ranges) == [(10, 39), (50, 50)]


def test_single_numbers_come_as_ranges() -> None:
    ranges = NumberRanges()
    ranges.add_all([3, 4, 5, 9, 11, 12])
    ranges.add_all(range(6, 8))
    ranges.add_all([])
    assert list(ranges) == [(3, 7), (9, 9), (11, 12)]


@given(SPANS, st.integers(0, 80), st.integers(0, 30))
def test_they_hold_what_a_set_holds(spans: list[tuple[int, int]], first: int, length: int) -> None:
    ranges, model = NumberRanges(), set[int]()
    for low, count in spans:
        ranges.add(low, low + count)
        model |= set(range(low, low + count + 1))
    held = {number for low, high in ranges for number in range(low, high + 1)}
    assert held == model
    assert all(high + 1 < low for (_, high), (low, _) in zip(list(ranges), list(ranges)[1:], strict=False))
    asked = set(range(first, first + length + 1))
    assert {number for number in asked if number in ranges} == asked & model
    assert ranges.touches(first, first + length) is bool(asked & model)
    gaps = {number for low, high in ranges.gaps(first, first + length) for number in range(low, high + 1)}
    assert gaps == asked - model


@given(SHORT_SPANS, st.integers(0, 120), st.integers(0, 30))
def test_they_hold_the_same_in_many_blocks(spans: list[tuple[int, int]], first: int, length: int) -> None:
    with mock.patch.object(number_ranges, "MOST_IN_BLOCK", 2):
        ranges, model = NumberRanges(), set[int]()
        for low, count in spans:
            ranges.add(low, low + count)
            model |= set(range(low, low + count + 1))
            found = list(ranges)
            assert {number for low, high in found for number in range(low, high + 1)} == model
            assert all(high + 1 < low for (_, high), (low, _) in pairwise(found))
            assert all(0 < each <= 4 for each in ranges.block_lengths())
        asked = set(range(first, first + length + 1))
        assert {number for number in asked if number in ranges} == asked & model
        assert ranges.touches(first, first + length) is bool(asked & model)
        here = [number for low, high in ranges.within(first, first + length) for number in range(low, high + 1)]
        assert here == sorted(asked & model)
        gaps = [number for low, high in ranges.gaps(first, first + length) for number in range(low, high + 1)]
        assert gaps == sorted(asked - model)
        assert list(zip(*ranges.ends(), strict=True)) == list(ranges)


def test_a_number_between_many_others_moves_few_of_them() -> None:
    numbers = list(range(0, 200_000, 2))
    Random(1).shuffle(numbers)
    ranges = NumberRanges()
    for number in numbers:
        ranges.add(number, number)
    assert list(ranges) == [(number, number) for number in range(0, 200_000, 2)]
    assert max(ranges.block_lengths()) <= 2 * MOST_IN_BLOCK
