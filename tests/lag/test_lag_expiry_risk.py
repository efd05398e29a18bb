"""How many ready messages expire before a consumer takes them: scenarios worked out by hand, and the bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lag.figures_factory import END_MS, figures

from penstock_api.lag_result import LagState
from penstock_lag_rules.entry import subscription_lag
from penstock_lag_rules.expiry_risk import ExpiryRisk, expiry_risk
from penstock_lag_rules.figures import Figures
from penstock_lag_rules.history import expires_in_ms
from penstock_lag_rules.thresholds import Thresholds


def backlog(ready: int, first_ms: int, last_ms: int, *, accepted: int = 900, **growth: int) -> Figures:
    """With 900 accepted in the recent minute, the fastest pace that noise allows is 960 a minute, 16 a second."""
    return figures(
        standing={"depth": ready, "ready": ready, "in_flight": 0, "expires_in_ms": (first_ms, last_ms)},
        recent={"growth": {"acked": accepted, **growth}},
    )


@pytest.mark.parametrize(
    ("found", "messages", "percent"),
    [
        # 1,600 last 100 s; who is handed out last lives for 120 s
        (backlog(1_600, 20_000, 120_000), 0, 0),
        # 3,200 last 200 s; half of them: who is in the middle is handed out after 100 s, and lives for (50 + 150) / 2 s
        (backlog(3_200, 50_000, 150_000), 1_600, 50),
        # all live for 60 s: those that are handed out later than that
        (backlog(3_200, 60_000, 60_000), 2_240, 70),
        # what should have gone already goes, and all behind it
        (backlog(3_200, 0, 150_000), 3_200, 100),
        (backlog(3_200, 0, 200_000), 0, 0),
        # nobody accepts: two a minute might be chance, so the last of ten waits for five minutes
        (backlog(10, 120_000, 180_000, accepted=0), 5, 50),
        (backlog(10, 300_000, 300_000, accepted=0), 0, 0),
        # what is moved, or becomes a dead letter, makes room as well
        (backlog(1_600, 50_000, 50_000, accepted=0, moved=400, dead_lettered=500), 800, 50),
    ],
)
def test_what_expires_before_its_turn(found: Figures, messages: int, percent: int) -> None:
    assert expiry_risk(found) == ExpiryRisk(messages, percent)


def test_each_message_by_itself_comes_to_the_same() -> None:
    """1,000 messages, 10 a second by the fastest pace; they live for 30 s to 55 s."""
    found = backlog(1_000, 30_000, 55_000, accepted=552)
    pace = (552 + 2 * 552**0.5) / 60_000
    lost = sum(number / pace > 30_000 + 25_000 * number / 1_000 for number in range(1, 1_001))
    risk = expiry_risk(found)
    assert risk is not None and abs(risk.messages - lost) <= 1


@pytest.mark.parametrize(
    "changes",
    [{"standing": {"expires_in_ms": None}}, {"recent": {"elapsed_ms": 0}, "standing": {"expires_in_ms": (0, 0)}}],
)
def test_what_is_not_known_is_no_risk_and_no_safety(changes: dict[str, Any]) -> None:
    assert expiry_risk(figures(**changes)) is None


def test_the_entry_has_it_unless_the_state_is_unknown() -> None:
    found = backlog(3_200, 60_000, 60_000)
    lag = subscription_lag(found, None, END_MS, Thresholds())
    assert (lag.expiring_soon, lag.expiry_risk_percent) == (2_240, 70)
    away = subscription_lag(found, "its broker is away", END_MS, Thresholds())
    assert (away.state, away.expiring_soon, away.expiry_risk_percent) == (LagState.UNKNOWN, None, None)


@pytest.mark.parametrize(
    ("times", "lives"),
    [
        ((None, None), None),
        ((None, 5_000), None),
        ((5_000, None), None),
        ((5_000, 9_000), (4_000, 8_000)),
        ((999, 9_000), (0, 8_000)),  # it has expired, and is about to leave
    ],
)
def test_how_long_the_ends_live(times: Sequence[int | None], lives: tuple[int, int] | None) -> None:
    assert expires_in_ms(times[0], times[1], 1_000) == lives


@given(
    ready=st.integers(0, 10**6),
    lives=st.tuples(st.integers(0, 10**8), st.integers(0, 10**8)),
    accepted=st.integers(0, 10**6),
)
def test_the_risk_is_a_share_and_falls_with_the_pace(ready: int, lives: tuple[int, int], accepted: int) -> None:
    slow, fast = (
        expiry_risk(backlog(ready, *lives, accepted=accepted)),
        expiry_risk(backlog(ready, *lives, accepted=accepted + 1000)),
    )
    assert slow is not None and fast is not None
    assert 0 <= fast.messages <= slow.messages <= ready
    assert 0 <= fast.percent <= slow.percent <= 100
