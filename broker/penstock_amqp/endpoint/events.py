"""What happened on a connection, in the order it happened: what `endpoint.Endpoint.receive` hands out.

The two frequent kinds come in batches, one tuple for a run of messages or of accepts of one link, so that the
forwarding path makes one tuple per batch. The others are records.

This module must not know queues, subscriptions or the log. Source: AMQP 1.0 parts 2 and 3.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from penstock_amqp.endpoint.buffers import Ptr
from penstock_amqp.endpoint.conditions import AmqpError
from penstock_amqp.endpoint.links import InLink, OutLink, Session
from penstock_amqp.frames.performatives import Attach
from penstock_amqp.types.values import Described, Symbol, Value

__all__ = [
    "AVAILABLE",
    "DATA",
    "EXPIRES",
    "FLAGS",
    "NUMBER",
    "AcceptedUnsettled",
    "AcquisitionRequested",
    "AmqpError",
    "Arrival",
    "Attached",
    "BeyondCredit",
    "ConnectionClosed",
    "Detached",
    "Enlisted",
    "Entry",
    "Event",
    "EventKind",
    "Flowed",
    "Held",
    "MessageAfterDetach",
    "Opened",
    "Other",
    "Outcome",
    "SessionEnded",
    "Settled",
    "TooLarge",
    "Unstored",
    "input_weight",
    "weight",
]


class EventKind(enum.Enum):
    """First field of an event tuple."""

    MESSAGES = enum.auto()
    ACCEPTED = enum.auto()
    OTHER = enum.auto()


class Outcome(enum.Enum):
    """How a delivery ended, other than by being accepted. Values are the descriptors of AMQP part 3, 3.4; those below
    zero are our own.
    """

    NONE = 0
    REJECTED = 0x25
    RELEASED = 0x26
    MODIFIED = 0x27
    UNKNOWN = -1
    DAMAGED = -2
    """We aborted it, because the message is not any more what was stored."""


Entry: TypeAlias = tuple[int, bytes, int, int, int]
"""One message, shared by every queue that holds it. `NUMBER` to `FLAGS` are the positions of its fields."""

NUMBER: Final = 0
"""Field of an `Entry`: its number, which grows with each message that the broker takes."""
DATA: Final = 1
"""Field of an `Entry`: the encoded message."""
AVAILABLE: Final = 2
"""Field of an `Entry`: when it became available to consumers (microseconds since the epoch)."""
EXPIRES: Final = 3
"""Field of an `Entry`: when it expires (microseconds since the epoch; 0: never)."""
FLAGS: Final = 4
"""Field of an `Entry`: flags of the broker."""

Held: TypeAlias = tuple[OutLink, Entry, int]
"""A delivery that was sent and is not settled: its link, its entry, when it was sent (microseconds since the epoch)."""

Arrival: TypeAlias = tuple[Ptr, bytes, bool]
"""A message that came in: the delivery to accept or settle, the encoded message, True if the sender settled it."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer's Open. Answer with `Endpoint.open` or `Endpoint.refuse_open`."""

    container_id: str
    hostname: str
    desired: frozenset[str]
    properties: dict[str, Value]


@dataclass(frozen=True, slots=True)
class Attached:
    """A link the peer attached. Answer with `Endpoint.attach_reply` or `Endpoint.refuse_attach`, always."""

    link: InLink | OutLink
    attach: Attach


@dataclass(frozen=True, slots=True)
class Flowed:
    """A consumer's flow: `link.credit` and `link.drain` have the new values."""

    link: OutLink


@dataclass(frozen=True, slots=True)
class Settled:
    """One delivery of ours that ended with an outcome other than accepted."""

    held: Held
    outcome: Outcome
    failed: bool = False
    undeliverable_here: bool = False
    annotations: dict[Symbol, Value] = field(default_factory=dict[Symbol, Value])
    """To be merged into the message's annotations."""
    error: AmqpError | None = None
    delivery: Ptr | None = None
    """Set if the peer settles it only after us: answer with `UnsettledDeliveries.confirm`."""


@dataclass(frozen=True, slots=True)
class Enlisted:
    """Deliveries of ours on one link, in a row, that are to end as `end` says if a transaction commits.

    If `is_settled`, the engine has forgotten them; otherwise they stay among the unsettled ones, under their pointers.
    """

    link: OutLink
    is_settled: bool
    txn_id: bytes
    end: Settled | None
    """How the delivery ends, which is then the only one; None: all of them are accepted."""
    deliveries: list[tuple[Ptr, Held]]


