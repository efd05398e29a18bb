"""Who leads, by a Lease: what an operator does with the record that it reads, and until when it may write.

An operator never compares its clock with that of another node: a lease is over when its record has not changed for the
lease's time, counted from when this operator first saw it so. And the leader counts from before it sent a renewal that
succeeded, so it stops before anybody may take the lease. All times are seconds on the operator's own monotonic clock;
the times in the record are for people.

Source: docs/decisions/106-one-operator-leads.md; `leaderelection` of Kubernetes' client-go, whose words and proportions
these are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from penstock_operator.manifest import Manifest, dig, text_at

__all__ = [
    "LeaseRecord",
    "LeaseStep",
    "LeaseTimes",
    "Sighting",
    "decide",
    "may_write",
    "read",
    "sight",
    "spec",
    "vacant",
]


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """How long a lease lasts, in seconds, and what follows from it."""

    lease_seconds: int = 15
    """After so long without a renewal another operator takes the lease."""

    @property
    def renew_deadline(self) -> float:
        """A leader that has not renewed the lease for so long stops: 10 s of 15."""
        return self.lease_seconds * 2 / 3

    @property
    def retry_period(self) -> float:
        """The time between two attempts to renew or to take the lease: 2 s of 15."""
        return self.lease_seconds * 2 / 15


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """What a Lease says."""

    holder: str
    """Identity of the operator that leads; empty if the lease was released."""
    seconds: int
    """For how long its holder wants it after a renewal; 0 if the record does not say."""
    renewed: str
    acquired: str
    transitions: int
    """How often the holder has changed."""
    version: str = field(compare=False)
    """The resource version. It also changes with labels, so it does not say that the lease was renewed."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A record, and when this operator first saw it so."""

    record: LeaseRecord
    since: float


class LeaseStep(Enum):
    """What to do now."""

    CREATE = "Create"
    TAKE = "Take"
    RENEW = "Renew"
    WAIT = "Wait"


def read(lease: Manifest) -> LeaseRecord:
    """The record of a Lease; what is missing or of a wrong type is empty or 0."""
    return LeaseRecord(
        holder=text_at(lease, "spec", "holderIdentity") or "",
        seconds=_whole(dig(lease, "spec", "leaseDurationSeconds")),
        renewed=text_at(lease, "spec", "renewTime") or "",
        acquired=text_at(lease, "spec", "acquireTime") or "",
        transitions=_whole(dig(lease, "spec", "leaseTransitions")),
        version=text_at(lease, "metadata", "resourceVersion") or "",
    )


def sight(before: Sighting | None, record: LeaseRecord, now: float) -> Sighting:
    """The sighting of a record that was just read."""
    unchanged = before is not None and before.record == record
    return Sighting(record, before.since if before is not None and unchanged else now)


def decide(sighting: Sighting | None, me: str, now: float, times: LeaseTimes) -> LeaseStep:
    """What the operator `me` does with the Lease as it was just read, None if there is none."""
    if sighting is None:
        return LeaseStep.CREATE
    record = sighting.record
    if record.holder == me:
        return LeaseStep.RENEW
    if not record.holder or now >= sighting.since + (record.seconds or times.lease_seconds):
        return LeaseStep.TAKE
    return LeaseStep.WAIT


def may_write(renewed: float | None, now: float, times: LeaseTimes) -> bool:
    """Whether an operator still leads.

    `renewed`: when its last renewal that succeeded was sent, None before the first.
    """
    return renewed is not None and now < renewed + times.renew_deadline


def spec(before: LeaseRecord | None, me: str, at: datetime, times: LeaseTimes) -> Mapping[str, object]:
    """The spec of the Lease that `me` holds from now on, or goes on holding. `at`: the time of day, for people."""
    stays = before is not None and before.holder == me
    return {
        "holderIdentity": me,
        "leaseDurationSeconds": times.lease_seconds,
        "acquireTime": before.acquired if before is not None and stays and before.acquired else _micro_time(at),
        "renewTime": _micro_time(at),
        "leaseTransitions": 0 if before is None else before.transitions + (0 if stays else 1),
    }


def vacant(before: LeaseRecord, at: datetime) -> Mapping[str, object]:
    """The spec of a Lease that its holder gives back: anybody takes it at once."""
    return {
        "leaseDurationSeconds": 1,
        "acquireTime": before.acquired or _micro_time(at),
        "renewTime": _micro_time(at),
        "leaseTransitions": before.transitions,
    }


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _micro_time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
