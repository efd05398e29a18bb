"""Condition LagAnalysisScheduled of a Broker: whether the lag job will run, and if not, what to do.

The Spark operator does not report that a schedule is stuck, or that no operator handles it. This module finds out from
the schedule and its newest run. Source: docs/decisions/065-lag-schedule.md.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from penstock_api.resources import Broker
from penstock_operator.children import lag_job
from penstock_operator.manifest import Manifest, text_at
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition

__all__ = ["lag_analysis_scheduled"]

_LATE_PERIODS: Final = 3


def lag_analysis_scheduled(
    broker: Broker, *, spark_installed: bool, observed: Manifest | None, last_run: Manifest | None, now: datetime
) -> StatusCondition:
    """LagAnalysisScheduled of a Broker.

    `observed`: the ScheduledSparkApplication. `last_run`: its newest SparkApplication.
    """
    analysis = broker.spec.lag_analysis
    if analysis.backend == "None":
        return _scheduled(ConditionStatus.FALSE, ConditionReason.DISABLED, "`spec.lagAnalysis.backend` is `None`.")
    if analysis.suspend:
        return _scheduled(ConditionStatus.FALSE, ConditionReason.SUSPENDED, "`spec.lagAnalysis.suspend` is set.")
    if analysis.backend == "CronJob":
        return _scheduled(
            ConditionStatus.TRUE,
            ConditionReason.SCHEDULED,
            f"CronJob {broker.metadata.name}-lag runs at `{lag_job.cron(broker)}` UTC.",
        )
    if not spark_installed:
        return _scheduled(
            ConditionStatus.FALSE,
            ConditionReason.CRD_NOT_INSTALLED,
            f"This cluster has no ScheduledSparkApplication ({lag_job.SPARK_GROUP}). Install the Kubeflow "
            "Spark operator for this namespace, or set `spec.lagAnalysis.backend: CronJob`.",
        )
    if text_at(observed, "status", "scheduleState") == "FailedValidation":
        why = text_at(observed, "status", "reason") or "it gives no reason"
        return _scheduled(
            ConditionStatus.FALSE, ConditionReason.VALIDATION_FAILED, f"The Spark operator refused the schedule: {why}."
        )
    return _stuck(broker, last_run, now) or _overdue(broker, observed, now) or _running(broker, observed)


def _stuck(broker: Broker, last_run: Manifest | None, now: datetime) -> StatusCondition | None:
    """The condition while the last run prevents the next: the Spark operator starts none until the last one is
    COMPLETED or FAILED. None if that is not the case.
    """
    state = text_at(last_run, "status", "applicationState", "state") or ""
    made = _moment(text_at(last_run, "metadata", "creationTimestamp"))
    if (
        last_run is None
        or made is None
        or state in ("COMPLETED", "FAILED")
        or now - made < timedelta(seconds=lag_job.DEADLINE_SECONDS)
    ):
        return None
    name = text_at(last_run, "metadata", "name")
    return _scheduled(
        ConditionStatus.FALSE,
        ConditionReason.RUN_STUCK,
        f"Run {name} has been {state or 'not started'} since {made:%H:%M} UTC and prevents further runs. Look at it, "
        f"then: kubectl delete sparkapplication -n {broker.metadata.namespace} {name}",
    )


def _overdue(broker: Broker, observed: Manifest | None, now: datetime) -> StatusCondition | None:
    """The condition if no Spark operator handles the schedule: there is none for this namespace, or it does not run.
    None if runs are started.
    """
    late = timedelta(minutes=_LATE_PERIODS * broker.spec.lag_analysis.interval_minutes)
    made = _moment(text_at(observed, "metadata", "creationTimestamp"))
    last = _moment(text_at(observed, "status", "lastRun")) or made
    if last is None or now - last < late:
        return None
    return _scheduled(
        ConditionStatus.FALSE,
        ConditionReason.RUN_OVERDUE,
        f"No run has started since {last:%Y-%m-%d %H:%M} UTC. Does the Spark operator run, and does it watch this "
        "namespace (`spark.jobNamespaces` of its chart)?",
    )


def _running(broker: Broker, observed: Manifest | None) -> StatusCondition:
    following = text_at(observed, "status", "nextRun")
    if following is None:
        return _scheduled(
            ConditionStatus.UNKNOWN,
            ConditionReason.PENDING,
            f"The schedule `{lag_job.cron(broker)}` UTC was created; the Spark operator has not handled it yet.",
        )
    return _scheduled(ConditionStatus.TRUE, ConditionReason.SCHEDULED, f"Runs at `{lag_job.cron(broker)}` UTC.")


def _scheduled(status: ConditionStatus, reason: ConditionReason, message: str) -> StatusCondition:
    return StatusCondition("LagAnalysisScheduled", status, reason, message)


def _moment(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
