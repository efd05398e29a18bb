"""Condition LagAnalysisScheduled of a Broker: which lag job analyses it and when, and if none will, what to do.

The Spark operator does not report that a schedule is stuck, or that no operator handles it. This module finds out from
the schedule and its newest run. The sentences hold no figures that differ from run to run: a status that says the same
is not written again. Source: docs/decisions/065-lag-schedule.md, docs/decisions/071-one-lag-job.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from penstock_api.resources import Broker
from penstock_operator import names
from penstock_operator.children.lag_schedules import SPARK_GROUP, longest_seconds
from penstock_operator.children.shared_lag_job import BrokerName
from penstock_operator.manifest import Manifest, items_of, text_at
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition
from penstock_operator.plans.lag_service import LagService

__all__ = ["ScheduleView", "SharedJobView", "has_active_run", "judge_schedule", "lag_analysis_scheduled"]

_LATE_PERIODS: Final = 3
_ENDED: Final = ("COMPLETED", "FAILED")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleView:
    """A schedule as it should be and as it was found."""

    kind: str
    """ScheduledSparkApplication or CronJob."""
    namespace: str
    name: str
    cron: str
    """When it runs, in UTC."""
    interval_minutes: int
    spark_installed: bool
    """Whether the cluster has the CRD ScheduledSparkApplication."""
    observed: Manifest | None = None
    """The object, None if there is none."""
    last_run: Manifest | None = None
    """The newest SparkApplication of a ScheduledSparkApplication."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedJobView:
    """The operator's one job as it was found."""

    schedule: ScheduleView | None = None
    """None if it has not been looked at."""
    members: frozenset[BrokerName] = frozenset()
    """The Brokers that its runs analyse."""
    left_out: frozenset[BrokerName] = frozenset()
    """The Brokers for which its Secret has no room."""
    problem: tuple[ConditionReason, str] | None = None
    """Why job or Secret could not be written; None if they were."""


def lag_analysis_scheduled(
    broker: Broker, service: LagService, own: ScheduleView | None, shared: SharedJobView, now: datetime
) -> StatusCondition:
    """LagAnalysisScheduled of a Broker. `own`: the Broker's own schedule, None if it is to have none."""
    if service.off is not None:
        reason, because = service.off
        return _scheduled(ConditionStatus.FALSE, reason, f"No runs, because {because}.")
    if not service.is_shared:
        assert own is not None, "a Broker without the operator's job has one of its own"
        return judge_schedule(own, now)
    if shared.problem is not None:
        return _scheduled(ConditionStatus.FALSE, *shared.problem)
    return _membership(broker, shared) or judge_schedule(_schedule_of(shared), now)


def _schedule_of(shared: SharedJobView) -> ScheduleView:
    assert shared.schedule is not None, "a job that has members was looked at"
    return shared.schedule


def _membership(broker: Broker, shared: SharedJobView) -> StatusCondition | None:
    """The condition of a Broker that the operator's job does not analyse; None if it does."""
    name = BrokerName(broker.metadata.namespace, broker.metadata.name)
    if broker.spec.replicas == 0:
        message = "The Broker has no pods, so the operator's lag job leaves it out."
        return _scheduled(ConditionStatus.FALSE, ConditionReason.SCALED_TO_ZERO, message)
    if name in shared.left_out:
        return _scheduled(
            ConditionStatus.FALSE,
            ConditionReason.TOO_MANY_BROKERS,
            "The Secret of the operator's lag job is full, and this Broker is not in it. Give it a job of its own: set "
            "`spec.lagAnalysis.backend` to ScheduledSparkApplication or CronJob.",
        )
    if name in shared.members and shared.schedule is not None:
        return None
    paused = broker.metadata.annotations.get(names.PAUSED) == "true"
    why = f" The annotation `{names.PAUSED}` keeps it out." if paused else ""
    return _scheduled(
        ConditionStatus.UNKNOWN, ConditionReason.PENDING, f"The Broker is not in the operator's lag job yet.{why}"
    )