@dataclass(frozen=True, slots=True)
class AcceptedUnsettled:
    """A delivery that the peer accepted and has not settled: answer with `UnsettledDeliveries.confirm`."""

    held: Held
    delivery: Ptr


@dataclass(frozen=True, slots=True)
class TooLarge:
    """A message beyond the link's maximum size; the part that was received is dropped. The link is to be detached."""

    link: InLink
    txn_id: bytes | None = None
    """The transaction that it names."""


@dataclass(frozen=True, slots=True)
class BeyondCredit:
    """A message for which the peer had no credit; it and what follows on the link are dropped. The link is to be
    detached.
    """

    link: InLink
    txn_id: bytes | None = None
    """The transaction that it names."""


@dataclass(frozen=True, slots=True)
class Unstored:
    """A complete message that its sink could not store; `error` says why. The delivery is to be rejected or settled."""

    link: InLink
    delivery: Ptr
    is_settled: bool
    error: AmqpError
    txn_id: bytes | None = None
    """The transaction that it names."""


@dataclass(frozen=True, slots=True)
class MessageAfterDetach:
    """A message that names a transaction came for a link that we have detached; it is dropped."""

    txn_id: bytes


@dataclass(frozen=True, slots=True)
class AcquisitionRequested:
    """A flow says in which transaction a link on which the peer receives is to acquire messages from now on."""

    link: OutLink
    txn_id: bytes | None
    """None: in none any more."""


@dataclass(frozen=True, slots=True)
class Detached:
    """The peer detached (`closed` False) or closed a link. Answer with `Endpoint.detach`."""

    link: InLink | OutLink
    closed: bool
    error: AmqpError | None


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The peer ended a session. Answer with `Endpoint.end`, after which its links are gone."""

    session: Session


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """The peer closed the connection, or broke the protocol (`error` then says how). Flush, then drop it."""

    error: AmqpError | None


Other: TypeAlias = (
    Opened
    | Attached
    | Flowed
    | AcquisitionRequested
    | Settled
    | Enlisted
    | AcceptedUnsettled
    | TooLarge
    | BeyondCredit
    | Unstored
    | MessageAfterDetach
    | Detached
    | SessionEnded
    | ConnectionClosed
)

Event: TypeAlias = (
    tuple[Literal[EventKind.MESSAGES], InLink, list[Arrival]]
    | tuple[Literal[EventKind.ACCEPTED], OutLink, list[Held]]
    | tuple[Literal[EventKind.OTHER], None, Other]
)


_OTHER: Final = EventKind.OTHER
_MESSAGES: Final = EventKind.MESSAGES
"""An attribute of an enum's class takes long to find."""

_SELECTOR_CHARACTERS: Final = 8
"""Characters of a filter that cost as much as a flow, if the filter is new and has to be compiled."""


def weight(event: Event) -> int:
    """Roughly what it costs to handle an event. An outcome or a flow costs 1; an attach costs 8 and more for long
    filters. A batch of messages costs 1, unless each message is a request, or may be one because its link was attached
    by the same chunk of input.
    """
    if event[0] is _MESSAGES:
        return 1 if event[1].is_answered and not event[1].is_request else 1 + 2 * len(event[2])
    if event[0] is _OTHER:
        other = event[2]
        if isinstance(other, Attached):
            return 8 + _filter_characters(other.attach) // _SELECTOR_CHARACTERS
        return 4 if isinstance(other, Detached | SessionEnded) else 1
    return 1


def input_weight(decoded_bytes: int, parts: int, frames: int) -> int:
    """What reading the input cost, in the unit of `weight`. One unit, which is the cost of a flow, stands for 64 bytes
    that Python code decoded, for four parts of incomplete messages, or for 32 inspected frames (empty ones count too).
    """
    return decoded_bytes // 64 + parts // 4 + frames // 32


def _filter_characters(attach: Attach) -> int:
    filters = attach.source.filter if attach.source is not None else None
    values = (each.value for each in (filters or {}).values() if isinstance(each, Described))
    return sum(len(value) for value in values if isinstance(value, str))
