"""The records of the log as values: what happened, one after the other.

Pure. docs/reference/log-format.md describes each of them; `record_codec` turns them into bytes and back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class EndReason(IntEnum):
    """Why a message left a queue for good; the flags byte of an ack record."""

    ACCEPTED = 0
    REJECTED = 1
    EXPIRED = 2
    PURGED = 3
    DEAD_LETTERED = 4
    DROPPED = 5


@dataclass(frozen=True, slots=True)
class Start:
    """The first record of each epoch. No later run assigns a message or incarnation number below the ceilings.

    `boot_id` (16 bytes) shows whether the machine was restarted since.
    """

    boot_id: bytes
    message_ceiling: int
    incarnation_ceiling: int


@dataclass(frozen=True, slots=True)
class Document:
    """One piece of topology. `payload` is opaque to the log; incarnation 0 means that it holds no messages."""

    kind: str
    key: str
    incarnation: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Deleted:
    """A document is gone, and with it every message of its incarnation."""

    kind: str
    key: str


@dataclass(frozen=True, slots=True)
class RouteSet:
    """The queues, by incarnation, that a put naming this route set reaches."""

    route_set: int
    incarnations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RouteDifference:
    """A route set as another one, `base`, without the queues `removed` and with those `added`."""

    route_set: int
    base: int
    removed: tuple[int, ...]
    added: tuple[int, ...]


class Put(NamedTuple):  # a tuple, because recovery makes millions of them
    """One message in all queues of a route set. `arrival` and `flags` are the broker's."""

    route_set: int
    message: int
    arrival: int
    payload: bytes
    flags: int


VOLATILE = 0x80
"""Added to the flags of a put that is read back from a volatile one."""


class VolatilePut(NamedTuple):
    """A put that means nothing in a later epoch: the message was sent as not durable, and memory was short."""

    put: Put


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a body: `length` bytes, the first of them at `offset` of the body.

    The bytes themselves begin `at` bytes behind the start of the block's first record.
    """

    body: int
    offset: int
    at: int
    length: int


@dataclass(frozen=True, slots=True)
class StagedPut:
    """A put whose payload is `put.payload`, followed by the bytes of a body from `offset` to `length`."""

    put: Put
    body: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Ack:
    """These messages have left the queue for good. `reason` is the number of an `EndReason`."""

    incarnation: int
    messages: Sequence[int]
    reason: int


@dataclass(frozen=True, slots=True)
class DeliveredUpTo:
    """Per queue, as (incarnation, message): a consumer may have seen the messages up to this number."""

    numbers: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Count:
    """Unsuccessful deliveries that count against a message's limit, as (incarnation, message, count)."""

    counts: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Remark:
    """What the broker keeps about a message in one queue besides its payload; opaque to the log."""

    incarnation: int
    message: int
    text: bytes


@dataclass(frozen=True, slots=True)
class SegmentState:
    """What is needed of a segment. `first_message`, `last_message`: no put in it has another number, except for copies
    that compaction made; zeros if it has none.
    """

    segment: int
    first_message: int = 0
    last_message: int = 0
    live: tuple[tuple[int, int], ...] = ()
    """Incarnations, and how many messages of each live in the segment."""
    is_over: bool = False
    """Nothing in it is needed any more: from now on its file may be missing."""
    is_partial: bool = False
    """More queues have messages in it than `live` has."""
    has_copies: bool = False
    """Some of the messages in it are copies that compaction made."""


@dataclass(frozen=True, slots=True)
class CheckpointBegin:
    """All topology follows once more, up to the `CheckpointEnd` with the same identifier."""

    identifier: int


@dataclass(frozen=True, slots=True)
class CheckpointEnd:
    """What an older segment says about topology is not needed any more."""

    identifier: int


@dataclass(frozen=True, slots=True)
class Closed:
    """The broker stopped in order. It means something only as the last record of the log."""


Transacted = Put | StagedPut | Ack


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction: all of these records count, or none."""

    records: tuple[Transacted, ...]


Record = (
    Start
    | Document
    | Deleted
    | RouteSet
    | RouteDifference
    | Put
    | Part
    | StagedPut
    | VolatilePut
    | Ack
    | DeliveredUpTo
    | Count
    | Remark
    | SegmentState
    | CheckpointBegin
    | CheckpointEnd
    | Closed
    | Commit
)
