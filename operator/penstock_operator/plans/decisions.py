"""What the planners decide, as values, and what they are told; `reconciler` acts them out.

A planner says the *next* thing to do. Where that needs an answer (of the broker or the API server), it is asked again
with the answer in its view, until it says Report or Release. So each plan is a pure function, and each of its
outcomes one reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from penstock_api.management import EntityType, ExchangeDeclaration, SubscriptionDeclaration
from penstock_api.resources import Broker
from penstock_operator.manifest import Manifest
from penstock_operator.plans.conditions import StatusCondition

__all__ = [
    "AddFinalizer",
    "ApplyChild",
    "BrokerReply",
    "BrokerView",
    "ChildState",
    "Decision",
    "DeclareEntity",
    "DeleteEntity",
    "Reach",
    "RemoveFinalizer",
    "Report",
    "Retry",
]


class Reach(Enum):
    """Whether a Broker's management can be used now."""

    ABSENT = "Absent"
    """No such Broker resource."""
    DELETING = "Deleting"
    """The Broker is being deleted."""
    STOPPED = "Stopped"
    """Scaled to zero."""
    UNREACHABLE = "Unreachable"
    """It ought to run, and nobody answers."""
    NOT_UNDERSTOOD = "NotUnderstood"
    """It answers in words that this operator doesn't know: it is of a later release."""
    CONNECTED = "Connected"


class ChildState(Enum):
    """What is known of a child object."""

    UNKNOWN = "Unknown"
    """Not looked at in this pass."""
    APPLIED = "Applied"
    TAKEN = "Taken"
    """An object of that name belongs to somebody else."""
    PREDECESSOR = "Leaving"
    """It was made for a resource that had the same name before, and goes as that one did."""


class Retry(Enum):
    """When a reported resource is looked at again without an event."""

    RESYNC = "Resync"
    """With all others, every few minutes."""
    BACKOFF = "Backoff"
    """Soon, then later and later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerView:
    """What an Exchange or a Subscription needs to know of its Broker."""

    reach: Reach
    broker: Broker | None = None
    problem: str = ""
    """Why it is unreachable."""
    version: str = ""
    """What the broker says it is; empty if it has never answered."""
    understands: frozenset[str] | None = None
    """The terms that its declarations may use (`penstock_api.understanding`); None if it doesn't say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReply:
    """What the broker said."""

    status: int
    description: str = ""
    condition: str | None = None
    reason: str | None = None
    body: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def is_success(self) -> bool:
        """2xx."""
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Put our finalizer on the resource before anything is made for it."""


@dataclass(frozen=True, slots=True)
class ApplyChild:
    """Apply a child object."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class DeclareEntity:
    """CREATE on the broker."""

    entity: EntityType
    name: str | None
    body: ExchangeDeclaration | SubscriptionDeclaration


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteEntity:
    """DELETE on the broker."""

    entity: EntityType
    name: str
    if_unused: bool
    if_empty: bool
    owner_uid: str


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Take our finalizer away; `why` goes to the log."""

    why: str
    is_removal_pending: bool = False
    """The broker has not been asked, or not said yes: what it has is to be removed as soon as it can be."""


@dataclass(frozen=True, slots=True)
class Report:
    """Write status, if it changed, and be done for now."""

    conditions: tuple[StatusCondition, ...]
    details: Manifest
    """Further fields of status."""
    retry: Retry = Retry.RESYNC


Decision = AddFinalizer | ApplyChild | DeclareEntity | DeleteEntity | RemoveFinalizer | Report
