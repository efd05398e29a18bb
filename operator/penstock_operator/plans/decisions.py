"""The values that the plans exchange with `reconcile`: what is known of a broker, and what is to be done next.

A plan is a function from a view (all that is known) to a decision: the *next* thing to do. Where that has a result,
such as the broker's reply, the plan is called again with the result in its view, until it decides to report or to
remove the finalizer. Source: docs/decisions/056-conditions.md, docs/reference/operator.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from penstock_api.management import EntityType, ExchangeDeclaration, QueueDeclaration, SubscriptionDeclaration
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
    "DeleteChild",
    "DeleteEntity",
    "KeepStatus",
    "Reach",
    "RemoveFinalizer",
    "Report",
    "Retry",
]


class Reach(Enum):
    """Whether the management of a Broker can be used now, and if not, why."""

    ABSENT = "Absent"
    """There is no such Broker resource."""
    UNREADABLE = "Unreadable"
    """There is such a Broker, but this operator can't parse it."""
    DELETING = "Deleting"
    """The Broker is being deleted."""
    STOPPED = "Stopped"
    """The Broker is scaled to zero."""
    NOT_ASKED = "NotAsked"
    """The broker should be running, and no attempt to ask it has ended: nobody knows whether it answers."""
    UNREACHABLE = "Unreachable"
    """The broker should be running, but the newest attempt to ask it has failed."""
    NOT_UNDERSTOOD = "NotUnderstood"
    """The broker answers, but this operator does not understand it: it is of a later release."""
    CONNECTED = "Connected"


class ChildState(Enum):
    """What is known of a child object in this reconcile."""

    UNKNOWN = "Unknown"
    """It was not read yet."""
    APPLIED = "Applied"
    TAKEN = "Taken"
    """An object of that name exists and is not the operator's."""
    REFUSED = "Refused"
    """The API server does not take it."""
    PREDECESSOR = "Leaving"
    """It belongs to a deleted resource of the same name, and the cluster is about to delete it."""
    GONE = "Gone"
    """It is not wanted, and not there."""


class Retry(Enum):
    """When a resource is reconciled again although nothing changes."""

    RESYNC = "Resync"
    """Together with all others, at the next resync."""
    BACKOFF = "Backoff"
    """Soon, with a delay that doubles each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerView:
    """What the plans for Exchanges, Subscriptions and Queues need to know about the Broker."""

    reach: Reach
    broker: Broker | None = None
    problem: str = ""
    """Why its management can't be used; a sentence, empty if it can."""
    is_out: bool = False
    """It has not answered for longer than a restart takes."""
    unreachable_since: datetime | None = None
    """Since when the operator knows that the broker does not answer, or that it can't understand it; at the earliest
    the operator's start. None: until a moment ago it did.
    """
    is_awaited: bool = False
    """It was not asked yet, and is about to be: what waits for its answer says nothing until then."""
    version: str = ""
    """The version that the broker has reported; empty if it has never answered."""
    understands: frozenset[str] | None = None
    """The terms that declarations may use (`penstock_api.release_terms`); None if the broker doesn't report them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReply:
    """The broker's reply to a declaration or a deletion."""

    status: int
    """The status code, as in HTTP."""
    description: str = ""
    condition: str | None = None
    """The AMQP error condition of a refusal."""
    reason: str | None = None
    """The reason of a refusal, a word of `penstock_core.reason`."""
    body: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def is_success(self) -> bool:
        """Whether the status code is 2xx."""
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Add the operator's finalizer to the resource, before anything is created for it."""


@dataclass(frozen=True, slots=True)
class ApplyChild:
    """Apply a child object."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class DeleteChild:
    """Delete a child object that the resource does not want any more, if it is the resource's own."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class DeclareEntity:
    """Create or update an exchange, a subscription or a queue on the broker (management operation CREATE)."""

    entity: EntityType
    name: str | None
    body: ExchangeDeclaration | SubscriptionDeclaration | QueueDeclaration


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteEntity:
    """Delete an exchange, a subscription or a queue on the broker (management operation DELETE)."""

    entity: EntityType
    name: str
    if_unused: bool
    if_empty: bool
    owner_uid: str
    rights_only: bool = False
    """End only the rights that the resource gave; the entity stays."""


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Remove the operator's finalizer, so that the cluster deletes the resource; `why` goes to the log."""

    why: str
    is_removal_pending: bool = False
    """The broker has not confirmed that it deleted the entity; it must be deleted as soon as the broker answers."""


@dataclass(frozen=True, slots=True)
class KeepStatus:
    """Write nothing: the broker does not answer, but may soon, and until then the resource keeps the status that it
    has. It is reconciled again when the broker answers, and when it has not for too long.
    """

    retry: Retry = Retry.RESYNC


@dataclass(frozen=True, slots=True)
class Report:
    """Write the status if it changed; this reconcile is then done."""

    conditions: tuple[StatusCondition, ...]
    details: Manifest
    """Further fields of status."""
    retry: Retry = Retry.RESYNC


Decision = (
    AddFinalizer | ApplyChild | DeclareEntity | DeleteChild | DeleteEntity | KeepStatus | RemoveFinalizer | Report
)
