"""Temporary queues and topics: what a dynamic source or target makes, who may consume from it, and when it is deleted.

A dynamic node has a generated, unguessable name, and anybody who learns it may send there. If the capabilities of its
terminus call it temporary (``temporary-queue``, ``temporary-topic``), only the connection that made it may consume, as
JMS says; otherwise anybody may who learns the name and has the permission. It is deleted as its lifetime policy says,
and at the latest with that connection; the link whose end it follows exists until its terminus expires. It must not
know links or queues: the caller counts them.

Source: AMQP 1.0 part 3, sections 3.5.9 (``dynamic``, node properties) and 3.5.10 to 3.5.13 (lifetime policies); the JMS
mapping "Temporary Queues/Topics".
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, assert_never

from penstock_core.reason import Reason, Refuse
from penstock_core.terms import ExpiryPolicy, NodeKind

__all__ = [
    "EXCLUSIVE",
    "TEMPORARY_PREFIXES",
    "LifetimePolicy",
    "MakeTemporary",
    "Use",
    "check_consumer",
    "decide_dynamic",
    "is_exclusive",
    "is_over",
    "may_come_back",
    "temporary_name",
]

_PREFIX: Final[dict[NodeKind, str]] = {NodeKind.QUEUE: "temporary-queue:", NodeKind.TOPIC: "temporary-topic:"}

EXCLUSIVE: Final = frozenset(("temporary-queue", "temporary-topic"))
"""Capabilities of a dynamic terminus whose node is for its connection alone. Source: the JMS mapping."""

TEMPORARY_PREFIXES: Final = tuple(_PREFIX.values())
"""No other queue or exchange may have a name that begins with one of these."""


class LifetimePolicy(enum.Enum):
    """When a dynamic node goes, at the latest with its connection; values are AMQP descriptors without their frame."""

    DELETE_ON_CLOSE = "delete-on-close"
    DELETE_ON_NO_LINKS = "delete-on-no-links"
    DELETE_ON_NO_MESSAGES = "delete-on-no-messages"
    DELETE_ON_NO_LINKS_OR_MESSAGES = "delete-on-no-links-or-messages"


@dataclass(frozen=True, slots=True)
class MakeTemporary:
    """Make this node, then attach to it."""

    kind: NodeKind
    name: str
    policy: LifetimePolicy


@dataclass(frozen=True, slots=True)
class Use:
    """Who uses a temporary node now."""

    has_creator: bool
    """The link whose attach made it is attached, or may come back."""
    links: int
    """Links that have it as source or target, that one included."""
    messages: int
    """Messages that nobody has settled; those of all its subscriptions if it is a topic."""


def temporary_name(kind: NodeKind, token: str) -> str:
    """The address of a temporary node; ``token`` is random text without ``/``, long enough not to be guessed."""
    return _PREFIX[kind] + token


def decide_dynamic(
    address: str | None,
    kinds: Collection[NodeKind],
    policy: LifetimePolicy | None,
    *,
    token: str,
    made: int,
    limit: int,
) -> MakeTemporary | Refuse:
    """Decide an attach with a dynamic terminus.

    ``kinds`` is what its capabilities name (none: a queue), ``policy`` the lifetime policy asked (none:
    delete-on-close, as JMS asks), ``made`` how many temporary nodes the connection has, ``limit`` how many it may have.
    """
    if address:
        return Refuse(
            Reason.INVALID_ADDRESS,
            f"The broker makes the address of a dynamic node, and this attach gives it {address[:80]!r}; leave it out.",
        )
    if len(kinds) > 1:
        return Refuse(
            Reason.INVALID_ADDRESS,
            "The capabilities of the dynamic node name both a topic and a queue; name one of them.",
        )
    if made >= limit:
        return Refuse(
            Reason.LIMIT_EXCEEDED,
            f"The connection has {made} temporary queues and topics, and {limit} is the limit; delete some first.",
        )
    kind = next(iter(kinds), NodeKind.QUEUE)
    return MakeTemporary(kind, temporary_name(kind, token), policy or LifetimePolicy.DELETE_ON_CLOSE)


def is_exclusive(capabilities: Collection[str]) -> bool:
    """True if the capabilities of a dynamic terminus ask that only the connection which makes the node may consume."""
    return not EXCLUSIVE.isdisjoint(capabilities)


def check_consumer(
    name: str, owner: int, connection: int, *, exclusive: bool = True, durable: bool = False
) -> Refuse | None:
    """None if a link of ``connection`` may consume from the temporary node that connection ``owner`` made."""
    if exclusive and connection != owner:
        return Refuse(
            Reason.OTHER_CONNECTION,
            f"Only the connection that made {name!r} may consume from it; send to it, or make one of your own.",
        )
    if durable:
        return Refuse(
            Reason.OTHER_KIND_OF_NODE,  # as not-found it becomes the exception that JMS wants for an invalid topic
            f"{name!r} is temporary and a durable subscription would outlive it; subscribe without durability.",
        )
    return None


def may_come_back(expiry: ExpiryPolicy, *, session_ended: bool) -> bool:
    """True if a link goes on to exist that was detached and not closed, or whose session ended: its client may attach
    it again (3.5.6). ``expiry`` is that of its dynamic terminus.
    """
    if session_ended:
        return expiry in (ExpiryPolicy.CONNECTION_CLOSE, ExpiryPolicy.NEVER)
    return expiry is not ExpiryPolicy.LINK_DETACH


def is_over(policy: LifetimePolicy, use: Use) -> bool:
    """True if a node with this policy is deleted now; the connection that made it is still open."""
    match policy:
        case LifetimePolicy.DELETE_ON_CLOSE:
            return not use.has_creator
        case LifetimePolicy.DELETE_ON_NO_LINKS:
            return use.links == 0
        case LifetimePolicy.DELETE_ON_NO_MESSAGES:
            return not use.has_creator and use.messages == 0
        case LifetimePolicy.DELETE_ON_NO_LINKS_OR_MESSAGES:
            return use.links == 0 and use.messages == 0
        case _:
            assert_never(policy)
