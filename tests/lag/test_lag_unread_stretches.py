"""Which figures are left out if a part of the ledger could not be read: none may be smaller than the truth."""

from __future__ import annotations

from typing import Any

import pytest
from lag.figures_factory import END_MS, figures

from penstock_api.lag_result import LagState, SubscriptionLag
from penstock_lag_rules.entry import subscription_lag
from penstock_lag_rules.figures import Figures, Growth
from penstock_lag_rules.thresholds import Thresholds
from penstock_lag_rules.unread_stretches import Unread, held_back

LOSSES = {"expired", "dead_lettered", "dropped", "moved", "purged", "lost_at_restart", "lost"}
DURATIONS = {
    *("sojourn_p50_millis", "sojourn_p95_millis", "sojourn_p99_millis"),
    *("mean_wait_millis", "mean_hold_millis", "wait_p95_millis", "hold_p95_millis", "slow_part"),
}
FIRST_MS = END_MS - 300_000
TIMED = {"wait": {"count": 300, "sum_ms": 30_000, "p95": 90}, "hold": {"count": 300, "sum_ms": 60_000, "p95": 90}}


def left_of(found: Figures, *unread: Unread) -> tuple[SubscriptionLag, set[str]]:
    """The entry, and what it has no longer."""
    whole = subscription_lag(found, None, END_MS, Thresholds())
    left = held_back(whole, found, unread)
    before, after = whole.model_dump(exclude_none=True), left.model_dump(exclude_none=True)
    assert all(before[name] == value for name, value in after.items() if name not in ("state", "message"))
    return left, before.keys() - after.keys()


def test_without_such_a_part_nothing_is_left_out() -> None:
    """Nor if it is of another broker's ledger."""
    found = figures(lives=2, caught_up_ms=FIRST_MS)
    for unread in ((), (Unread(1, FIRST_MS + 60_000, FIRST_MS + 120_000),)):
        left, gone = left_of(found, *unread)
        assert (left.state, left.message, gone) == (
            LagState.BACKLOG_STEADY,
            "the backlog neither grows nor shrinks: 600 messages a minute arrive and 600 are accepted; 500 messages "
            "wait, the oldest for 70 s",
            set(),
        )


def test_totals_go_on_over_a_part_between_two_snapshots() -> None:
    """All of them, and the state. That it was caught up in that part nobody knows."""
    part = Unread(0, FIRST_MS + 60_000, FIRST_MS + 120_000)
    assert left_of(figures(**TIMED), part)[1] == set()
    left, gone = left_of(figures(caught_up_ms=FIRST_MS + 60_000), part)
    assert (left.state, gone) == (LagState.BACKLOG_STEADY, {"since_caught_up_seconds"})
    assert left.message.endswith("; 500 messages wait, the oldest for 70 s; 60 s of its time could not be read")
    assert left_of(figures(caught_up_ms=FIRST_MS + 120_000), part)[1] == set()


def test_losses_and_percentiles_before_the_first_snapshot_are_not_known() -> None:
    """What the subscription lost in this part is in no difference of two snapshots, and what it was slow with in no
    histogram: a status that is Live would show a percentile without saying so. Rates are of the time that is.
    """
    for part in (Unread(0, FIRST_MS - 60_000, FIRST_MS), Unread(0, FIRST_MS - 60_000, FIRST_MS - 10_000)):
        left, gone = left_of(figures(**TIMED), part)
        assert (left.state, left.arrival_per_minute) == (LagState.BACKLOG_STEADY, 600)
        assert gone == LOSSES | DURATIONS


def test_after_the_last_snapshot_all_figures_are_of_that_time() -> None:
    """The entry says which: `observed_time`."""
    assert left_of(figures(caught_up_ms=END_MS), Unread(0, END_MS, END_MS + 60_000))[1] == set()


@pytest.mark.parametrize("state", ["BacklogSteady", "Unknown"])
def test_what_a_former_life_did_in_that_part_is_in_no_total(state: str) -> None:
    """Its broker restarted. How it stands holds."""
    changes: dict[str, Any] = {"BacklogSteady": {}, "Unknown": {"coverage": {"polls": 3}}}[state]
    found = figures(lives=2, **TIMED, **changes)
    left, gone = left_of(found, Unread(0, FIRST_MS + 60_000, FIRST_MS + 120_000))
    assert {*LOSSES, *DURATIONS, "arrival_per_minute", "settled_per_minute"} <= gone
    assert (left.state, left.messages, left.ready, left.oldest_age_seconds) == (LagState.UNKNOWN, 500, 400, 70)
    backlog = "500 messages wait, the oldest for 70 s"
    expected = {
        "BacklogSteady": "60 s of the window could not be read, and in the window its broker was restarted, so rates "
        f"are not known; {backlog}",
        "Unknown": "only 3 of 31 expected polls of its broker are in the ledger; 60 s of its time could not be read",
    }
    assert left.message == expected[state]


def test_rates_of_a_subscription_that_was_made_in_such_a_part_are_those_of_the_time_that_was_seen() -> None:
    """What came before its first snapshot is in no rate. What it lost is not whole."""
    born = {"born": Growth(enqueued=5_000, acked=4_000, expired=3)}
    left, gone = left_of(figures(window=born, **TIMED), Unread(0, FIRST_MS - 240_000, FIRST_MS))
    assert gone == LOSSES | DURATIONS
    assert (left.state, left.arrival_per_minute, left.settled_per_minute) == (LagState.BACKLOG_STEADY, 600, 600)
