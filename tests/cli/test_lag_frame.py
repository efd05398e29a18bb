"""What a terminal shows of the lag: typed by hand, and never more than fits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from page.lags import a_lag

from penstock_api.lag_result import LagResult, LagState
from penstock_cli.lag.frame import frame

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def a_live_result(*lags: Any) -> LagResult:
    """As the observer gives it."""
    return LagResult(
        broker="main",
        namespace="shop",
        run_name="live",
        window_start=NOON,
        window_end=NOON,
        expected_brokers=1,
        reporting_brokers=1,
        subscriptions=lags,
    )


STALLED = a_lag(
    "q-1",
    state=LagState.STALLED,
    message="none was accepted",
    messages=1375,
    oldest_age_seconds=839,
    arrival_per_minute=9,
    settled_per_minute=0,
    lost=0,
    consumers=2,
)
IDLE = a_lag("q-2", state=LagState.IDLE, message="no message waits", lost=0, consumers=1)


def test_a_picture_has_the_worst_first() -> None:
    assert frame([a_live_result(IDLE, STALLED)], ["main-1: away"]) == (
        "shop/main at 12:00:00 UTC: 2 subscriptions (✖ Stalled 1, ✔ Idle 1)\n"
        "? main-1: away\n"
        "SUBSCRIPTION  STATE        LAG       OLDEST  IN/MIN  OUT/MIN  LOST  CONSUMERS  SUGGESTED  WHY\n"
        "q-1           ✖ Stalled  1,375  13 min 59 s       9        0     0          2          –  none was accepted\n"
        "q-2           ✔ Idle         0          0 s       –        –     0          1          –  no message waits\n"
    )


def test_the_lag_is_what_waits_now() -> None:
    """30 of 42 messages are due later; of two in one state, that with more to do is the first."""
    less = a_lag("q-1", messages=42, scheduled=30)
    more = a_lag("q-2", messages=13, scheduled=0)
    rows = [line.split() for line in frame([a_live_result(less, more)], []).splitlines()[2:]]
    assert [(row[0], row[3]) for row in rows] == [("q-2", "13"), ("q-1", "12")]


def test_what_does_not_fit_is_counted() -> None:
    lags = [a_lag(f"q-{number:02}", state=LagState.LAGGING) for number in range(30)]
    lines = frame([a_live_result(*lags)], [], width=40, height=10).splitlines()
    assert len(lines) == 10
    assert lines[-2].startswith("q-06")
    assert lines[-1] == "... and 23 more in less trouble"
    assert max(map(len, lines)) <= 40


def test_colours_are_beside_the_words() -> None:
    lines = frame([a_live_result(STALLED)], [], colour=True).splitlines()
    assert lines[-1].startswith("\x1b[31mq-1") and lines[-1].endswith("\x1b[0m") and "✖ Stalled" in lines[-1]


def test_nothing_is_an_answer_too() -> None:
    assert frame([], ["no route"]).splitlines()[:2] == ["no observer answers", "? no route"]
    assert frame([a_live_result()], []).splitlines()[-1] == "(no subscriptions)"


@given(st.text(max_size=60), st.text(max_size=60), st.integers(1, 200), st.integers(1, 60), st.integers(0, 12))
def test_no_name_controls_the_terminal(name: str, sentence: str, width: int, height: int, others: int) -> None:
    """And no picture is larger than the terminal, unless that has no room for a heading and one row."""
    lags = [a_lag(f"x{name}", message=sentence), *(a_lag(f"q{number}") for number in range(others))]
    picture = frame([a_live_result(*lags)], [sentence], width=width, height=height)
    assert all(letter.isprintable() or letter == "\n" for letter in picture)
    assert len(picture.splitlines()) <= max(height, 5)
    assert max(map(len, picture.split("\n"))) <= width
