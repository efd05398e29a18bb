"""States by the rules of docs/concepts/lag.md: each alone, their order, and their edges, typed in by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lag.figures_factory import END_MS, figures

from penstock_api.lag_result import LagState
from penstock_lag.rules import RULES, LagVerdict, Thresholds, judge

T = Thresholds()


def verdict(**changes: Any) -> LagVerdict:
    """The verdict of a broker that reports."""
    return judge(figures(**changes), T, END_MS, None)


NOTHING_ACCEPTED: dict[str, Any] = {"new_acked": 0, "settled_per_minute": 0, "completions": 0}
STANDING_STILL: dict[str, Any] = {
    **NOTHING_ACCEPTED,
    "new_delivered": 0,
    "falls": 0,
    "progressed_ms": END_MS - 300_000,
}

IDLE: dict[str, Any] = {
    "new_enqueued": 0,
    "new_delivered": 0,
    "new_acked": 0,
    "depth": 0,
    "min_depth": 0,
    "age_ms": 0,
    "min_age_ms": 0,
    "consumers": 0,
}
UNCONSUMED: dict[str, Any] = {**STANDING_STILL, "consumers": 0, "min_consumers": 0, "unused_since_ms": END_MS - 61_000}
BROKER_STUCK: dict[str, Any] = {**STANDING_STILL, "min_credit": 5, "max_credit": 9}
NO_CREDIT: dict[str, Any] = {**STANDING_STILL, "max_credit": 0}
POISON: dict[str, Any] = {**NOTHING_ACCEPTED, "new_delivered": 100, "new_redelivered": 90, "max_delivery_count": 50}
STALLED: dict[str, Any] = {**NOTHING_ACCEPTED, "progressed_ms": END_MS - 120_000}
LAGGING: dict[str, Any] = {"falls": 0, "first_age_ms": 39_999}
RECOVERING: dict[str, Any] = {"first_depth": 501, "drain_seconds": 99}


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        (IDLE, LagState.IDLE),
        ({"min_depth": 0}, LagState.OK),
        ({"min_age_ms": 1_000}, LagState.OK),
        (UNCONSUMED, LagState.UNCONSUMED),
        (BROKER_STUCK, LagState.BROKER_STUCK),
        (NO_CREDIT, LagState.NO_CREDIT),
        (POISON, LagState.POISON),
        (STALLED, LagState.STALLED),
        (LAGGING, LagState.LAGGING),
        (RECOVERING, LagState.RECOVERING),
        ({}, LagState.BACKLOG_STEADY),
    ],
)
def test_each_state_has_its_figures(changes: dict[str, Any], state: LagState) -> None:
    """One row per state, in the order of the rules."""
    assert verdict(**changes).state is state


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        # a message came, so it is not idle; it was caught up, so it is OK
        ({**IDLE, "new_enqueued": 1}, LagState.OK),
        ({"min_depth": 1, "min_age_ms": 1_001}, LagState.BACKLOG_STEADY),
        # a consumer left a minute ago: a roll-out, not Unconsumed
        ({**UNCONSUMED, "unused_since_ms": END_MS - 60_000}, LagState.BACKLOG_STEADY),
        # one snapshot without credit, or without ready messages: the broker is not to blame
        ({**BROKER_STUCK, "min_credit": 0, "new_delivered": 1}, LagState.STALLED),
        ({**BROKER_STUCK, "min_ready": 0, "progressed_ms": END_MS}, LagState.BACKLOG_STEADY),
        # credit in one snapshot, or nothing in flight in one
        ({**NO_CREDIT, "max_credit": 1}, LagState.STALLED),
        ({**NO_CREDIT, "min_in_flight": 0}, LagState.STALLED),
        # 89 of 100 is not poison, and neither is anything of which one message was accepted
        ({**POISON, "new_redelivered": 89, "progressed_ms": END_MS}, LagState.BACKLOG_STEADY),
        ({**POISON, "new_acked": 1}, LagState.BACKLOG_STEADY),
        # not long enough; and handlers whose 99th percentile of hold is 41 s (bucket 122) get three times that
        ({**STALLED, "progressed_ms": END_MS - 119_999}, LagState.BACKLOG_STEADY),
        ({**STALLED, "hold_p99": 122}, LagState.BACKLOG_STEADY),
        ({**STALLED, "hold_p99": 122, "progressed_ms": END_MS - 123_000}, LagState.STALLED),
        # it fell once, or its oldest message got no older
        ({**LAGGING, "falls": 1}, LagState.BACKLOG_STEADY),
        ({**LAGGING, "first_age_ms": 40_000}, LagState.BACKLOG_STEADY),
        ({**RECOVERING, "first_depth": 500}, LagState.BACKLOG_STEADY),
    ],
)
def test_the_edges_of_the_rules(changes: dict[str, Any], state: LagState) -> None:
    """One step beside each rule."""
    assert verdict(**changes).state is state


@pytest.mark.parametrize(
    ("both", "state"),
    [
        ({**UNCONSUMED, "min_depth": 0}, LagState.OK),
        ({**UNCONSUMED, **LAGGING}, LagState.UNCONSUMED),
        ({**BROKER_STUCK, **STALLED, "new_delivered": 0}, LagState.BROKER_STUCK),
        ({**NO_CREDIT, **STALLED, "new_delivered": 0}, LagState.NO_CREDIT),
        ({**POISON, **STALLED}, LagState.POISON),
        ({**STALLED, **LAGGING}, LagState.STALLED),
        ({**LAGGING, **RECOVERING, "falls": 0}, LagState.LAGGING),
    ],
)
def test_the_first_rule_that_matches_decides(both: dict[str, Any], state: LagState) -> None:
    """Figures of two states at once."""
    assert verdict(**both).state is state


def test_the_rules_are_in_the_order_of_the_contract() -> None:
    """Unknown goes before them, BacklogSteady is what is left."""
    assert [state for state, _ in RULES] == list(LagState)[1:-1]
    unruled = set(LagState) - {state for state, _ in RULES}
    assert unruled == {LagState.UNKNOWN, LagState.BACKLOG_STEADY}


def test_a_missing_broker_makes_everything_unknown_with_its_reason() -> None:
    """Whatever the figures say."""
    assert judge(figures(**IDLE), T, END_MS, "the broker does not answer: refused") == LagVerdict(
        LagState.UNKNOWN, "the broker does not answer: refused"
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"last_poll_ms": END_MS - 180_001}, "its broker was last seen 180 s before the end of the window"),
        ({"polls": 15}, "only 15 of 31 expected polls of its broker are in the ledger"),
        ({"snapshots": 2}, "there are only 2 snapshots so far; 3 are needed"),
    ],
)
def test_too_little_is_known(changes: dict[str, Any], reason: str) -> None:
    """A reason in words."""
    assert verdict(**changes) == LagVerdict(LagState.UNKNOWN, reason)


@pytest.mark.parametrize("changes", [{"last_poll_ms": END_MS - 180_000}, {"polls": 16}, {"snapshots": 3}])
def test_just_enough_is_known(changes: dict[str, Any]) -> None:
    """At the limit."""
    assert verdict(**changes).state is LagState.BACKLOG_STEADY


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (UNCONSUMED, "no consumer for 61 s; 500 messages wait, the oldest for 40 s"),
        (
            STALLED,
            "no message has left the queue for 120 s, although 2 consumers are attached; 500 messages wait, the oldest "
            "for 40 s",
        ),
        (
            RECOVERING,
            "the backlog fell from 501 to 500 messages, at this rate it is empty in 99 s; "
            "500 messages wait, the oldest for 40 s",
        ),
        (
            LAGGING,
            "the backlog never fell in 31 snapshots; 600 messages come and 600 are settled per minute; "
            "500 messages wait, the oldest for 40 s",
        ),
    ],
)
def test_messages_say_why_with_figures(changes: dict[str, Any], message: str) -> None:
    """What `kubectl describe` shows."""
    assert verdict(**changes).message == message


@pytest.mark.parametrize(
    ("changes", "milliseconds"),
    [
        ({"consumers": 1, "unused_since_ms": END_MS - 9_000}, 0),
        ({"consumers": 0, "unused_since_ms": END_MS - 9_000, "consumed_ms": END_MS - 10_000}, 9_000),
        ({"consumers": 0, "consumed_ms": END_MS - 10_000}, 10_000),
        ({"consumers": 0, "consumed_ms": None}, 300_000),
        ({"consumers": 0, "unused_since_ms": END_MS + 5}, 0),
    ],
)
def test_how_long_there_was_no_consumer(changes: dict[str, Any], milliseconds: int) -> None:
    """The broker's word, else the samples, else the whole window; never negative."""
    assert figures(**changes).without_consumer_ms == milliseconds


# fmt: off
VARIED = (
    "depth", "new_enqueued", "new_delivered", "new_redelivered", "new_acked", "first_depth", "falls", "min_depth",
    "consumers", "min_ready", "min_in_flight", "min_credit", "max_credit", "min_consumers",
)
# fmt: on


@given(
    st.fixed_dictionaries({name: st.integers(0, 5) for name in VARIED}),
    st.booleans(),
)
def test_every_figure_has_a_state_and_a_short_sentence(changes: dict[str, int], old: bool) -> None:
    """Total: no combination raises, and none blames the broker while it delivers."""
    age_ms = 10**6 if old else 0
    found = verdict(**changes, age_ms=age_ms, min_age_ms=age_ms)
    assert 0 < len(found.message) < 300
    assert found.state is not LagState.UNKNOWN
    assert found.state is not LagState.BROKER_STUCK or changes["new_delivered"] == 0