def judge_schedule(view: ScheduleView, now: datetime) -> StatusCondition:
    """The condition for one schedule, of a Broker's own or the operator's."""
    is_spark = view.kind == "ScheduledSparkApplication"
    if is_spark and not view.spark_installed:
        return _scheduled(
            ConditionStatus.FALSE,
            ConditionReason.CRD_NOT_INSTALLED,
            f"This cluster has no ScheduledSparkApplication ({SPARK_GROUP}). Install the Kubeflow Spark operator for "
            f"namespace {view.namespace}, or choose another backend: `spec.lagAnalysis.backend` of the Broker, or "
            "`lag.backend` of the operator's chart.",
        )
    if text_at(view.observed, "status", "scheduleState") == "FailedValidation":
        why = text_at(view.observed, "status", "reason") or "it gives no reason"
        return _scheduled(
            ConditionStatus.FALSE, ConditionReason.VALIDATION_FAILED, f"The Spark operator refused the schedule: {why}."
        )
    return _stuck(view, now) or _overdue(view, now) or _running(view)


def has_active_run(view: ScheduleView, now: datetime) -> bool:
    """Whether a run is under way. One that has taken longer than runs may take does not count: it is stuck."""
    if items_of(view.observed, "status", "active"):
        return True
    run = view.last_run
    made = _moment(text_at(run, "metadata", "creationTimestamp"))
    if run is None or _has_ended(run) or made is None:
        return False
    return now - made < timedelta(seconds=longest_seconds(run))


def _has_ended(run: Manifest | None) -> bool:
    return run is None or text_at(run, "status", "applicationState", "state") in _ENDED


def _stuck(view: ScheduleView, now: datetime) -> StatusCondition | None:
    """The condition while the last run prevents the next: the Spark operator starts none until the last one is
    COMPLETED or FAILED. None if that is not the case.
    """
    made = _moment(text_at(view.last_run, "metadata", "creationTimestamp"))
    if _has_ended(view.last_run) or made is None or has_active_run(view, now):
        return None
    state = text_at(view.last_run, "status", "applicationState", "state") or "not started"
    name = text_at(view.last_run, "metadata", "name")
    return _scheduled(
        ConditionStatus.FALSE,
        ConditionReason.RUN_STUCK,
        f"Run {name} has been {state} since {made:%H:%M} UTC and prevents further runs. Look at it, then: "
        f"kubectl delete sparkapplication -n {view.namespace} {name}",
    )


def _overdue(view: ScheduleView, now: datetime) -> StatusCondition | None:
    """The condition if nothing handles the schedule. None if runs are started, or the last one is still under way."""
    late = timedelta(minutes=_LATE_PERIODS * view.interval_minutes)
    is_spark = view.kind == "ScheduledSparkApplication"
    made = _moment(text_at(view.observed, "metadata", "creationTimestamp"))
    last = _moment(text_at(view.observed, "status", "lastRun" if is_spark else "lastScheduleTime")) or made
    if last is None or now - last < late or has_active_run(view, now):
        return None
    cure = (
        f"Does the Spark operator run, and does it watch namespace {view.namespace} (`spark.jobNamespaces` of its "
        "chart)?"
        if is_spark
        else f"See: kubectl describe cronjob -n {view.namespace} {view.name}"
    )
    return _scheduled(
        ConditionStatus.FALSE,
        ConditionReason.RUN_OVERDUE,
        f"No run of {_named(view)} has started since {last:%Y-%m-%d %H:%M} UTC. {cure}",
    )


def _running(view: ScheduleView) -> StatusCondition:
    is_spark = view.kind == "ScheduledSparkApplication"
    if view.observed is None or (is_spark and text_at(view.observed, "status", "nextRun") is None):
        return _scheduled(
            ConditionStatus.UNKNOWN,
            ConditionReason.PENDING,
            f"{_named(view)} is to run at `{view.cron}` UTC; it has not been handled yet.",
        )
    failed = " Its newest run failed; the log of the run's pod says why." if _newest_failed(view) else ""
    return _scheduled(
        ConditionStatus.TRUE, ConditionReason.SCHEDULED, f"{_named(view)} runs at `{view.cron}` UTC.{failed}"
    )


def _newest_failed(view: ScheduleView) -> bool:
    if view.kind == "ScheduledSparkApplication":
        return text_at(view.last_run, "status", "applicationState", "state") == "FAILED"
    started = _moment(text_at(view.observed, "status", "lastScheduleTime"))
    succeeded = _moment(text_at(view.observed, "status", "lastSuccessfulTime"))
    is_running = bool(items_of(view.observed, "status", "active"))
    return started is not None and not is_running and (succeeded is None or succeeded < started)


def _named(view: ScheduleView) -> str:
    return f"{view.kind} {view.namespace}/{view.name}"


def _moment(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


def _scheduled(status: ConditionStatus, reason: ConditionReason, message: str) -> StatusCondition:
    return StatusCondition("LagAnalysisScheduled", status, reason, message)
