"""When a broker that does not answer shows in its resources."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.resources import NOW, broker, exchange, subscription

from penstock_operator.plans import outage
from penstock_operator.plans.broker_contact import BrokerContact
from penstock_operator.plans.decisions import BrokerView, Reach

AWAY = BrokerView(reach=Reach.UNREACHABLE, broker=broker(), problem="It is away.")


def condition(kind: str, status: str, reason: str, generation: int = 3) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "lastTransitionTime": "2026-03-01T11:00:00Z",
        "observedGeneration": generation,
    }


@pytest.mark.parametrize(
    ("available", "expected"),
    [
        pytest.param(("Unknown", "BrokerUnreachable"), datetime(2026, 3, 1, 11, 1, tzinfo=UTC), id="away-before"),
        pytest.param(("False", "PodNotReady"), datetime(2026, 3, 1, 11, 1, tzinfo=UTC), id="its-pod-was-away"),
        pytest.param(("True", "Serving"), NOW, id="it-served"),
        pytest.param(("False", "ScaledToZero"), NOW, id="it-was-stopped-on-purpose"),
        pytest.param(None, NOW, id="nothing-is-known"),
    ],
)
def test_since_when_it_is_away(available: tuple[str, str] | None, expected: datetime) -> None:
    shown = None if available is None else {"conditions": [condition("Available", *available)]}
    assert outage.began(broker(shown), NOW) == expected


def test_a_clock_that_was_set_back_does_not_matter() -> None:
    earlier = NOW - timedelta(days=1)
    shown = {"conditions": [condition("Available", "Unknown", "BrokerUnreachable")]}
    assert outage.began(broker(shown), earlier) == earlier


@pytest.mark.parametrize("behind", [0, 30, 60], ids=lambda seconds: f"{seconds} s behind")
@pytest.mark.parametrize(("away", "over"), [(119, False), (180, True)])
def test_a_clock_that_was_behind_lets_no_outage_show_within_its_grace(behind: int, away: int, over: bool) -> None:
    """The operator on another machine wrote by its clock that the broker is away; then this one began."""
    written = NOW - timedelta(seconds=away + behind)
    away_since = {**condition("Available", "Unknown", "BrokerUnreachable"), "lastTransitionTime": written.isoformat()}
    contact = BrokerContact.unknown(NOW).reported(outage.began(broker({"conditions": [away_since]}), NOW))
    assert outage.is_over_grace(contact, NOW) is over


@pytest.mark.parametrize(("seconds", "over"), [(0, False), (119, False), (120, True), (4000, True)])
def test_the_grace_is_two_minutes(seconds: int, over: bool) -> None:
    assert outage.is_over_grace(BrokerContact.unknown(NOW - timedelta(seconds=seconds)), NOW) is over


BOUND = condition("Bound", "True", "Declared")
READY = condition("Ready", "True", "Ready")


@pytest.mark.parametrize(
    ("stored", "kept"),
    [
        pytest.param([READY, BOUND], True, id="declared"),
        pytest.param([condition("Bound", "Unknown", "BrokerUnreachable")], True, id="already-said"),
        pytest.param([condition("Bound", "False", "StorageFull")], True, id="refused-before"),
        pytest.param([], False, id="new"),
        pytest.param([READY, condition("Accepted", "False", "ExchangeNotFound")], False, id="not-declared-before"),
        pytest.param([READY, condition("Bound", "True", "Declared", 2)], False, id="about-an-earlier-spec"),
        pytest.param(
            [READY, BOUND, condition("ReconciliationPaused", "True", "PausedByAnnotation")], False, id="paused-before"
        ),
    ],
)
def test_a_resource_keeps_what_its_status_says_about_this_spec(stored: list[dict[str, Any]], kept: bool) -> None:
    assert outage.keeps_status(AWAY, subscription({"conditions": stored}), "Bound") is kept


@pytest.mark.parametrize("reach", [Reach.STOPPED, Reach.DELETING, Reach.NOT_UNDERSTOOD, Reach.CONNECTED])
def test_only_one_that_may_answer_soon_is_waited_for(reach: Reach) -> None:
    made = subscription({"conditions": [BOUND]})
    assert outage.keeps_status(AWAY, made, "Bound")
    assert outage.keeps_status(replace(AWAY, reach=Reach.NOT_ASKED), made, "Bound")
    assert not outage.keeps_status(replace(AWAY, reach=reach), made, "Bound")
    assert not outage.keeps_status(replace(AWAY, is_out=True), made, "Bound")


def test_an_exchange_keeps_its_status_too() -> None:
    made = exchange({"conditions": [condition("Declared", "True", "Declared")]})
    assert outage.keeps_status(AWAY, made, "Declared")


def test_the_reason_of_a_resource_is_that_of_its_condition_ready() -> None:
    """Others stand before it. A new one has none."""
    stored = subscription({"conditions": [BOUND, condition("Ready", "Unknown", "BrokerUnreachable")]})
    assert outage.ready_reason(stored.status.conditions) == "BrokerUnreachable"
    assert outage.ready_reason(subscription({"conditions": [BOUND]}).status.conditions) == ""
