"""Conditions: how they are made, and what stays of those that were there.

`lastTransitionTime` moves only when `status` does. Source: Kubernetes API conventions; facts of kstatus in
docs/gitops.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from penstock_api.resources import Condition as Stored
from penstock_operator import reasons
from penstock_operator.manifests import Manifest
from penstock_operator.reasons import Reason

__all__ = ["Condition", "Truth", "ready_from", "render", "timestamp"]

_LONGEST_MESSAGE = 4096


class Truth(StrEnum):
    """Status of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition to set; one that is not set any more goes."""

    type: str
    truth: Truth
    reason: str
    message: str


def ready_from(conditions: Sequence[Condition], message: str) -> tuple[Condition, ...]:
    """The conditions with Ready in front: the first that isn't True gives it its reason. Stalled is there if a person
    must act.
    """
    failing = next((condition for condition in conditions if condition.truth is not Truth.TRUE), None)
    if failing is None:
        return (Condition("Ready", Truth.TRUE, Reason.READY, message), *conditions)
    ready = Condition("Ready", failing.truth, failing.reason, failing.message)
    if reasons.needs_a_person(failing.reason):
        return (ready, *conditions, Condition("Stalled", Truth.TRUE, failing.reason, failing.message))
    return (ready, *conditions)


def render(
    conditions: Iterable[Condition], *, before: Sequence[Stored], generation: int, now: datetime
) -> list[Manifest]:
    """The conditions as status has them; `before` says since when an unchanged one has been so."""
    known = {stored.type: stored for stored in before}
    return [_render(condition, known.get(condition.type), generation, now) for condition in conditions]


def _render(condition: Condition, before: Stored | None, generation: int, now: datetime) -> Manifest:
    unchanged = before is not None and before.status == condition.truth.value
    since = before.last_transition_time if before is not None and unchanged else now
    return {
        "type": condition.type,
        "status": condition.truth.value,
        "reason": str(condition.reason),
        "message": condition.message[:_LONGEST_MESSAGE],
        "lastTransitionTime": timestamp(since),
        "observedGeneration": generation,
    }


def timestamp(moment: datetime) -> str:
    """A time as Kubernetes writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
