"""When a container-id is contested: docs/decisions/013-container-uniqueness.md."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.container_takeovers import Contest, is_contested, taken_over

MINUTE = 60_000


def played(*takeovers: tuple[int, int]) -> Contest:
    """Takeovers as (time in ms, who took)."""
    contest: Contest | None = None
    for now, winner in takeovers:
        contest = taken_over(contest, winner, now)
    assert contest is not None
    return contest


def in_turn(times: Sequence[int]) -> Contest:
    return played(*((now, number % 2) for number, now in enumerate(times)))


def test_decision_13_one_failover_is_none_however_many_links_it_takes() -> None:
    contest = played(*((now, 7) for now in range(100)))
    assert (contest.takeovers, is_contested(contest, 100)) == (1, False)


def test_decision_13_the_fifth_shows() -> None:
    assert not is_contested(in_turn([0, 10, 20, 30]), 30)
    contest = in_turn([0, 10, 20, 30, 40])
    assert (contest.takeovers, is_contested(contest, 40)) == (5, True)


@pytest.mark.parametrize(
    ("times", "now", "expected"),
    [
        ([0, 10, 20, 30, 40], 40 + MINUTE, True),  # a minute's silence at least
        ([0, 10, 20, 30, 40], 41 + MINUTE, False),
        ([0, 1 * MINUTE, 2 * MINUTE, 3 * MINUTE, 4 * MINUTE], 8 * MINUTE, True),  # as long as the five took
        ([0, 1 * MINUTE, 2 * MINUTE, 3 * MINUTE, 4 * MINUTE], 8 * MINUTE + 1, False),
        ([0, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 20 * MINUTE], 25 * MINUTE, True),  # crash loops of two pods
        ([0, 7 * MINUTE, 14 * MINUTE, 21 * MINUTE, 30 * MINUTE], 30 * MINUTE, True),
        ([0, 7 * MINUTE, 14 * MINUTE, 21 * MINUTE, 30 * MINUTE + 1], 30 * MINUTE + 1, False),
        ([0, 10, 20, 30, 40 * MINUTE], 40 * MINUTE, False),  # begun anew
    ],
)
def test_decision_13_how_long_it_shows(times: list[int], now: int, expected: bool) -> None:
    assert is_contested(in_turn(times), now) is expected


def test_a_new_contest_counts_from_one() -> None:
    assert in_turn([0, 10, 20, 30, 40, 40 + 30 * MINUTE]).takeovers == 6
    assert in_turn([0, 10, 20, 30, 40, 41 + 30 * MINUTE]).takeovers == 1


@given(st.lists(st.tuples(st.integers(0, 40 * MINUTE), st.integers(0, 2)), min_size=1, max_size=200))
def test_what_is_kept_is_bounded_and_every_contest_ends(steps: list[tuple[int, int]]) -> None:
    now, contest = 0, None
    for gap, winner in steps:
        now += gap
        contest = taken_over(contest, winner, now)
        assert len(contest.times) <= 5
        assert list(contest.times) == sorted(contest.times)
        assert len(contest.times) == min(contest.takeovers, 5)
    assert contest is not None
    assert not is_contested(contest, now + 30 * MINUTE + 1)
