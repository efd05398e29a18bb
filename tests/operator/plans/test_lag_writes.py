"""Which lag is written, and in which order, on the times of the test."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.resources import NOW, subscription

from penstock_api.resources import Lag
from penstock_operator.plans.conditions import ConditionStatus, StatusCondition
from penstock_operator.plans.lag_freshness import LagUpdate
from penstock_operator.plans.lag_writes import STATES_IN_A_ROW, LagWrites, Urgency, urgency

BASE = {
    "state": "OK",
    "message": "It is so.",
    "messages": 100,
    "oldestAgeSeconds": 100,
    "source": "Live",
    "runName": "r",
    "brokersReporting": "1/1",
}
SAID = {"Lagging": ("False", "WithinThresholds", "It is so."), "LagFresh": ("True", "Current", "It is current.")}
NONE, FIGURES, STATE = Urgency.NONE, Urgency.FIGURES, Urgency.STATE


def lag(seconds: int = 0, **changes: Any) -> Lag:
    return Lag.model_validate({**BASE, "observedTime": NOW + timedelta(seconds=seconds), **changes})


def how_soon(
    changes: dict[str, Any],
    seconds: int = 10,
    base: dict[str, Any] | None = None,
    said: dict[str, tuple[str, str, str]] | None = None,
) -> Urgency:
    """How soon a lag is written that is so many seconds newer than the one that is shown."""
    shown = {
        "lag": lag(**(base or {})).model_dump(mode="json", by_alias=True, exclude_none=True),
        "conditions": [
            {"type": kind, "status": it[0], "reason": it[1], "message": it[2], "lastTransitionTime": NOW.isoformat()}
            for kind, it in SAID.items()
        ],
    }
    update = LagUpdate(
        lag(seconds, **((base or {}) | changes)),
        tuple(
            StatusCondition(kind, ConditionStatus(it[0]), it[1], it[2]) for kind, it in (SAID | (said or {})).items()
        ),
    )
    return urgency(subscription(shown), update)


def test_the_first_one_is_written_first() -> None:
    update = LagUpdate(lag(), (StatusCondition("LagFresh", ConditionStatus.TRUE, "Current", "It is current."),))
    assert urgency(subscription(), update) is STATE


@pytest.mark.parametrize("seconds", [-60, 0, 10])
def test_a_state_is_written_whatever_the_time_of_its_figures(seconds: int) -> None:
    assert how_soon({"state": "Stalled"}, seconds) is STATE


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"Lagging": ("True", "BacklogAboveThreshold", "It is so.")}, STATE),
        ({"Lagging": ("False", "WithinThresholds", "101 messages wait.")}, NONE),
        ({"LagFresh": ("Unknown", "Unknown", "It is current.")}, STATE),
        ({"LagFresh": ("True", "Current", "It is current, too.")}, FIGURES),
    ],
)
def test_conditions(said: dict[str, tuple[str, str, str]], expected: Urgency) -> None:
    assert how_soon({}, said=said) is expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, NONE),
        ({"messages": 109}, NONE),  # 9 %, 9 messages
        ({"messages": 91}, NONE),
        ({"messages": 110}, FIGURES),  # 10 %
        ({"messages": 90}, FIGURES),
        ({"messages": 101}, NONE),
        ({"messages": 0}, FIGURES),
        ({"oldestAgeSeconds": 110}, NONE),
        ({"oldestAgeSeconds": 111}, FIGURES),
        ({"oldestAgeSeconds": None}, FIGURES),
        ({"arrivalPerMinute": 1}, FIGURES),
        ({"velocityPerMinute": -1}, FIGURES),
        ({"lost": 1}, FIGURES),
        ({"consumers": 1}, FIGURES),
        ({"suggestedConsumers": 1}, FIGURES),
        ({"drainSeconds": 60}, FIGURES),
        ({"sojournP95Millis": 60}, FIGURES),
        ({"redeliveryPercent": 6}, FIGURES),
        ({"repeated": [{"id": "m-1", "deliveryCount": 5, "ageSeconds": 9}]}, FIGURES),
        ({"runName": "another"}, NONE),
        ({"message": "5 messages wait."}, NONE),
        ({"sinceCaughtUpSeconds": 900}, NONE),
    ],
)
def test_only_what_leaves_its_dead_band_is_written_at_once(changes: dict[str, Any], expected: Urgency) -> None:
    assert how_soon(changes) is expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (0, 1, FIGURES),
        (1, 0, FIGURES),
        (5, 6, FIGURES),  # 20 %
        (20, 22, FIGURES),  # 10 %, 2 messages
        (21, 23, NONE),  # less
        (10_000, 10_009, NONE),
        (10_000, 10_010, FIGURES),  # 10 messages
        (10_000, 9_990, FIGURES),
    ],
)
def test_ten_messages_are_noticeable_however_many_there_are(before: int, after: int, expected: Urgency) -> None:
    assert how_soon({"messages": after}, base={"messages": before}) is expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(-100, -109, NONE), (-100, -111, FIGURES), (-100, 100, FIGURES), (0, 1, FIGURES)],
)
def test_a_velocity_may_be_negative(before: int, after: int, expected: Urgency) -> None:
    assert how_soon({"velocityPerMinute": after}, base={"velocityPerMinute": before}) is expected


@pytest.mark.parametrize("changes", [{"messages": 101}, {"message": "5 messages wait."}, {"oldestAgeSeconds": 101}])
def test_a_small_difference_is_shown_after_a_minute(changes: dict[str, Any]) -> None:
    assert how_soon(changes, 59) is NONE
    assert how_soon(changes, 60) is FIGURES


@pytest.mark.parametrize("changes", [{}, {"runName": "r-2", "runTime": NOW}, {"sinceCaughtUpSeconds": 3600}])
def test_a_subscription_in_which_nothing_happens_is_never_written(changes: dict[str, Any]) -> None:
    assert how_soon(changes, 86_400, {"state": "Idle"}) is NONE


SAYS = {"changes": ["no messages arrive; 120 a minute did in the 24 hours before 15:00 UTC"]}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"runName": "r-2", "runTime": NOW}, NONE),
        ({"changes": ["no messages arrive; 120 a minute did in the 24 hours before 16:00 UTC"]}, FIGURES),
        ({"changes": []}, FIGURES),
    ],
)
def test_what_changed_is_written_again_if_it_is_another_sentence(changes: dict[str, Any], expected: Urgency) -> None:
    """Not with each run that says the same."""
    assert how_soon(changes, 60, SAYS) is expected
    assert how_soon(changes, 59, SAYS) is NONE


def test_percentiles_of_a_newer_run_are_shown_with_its_time() -> None:
    assert how_soon({"runName": "r-2"}, 60, {"sojournP95Millis": 40}) is FIGURES


@pytest.mark.parametrize(("source", "expected"), [("Live", FIGURES), ("Run", NONE)])
def test_only_live_figures_may_have_an_earlier_time(source: str, expected: Urgency) -> None:
    """The broker's clock was set back by an hour. A run's result that is older says less than what is shown."""
    assert how_soon({"messages": 7}, -3600, {"source": source}) is expected


@pytest.mark.parametrize("changes", [{"messages": 7}, {"oldestAgeSeconds": 1}])
def test_figures_of_the_same_time_are_the_same(changes: dict[str, Any]) -> None:
    assert how_soon(changes, 0) is NONE


@pytest.mark.parametrize("forecast", ["drainSeconds", "drainSecondsHigh", "suggestedConsumers", "expiryRiskPercent"])
def test_a_forecast_that_an_earlier_release_left_beside_unknown_is_taken_away(forecast: str) -> None:
    """The figures are those of the same time, and no newer ones may come for days."""
    left = {"state": "Unknown", forecast: 60}
    assert how_soon({forecast: None}, 0, left) is FIGURES
    assert how_soon({}, 0, left) is NONE


def drain(writes: LagWrites[str]) -> list[str]:
    taken: list[str] = []
    while (key := writes.take()) is not None:
        taken.append(key)
    return taken


def asked(*wanted: tuple[str, Urgency]) -> LagWrites[str]:
    writes = LagWrites[str]()
    for key, soon in wanted:
        writes.ask(key, soon)
    return writes


def test_states_first_and_of_each_who_came_first() -> None:
    writes = asked(("a", FIGURES), ("b", STATE), ("c", FIGURES), ("d", STATE))
    assert (len(writes), drain(writes), len(writes)) == (4, ["b", "d", "a", "c"], 0)


def test_figures_that_become_a_state_move_and_never_back() -> None:
    assert drain(asked(("a", FIGURES), ("b", STATE), ("a", STATE), ("b", FIGURES))) == ["b", "a"]


def test_what_is_asked_for_again_keeps_its_place() -> None:
    assert drain(asked(("a", STATE), ("b", STATE), ("a", STATE))) == ["a", "b"]


def test_what_is_not_wanted_any_more_is_not_written() -> None:
    assert drain(asked(("a", STATE), ("b", FIGURES), ("c", STATE), ("a", NONE), ("b", NONE))) == ["c"]


def test_of_ten_writes_one_is_for_figures_while_both_wait() -> None:
    writes = asked(*((f"s{n}", STATE) for n in range(20)), *((f"f{n}", FIGURES) for n in range(3)))
    states = [f"s{n}" for n in range(20)]
    assert drain(writes) == [*states[:9], "f0", *states[9:18], "f1", *states[18:], "f2"]


def test_ten_thousand_subscriptions_whose_states_all_change_and_change_again() -> None:
    """At twenty writes a second: all states once in 556 s, and meanwhile 1,111 figures of others."""
    writes = asked(
        *((f"s{n}", STATE) for n in range(10_000)),
        *((f"f{n}", FIGURES) for n in range(2_000)),
    )
    first: dict[str, int] = {}
    for turn in range(12_000):
        key = writes.take()
        assert key is not None
        first.setdefault(key, turn)
        if key.startswith("s"):
            writes.ask(key, STATE)  # It has changed again.
    assert max(first[f"s{n}"] for n in range(10_000)) == 11_110
    assert sum(key.startswith("f") for key in first) == 1_200


STEPS = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.sampled_from([NONE, FIGURES, STATE])) | st.none(), max_size=120
)


@given(STEPS)
def test_nobody_waits_longer_than_those_before_explain(steps: list[tuple[str, Urgency] | None]) -> None:
    """A step asks for a write, or takes one. Whoever waits without a break has its turn: a state after those states
    that came before, and one figure in ten; figures after those figures that came before, with nine states each.
    """
    writes, waits = LagWrites[str](), dict[str, tuple[Urgency, int]]()  # how soon, turns since
    for step in steps:
        if step is not None:
            key, soon = step
            writes.ask(key, soon)
            before = waits.get(key)
            if soon is NONE:
                waits.pop(key, None)
            elif before is None or (before[0] is FIGURES and soon is STATE):
                waits[key] = (soon, 0)
            continue
        taken = writes.take()
        assert (taken is None) == (not waits)
        if taken is None:
            continue
        del waits[taken]
        waits = {key: (soon, turns + 1) for key, (soon, turns) in waits.items()}
        for soon, turns in waits.values():
            # At most seven others can be before it in its line.
            assert turns <= (8 if soon is STATE else 8 * (STATES_IN_A_ROW + 1))
    assert len(writes) == len(waits)
    assert set(drain(writes)) == set(waits)
