"""From a lag result to `status.lag` and condition Lagging."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.resources import NOW, subscription

from penstock_api.lag_result import LagResult, LagState, SubscriptionLag
from penstock_operator.plans import lag_status
from penstock_operator.plans.lag_sources import LagSource


def entry(state: str = "OK", **figures: Any) -> SubscriptionLag:
    return SubscriptionLag(
        queue_name="psub:durable:global:billing",
        owner_namespace="shop",
        owner_name="billing",
        owner_uid="uid-billing",
        observed_time=NOW,
        state=LagState(state),
        message="It is so.",
        **figures,
    )


def result(*entries: SubscriptionLag) -> LagResult:
    return LagResult(
        broker="main",
        namespace="shop",
        run_name="main-lag-17",
        window_start=NOW - timedelta(minutes=15),
        window_end=NOW,
        expected_brokers=2,
        reporting_brokers=1,
        subscriptions=entries,
    )


def written(found: SubscriptionLag, of: LagResult | None = None) -> dict[str, Any]:
    """`status.lag` as it is sent."""
    shown = lag_status.lag_status(found, of or result(found))
    return shown.model_dump(mode="json", by_alias=True, exclude_none=True)


def test_what_is_written() -> None:
    figures = {
        "messages": 21,
        "ready": 10,
        "in_flight": 2,
        "scheduled": 9,
        "oldest_age_seconds": 61,
        "arrival_per_minute": 5,
        "settled_per_minute": 3,
        "velocity_per_minute": -2,
        "drain_seconds": 360,
        "drain_seconds_low": 300,
        "drain_seconds_high": 600,
        "sojourn_p50_millis": 40,
        "sojourn_p95_millis": 900,
        "redelivery_percent": 7,
        "consumers": 4,
        "suggested_consumers": 5,
        "capacity_per_minute": 90,
        "expiring_soon": 4,
        "expiry_risk_percent": 40,
        "changes": ("the consumers fell from 6 to 4", "4 times as many messages arrive"),
        "expired": 1,
        "dead_lettered": 2,
        "dropped": 0,
        "lost_at_restart": 3,
        "moved": 5,
        "stranded": 8,
        "lost": 6,
        "since_caught_up_seconds": 120,
    }
    assert written(entry("Losing", **figures)) == {
        "messages": 21,
        "waiting": 20,
        "ready": 10,
        "inFlight": 2,
        "oldestAgeSeconds": 61,
        "arrivalPerMinute": 5,
        "settledPerMinute": 3,
        "velocityPerMinute": -2,
        "drainSeconds": 360,
        "drainSecondsLow": 300,
        "drainSecondsHigh": 600,
        "sojournP95Millis": 900,
        "redeliveryPercent": 7,
        "lost": 6,
        "losses": {
            "expired": 1,
            "deadLettered": 2,
            "dropped": 0,
            "lostAtRestart": 3,
            "moved": 5,
            "stranded": 8,
        },
        "consumers": 4,
        "suggestedConsumers": 5,
        "capacityPerMinute": 90,
        "expiryRiskPercent": 40,
        "changes": ["the consumers fell from 6 to 4", "4 times as many messages arrive"],
        "state": "Losing",
        "message": "It is so.",
        "sinceCaughtUpSeconds": 120,
        "source": "Run",
        "observedTime": "2026-03-01T12:00:00Z",
        "runName": "main-lag-17",
        "runTime": "2026-03-01T12:00:00Z",
        "brokersReporting": "1/2",
    }


@pytest.mark.parametrize(
    ("of_run", "expected"),
    [
        ({"sojourn_p95_millis": 900}, (900, (), "main-lag-17", NOW)),
        ({"changes": ("no messages arrive",)}, (None, ("no messages arrive",), "main-lag-17", NOW)),
        ({"expiry_risk_percent": 9}, (None, (), "live", None)),
    ],
)
def test_what_a_run_adds_to_a_live_entry(of_run: dict[str, Any], expected: tuple[Any, ...]) -> None:
    """Percentile and changes need history; the expiry risk is that of the live entry."""
    past = entry(**of_run)
    live = lag_status.lag_status(
        entry(expiry_risk_percent=1), result(), LagSource.LIVE, lag_status.History.of(past, result(past))
    )
    assert (live.sojourn_p95_millis, live.changes, live.run_name, live.run_time) == expected
    assert live.expiry_risk_percent == 1


NO_LOSS = {"expired": 0, "dead_lettered": 0, "dropped": 0, "lost_at_restart": 0, "moved": 0, "stranded": 0}


def test_without_losses_their_object_is_absent() -> None:
    lag = written(entry("OK", lost=0, **NO_LOSS))
    assert ("losses" in lag, lag["lost"]) == (False, 0)


@pytest.mark.parametrize(
    ("one", "key"),
    [
        ("expired", "expired"),
        ("dead_lettered", "deadLettered"),
        ("dropped", "dropped"),
        ("lost_at_restart", "lostAtRestart"),
        ("moved", "moved"),
        ("stranded", "stranded"),
    ],
)
def test_any_loss_is_shown(one: str, key: str) -> None:
    assert written(entry("OK", **{**NO_LOSS, one: 1}))["losses"][key] == 1


def test_what_is_not_known_is_left_out() -> None:
    assert written(entry("Unknown"), result()) == {
        "state": "Unknown",
        "message": "It is so.",
        "source": "Run",
        "observedTime": "2026-03-01T12:00:00Z",
        "runName": "main-lag-17",
        "runTime": "2026-03-01T12:00:00Z",
        "brokersReporting": "1/2",
    }


@pytest.mark.parametrize(
    ("thresholds", "found", "expected"),
    [
        ({}, entry("OK", messages=5), ("False", "WithinThresholds")),
        ({}, entry("Idle", messages=0), ("False", "WithinThresholds")),
        ({}, entry("Recovering", messages=5000), ("False", "WithinThresholds")),
        ({}, entry("BacklogSteady", messages=5000), ("False", "WithinThresholds")),
        ({}, entry("Lagging", messages=5), ("True", "Lagging")),
        ({}, entry("Unconsumed", messages=5), ("True", "Unconsumed")),
        ({}, entry("Stalled", messages=5), ("True", "Stalled")),
        ({}, entry("Poison", messages=5), ("True", "Poison")),
        ({}, entry("NoCredit", messages=5), ("True", "NoCredit")),
        ({}, entry("BrokerStuck", messages=5), ("True", "BrokerStuck")),
        ({}, entry("Losing", messages=5), ("True", "Losing")),
        ({"messages": 1, "oldestAgeSeconds": 1}, entry("Losing", messages=5, oldest_age_seconds=9), ("True", "Losing")),
        ({}, entry("Unknown"), ("Unknown", "Unknown")),
        ({"messages": 5}, entry("OK", messages=5), ("False", "WithinThresholds")),
        ({"messages": 5}, entry("OK", messages=6), ("True", "BacklogAboveThreshold")),
        # what is due later is no backlog; what is stranded is
        ({"messages": 5}, entry("OK", messages=900, scheduled=895), ("False", "WithinThresholds")),
        ({"messages": 5}, entry("OK", messages=900, scheduled=894), ("True", "BacklogAboveThreshold")),
        ({"messages": 5}, entry("Stalled", messages=9, scheduled=9, stranded=6), ("True", "BacklogAboveThreshold")),
        ({"messages": 0}, entry("OK", messages=0), ("False", "WithinThresholds")),
        ({"oldestAgeSeconds": 60}, entry("OK", messages=1, oldest_age_seconds=60), ("False", "WithinThresholds")),
        ({}, entry("OK", messages=1, oldest_age_seconds=61), ("False", "WithinThresholds")),
        ({"oldestAgeSeconds": 60}, entry("OK", messages=1, oldest_age_seconds=61), ("True", "OldestMessageTooOld")),
        ({"messages": 1}, entry("Unknown"), ("Unknown", "Unknown")),
    ],
)
def test_the_condition(thresholds: dict[str, int], found: SubscriptionLag, expected: tuple[str, str]) -> None:
    condition = lag_status.lagging_condition(subscription(lagThresholds=thresholds), found)
    assert (condition.type, condition.status.value, str(condition.reason)) == ("Lagging", *expected)
