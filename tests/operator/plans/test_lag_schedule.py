"""Condition LagAnalysisScheduled of a Broker: what it says of each state of the schedule and its newest run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.resources import NOW, broker

from penstock_operator.manifest import Manifest
from penstock_operator.plans import lag_schedule
from penstock_operator.plans.conditions import StatusCondition, timestamp


def seen(minutes_ago: float, **status: Any) -> Manifest:
    moment = timestamp(NOW - timedelta(minutes=minutes_ago))
    return {"metadata": {"name": "main-lag", "creationTimestamp": moment}, "status": status}


NEXT = {"nextRun": "2026-03-01T12:01:00Z"}


def told(
    observed: Manifest | None, last_run: Manifest | None = None, *, installed: bool = True, **analysis: Any
) -> tuple[str, str]:
    found: StatusCondition = lag_schedule.lag_analysis_scheduled(
        broker(lagAnalysis=analysis), spark_installed=installed, observed=observed, last_run=last_run, now=NOW
    )
    assert found.type == "LagAnalysisScheduled"
    return found.status.value, str(found.reason)


@pytest.mark.parametrize(
    ("observed", "last_run", "expected"),
    [
        pytest.param(None, None, ("Unknown", "Pending"), id="not-made"),
        pytest.param(seen(0), None, ("Unknown", "Pending"), id="not-seen"),
        pytest.param(seen(1, **NEXT), None, ("True", "Scheduled"), id="waiting"),
        pytest.param(seen(99, lastRun="2026-03-01T11:55:00Z", **NEXT), None, ("True", "Scheduled"), id="running-well"),
        pytest.param(seen(99, lastRun="2026-03-01T11:45:00Z", **NEXT), None, ("False", "RunOverdue"), id="overdue"),
        pytest.param(seen(15), None, ("False", "RunOverdue"), id="never-seen"),
        pytest.param(
            seen(99, scheduleState="FailedValidation", reason="bad", **NEXT),
            None,
            ("False", "ValidationFailed"),
            id="bad",
        ),
        pytest.param(
            seen(1, **NEXT),
            seen(30, applicationState={"state": "SUBMISSION_FAILED"}),
            ("False", "RunStuck"),
            id="stuck",
        ),
        pytest.param(seen(1, **NEXT), seen(30), ("False", "RunStuck"), id="stuck-without-a-state"),
        pytest.param(
            seen(1, **NEXT), seen(90, applicationState={"state": "COMPLETED"}), ("True", "Scheduled"), id="completed"
        ),
        pytest.param(seen(1, **NEXT), seen(29), ("True", "Scheduled"), id="still-starting"),
    ],
)
def test_what_is_said(observed: Manifest | None, last_run: Manifest | None, expected: tuple[str, str]) -> None:
    assert told(observed, last_run) == expected


def test_what_is_said_without_a_schedule() -> None:
    assert told(None, backend="None") == ("False", "Disabled")
    assert told(None, suspend=True) == ("False", "Suspended")
    assert told(None, installed=False) == ("False", "CRDNotInstalled")
    assert told(None, installed=False, backend="CronJob") == ("True", "Scheduled")


def test_a_stuck_run_is_named_with_the_command_that_helps() -> None:
    found = lag_schedule.lag_analysis_scheduled(
        broker(), spark_installed=True, observed=seen(1, **NEXT), last_run=seen(30), now=NOW
    )
    assert "kubectl delete sparkapplication -n shop main-lag" in found.message
