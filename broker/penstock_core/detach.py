"""What a detach does to the subscription behind the link.

``subscription_lifetime`` decides what ends by its lifetime once the link is gone. Source: the attach table "Link
Detach", QPIDJMS-220 "Unsubscribe", decisions 8, 9, 10, 14 and 16 (docs/decisions).
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
    """What the link's source is. A link whose source is a queue only detaches, which needs no decision."""

    TOPIC = "topic"
    LOOKUP = "null source"


@dataclass(frozen=True, slots=True, kw_only=True)
class DetachRequest:
    """A detach that the client sent."""

    closed: bool
    source: SourceKind
    durability: Durability
    """The durability that the link's attach asked for, not what it got; irrelevant for a null source."""
    user: str
    may_use_others: bool = False


@dataclass(frozen=True, slots=True)
class DetachOnly:
    """The link is detached. The subscription stays, unless its lifetime ends with the link."""


@dataclass(frozen=True, slots=True)
class EndSubscription:
    """The link is detached, and the subscription ends with its messages, whatever its lifetime (decision 9)."""

    identity: Identity
    incarnation: int


@dataclass(frozen=True, slots=True)
class RefuseClose:
    """The link is detached with an error that says why the subscription does not end. Its unsettled deliveries return
    to the queue; the subscription and the other links stay.
    """

    refuse: Refuse


DetachDecision = DetachOnly | EndSubscription | RefuseClose


def decide_detach(
    request: DetachRequest, existing: ExistingSubscription | None, other_consumers: int
) -> DetachDecision:
    """Decide a detach.

    ``existing`` is the subscription that the link consumes from or found; None if it is gone by now.
    ``other_consumers`` are the links that consume from it besides this one (all of them for a null source).
    """
    if not request.closed or existing is None:
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
    """A client that never asked for durability only detaches; another one is told who can end it (decision 14)."""
    if request.source is SourceKind.TOPIC and not request.durability.is_durable:
        return DetachOnly()
    return RefuseClose(
        Refuse(
            Reason.MANAGED,
            f"The {existing.identity} is declared by Subscription {managed.resource}; delete the resource to end it.",
            (("resource", managed.resource),),
        )
    )
