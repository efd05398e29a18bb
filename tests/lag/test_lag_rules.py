"""States by the rules of docs/concepts/lag.md: each alone, their order, and their edges, typed in by hand."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lag.figures_factory import END_MS, figures

from penstock_api.lag_result import LagState
from penstock_lag_rules.entry import subscription_lag
from penstock_lag_rules.figures import RepeatedMessage
from penstock_lag_rules.rules import RULES, LagVerdict, judge
from penstock_lag_rules.thresholds import Thresholds

T = Thresholds()


def verdict(changes: dict[str, Any]) -> LagVerdict:
    """The verdict of a broker that reports."""
    return judge(figures(**changes), T, END_MS, None)


def both(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """The changes of two states at once."""
    made = {**first}
    for name, value in second.items():
        before = made.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            made[name] = both(cast("dict[str, Any]", before), cast("dict[str, Any]", value))
        else:
            made[name] = value
    return made


NOTHING_ACCEPTED: dict[str, Any] = {"recent": {"growth": {"acked": 0}}, "progressed_ms": END_MS - 119_999}
LOSING: dict[str, Any] = {"recent": {"growth": {"acked": 594, "expired": 6}}}
IDLE: dict[str, Any] = {
    "window": {"growth": {"enqueued": 0, "delivered": 0, "acked": 0}},
    "standing": {"depth": 0, "ready": 0, "in_flight": 0, "age_ms": None, "consumers": 0},
}
CAUGHT_UP: dict[str, Any] = {"standing": {"depth": 0, "ready": 0, "in_flight": 0, "age_ms": None}}
KEEPS_UP: dict[str, Any] = {"standing": {"age_ms": 1_000}}
UNCONSUMED: dict[str, Any] = {
    "standing": {"consumers": 0, "unused_since_ms": END_MS - 60_001},
    "recent": {"min_consumers": 0, "growth": {"delivered": 0, "acked": 0}},
}
BROKER_STUCK = both(NOTHING_ACCEPTED, {"recent": {"min_credit": 5, "growth": {"delivered": 0}}})
NO_CREDIT = both(NOTHING_ACCEPTED, {"recent": {"max_credit": 0, "growth": {"delivered": 0}}})
POISON = both(NOTHING_ACCEPTED, {"recent": {"growth": {"delivered": 100, "redelivered": 90}}})
POISONED: dict[str, Any] = {"standing": {"repeated": (RepeatedMessage("ID:1", 5, 60_000),)}}
STALLED = both(NOTHING_ACCEPTED, {"progressed_ms": END_MS - 120_000})
STRANDED: dict[str, Any] = {"standing": {"ready": 0, "in_flight": 0, "scheduled": 500, "stranded": 500}}
YOUNG: dict[str, Any] = {"standing": {"age_ms": 59_999}, "stretch": {"elapsed_ms": 59_999}}
LAGGING: dict[str, Any] = {"recent": {"first_depth": 430}}  # 2 * sqrt(600 + 600) = 69.3
AGING: dict[str, Any] = {"stretch": {"falls": 0, "elapsed_ms": 120_000, "first_age_ms": 10_000}}
RECOVERING: dict[str, Any] = {"recent": {"first_depth": 570}}
# Beyond chance only within five minutes: 2 * sqrt(3000 + 3000) = 154.9. A minute's share of 155 is 31.
SLOWLY_LAGGING: dict[str, Any] = {"stretch": {"first_depth": 345}}
SLOWLY_RECOVERING: dict[str, Any] = {"stretch": {"first_depth": 655}}


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        (LOSING, LagState.LOSING),
        (IDLE, LagState.IDLE),
        (CAUGHT_UP, LagState.OK),
        (KEEPS_UP, LagState.OK),
        (UNCONSUMED, LagState.UNCONSUMED),
        (BROKER_STUCK, LagState.BROKER_STUCK),
        (NO_CREDIT, LagState.NO_CREDIT),
        (POISON, LagState.POISON),
        (POISONED, LagState.POISON),
        (STALLED, LagState.STALLED),
        (STRANDED, LagState.STALLED),
        (YOUNG, LagState.OK),
        (LAGGING, LagState.LAGGING),
        (AGING, LagState.LAGGING),
        (SLOWLY_LAGGING, LagState.LAGGING),
        (RECOVERING, LagState.RECOVERING),
        (SLOWLY_RECOVERING, LagState.RECOVERING),
        ({}, LagState.BACKLOG_STEADY),
    ],
)
def test_each_state_has_its_figures(changes: dict[str, Any], state: LagState) -> None:
    """In the order of the rules."""
    assert verdict(changes).state is state


@pytest.mark.parametrize(
    ("base", "changes", "state"),
    [
        # five of 600 are less than one per cent
        (LOSING, {"recent": {"growth": {"acked": 595, "expired": 5}}}, LagState.BACKLOG_STEADY),
        # what was moved or purged on purpose is not lost, and no work of the consumers either
        (LOSING, {"recent": {"growth": {"expired": 0, "moved": 600}, "first_depth": 1_100}}, LagState.BACKLOG_STEADY),
        (LOSING, {"recent": {"growth": {"expired": 0, "purged": 600}, "first_depth": 1_100}}, LagState.BACKLOG_STEADY),
        (LAGGING, {"recent": {"growth": {"purged": 1_000}, "first_depth": 1_430}}, LagState.LAGGING),
        (LAGGING, {"recent": {"growth": {"purged": 1_000}, "first_depth": 1_431}}, LagState.BACKLOG_STEADY),
        (RECOVERING, {"recent": {"growth": {"moved": 1_000}, "first_depth": 1_569}}, LagState.BACKLOG_STEADY),
        (RECOVERING, {"recent": {"growth": {"moved": 1_000}, "first_depth": 1_570}}, LagState.RECOVERING),
        # a message came, so it is not idle; nothing waits, so it is OK
        (IDLE, {"window": {"growth": {"enqueued": 1}}}, LagState.OK),
        # nothing came and nothing went, because nobody consumes what waits
        (IDLE, {"standing": {"depth": 500, "unused_since_ms": END_MS - 60_001}}, LagState.UNCONSUMED),
        (KEEPS_UP, {"standing": {"age_ms": 1_001}}, LagState.BACKLOG_STEADY),
        # the clock went back behind the oldest message: its age is not known, so it is not new
        (KEEPS_UP, {"standing": {"age_ms": None}}, LagState.BACKLOG_STEADY),
        # a consumer left a minute ago: a roll-out, not Unconsumed
        (UNCONSUMED, {"standing": {"unused_since_ms": END_MS - 60_000}}, LagState.BACKLOG_STEADY),
        # no usable credit or nothing ready in one snapshot, or not for long: the broker is not to blame
        (BROKER_STUCK, {"recent": {"min_credit": 0}}, LagState.BACKLOG_STEADY),
        (BROKER_STUCK, {"recent": {"min_ready": 0}}, LagState.BACKLOG_STEADY),
        (BROKER_STUCK, {"recent": {"elapsed_ms": 44_999}}, LagState.BACKLOG_STEADY),
        (BROKER_STUCK, {"recent": {"elapsed_ms": 45_000}}, LagState.BROKER_STUCK),
        (BROKER_STUCK, {"standing": {"usable_consumers": 0}}, LagState.BACKLOG_STEADY),
        (BROKER_STUCK, {"standing": {"usable_consumers": None}}, LagState.BROKER_STUCK),
        # credit in one snapshot, or nothing in flight in one, or one was delivered or accepted
        (NO_CREDIT, {"recent": {"max_credit": 1}}, LagState.BACKLOG_STEADY),
        (NO_CREDIT, {"recent": {"elapsed_ms": 44_999}}, LagState.BACKLOG_STEADY),
        (NO_CREDIT, {"recent": {"elapsed_ms": 45_000}}, LagState.NO_CREDIT),
        (NO_CREDIT, {"recent": {"min_in_flight": 0}}, LagState.BACKLOG_STEADY),
        (NO_CREDIT, {"recent": {"growth": {"delivered": 1}}}, LagState.BACKLOG_STEADY),
        (NO_CREDIT, {"recent": {"growth": {"acked": 1}}}, LagState.BACKLOG_STEADY),
        # a consumer of one message at a time shows no credit in any snapshot, and fails each time
        (POISON, {"recent": {"max_credit": 0}}, LagState.POISON),
        # 89 of 100 is not poison, and neither is anything of which one message was accepted
        (POISON, {"recent": {"growth": {"redelivered": 89}}}, LagState.BACKLOG_STEADY),
        (POISON, {"recent": {"growth": {"acked": 1}}}, LagState.BACKLOG_STEADY),
        (POISON, {"recent": {"elapsed_ms": 44_999}}, LagState.BACKLOG_STEADY),
        (POISON, {"recent": {"elapsed_ms": 45_000}}, LagState.POISON),
        (POISONED, {"standing": {"repeated": (RepeatedMessage("ID:1", 4, 60_000),)}}, LagState.BACKLOG_STEADY),
        # not long enough; and handlers whose 99th percentile of hold is 41 s (bucket 122) get three times that
        (STALLED, {"progressed_ms": END_MS - 119_999}, LagState.BACKLOG_STEADY),
        (STALLED, {"percentiles": {"hold_p99": 122}}, LagState.BACKLOG_STEADY),
        (STALLED, {"percentiles": {"hold_p99": 122}, "progressed_ms": END_MS - 123_000}, LagState.STALLED),
        # three times 10 minutes (bucket 153) are not in a window of five, but a delivery may be out for 1,791 s
        (STALLED, {"percentiles": {"hold_p99": 153}, "progressed_ms": END_MS - 300_000}, LagState.BACKLOG_STEADY),
        (STALLED, {"percentiles": {"hold_p99": 153}, "standing": {"hold_ms": 1_790_000}}, LagState.BACKLOG_STEADY),
        (STALLED, {"percentiles": {"hold_p99": 153}, "standing": {"hold_ms": 1_800_000}}, LagState.STALLED),
        # and nobody needs time for what nobody holds
        (STALLED, {"percentiles": {"hold_p99": 153}, "standing": {"in_flight": 0, "ready": 500}}, LagState.STALLED),
        # it was caught up since then
        (STALLED, {"stretch": {"elapsed_ms": 119_999}}, LagState.BACKLOG_STEADY),
        (STRANDED, {"standing": {"stranded": 499, "ready": 1, "scheduled": 499}}, LagState.BACKLOG_STEADY),
        (YOUNG, {"standing": {"age_ms": 60_000}}, LagState.BACKLOG_STEADY),
        (YOUNG, {"stretch": {"elapsed_ms": 60_000}}, LagState.BACKLOG_STEADY),
        # the change is noise; it fell once; it aged by less than half of the time
        (LAGGING, {"recent": {"first_depth": 431}}, LagState.BACKLOG_STEADY),
        (AGING, {"stretch": {"falls": 1}}, LagState.BACKLOG_STEADY),
        (AGING, {"stretch": {"first_age_ms": 10_001}}, LagState.BACKLOG_STEADY),
        (RECOVERING, {"recent": {"first_depth": 569}}, LagState.BACKLOG_STEADY),
        # the stretch decides unless the last minute contradicts it: by more than 69.3 from its share
        (SLOWLY_LAGGING, {"stretch": {"first_depth": 346}}, LagState.BACKLOG_STEADY),
        (SLOWLY_LAGGING, {"recent": {"first_depth": 538}}, LagState.LAGGING),
        (SLOWLY_LAGGING, {"recent": {"first_depth": 539}}, LagState.BACKLOG_STEADY),
        (SLOWLY_RECOVERING, {"stretch": {"first_depth": 654}}, LagState.BACKLOG_STEADY),
        (SLOWLY_RECOVERING, {"recent": {"first_depth": 462}}, LagState.RECOVERING),
        (SLOWLY_RECOVERING, {"recent": {"first_depth": 461}}, LagState.BACKLOG_STEADY),
        # what the last minute shows beyond chance is what happens now
        (SLOWLY_RECOVERING, LAGGING, LagState.LAGGING),
    ],
)
def test_the_edges_of_the_rules(base: dict[str, Any], changes: dict[str, Any], state: LagState) -> None:
    """One step beside each rule."""
    assert verdict(both(base, changes)).state is state


@pytest.mark.parametrize(
    ("first", "second", "state"),
    [
        (LOSING, CAUGHT_UP, LagState.LOSING),
        (LOSING, UNCONSUMED, LagState.LOSING),
        (LOSING, RECOVERING, LagState.LOSING),
        (UNCONSUMED, LAGGING, LagState.UNCONSUMED),
        (BROKER_STUCK, STALLED, LagState.BROKER_STUCK),
        (NO_CREDIT, STALLED, LagState.NO_CREDIT),
        (POISON, STALLED, LagState.POISON),
        (STALLED, LAGGING, LagState.STALLED),
        (AGING, RECOVERING, LagState.RECOVERING),
    ],
)
def test_the_first_rule_that_matches_decides(first: dict[str, Any], second: dict[str, Any], state: LagState) -> None:
    """Figures of two states at once."""
    assert verdict(both(first, second)).state is state


def test_what_was_purged_is_told_apart_from_what_was_accepted() -> None:
    """Of 2,000 messages 1,400 went within a minute, 400 of them without a consumer: 500 wait, 1,000 a minute go."""
    figures = {"recent": {"first_depth": 1_900, "growth": {"enqueued": 0, "acked": 1_000, "purged": 400}}}
    assert verdict(figures).message.startswith(
        "the backlog fell from 1900 to 500 messages in 60 s (400 were not accepted, but lost, moved or purged) and "
        "will be empty in 29 to 33 s if this goes on; "  # 60 s * 500 / (1000 -+ 2 * sqrt(1000)): 28.2 to 32.03
    )


def test_the_rules_are_in_the_order_of_the_contract() -> None:
    """Unknown goes before them, BacklogSteady is what is left; a young backlog is OK as well."""
    states = [state for state, rule in RULES if rule.__name__ != "_young"]
    assert states == list(LagState)[1:-1]


def test_a_missing_broker_makes_everything_unknown_with_its_reason() -> None:
    """Whatever the figures say."""
    assert judge(figures(**IDLE), T, END_MS, "the broker does not answer: refused") == LagVerdict(
        LagState.UNKNOWN, "the broker does not answer: refused"
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"coverage": {"last_poll_ms": END_MS - 180_001}},
            "its broker was last seen 180 s before the end of the window",
        ),
        (
            {"standing": {"observed_ms": END_MS - 180_001}},
            "the polls of its broker are there, but it was last in one 180 s before their end",
        ),
        ({"coverage": {"polls": 15}}, "only 15 of 31 expected polls of its broker are in the ledger"),
        ({"window": {"snapshots": 2}}, "there are only 2 snapshots so far; 3 are needed"),
        (
            {"coverage": {"clock_steps": 1, "clock_step_ms": 3_599_998}},
            "the clock of its broker was set forward by 3600 s within the window, so rates are not known; "
            "500 messages wait, the oldest for 70 s",
        ),
        (
            {"coverage": {"clock_steps": 2, "clock_step_ms": -2_000}},
            "the clock of its broker was set back by 2 s within the window, so rates are not known; "
            "500 messages wait, the oldest for 70 s",
        ),
        (
            {"coverage": {"clock_steps": 1}},
            "the clock of its broker was set back within the window, so ages and rates are not known; "
            "500 messages wait",
        ),
    ],
)
def test_too_little_is_known(changes: dict[str, Any], reason: str) -> None:
    """A reason in words."""
    assert verdict(changes) == LagVerdict(LagState.UNKNOWN, reason)


@pytest.mark.parametrize(
    "changes",
    [
        {"coverage": {"last_poll_ms": END_MS - 180_000}},
        {"standing": {"observed_ms": END_MS - 180_000}},
        {"coverage": {"polls": 16}},
        {"window": {"snapshots": 3}},
    ],
)
def test_just_enough_is_known(changes: dict[str, Any]) -> None:
    """At the limit."""
    assert verdict(changes).state is LagState.BACKLOG_STEADY


@pytest.mark.parametrize(
    ("changes", "milliseconds"),
    [
        ({"standing": {"consumers": 1, "unused_since_ms": END_MS - 9_000}}, 0),
        ({"standing": {"consumers": 0, "unused_since_ms": END_MS - 9_000}, "consumed_ms": END_MS - 10_000}, 9_000),
        ({"standing": {"consumers": 0}, "consumed_ms": END_MS - 10_000}, 10_000),
        ({"standing": {"consumers": 0}, "consumed_ms": None}, 300_000),
        ({"standing": {"consumers": 0, "unused_since_ms": END_MS + 5}}, 0),
    ],
)
def test_how_long_there_was_no_consumer(changes: dict[str, Any], milliseconds: int) -> None:
    """The broker's word, else the samples, else the whole window; never negative."""
    assert figures(**changes).without_consumer_ms == milliseconds


