"""Condition LagAnalysisScheduled of a Broker: what it says of each state of the schedule and its newest run."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.resources import NOW, broker

from penstock_operator.children.shared_lag_job import BrokerName
from penstock_operator.lag_options import LagJobOptions
from penstock_operator.manifest import Manifest
from penstock_operator.plans.conditions import ConditionReason, StatusCondition, timestamp
from penstock_operator.plans.lag_schedule import (
    ScheduleView,
    SharedJobView,
    has_active_run,
    judge_schedule,
    lag_analysis_scheduled,
)
from penstock_operator.plans.lag_service import lag_service

OWN = ScheduleView(
    kind="ScheduledSparkApplication",
    namespace="shop",
    name="main-lag",
    cron="2-59/5 * * * *",
    interval_minutes=5,
    spark_installed=True,
)
OPTIONS = LagJobOptions(namespace="penstock-system", name="penstock-lag")
MAIN = BrokerName("shop", "main")
SHARED = SharedJobView(
    schedule=replace(OWN, namespace="penstock-system", name="penstock-lag"), members=frozenset({MAIN})
)


def seen(minutes_ago: float, **status: Any) -> Manifest:
    moment = timestamp(NOW - timedelta(minutes=minutes_ago))
    return {"metadata": {"name": "main-lag", "creationTimestamp": moment}, "status": status}


def told_a_time(minutes_ago: float, seconds: str) -> Manifest:
    """A run that was told how long it may take."""
    settings = {"spark.kubernetes.driverEnv.PENSTOCK_LAG_DEADLINE_SECONDS": seconds}
    return {**seen(minutes_ago), "spec": {"sparkConf": settings}}


NEXT = {"nextRun": "2026-03-01T12:01:00Z"}


def words(found: StatusCondition) -> tuple[str, str]:
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
        pytest.param(
            seen(99, lastRun="2026-03-01T11:45:00Z", **NEXT), seen(15), ("True", "Scheduled"), id="runs-still"
        ),
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
def test_what_is_said_of_a_spark_application(
    observed: Manifest | None, last_run: Manifest | None, expected: tuple[str, str]
) -> None:
    assert words(judge_schedule(replace(OWN, observed=observed, last_run=last_run), NOW)) == expected


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(None, ("Unknown", "Pending"), id="not-made"),
        pytest.param(seen(1), ("True", "Scheduled"), id="waiting"),
        pytest.param(seen(15), ("False", "RunOverdue"), id="never-started"),
        pytest.param(seen(99, lastScheduleTime="2026-03-01T11:55:00Z"), ("True", "Scheduled"), id="running-well"),
        pytest.param(seen(99, lastScheduleTime="2026-03-01T11:45:00Z"), ("False", "RunOverdue"), id="overdue"),
        pytest.param(
            seen(99, lastScheduleTime="2026-03-01T11:45:00Z", active=[{"name": "j"}]),
            ("True", "Scheduled"),
            id="runs-still",
        ),
    ],
)
def test_what_is_said_of_a_cron_job(observed: Manifest | None, expected: tuple[str, str]) -> None:
    """It needs no Spark operator."""
    view = replace(OWN, kind="CronJob", spark_installed=False, observed=observed)
    assert words(judge_schedule(view, NOW)) == expected


@pytest.mark.parametrize(
    ("view", "failed"),
    [
        (replace(OWN, observed=seen(1, **NEXT), last_run=seen(4, applicationState={"state": "FAILED"})), True),
        (replace(OWN, observed=seen(1, **NEXT), last_run=seen(4, applicationState={"state": "COMPLETED"})), False),
        (replace(OWN, kind="CronJob", observed=seen(9, lastScheduleTime="2026-03-01T11:58:00Z")), True),
        (
            replace(
                OWN,
                kind="CronJob",
                observed=seen(9, lastScheduleTime="2026-03-01T11:58:00Z", lastSuccessfulTime="2026-03-01T11:53:30Z"),
            ),
            True,
        ),
        (
            replace(
                OWN,
                kind="CronJob",
                observed=seen(9, lastScheduleTime="2026-03-01T11:58:00Z", lastSuccessfulTime="2026-03-01T11:58:30Z"),
            ),
            False,
        ),
        (
            replace(
                OWN,
                kind="CronJob",
                observed=seen(9, lastScheduleTime="2026-03-01T11:58:00Z", active=[{"name": "j"}]),
            ),
            False,
        ),
    ],
)
def test_a_failed_run_is_mentioned(view: ScheduleView, failed: bool) -> None:
    found = judge_schedule(view, NOW)
    assert words(found) == ("True", "Scheduled")
    assert (" Its newest run failed" in found.message) is failed


def test_a_spark_application_without_its_crd() -> None:
    found = judge_schedule(replace(OWN, spark_installed=False), NOW)
    assert words(found) == ("False", "CRDNotInstalled")
    assert "for namespace shop" in found.message


def test_an_overdue_run_says_which_namespace_the_spark_operator_has_to_watch() -> None:
    found = lag_analysis_scheduled(
        broker(),
        lag_service("main", broker().spec.lag_analysis, OPTIONS),
        None,
        replace(SHARED, schedule=replace(OWN, namespace="penstock-system", name="penstock-lag", observed=seen(15))),
        NOW,
    )
    assert words(found) == ("False", "RunOverdue")
    assert "does it watch namespace penstock-system (`spark.jobNamespaces` of its chart)?" in found.message


def told(shared: SharedJobView, options: LagJobOptions | None = OPTIONS, **spec: Any) -> StatusCondition:
    made = broker(**spec)
    service = lag_service("main", made.spec.lag_analysis, options)
    own = replace(OWN, kind=made.spec.lag_analysis.backend, observed=seen(1, **NEXT))
    return lag_analysis_scheduled(made, service, own, shared, NOW)


WELL = replace(
    SHARED, schedule=replace(OWN, namespace="penstock-system", name="penstock-lag", observed=seen(1, **NEXT))
)


@pytest.mark.parametrize(
    ("analysis", "expected"),
    [
        ({}, "ScheduledSparkApplication penstock-system/penstock-lag runs at `2-59/5 * * * *` UTC."),
        ({"backend": "CronJob"}, "CronJob shop/main-lag runs at `2-59/5 * * * *` UTC."),
        (
            {"backend": "ScheduledSparkApplication"},
            "ScheduledSparkApplication shop/main-lag runs at `2-59/5 * * * *` UTC.",
        ),
    ],
)
def test_which_job_analyses_the_broker(analysis: Any, expected: str) -> None:
    found = told(WELL, lagAnalysis=analysis)
    assert (words(found), found.message) == (("True", "Scheduled"), expected)


@pytest.mark.parametrize(
    ("shared", "spec", "expected"),
    [
        pytest.param(SharedJobView(), {}, ("Unknown", "Pending"), id="not-looked-at"),
        pytest.param(replace(WELL, members=frozenset()), {}, ("Unknown", "Pending"), id="not-a-member"),
        pytest.param(
            replace(WELL, members=frozenset(), left_out=frozenset({MAIN})),
            {},
            ("False", "TooManyBrokers"),
            id="no-room",
        ),
        pytest.param(WELL, {"replicas": 0}, ("False", "ScaledToZero"), id="no-pods"),
        pytest.param(
            replace(WELL, problem=(ConditionReason.NAME_TAKEN, "It is taken.")), {}, ("False", "NameTaken"), id="taken"
        ),
        pytest.param(
            replace(WELL, problem=(ConditionReason.NAME_TAKEN, "It is taken.")),
            {"lagAnalysis": {"backend": "CronJob"}},
            ("True", "Scheduled"),
            id="taken-but-own",
        ),
        pytest.param(WELL, {"lagAnalysis": {"backend": "None"}}, ("False", "Disabled"), id="none"),
        pytest.param(WELL, {"lagAnalysis": {"suspend": True}}, ("False", "Suspended"), id="suspended"),
    ],
)
def test_what_is_said_of_a_broker(shared: SharedJobView, spec: Any, expected: tuple[str, str]) -> None:
    assert words(told(shared, **spec)) == expected


def test_the_chart_turns_the_job_off() -> None:
    assert words(told(WELL, OPTIONS.model_copy(update={"backend": "None"}))) == ("False", "Disabled")
    assert words(told(WELL, OPTIONS.model_copy(update={"suspend": True}))) == ("False", "Suspended")
    assert words(told(WELL, None)) == ("False", "Disabled")
    own = {"backend": "CronJob"}
    assert words(told(WELL, OPTIONS.model_copy(update={"backend": "None"}), lagAnalysis=own)) == ("True", "Scheduled")


@pytest.mark.parametrize(
    ("view", "active"),
    [
        (OWN, False),
        (replace(OWN, last_run=seen(29)), True),
        (replace(OWN, last_run=seen(30)), False),
        # a deadline of 90 minutes, and of 6: two minutes more were told, and two are left to submit it
        (replace(OWN, last_run=told_a_time(93.9, "5520")), True),
        (replace(OWN, last_run=told_a_time(94, "5520")), False),
        (replace(OWN, last_run=told_a_time(9.9, "480")), True),
        (replace(OWN, last_run=told_a_time(10, "480")), False),
        # what a person wrote, and Spark passed on
        (replace(OWN, last_run=told_a_time(29, "soon")), True),
        (replace(OWN, last_run=told_a_time(30, "9" * 5000)), False),
        (replace(OWN, last_run=seen(1, applicationState={"state": "RUNNING"})), True),
        (replace(OWN, last_run=seen(1, applicationState={"state": "FAILED"})), False),
        (replace(OWN, kind="CronJob", observed=seen(9, active=[{"name": "main-lag-29"}])), True),
        (replace(OWN, kind="CronJob", observed=seen(9)), False),
    ],
)
def test_whether_a_run_is_under_way(view: ScheduleView, active: bool) -> None:
    assert has_active_run(view, NOW) is active


def test_a_stuck_run_is_named_with_the_command_that_helps() -> None:
    found = judge_schedule(replace(OWN, observed=seen(1, **NEXT), last_run=seen(30)), NOW)
    assert "kubectl delete sparkapplication -n shop main-lag" in found.message


def test_a_schedule_that_runs_well_says_the_same_after_each_run() -> None:
    """Else the status of every Broker would be written after each run."""
    first = replace(
        OWN,
        observed=seen(99, lastRun="2026-03-01T11:55:00Z", lastRunName="a", **NEXT),
        last_run=seen(5, applicationState={"state": "COMPLETED"}),
    )
    second = replace(
        OWN,
        observed=seen(104, lastRun="2026-03-01T12:00:00Z", lastRunName="b", nextRun="2026-03-01T12:05:00Z"),
        last_run=seen(0, applicationState={"state": "RUNNING"}),
    )
    assert judge_schedule(first, NOW) == judge_schedule(second, NOW)
