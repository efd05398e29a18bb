"""Which of several operators manages a Broker: the one that `status.operator` names, for as long as it lives.

An operator is named by its Lease, as NAMESPACE/NAME: that stays the same with each pod and each release of it. One
without a Lease has no name; it writes none, and gives way to every other. Whether another operator lives is judged by
its Lease as `plans.lease` does it, by this operator's own monotonic clock: never by the times in the record. Source:
docs/decisions/120-one-operator-manages-a-broker.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from penstock_operator.plans.lease import LeaseRecord

__all__ = [
    "ABSENT_SECONDS",
    "OVER_SECONDS",
    "UNSEEN_SECONDS",
    "ObservedLease",
    "Responsibility",
    "decide",
    "lease_of",
    "name_of",
    "observed",
]

OVER_SECONDS: Final = 300.0
"""An operator whose Lease was not renewed for so long is over, and one that has given it back. Until then it may be
about to come again: a new pod may have to wait for its image or its node.
"""
ABSENT_SECONDS: Final = 30.0
"""An operator whose Lease is gone for so long is over. One that lives makes it again after two seconds."""
UNSEEN_SECONDS: Final = 60.0
"""What was last read so long ago says nothing any more: the API server, or this process, stood still meanwhile, and the
other operator may have renewed its Lease, or could not. Its time counts anew.
"""
_NAME: Final = re.compile(r"([a-z0-9]([-a-z0-9]*[a-z0-9])?)/([a-z0-9]([-a-z0-9.]*[a-z0-9])?)")


class Responsibility(Enum):
    """What an operator does with a Broker, and with the resources that name it."""

    MANAGE = "Manage"
    """It manages them: its own name is recorded."""
    TAKE = "Take"
    """It records its own name first."""
    WAIT = "Wait"
    """It touches nothing: another name is recorded, and it is not known yet whether that operator is over."""
    KEEP_OFF = "KeepOff"
    """It touches nothing, and says so: another operator manages them, or its Lease may not be read."""

    @property
    def is_own(self) -> bool:
        """Whether this operator may touch them."""
        return self in (Responsibility.MANAGE, Responsibility.TAKE)


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """What is known of the Lease of another operator."""

    record: LeaseRecord | None
    """None: there is no such Lease."""
    since: float
    """When it was first seen so."""
    seen: float
    """When it was last seen so."""
    is_renewed: bool = False
    """Whether its holder was seen to renew it."""
    is_hidden: bool = False
    """Whether this operator may not read it."""


def name_of(namespace: str, lease: str) -> str:
    """The name of an operator; empty if it has no Lease."""
    return f"{namespace}/{lease}" if lease else ""


def lease_of(name: str) -> tuple[str, str] | None:
    """Namespace and name of the Lease of an operator; None if that can't be the name of one."""
    found = _NAME.fullmatch(name)
    return None if found is None else (found[1], found[3])


def observed(before: ObservedLease | None, record: LeaseRecord | None, now: float) -> ObservedLease:
    """What is known of a Lease that was just read, None if there is none."""
    if before is None or before.is_hidden:
        return ObservedLease(record, now, now)
    if before.record == record:
        return replace(before, since=now if _is_unseen(before, now) else before.since, seen=now)
    # The first holder, or another one, is no less alive than one that goes on.
    return ObservedLease(record, now, now, is_renewed=record is not None and bool(record.holder))


def decide(recorded: str, me: str, other: ObservedLease | None, now: float) -> Responsibility:
    """What the operator `me` does with a Broker in whose status `recorded` is the name of an operator, or nothing.

    `other`: what is known of the Lease of `recorded`; None if it was not read yet.
    """
    if recorded == me:
        return Responsibility.MANAGE
    if lease_of(recorded) is None:
        return Responsibility.TAKE
    if other is None:
        return Responsibility.WAIT
    if other.is_hidden:
        return Responsibility.KEEP_OFF
    if _is_unseen(other, now):
        return Responsibility.WAIT
    if now >= other.since + _patience(other.record):
        return Responsibility.TAKE
    return Responsibility.KEEP_OFF if other.is_renewed else Responsibility.WAIT


def _is_unseen(observed: ObservedLease, now: float) -> bool:
    return now > observed.seen + UNSEEN_SECONDS


def _patience(record: LeaseRecord | None) -> float:
    """Seconds after which an operator is over whose Lease does not change."""
    return ABSENT_SECONDS if record is None else max(OVER_SECONDS, float(record.seconds))