def test_what_consumers_hold_is_told_where_they_fall_behind() -> None:
    """All 500 are in flight; nobody else could take one."""
    held = {"ready": 0, "in_flight": 500, "hold_ms": 66_000}
    assert "; consumers hold all of it, the longest for 66 s" in verdict(both(LAGGING, {"standing": held})).message
    assert "hold all" not in verdict(LAGGING).message


def test_an_age_that_a_backup_brought_along_is_no_falling_behind() -> None:
    """It is older than the whole stretch, in which the broker was restarted."""
    assert verdict(both(AGING, {"stretch": {"restarts": 1}})).state is LagState.BACKLOG_STEADY


def test_nothing_is_forecast_if_nothing_was_accepted_in_the_last_minute() -> None:
    """60 fewer in an hour, which the last minute, in which one came, does not contradict."""
    hour = {"elapsed_ms": 3_600_000, "first_depth": 560, "growth": {"enqueued": 20, "acked": 80}}
    minute = {"first_depth": 499, "growth": {"enqueued": 1, "acked": 0}}
    assert verdict({"stretch": hour, "recent": minute}).state is LagState.BACKLOG_STEADY
    one = {"first_depth": 500, "growth": {"enqueued": 1, "acked": 1}}
    assert verdict({"stretch": hour, "recent": one}).state is LagState.RECOVERING


