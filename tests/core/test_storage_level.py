"""How full the volume is, in words: thresholds, the way back, and the credit of producers that are held back.

Source: docs/decisions/076-nothing-lost-by-default.md.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.storage_level import StorageLevel, credits_per_tick, held_back_from, level_of

OK, HIGH, CRITICAL, HELD_BACK, FULL = StorageLevel

USED = st.floats(0.0, 1.0)
HELD_FROM = st.sampled_from([0.9, 0.99, 0.999])


@pytest.mark.parametrize(
    ("used", "before", "expected"),
    [
        pytest.param(0.69, OK, OK, id="below the first threshold"),
        pytest.param(0.70, OK, HIGH, id="at it"),
        pytest.param(0.68, HIGH, HIGH, id="a little below, on the way back"),
        pytest.param(0.66, HIGH, OK, id="well below"),
        pytest.param(0.84, HIGH, HIGH, id="below the second threshold"),
        pytest.param(0.85, HIGH, CRITICAL, id="at the second threshold"),
        pytest.param(0.83, CRITICAL, CRITICAL, id="a little below the second threshold, on the way back"),
        pytest.param(0.81, CRITICAL, HIGH, id="well below the second threshold"),
        pytest.param(0.89, CRITICAL, CRITICAL, id="below the third threshold"),
        pytest.param(0.90, CRITICAL, HELD_BACK, id="at the third threshold"),
        pytest.param(0.88, HELD_BACK, HELD_BACK, id="a little below the third threshold, on the way back"),
        pytest.param(0.86, HELD_BACK, CRITICAL, id="well below the third threshold"),
        pytest.param(0.99, OK, HELD_BACK, id="several marks at once"),
        pytest.param(0.10, FULL, OK, id="emptied at once"),
        pytest.param(0.88, FULL, HELD_BACK, id="no longer full"),
    ],
)
def test_the_level_of_a_volume_that_takes_messages(used: float, before: StorageLevel, expected: StorageLevel) -> None:
    assert level_of(used, before, 0.9, refuses=False) is expected


@pytest.mark.parametrize("used", [0.0, 0.5, 1.0])
def test_a_log_that_refuses_is_full_whatever_the_share_is(used: float) -> None:
    assert level_of(used, OK, 0.9, refuses=True) is FULL


@given(USED, USED, st.sampled_from(StorageLevel), HELD_FROM)
def test_a_fuller_volume_never_has_a_lower_level(
    one: float, other: float, before: StorageLevel, held_from: float
) -> None:
    less, more = sorted((one, other))
    lower, higher = (level_of(used, before, held_from, refuses=False) for used in (less, more))
    assert lower.rank <= higher.rank


@given(st.floats(0.0, 1.0), st.floats(-0.014, 0.014), st.sampled_from(StorageLevel))
def test_a_volume_that_stands_still_keeps_its_level(used: float, tremor: float, before: StorageLevel) -> None:
    """Two levels in turn, from readings less than the hysteresis apart, would be a condition that flaps."""
    first = level_of(used, before, 0.9, refuses=False)
    second = level_of(min(max(used + tremor, 0.0), 1.0), first, 0.9, refuses=False)
    assert level_of(used, second, 0.9, refuses=False) is second


@pytest.mark.parametrize(("used", "expected"), [(0.87, 100), (0.90, 100), (0.95, 50), (0.99, 10), (0.999, 1), (1.0, 1)])
def test_the_fuller_the_volume_the_less_credit_and_never_none(used: float, expected: int) -> None:
    assert credits_per_tick(used, 0.9) == expected


@pytest.mark.parametrize(
    ("total", "expected"),
    [
        pytest.param(0, 0.9, id="not known"),
        pytest.param(40 * 2**20, 0.9, id="40 MiB: from 36 MiB"),
        pytest.param(40 * 2**30, 0.9, id="40 GiB: from 36 GiB"),
        pytest.param(80 * 2**30, 0.95, id="80 GiB: from 76 GiB"),
        pytest.param(1000 * 2**30, 0.996, id="1,000 GiB: from 996 GiB"),
    ],
)
def test_producers_are_held_back_in_the_last_tenth_and_the_last_4_gib(total: int, expected: float) -> None:
    assert held_back_from(total) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("used", "before", "expected"),
    [
        pytest.param(0.94, CRITICAL, CRITICAL, id="5 GiB left of 80"),
        pytest.param(0.95, CRITICAL, HELD_BACK, id="4 GiB left"),
        pytest.param(0.94, HELD_BACK, HELD_BACK, id="a little more left, on the way back"),
        pytest.param(0.93, HELD_BACK, CRITICAL, id="well over 5 GiB left"),
    ],
)
def test_the_third_mark_of_a_large_volume(used: float, before: StorageLevel, expected: StorageLevel) -> None:
    assert level_of(used, before, 0.95, refuses=False) is expected


def test_a_large_volume_halves_the_credit_in_the_middle_of_its_last_4_gib() -> None:
    assert credits_per_tick(0.975, 0.95) == 50


def test_which_levels_hold_producers_back() -> None:
    assert [level for level in StorageLevel if level.holds_back] == [HELD_BACK, FULL]
