"""Which lag job analyses a Broker, and how often."""

from __future__ import annotations

from typing import Any

import pytest
from support.resources import broker

from penstock_operator.lag_options import LagJobOptions
from penstock_operator.plans.lag_service import is_member, lag_service

OPTIONS = LagJobOptions(namespace="penstock-system", name="penstock-lag", interval_minutes=10)


@pytest.mark.parametrize(
    ("analysis", "shared", "minutes"),
    [
        ({}, True, 10),
        ({"intervalMinutes": 2}, True, 10),
        ({"backend": "CronJob", "intervalMinutes": 2}, False, 2),
        ({"backend": "ScheduledSparkApplication"}, False, 5),
    ],
)
def test_a_broker_is_as_fresh_as_the_job_that_analyses_it(analysis: Any, shared: bool, minutes: int) -> None:
    found = lag_service("main", broker(lagAnalysis=analysis).spec.lag_analysis, OPTIONS)
    assert (found.is_shared, found.interval_minutes, found.off) == (shared, minutes, None)


@pytest.mark.parametrize(
    ("analysis", "options", "why"),
    [
        ({"backend": "None"}, OPTIONS, "`spec.lagAnalysis.backend` of Broker main is `None`"),
        ({"suspend": True}, OPTIONS, "`spec.lagAnalysis.suspend` of Broker main is set"),
        ({}, OPTIONS.model_copy(update={"backend": "None"}), "`lag.backend` of the operator's chart is `None`"),
        ({}, OPTIONS.model_copy(update={"suspend": True}), "`lag.suspend` of the operator's chart is set"),
        ({}, None, "this operator was started without a lag job (`--lag-job`)"),
    ],
)
def test_why_there_are_no_runs(analysis: Any, options: LagJobOptions | None, why: str) -> None:
    found = lag_service("main", broker(lagAnalysis=analysis).spec.lag_analysis, options)
    assert found.off is not None
    assert found.off[1] == why


@pytest.mark.parametrize(
    ("spec", "metadata", "member"),
    [
        ({}, {}, True),
        ({"lagAnalysis": {"backend": "CronJob"}}, {}, False),
        ({"lagAnalysis": {"backend": "None"}}, {}, False),
        ({"lagAnalysis": {"suspend": True}}, {}, False),
        ({"replicas": 0}, {}, False),
        ({}, {"deletionTimestamp": "2026-03-01T12:00:00Z"}, False),
    ],
)
def test_which_brokers_the_operator_s_job_analyses(spec: Any, metadata: Any, member: bool) -> None:
    assert is_member(broker(metadata=metadata, **spec)) is member