@pytest.mark.parametrize(
    ("scheduled", "first_depth", "state"),
    [(70, 430, LagState.BACKLOG_STEADY), (1, 429, LagState.LAGGING), (1, 430, LagState.BACKLOG_STEADY)],
)
def test_what_is_due_later_makes_no_consumer_fall_behind(scheduled: int, first_depth: int, state: LagState) -> None:
    """Of 70 more messages in a minute none can be taken yet. 69 may be noise."""
    changes = {"standing": {"scheduled": scheduled}, "recent": {"first_depth": first_depth}}
    assert verdict(changes).state is state


COUNTS = st.integers(0, 5)
GROWTHS = ("enqueued", "delivered", "redelivered", "acked", "expired", "dead_lettered", "dropped", "moved")
BOUNDS = (
    "first_depth",
    "falls",
    "min_depth",
    "min_ready",
    "min_in_flight",
    "min_consumers",
    "min_credit",
    "max_credit",
)
SPAN = st.fixed_dictionaries(
    {
        **dict.fromkeys(BOUNDS, COUNTS),
        "elapsed_ms": st.sampled_from([0, 10_000, 60_000, 300_000]),
        "growth": st.fixed_dictionaries(dict.fromkeys(GROWTHS, COUNTS)),
    }
)
STANDING = st.fixed_dictionaries(
    {
        **dict.fromkeys(("depth", "ready", "in_flight", "consumers"), COUNTS),
        "age_ms": st.sampled_from([None, 0, 30_000, 1_000_000]),
    }
)


