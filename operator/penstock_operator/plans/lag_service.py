"""Which lag job analyses a Broker: the operator's one, one of its own, or none; and how often it runs.

| `spec.lagAnalysis.backend`         | is analysed by                                              |
| ---------------------------------- | ----------------------------------------------------------- |
| Auto                               | the operator's job, every `lag.intervalMinutes` of its chart |
| ScheduledSparkApplication, CronJob | a job of its own, every `spec.lagAnalysis.intervalMinutes`   |
| None                               | nothing                                                     |

Pure. Source: docs/decisions/071-one-lag-job.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock_api.resources import Broker, LagAnalysis
from penstock_operator.lag_options import LagJobOptions
from penstock_operator.plans.conditions import ConditionReason

__all__ = ["LagService", "is_member", "lag_service"]

_DEFAULT_MINUTES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LagService:
    """What analyses a Broker."""

    is_shared: bool = False
    """Whether it is the operator's job."""
    interval_minutes: int = _DEFAULT_MINUTES
    """Between two runs."""
    off: tuple[ConditionReason, str] | None = None
    """Why no runs are to be expected, as a reason and as words for `because ...`; None if they are."""


def lag_service(broker: str, analysis: LagAnalysis, shared: LagJobOptions | None) -> LagService:
    """What analyses the Broker of this name. `shared`: the operator's job, None if it has none."""
    field = f"of Broker {broker}"
    if analysis.backend == "None":
        return LagService(off=(ConditionReason.DISABLED, f"`spec.lagAnalysis.backend` {field} is `None`"))
    is_shared = analysis.backend == "Auto"
    minutes: int = analysis.interval_minutes
    if is_shared:
        minutes = _DEFAULT_MINUTES if shared is None else shared.interval_minutes
    off: tuple[ConditionReason, str] | None = None
    if analysis.suspend:
        off = ConditionReason.SUSPENDED, f"`spec.lagAnalysis.suspend` {field} is set"
    elif is_shared and shared is None:
        off = ConditionReason.DISABLED, "this operator was started without a lag job (`--lag-job`)"
    elif is_shared and shared is not None and shared.backend == "None":
        off = ConditionReason.DISABLED, "`lag.backend` of the operator's chart is `None`"
    elif is_shared and shared is not None and shared.suspend:
        off = ConditionReason.SUSPENDED, "`lag.suspend` of the operator's chart is set"
    return LagService(is_shared=is_shared, interval_minutes=minutes, off=off)


def is_member(broker: Broker) -> bool:
    """Whether the operator's job is to analyse the Broker. One without pods has no observer that could be asked."""
    analysis = broker.spec.lag_analysis
    return (
        analysis.backend == "Auto"
        and not analysis.suspend
        and broker.spec.replicas > 0
        and broker.metadata.deletion_timestamp is None
    )
