"""What changed: each sentence typed from a scenario, and silence where chance explains it or the change is small."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_lag_rules.changes import LENGTH, MOST, Fast, Past, changes
from penstock_lag_rules.paces import Pace

HOUR_MS = 3_600_000
THREE_PM_MS = 1_700_060_400_000
"""2023-11-15T15:00:00Z."""

STEADY = Fast(
    elapsed_ms=300_000, arrived=600, accepted=600, lost=0, waiting=10, age_ms=900, consumers=6, sojourn_p95_ms=40
)
"""Five minutes with 120 messages a minute."""


def a_pace(hours: int, **changed: Any) -> Pace:
    """120 messages a minute arrived and were accepted by 6 consumers; the oldest waited for 2 s."""
    values: dict[str, Any] = {
        "elapsed_ms": hours * HOUR_MS,
        "end_ms": THREE_PM_MS,
        "arrived": 7200 * hours,
        "accepted": 7200 * hours,
        "lost": 0,
        "sojourn": {},
        "min_consumers": 6,
        "max_consumers": 6,
        "max_age_ms": 2_000,
    }
    return Pace(**(values | changed))


PAST = Past(hour=a_pace(1), day=a_pace(24), hour_p95_ms=40, day_p95_ms=40)


def now(**changed: Any) -> tuple[str, ...]:
    """What is said of the steady subscription with these changes."""
    return changes(replace(STEADY, **changed), PAST)


def test_of_a_steady_subscription_nothing_is_said() -> None:
    """Nor of one without a past."""
    assert now() == ()
    assert changes(replace(STEADY, arrived=10_000, lost=500), Past()) == ()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        pytest.param(
            {"arrived": 2400},
            "4 times as many messages arrive as in the 24 hours before 15:00 UTC: 480 instead of 120 a minute",
            id="arrivals",
        ),
        pytest.param(
            {"accepted": 150},
            "the consumers accept 25 % of what they did in the hour before 15:00 UTC: 30 instead of 120 a minute",
            id="consumers are slower",
        ),
        pytest.param(
            {"consumers": 2},
            "the consumers fell from 6 to 2, compared with the least in the hour before 15:00 UTC",
            id="consumers are gone",
        ),
        pytest.param(
            {"consumers": 9},
            "the consumers rose from 6 to 9, compared with the most in the hour before 15:00 UTC",
            id="consumers came",
        ),
        pytest.param(
            {"sojourn_p95_ms": 3_000},
            "p95 of the sojourn grew from 40 ms to 3 s, compared with that in the 24 hours before 15:00 UTC",
            id="sojourn",
        ),
        pytest.param(
            {"lost": 50},
            "10 messages a minute are lost; none was in the 24 hours before 15:00 UTC",
            id="losses",
        ),
        pytest.param(
            {"age_ms": 2_400_000},
            "the oldest message has waited for 40 min; none waited for more than 2 s in the hour before 15:00 UTC",
            id="age",
        ),
        pytest.param(
            {"arrived": 0, "accepted": 0, "waiting": 0, "age_ms": None},
            "no messages arrive; 120 a minute did in the 24 hours before 15:00 UTC",
            id="silence",
        ),
        pytest.param(
            {"arrived": 150, "accepted": 150, "waiting": 3},
            "only 25 % as many messages arrive as in the 24 hours before 15:00 UTC: 30 instead of 120 a minute",
            id="fewer arrivals are not the consumers' fault",
        ),
    ],
)
def test_one_change_gives_one_sentence(changed: dict[str, Any], said: str) -> None:
    """And nothing else."""
    assert now(**changed) == (said,)


def test_what_was_least_and_most_is_not_compared_with_an_hour_that_is_not_whole() -> None:
    """Fewer consumers, more of them and an older message may have been in the part that is not known. How many messages
    came is known all the same.
    """
    past = replace(PAST, hour=a_pace(1, is_whole=False))
    for changed in ({"consumers": 2}, {"consumers": 9}, {"age_ms": 600_000}):
        fast = replace(STEADY, **changed)
        assert (len(changes(fast, PAST)), changes(fast, past)) == (1, ())
    assert changes(replace(STEADY, accepted=150), past) == changes(replace(STEADY, accepted=150), PAST) != ()


def test_the_weightiest_three_are_said() -> None:
    """Of five changes: what is lost, and what the consumers do."""
    said = now(lost=50, consumers=2, accepted=100, age_ms=600_000, arrived=3000)
    assert [sentence.split(" ", 2)[1] for sentence in said] == ["messages", "consumers", "consumers"]
    assert "are lost" in said[0]
    assert "fell from 6 to 2" in said[1]
    assert "accept 17 %" in said[2]


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"arrived": 1190}, id="not twice as many"),
        pytest.param({"accepted": 310}, id="not half as many"),
        pytest.param({"sojourn_p95_ms": 139}, id="three times as long, but below 100 ms more"),
        pytest.param({"age_ms": 59_999}, id="below a minute"),
        pytest.param({"lost": 4}, id="a handful"),
    ],
)
def test_small_changes_are_not_said(changed: dict[str, Any]) -> None:
    """Below the floors."""
    assert now(**changed) == ()


@pytest.mark.parametrize(
    ("past", "just_enough", "too_little"),
    [
        pytest.param({}, {"lost": 5}, {"lost": 4}, id="losses, at least 5"),
        # 30 are to be expected in five minutes
        pytest.param({"lost": 8_640}, {"lost": 60}, {"lost": 59}, id="losses, twice as many"),
        pytest.param({}, {"accepted": 300}, {"accepted": 301}, id="accepts, at most half"),
        pytest.param({}, {"age_ms": 60_000}, {"age_ms": 59_999}, id="age, at least 60 s"),
        pytest.param({"max_age_ms": 40_000}, {"age_ms": 80_000}, {"age_ms": 79_999}, id="age, twice the longest"),
        pytest.param({}, {"arrived": 1_200}, {"arrived": 1_199}, id="arrivals, twice as many"),
        pytest.param({"arrived": 0}, {"arrived": 20}, {"arrived": 19}, id="arrivals, at least 20"),
        pytest.param({}, {"sojourn_p95_ms": 140}, {"sojourn_p95_ms": 139}, id="sojourn, by 100 ms"),
        pytest.param({}, {"consumers": 5}, {"consumers": 6}, id="consumers, fewer than the least"),
        pytest.param({}, {"consumers": 7}, {"consumers": 6}, id="consumers, more than the most"),
    ],
)
def test_the_edges_of_each_change(
    past: dict[str, Any], just_enough: dict[str, Any], too_little: dict[str, Any]
) -> None:
    """The table of docs/concepts/lag.md, "What changed"."""
    before = Past(hour=a_pace(1, **past), day=a_pace(24, **past), hour_p95_ms=40, day_p95_ms=40)
    assert len(changes(replace(STEADY, **just_enough), before)) == 1
    assert changes(replace(STEADY, **too_little), before) == ()


def test_a_sojourn_has_to_be_twice_as_long() -> None:
    """As well as 100 ms longer; what the hour was does not count where the day is known."""
    before = replace(PAST, hour_p95_ms=1, day_p95_ms=200)
    assert len(changes(replace(STEADY, sojourn_p95_ms=400), before)) == 1
    assert changes(replace(STEADY, sojourn_p95_ms=399), before) == ()


@pytest.mark.parametrize(("arrived_in_a_day", "sentences"), [(5_760, 1), (5_759, 0)])
def test_silence_is_said_where_20_messages_were_to_be_expected(arrived_in_a_day: int, sentences: int) -> None:
    """A day has 288 windows of five minutes."""
    past = Past(day=a_pace(24, arrived=arrived_in_a_day, accepted=arrived_in_a_day))
    assert len(changes(replace(STEADY, arrived=0, accepted=0, waiting=0, age_ms=None), past)) == sentences


def test_what_chance_explains_is_not_said() -> None:
    """At 6 messages an hour, 3 in five minutes are six times as many and mean nothing, as does none."""
    past = Past(day=a_pace(24, arrived=144, accepted=144), hour=a_pace(1, arrived=6, accepted=6))
    assert changes(replace(STEADY, arrived=3, accepted=3), past) == ()
    assert changes(replace(STEADY, arrived=0, accepted=0), past) == ()


def test_less_than_half_may_be_chance_too() -> None:
    """30 are to be expected in five minutes; 12 are 18 fewer, and four times the root of 30 is 22. 5 are 25 fewer."""
    past = Past(day=a_pace(24, arrived=8640, accepted=8640))
    assert changes(replace(STEADY, arrived=12, accepted=12, waiting=0), past) == ()
    assert len(changes(replace(STEADY, arrived=5, accepted=5, waiting=0), past)) == 1


def test_a_subscription_that_had_nothing_before() -> None:
    """There is no number of times."""
    past = Past(day=a_pace(3, arrived=0, accepted=0))
    assert changes(STEADY, past) == ("120 messages a minute arrive; none did in the 3 hours before 15:00 UTC",)


@given(
    st.builds(
        Fast,
        elapsed_ms=st.integers(1, 10**7),
        arrived=st.integers(0, 10**9),
        accepted=st.integers(0, 10**9),
        lost=st.integers(0, 10**9),
        waiting=st.integers(0, 10**9),
        age_ms=st.none() | st.integers(0, 10**9),
        consumers=st.integers(0, 10**4),
        sojourn_p95_ms=st.none() | st.integers(0, 10**9),
    ),
    st.builds(
        a_pace,
        st.integers(1, 24),
        arrived=st.integers(0, 10**9),
        accepted=st.integers(0, 10**9),
        lost=st.integers(0, 99),
    ),
)
def test_any_figures_give_at_most_three_short_sentences(fast: Fast, pace: Pace) -> None:
    """Never cut in the middle, and no error."""
    said = changes(fast, Past(hour=pace, day=pace, hour_p95_ms=1, day_p95_ms=None))
    assert len(said) <= MOST
    assert all(0 < len(sentence) < LENGTH for sentence in said)
