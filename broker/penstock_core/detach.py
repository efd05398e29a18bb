"""What a detach does to the subscription behind the link.

Source: seed 000 "Link Detach", seed 001 "Unsubscribe", decisions 8, 9, 10, 14 and 16 of the design. What ends by its
lifetime once the link is gone is decided by ``lifetimes``, not here.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from penstock_core import permissions
from penstock_core.existing_subscription import ExistingSubscription, OwnerMark
from penstock_core.identity import Identity
from penstock_core.reason import Reason, Refuse
from penstock_core.terms import Durability, Lifetime

__all__ = [
    "DetachDecision",
    "DetachOnly",
    "DetachRequest",
    "EndSubscription",
    "RefuseClose",
    "SourceKind",
    "decide_detach",
]


class SourceKind(enum.Enum):
    """What the link's source is."""

    TOPIC = "topic"
    QUEUE = "queue"
    LOOKUP = "null source"


@dataclass(frozen=True, slots=True, kw_only=True)
class DetachRequest:
    """A detach that the client sent."""

    closed: bool
    source: SourceKind
    durability: Durability
    """What the link's attach asked, not what it got; irrelevant for a null source."""
    user: str
    may_use_others: bool = False


@dataclass(frozen=True, slots=True)
class DetachOnly:
    """The link goes; the subscription stays as far as its lifetime lets it."""


@dataclass(frozen=True, slots=True)
class EndSubscription:
    """The link goes, and the subscription with its backlog, whatever its lifetime (decision 9)."""

    identity: Identity
    incarnation: int


@dataclass(frozen=True, slots=True)
class RefuseClose:
    """The link goes, its unsettled deliveries return; the subscription and the other links stay, and the detach says
    why.
    """

    refuse: Refuse


DetachDecision = DetachOnly | EndSubscription | RefuseClose


def decide_detach(
    request: DetachRequest, existing: ExistingSubscription | None, other_consumers: int
) -> DetachDecision:
    """Decide a detach.

    ``existing_subscription`` is the subscription that the link consumes from or found, None if it is gone by now or the source is a
    queue; ``other_consumers`` are the links that consume from it besides this one (all of them for a null source).
    """
    if not request.closed or request.source is SourceKind.QUEUE or existing is None:
        return DetachOnly()
    if existing.managed is not None:
        return _close_managed(request, existing, existing.managed)
    refused = permissions.check_owner(existing, request.user, request.may_use_others)
    if refused is not None:
        return RefuseClose(refused)
    if other_consumers == 0:
        return EndSubscription(existing.identity, existing.incarnation)
    if existing.lifetime is not Lifetime.PERMANENT:
        return DetachOnly()
    return RefuseClose(
        Refuse(
            Reason.CONSUMERS_ACTIVE,
            f"The {existing.identity} still has {other_consumers} other consuming link(s); close them, then end it.",
        )
    )


def _close_managed(
    request: DetachRequest, existing: ExistingSubscription, managed: OwnerMark
) -> DetachOnly | RefuseClose:
    """Decision 14: a client that never asked for durability only leaves; one that means to end it is told who can."""
    if request.source is SourceKind.TOPIC and not request.durability.is_durable:
        return DetachOnly()
    return RefuseClose(
        Refuse(
            Reason.MANAGED,
            f"The {existing.identity} is declared by Subscription {managed.resource}; delete the resource to end it.",
            (("resource", managed.resource),),
        )
    )
