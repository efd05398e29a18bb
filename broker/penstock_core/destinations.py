"""Where a policy sends messages: dead letters, and what expired.

A destination is an address like that of a target: a queue's name, ``exchange`` or ``exchange/key``. A plain name that
nothing has is a queue to be made; an exchange that isn't there yet may come later, so that declarations can arrive in
any order. Nobody puts messages into a subscription past its exchange, and none into ``$management``. It must not know
who holds the names. Source: docs/decisions/033-dead-letters.md; docs/reference/management.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock_core.address import (
    AnonymousRelay,
    CreateNode,
    Directory,
    ExchangeAddress,
    ManagementAddress,
    NodeKind,
    QueueAddress,
    SubscriptionQueue,
    check_queue_name,
    parse_target,
)
from penstock_core.auto_creation import ANYTHING
from penstock_core.queue_links import decide_publish
from penstock_core.reason import Reason, Refuse

__all__ = ["FoundDestination", "MakeQueue", "MissingDestination", "decide_destination"]


@dataclass(frozen=True, slots=True)
class FoundDestination:
    """The destination exists."""

    address: ExchangeAddress | QueueAddress


@dataclass(frozen=True, slots=True)
class MakeQueue:
    """There is no such queue; a declaration that names it makes a durable one."""

    name: str


@dataclass(frozen=True, slots=True)
class MissingDestination:
    """The exchange does not exist, or not yet. Until it does, messages stay where they are."""

    address: str


def decide_destination(
    address: str, directory: Directory
) -> FoundDestination | MakeQueue | MissingDestination | Refuse:
    """Find out what the destination of a policy means."""
    parsed = parse_target(address, (), directory, auto_create=ANYTHING)
    match parsed:
        case ExchangeAddress() | QueueAddress():
            return FoundDestination(parsed)
        case CreateNode(kind, name):
            if kind is NodeKind.TOPIC or "/" in name[1:]:
                return MissingDestination(address)
            return check_queue_name(name) or MakeQueue(name)
        case SubscriptionQueue():
            refused = decide_publish(parsed)
            assert isinstance(refused, Refuse)
            return refused
        case ManagementAddress() | AnonymousRelay():
            return Refuse(
                Reason.INVALID_ADDRESS, f"Messages can't be sent to {address!r}; name a queue or an exchange."
            )
        case Refuse():
            return parsed
