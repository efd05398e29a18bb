"""Sets of numbers as ranges: they hold what a set of numbers would."""

from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.log.recovery.number_ranges import NumberRanges

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=20)


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
