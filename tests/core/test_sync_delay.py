"""The next fdatasync of a slow disk waits for those who were just answered, for a moment and not in vain for long."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock_core.sync_delay import SyncDelay


def open_after(delay: SyncDelay, *, syncs: int) -> list[bool]:
    """Which of so many syncs, each with ten answers, are waited for; nobody ever sends again."""
    found: list[bool] = []
    for number in range(syncs):
        at_us = number * 10_000
        delay.sync_ended(at_us, 1_400, 10, 0)
        found.append(delay.is_open)
        if delay.is_open:
            assert delay.is_over(at_us + 700, 1)
    return found


def test_it_waits_until_all_are_there_that_were_answered_and_those_that_came_meanwhile() -> None:
    delay = SyncDelay()
    delay.sync_ended(1_000_000, 1_400, 4, 6)
    assert (delay.is_open, delay.expected) == (True, 10)
    assert not delay.is_over(1_000_100, 9)
    assert delay.is_over(1_000_120, 10)
    assert not delay.is_open


def test_it_waits_for_half_of_what_the_sync_took_and_a_millisecond_at_most() -> None:
    delay = SyncDelay()
    delay.sync_ended(0, 1_400, 10, 0)
    assert not delay.is_over(699, 7)
    assert delay.is_over(700, 7)
    delay = SyncDelay()
    delay.sync_ended(0, 20_000, 10, 0)
    assert not delay.is_over(999, 9)
    assert delay.is_over(1_000, 9)


def test_one_that_waits_alone_waits_for_nobody() -> None:
    delay = SyncDelay()
    delay.sync_ended(0, 1_400, 1, 0)
    assert delay.is_over(1, 1)


def test_nobody_waits_behind_a_sync_that_answered_nobody_or_very_many() -> None:
    delay = SyncDelay()
    delay.sync_ended(0, 1_400, 0, 5)
    assert not delay.is_open
    delay.sync_ended(0, 1_400, 1_000, 1)
    assert not delay.is_open
    delay.sync_ended(0, 1_400, 1_000, 0)
    assert delay.is_open


def test_who_waited_in_vain_waits_again_after_8_syncs_and_then_after_16() -> None:
    assert open_after(SyncDelay(), syncs=28) == [True, *[False] * 8, True, *[False] * 16, True, False]


def test_it_tries_again_at_least_each_257_syncs() -> None:
    tries = [number for number, is_open in enumerate(open_after(SyncDelay(), syncs=3_000)) if is_open]
    assert max(after - before for before, after in pairwise(tries)) == 257


def test_it_was_not_in_vain_if_three_quarters_came() -> None:
    delay = SyncDelay()
    delay.sync_ended(0, 1_400, 8, 0)
    assert delay.is_over(700, 6)
    delay.sync_ended(10_000, 1_400, 8, 0)
    assert delay.is_open
    assert delay.is_over(10_700, 5)
    delay.sync_ended(20_000, 1_400, 8, 0)
    assert not delay.is_open


@given(
    st.lists(
        st.tuples(st.integers(0, 10_000_000), st.integers(0, 2_000), st.integers(0, 2_000)), min_size=1, max_size=50
    )
)
def test_it_never_waits_longer_than_a_millisecond(ended: list[tuple[int, int, int]]) -> None:
    delay = SyncDelay()
    for number, (took_us, answered, waiting) in enumerate(ended):
        at_us = number * 100_000
        delay.sync_ended(at_us, took_us, answered, waiting)
        if delay.is_open:
            assert delay.is_over(at_us + 1_000, 0)
            assert not delay.is_open
