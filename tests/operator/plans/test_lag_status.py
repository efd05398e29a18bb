"""From a lag result to status.lag and condition Lagging."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.resources import NOW, subscription

from penstock_api.lag_result import LagResult, LagState, SubscriptionLag
from penstock_api.resources import Lag
from penstock_operator.plans import lag_status
from penstock_operator.plans.conditions import ConditionStatus, StatusCondition


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


def test_what_is_written() -> None:
    figures = {"messages": 12, "ready": 10, "in_flight": 2, "oldest_age_seconds": 61, "arrival_per_minute": 5}
    found = entry("Lagging", settled_per_minute=3, **figures)
    assert lag_status.lag_status(found, result(found)) == {
        "messages": 12,
        "ready": 10,
        "inFlight": 2,
        "oldestAgeSeconds": 61,
        "arrivalPerMinute": 5,
        "settledPerMinute": 3,
        "state": "Lagging",
        "observedTime": "2026-03-01T12:00:00Z",
        "runName": "main-lag-17",
        "brokersReporting": "1/2",
    }


def test_what_is_not_known_is_left_out() -> None:
    assert lag_status.lag_status(entry("Unknown"), result()) == {
        "state": "Unknown",
        "observedTime": "2026-03-01T12:00:00Z",
        "runName": "main-lag-17",
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
        ({}, entry("Unknown"), ("Unknown", "Unknown")),
        ({"messages": 5}, entry("OK", messages=5), ("False", "WithinThresholds")),
        ({"messages": 5}, entry("OK", messages=6), ("True", "BacklogAboveThreshold")),
        ({"messages": 0}, entry("OK", messages=0), ("False", "WithinThresholds")),
        ({"oldestAgeSeconds": 60}, entry("OK", messages=1, oldest_age_seconds=60), ("False", "WithinThresholds")),
        ({"oldestAgeSeconds": 60}, entry("OK", messages=1, oldest_age_seconds=61), ("True", "OldestMessageTooOld")),
        ({"messages": 1}, entry("Unknown"), ("Unknown", "Unknown")),
    ],
)
def test_the_condition(thresholds: dict[str, int], found: SubscriptionLag, expected: tuple[str, str]) -> None:
    condition = lag_status.lagging_condition(subscription(lagThresholds=thresholds), found)
    assert (condition.type, condition.status.value, str(condition.reason)) == ("Lagging", *expected)


BASE = {"state": "OK", "messages": 100, "oldestAgeSeconds": 100, "runName": "r", "brokersReporting": "1/1"}
FINE = StatusCondition("Lagging", ConditionStatus.FALSE, "WithinThresholds", "")


def worth(changes: dict[str, Any], seconds: int = 60, condition: StatusCondition = FINE) -> bool:
    shown = Lag.model_validate({**BASE, "observedTime": NOW})
    later = (NOW + timedelta(seconds=seconds)).isoformat()
    return lag_status.is_worth_writing(shown, "WithinThresholds", {**BASE, "observedTime": later, **changes}, condition)


def test_the_first_one_is_always_written() -> None:
    assert lag_status.is_worth_writing(None, None, {**BASE, "observedTime": NOW}, FINE)


@pytest.mark.parametrize(
    ("changes", "written"),
    [
        ({}, False),
        ({"messages": 101}, True),
        ({"state": "Lagging"}, True),
        ({"oldestAgeSeconds": 110}, False),
        ({"oldestAgeSeconds": 111}, True),
        ({"oldestAgeSeconds": None}, True),
        ({"arrivalPerMinute": 1}, True),
        ({"runName": "another"}, False),
    ],
)
def test_only_what_is_noticeable_is_written(changes: dict[str, Any], written: bool) -> None:
    assert worth(changes) is written


def test_another_reason_is_written() -> None:
    assert worth({}, condition=StatusCondition("Lagging", ConditionStatus.TRUE, "BacklogAboveThreshold", ""))


def test_nothing_is_shown_that_is_older_than_five_minutes() -> None:
    assert not worth({}, seconds=299)
    assert worth({}, seconds=300)


@pytest.mark.parametrize("seconds", [0, -60])
def test_an_older_window_is_never_written(seconds: int) -> None:
    assert not worth({"messages": 7, "state": "Stalled"}, seconds=seconds)


def test_three_missed_periods_make_it_unknown() -> None:
    assert lag_status.stale_condition(result(), 5, NOW + timedelta(minutes=14, seconds=59)) is None
    condition = lag_status.stale_condition(result(), 5, NOW + timedelta(minutes=15))
    assert condition is not None
    assert (condition.status, str(condition.reason)) == (ConditionStatus.UNKNOWN, "LagReportStale")
