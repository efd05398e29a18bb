"""The words of the rules, as closed enums.

Values are the spellings of the Kubernetes resources, except where a word belongs to AMQP: those have AMQP's symbols or
numbers. Source: docs/reference/rules.md; AMQP 1.0 part 3, sections 3.5.5 to 3.5.7.
"""

from __future__ import annotations

import enum
from typing import Final

__all__ = [
    "Adoption",
    "ClientOverrides",
    "DeletionPolicy",
    "DistributionMode",
    "Durability",
    "ExchangeType",
    "Exclusivity",
    "ExpiryPolicy",
    "Lifetime",
    "NodeKind",
    "Overflow",
    "Persistence",
    "RebindPolicy",
    "Unroutable",
    "expiry_of",
    "lifetime_of",
]


class Exclusivity(enum.Enum):
    """How many links may consume from one subscription; values are those of a resource's `sharing`."""

    SHARED = "Shared"
    LINK = "Exclusive"


class Lifetime(enum.Enum):
    """When a queue goes without anybody ending it; values are those of a resource's `expiryPolicy`."""

    PERMANENT = "Never"
    NO_OUTBOUND_LINK = "LinkDetach"
    SESSION_END = "SessionEnd"
    CONNECTION_CLOSE = "ConnectionClose"


class ExpiryPolicy(enum.Enum):
    """The source's expiry policy; values are AMQP symbols."""

    LINK_DETACH = "link-detach"
    SESSION_END = "session-end"
    CONNECTION_CLOSE = "connection-close"
    NEVER = "never"


class Durability(enum.IntEnum):
    """The source's terminus durability; values are AMQP numbers."""

    NONE = 0
    CONFIGURATION = 1
    UNSETTLED_STATE = 2

    @property
    def is_durable(self) -> bool:
        """DURABLE of the table: "NO means 0, YES means 1 or 2" (the attach table)."""
        return self is not Durability.NONE


class DistributionMode(enum.Enum):
    """How a source hands out messages; values are AMQP symbols."""

    MOVE = "move"
    COPY = "copy"


class ExchangeType(enum.Enum):
    """How an exchange picks the queues of a message."""

    TOPIC = "Topic"
    DIRECT = "Direct"
    FANOUT = "Fanout"
    HEADERS = "Headers"


class NodeKind(enum.Enum):
    """What an address or its capabilities say that it names."""

    TOPIC = "topic"
    QUEUE = "queue"


class Adoption(enum.Enum):
    """Whose entity a declaration may take over, beside its own and one without an owner mark."""

    UNMARKED = "Unmarked"
    """Nobody else's."""
    OTHER_CLUSTER = "OtherCluster"
    """That of a resource of the same kind, namespace and name in another cluster: its volume was restored here."""
    ORPHANS = "Orphans"
    """Anybody's: the declaring side has seen that the resource of the mark is not there."""


class Persistence(enum.Enum):
    """Whether a message sent as not durable is kept over a restart."""

    AS_SENT = "AsSent"
    ALWAYS = "Always"


class Overflow(enum.Enum):
    """What gives way when a subscription is full."""

    DROP_OLDEST = "DropOldest"
    DROP_NEWEST = "DropNewest"
    REJECT = "Reject"


class Unroutable(enum.Enum):
    """What an exchange does with a message that matches nothing."""

    ACCEPT = "Accept"
    REJECT = "Reject"
    ALTERNATE = "Alternate"


class ClientOverrides(enum.Enum):
    """The answer to a client that asks a managed subscription for another binding (decision 14)."""

    REFUSE = "Refuse"
    IGNORE = "Ignore"


class RebindPolicy(enum.Enum):
    """What a changed resource may do to the backlog and the consumers of its subscription."""

    IN_PLACE = "InPlace"
    WHEN_IDLE = "WhenIdle"
    WHEN_IDLE_AND_EMPTY = "WhenIdleAndEmpty"
    NEVER = "Never"


class DeletionPolicy(enum.Enum):
    """What becomes of an exchange or a subscription when its resource is deleted."""

    DELETE = "Delete"
    DELETE_WHEN_EMPTY = "DeleteWhenEmpty"
    DELETE_WHEN_UNUSED = "DeleteWhenUnused"
    RETAIN = "Retain"


# Seed 000: "its life time policy will be derived from source expiry policy as follow".
_LIFETIME: Final[dict[ExpiryPolicy, Lifetime]] = {
    ExpiryPolicy.LINK_DETACH: Lifetime.NO_OUTBOUND_LINK,
    ExpiryPolicy.SESSION_END: Lifetime.SESSION_END,
    ExpiryPolicy.CONNECTION_CLOSE: Lifetime.CONNECTION_CLOSE,
    ExpiryPolicy.NEVER: Lifetime.PERMANENT,
}
_EXPIRY: Final[dict[Lifetime, ExpiryPolicy]] = {lifetime: expiry for expiry, lifetime in _LIFETIME.items()}


def lifetime_of(expiry: ExpiryPolicy | None) -> Lifetime:
    """The lifetime that an expiry policy asks for; an absent one means session-end (decision 2, AMQP 3.5.3)."""
    return Lifetime.SESSION_END if expiry is None else _LIFETIME[expiry]


def expiry_of(lifetime: Lifetime) -> ExpiryPolicy:
    """The expiry policy by which a reply tells a lifetime (decision 7)."""
    return _EXPIRY[lifetime]
