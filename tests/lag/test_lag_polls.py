"""Runs of a broker and how well its polls cover the window, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from penstock_lag.figures.polls import PlacedPoll, polls_of
from penstock_lag_rules.figures import Coverage


def a_row(seq: int, time_ms: int, **changes: Any) -> dict[str, Any]:
    """A broker row."""
    values: dict[str, Any] = {
        "seq": seq,
        "time_ms": time_ms,
        "ordinal": 0,
        "instance": "i-1",
        "epoch": 3,
        "started_ms": None,
        "interval_ms": 10_000,
        "complete": True,
        "clock_step_ms": None,
    }
    return values | changes


def test_a_run_ends_with_another_epoch_and_with_another_folder() -> None:
    """A complete poll shows what is absent only to the polls after it in the same run; order does not matter."""
    rows = [
        a_row(10, 0, complete=False),
        a_row(20, 10_000),
        a_row(30, 20_000),
        a_row(40, 30_000, epoch=4),
        a_row(50, 40_000, epoch=4),
        a_row(60, 50_000, epoch=4, instance="i-2"),
        a_row(70, 60_000, epoch=4, instance="i-1", complete=False),
    ]
    found = polls_of(rows[::-1])[0]
    assert found.placed == (
        PlacedPoll(10, run_start=10, instance_start=10, shows_absence=False),
        PlacedPoll(20, run_start=10, instance_start=10, shows_absence=False),
        PlacedPoll(30, run_start=10, instance_start=10, shows_absence=True),
        PlacedPoll(40, run_start=40, instance_start=10, shows_absence=False),
        PlacedPoll(50, run_start=40, instance_start=10, shows_absence=True),
        PlacedPoll(60, run_start=60, instance_start=60, shows_absence=False),
        PlacedPoll(70, run_start=70, instance_start=70, shows_absence=False),
    )
    assert found.last_complete == 60
    assert found.coverage == Coverage(last_poll_ms=60_000, elapsed_ms=60_000, polls=7, interval_ms=10_000)


def test_a_run_ends_with_another_start_of_the_same_epoch() -> None:
    """A broker that was restored from a backup. Polls of an earlier release do not say when their broker started."""
    starts = (None, 7, 7, 9, None, 9)
    found = polls_of([a_row(10 * at, 10_000 * at, started_ms=start) for at, start in enumerate(starts, 1)])[0]
    assert [each.run_start for each in found.placed] == [10, 10, 10, 40, 40, 40]
    assert {each.instance_start for each in found.placed} == {10}
    assert [each.shows_absence for each in found.placed] == [False, True, True, False, True, True]


def test_each_broker_has_its_own_polls() -> None:
    """One was set back by 10 s and never complete."""
    rows = [
        a_row(1, 50_000),
        a_row(1, 50_000, ordinal=1, complete=False),
        a_row(2, 40_000, ordinal=1, complete=False, interval_ms=5_000),
    ]
    found = polls_of(rows)
    assert found[0].coverage == Coverage(last_poll_ms=50_000, elapsed_ms=0, polls=1, interval_ms=10_000)
    assert found[1].coverage == Coverage(last_poll_ms=40_000, elapsed_ms=0, polls=2, interval_ms=5_000, clock_steps=1)
    assert (found[0].last_complete, found[1].last_complete) == (1, 0)


@pytest.mark.parametrize(
    ("polls", "steps", "last_ms"),
    [
        pytest.param(((0, None), (10_000, 0), (20_000, 0)), 0, None, id="not set"),
        pytest.param(((0, None), (3_600_000, None)), 0, None, id="a release that did not look, or an hour away"),
        pytest.param(((0, None), (3_600_000, 0)), 0, None, id="an hour away"),
        pytest.param(((0, 0), (3_610_000, 3_600_000), (3_620_000, 0)), 1, 3_600_000, id="forward"),
        pytest.param(((3_610_000, 3_600_000), (3_620_000, 0)), 1, 3_600_000, id="before the window"),
        pytest.param(((0, 0), (8_000, -2_000)), 1, -2_000, id="back by less than an interval"),
        pytest.param(((0, 0), (70_000, 60_000), (20_000, -60_000)), 2, -60_000, id="forward and back"),
        pytest.param(((70_000, 60_000), (10_000, None)), 2, None, id="back, while nobody looked"),
    ],
)
def test_steps_of_the_clock_are_those_that_the_observer_saw(
    polls: tuple[tuple[int, int | None], ...], steps: int, last_ms: int | None
) -> None:
    rows = [a_row(seq, time_ms, clock_step_ms=step_ms) for seq, (time_ms, step_ms) in enumerate(polls, start=1)]
    found = polls_of(rows)[0].coverage
    assert (found.clock_steps, found.clock_step_ms) == (steps, last_ms)
