"""Where messages lie, compared with a table that names the segment of each number."""

import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.log.segments.places import Places

LAST = 59
MOVES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, LAST), st.integers(0, LAST), st.integers(0, 5)))
"""From which segment, the two ends of the span, and to which one."""


@given(moves=MOVES, removed=st.lists(st.sampled_from("abcde"), unique=True))
def test_each_number_lies_where_it_was_moved_and_what_is_left_keeps_its_place(
    moves: list[tuple[int, int, int, int]], removed: list[str]
) -> None:
    names = "abcdef"
    places, table = Places[str](), [names[number // 10] for number in range(LAST + 1)]
    for index, name in enumerate(names):
        places.begin(index * 10, name)
    for source, one, other, target in moves:
        first, last = min(one, other), max(one, other)
        places.move(names[source], first, last, names[target])
        for number in range(first, last + 1):
            if table[number] == names[source]:
                table[number] = names[target]
    assert [places[number] for number in range(LAST + 1)] == table
    if table[LAST] in removed:
        return  # the newest segment is never removed
    for name in removed:
        places.remove(name)
    for number, name in enumerate(table):
        if name not in removed:
            assert places[number] == name
    parts = list(places.split(range(LAST + 1)))
    assert [number for _, numbers in parts for number in numbers] == list(range(LAST + 1))
    assert all(places[number] == part for part, numbers in parts for number in numbers)
    ranges = [part for part, _ in parts]
    assert all(one != other for one, other in pairwise(ranges)), "ranges that meet are one"


def test_what_is_begun_anew_knows_only_what_it_is_told() -> None:
    places = Places[str]()
    places.begin(1, "gone")
    places.rebuild([(3, "a"), (4, "b"), (7, "b"), (9, "a")], 12, "c")
    assert [places[number] for number in range(3, 14)] == [*"abbbbbaaacc"]
    assert len(places) == 4
    assert [(part, list(numbers)) for part, numbers in places.split([1, 4, 8, 13])] == [
        ("a", [1]),
        ("b", [4, 8]),
        ("c", [13]),
    ]


@pytest.mark.parametrize(
    ("message", "around"),
    [
        (0, ("a", 0, 9)),  # lower than any that was put
        (1, ("a", 1, 9)),
        (9, ("a", 1, 9)),
        (10, ("b", 10, 19)),
        (19, ("b", 10, 19)),
        (20, ("c", 20, sys.maxsize)),
        (1_000, ("c", 20, sys.maxsize)),
    ],
)
def test_a_number_is_told_with_the_range_that_it_lies_in(message: int, around: tuple[str, int, int]) -> None:
    places = Places[str]()
    for first, segment in ((1, "a"), (10, "b"), (20, "c")):
        places.begin(first, segment)
    assert places.around(message) == around
    assert places.stretch(message) == (around[0], around[2])


def test_of_one_segment_the_range_has_no_end() -> None:
    places = Places[str]()
    places.begin(5, "a")
    assert (places.around(7), places.around(3)) == (("a", 5, sys.maxsize), ("a", 3, sys.maxsize))
