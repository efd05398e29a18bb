"""Levels of memory, with the shares typed from docs/decisions/084-memory.md."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.memory_level import MemoryLevel, default_budget, level_of, messages_per_tick, used_share

OK, HELD_BACK, SPILLING, FULL = MemoryLevel

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("used", "before", "expected"),
    [
        (0.0, OK, OK),
        (0.69, OK, OK),
        (0.70, OK, HELD_BACK),
        (0.79, OK, HELD_BACK),
        (0.80, OK, SPILLING),
        (0.94, HELD_BACK, SPILLING),
        (0.95, OK, FULL),
        (3.0, OK, FULL),
        (0.91, FULL, FULL),
        (0.89, FULL, SPILLING),
        (0.76, SPILLING, SPILLING),
        (0.74, SPILLING, HELD_BACK),
        (0.66, FULL, HELD_BACK),
        (0.64, FULL, OK),
    ],
)
def test_the_level(used: float, before: MemoryLevel, expected: MemoryLevel) -> None:
    assert level_of(used, before) is expected


@given(st.floats(0.0, 2.0), st.floats(0.0, 2.0), st.sampled_from(MemoryLevel))
def test_who_uses_more_never_has_a_lower_level(one: float, other: float, before: MemoryLevel) -> None:
    assert level_of(min(one, other), before).rank <= level_of(max(one, other), before).rank


@given(st.floats(0.0, 1.0), st.floats(-0.024, 0.024), st.sampled_from(MemoryLevel))
def test_a_broker_that_stands_still_keeps_its_level(used: float, tremor: float, before: MemoryLevel) -> None:
    levels = [level_of(used, before)]
    for share in (used + tremor, used, used + tremor, used):
        levels.append(level_of(share, levels[-1]))
    assert len(set(levels[1:])) == 1


@pytest.mark.parametrize(
    ("limit_mib", "expected_mib"), [(32, 16), (64, 16), (96, 16), (128, 32), (256, 96), (1024, 480), (8192, 4064)]
)
def test_what_messages_may_take_unless_it_is_set(limit_mib: int, expected_mib: int) -> None:
    assert default_budget(limit_mib * MIB) == expected_mib * MIB


@pytest.mark.parametrize(
    ("used", "resident", "limit", "expected"),
    [
        (50, 0, 0, 0.5),
        (50, 900, 0, 0.5),  # the process has no limit
        (50, 900, 1000, 0.9),  # the account must be wrong, or freed memory is not given back
        (50, 100, 1000, 0.5),
    ],
)
def test_the_larger_share_counts(used: int, resident: int, limit: int, expected: float) -> None:
    assert used_share(used, 100, resident, limit) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("used", "budget", "mean", "expected"),
    [
        (0.7, 1_000_000, 1000, 150),
        (0.9, 1_000_000, 1000, 50),
        (1.0, 1_000_000, 1000, 1),
        (2.0, 1_000_000, 1000, 1),
        (0.9, 1_000_000, 1_000_000, 1),
        (0.7, 1 << 40, 1000, 100_000),
        (0.7, 1000, 0, 150),
    ],
)
def test_producers_get_half_of_what_there_is_room_for(used: float, budget: int, mean: int, expected: int) -> None:
    assert messages_per_tick(used, budget, mean) == expected