@given(STANDING, SPAN, SPAN)
def test_every_figure_has_a_state_and_a_short_sentence(
    standing: dict[str, Any], stretch: dict[str, Any], recent: dict[str, Any]
) -> None:
    """Total: no combination raises; none blames the broker while it delivers, and no loss passes for recovery."""
    found = verdict({"standing": standing, "stretch": stretch, "recent": recent, "window": stretch})
    assert 0 < len(found.message) < 300
    assert found.state is not LagState.UNKNOWN
    grown = recent["growth"]
    assert found.state is not LagState.BROKER_STUCK or grown["delivered"] == 0
    lost = grown["expired"] + grown["dead_lettered"] + grown["dropped"]
    assert (found.state is LagState.LOSING) == (lost > 0)


PARTS = st.fixed_dictionaries(
    {
        **dict.fromkeys(("ready", "in_flight", "stranded", "later", "consumers"), COUNTS),
        "age_ms": st.sampled_from([None, 0, 30_000, 1_000_000]),
    }
)


@given(PARTS, SPAN, SPAN)
def test_no_sentence_takes_what_is_due_later_for_waiting_or_forecasts_what_nobody_does(
    parts: dict[str, Any], stretch: dict[str, Any], recent: dict[str, Any]
) -> None:
    """Whatever the state. A forecast needs a consumer, and something that was accepted in the last minute."""
    later = parts.pop("later")
    waiting = parts["ready"] + parts["in_flight"] + parts["stranded"]
    standing = {**parts, "scheduled": parts["stranded"] + later, "depth": waiting + later}
    found = figures(standing=standing, stretch=stretch, recent=recent, window=stretch)
    entry = subscription_lag(found, None, END_MS, T)
    told = [int(count) for count in re.findall(r"(\d+) messages? waits?\b", entry.message)]
    assert told in ([], [waiting]), entry.message
    assert (entry.messages, entry.waiting, entry.later) == (waiting + later, waiting, later)
    if later and told:
        assert re.search(rf"; {later}( more)? (is|are) due later", entry.message), entry.message
    if entry.drain_seconds is not None or "will be empty" in entry.message:
        assert parts["consumers"] > 0 and recent["growth"]["acked"] > 0
