"""The conservation audit of one subscription: requests, replies, the record of one event, and the observer's list.

While an audit is on, the broker writes one record for every message that comes, is delivered, comes back or leaves. The
observer fetches the records and keeps them; a report gives each message exactly one account. Times of records are
microseconds since the epoch on the broker's clock. Source: docs/how-to/audit.md, docs/reference/management.md,
docs/decisions/074-message-audit.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from enum import Enum, IntEnum
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from penstock_api.management import ManagementDocument, Name, Request
from penstock_api.observer_api import ObserverModel
from penstock_api.state_documents import DurationHistogram

__all__ = [
    "AUDITS",
    "AUDIT_COLUMNS",
    "AUDIT_FILE",
    "COUNTED",
    "ENDS",
    "TOTALS",
    "AuditEvent",
    "AuditFiles",
    "AuditList",
    "AuditRead",
    "AuditStart",
    "AuditState",
    "AuditTotals",
    "EndedBy",
    "EventKind",
    "packed",
    "unpacked",
]

AUDITS: Final = "/v1/audits"  # AuditList, of the observer's HTTP interface
AUDIT_FILE: Final = "/v1/audits/{name}"  # one Parquet file of it

MAX_SECONDS: Final = 3600
"""The longest audit."""

MAX_ID_BYTES: Final = 64
"""Bytes of a message-id that a record holds, in UTF-8."""


class EventKind(IntEnum):
    """What happened to a message. The numbers are those of the records; later releases only add some."""

    PRESENT = 0
    """It was in the queue when the audit began."""
    ENQUEUED = 1
    DELIVERED = 2
    RETURNED = 3
    """A delivery after which it is back in the queue."""
    ACCEPTED = 4
    REJECTED = 5
    """Rejected, and dropped because there is no dead-letter destination."""
    EXPIRED = 6
    DEAD_LETTERED = 7
    DROPPED = 8
    """By the queue's limits."""
    PURGED = 9
    MOVED = 10
    WAITING = 11
    """It was in the queue when the audit ended."""


ENDS: Final = (
    EventKind.ACCEPTED,
    EventKind.REJECTED,
    EventKind.EXPIRED,
    EventKind.DEAD_LETTERED,
    EventKind.DROPPED,
    EventKind.PURGED,
    EventKind.MOVED,
)
"""The kinds with which a message leaves the queue for good."""

COUNTED: Final[Mapping[EventKind, str]] = {
    EventKind.ENQUEUED: "enqueued",
    EventKind.DELIVERED: "delivered",
    EventKind.RETURNED: "returned",
    EventKind.ACCEPTED: "acked",
    EventKind.REJECTED: "dropped",
    EventKind.EXPIRED: "expired",
    EventKind.DEAD_LETTERED: "dead_lettered",
    EventKind.DROPPED: "dropped",
    EventKind.PURGED: "purged",
    EventKind.MOVED: "moved",
}
"""In which total of a subscription each kind counts: a column of the ledger, a field of `AuditTotals`."""

TOTALS: Final = tuple(dict.fromkeys(COUNTED.values()))
"""The totals with which records are compared."""


class EndedBy(Enum):
    """Why an audit ended."""

    TIME = "Time"
    REQUEST = "Request"
    OVERFLOW = "Overflow"
    """Its buffer was full: the observer did not fetch the records in time."""
    QUEUE_ENDED = "QueueEnded"
    """The subscription was deleted, or rebound without its backlog."""
    RESTART = "Restart"
    """The broker was restarted; the observer says so, because the broker has forgotten the audit."""
    FORGOTTEN = "Forgotten"
    """The broker gave up the rest before the observer had fetched it; the observer says so."""


class AuditStart(Request):
    """Body of START_AUDIT: for how long, at most; it ends by itself."""

    seconds: int = Field(default=600, ge=1, le=MAX_SECONDS)


class AuditRead(Request):
    """Body of READ_AUDIT: the records behind the first `after` ones. Those are stored, and the broker forgets them."""

    audit: Name | None = None  # absent: whichever there is
    after: int = Field(default=0, ge=0)


class AuditTotals(ManagementDocument):
    """How the queue stood at the beginning or end of an audit: totals as in `SubscriptionState`."""

    depth: int = 0
    enqueued: int = 0
    delivered: int = 0
    returned: int = 0
    acked: int = 0
    dropped: int = 0
    expired: int = 0
    dead_lettered: int = 0
    moved: int = 0
    purged: int = 0
    sojourn: DurationHistogram = DurationHistogram()


class AuditState(ManagementDocument):
    """One audit as the broker knows it: the reply to START_AUDIT and STOP_AUDIT, and `state` of that to READ_AUDIT."""

    audit: str  # names it: the epoch of the broker and its number in it
    queue_name: str
    subscription_name: str
    namespace: str | None = None  # of the resource that declared the subscription
    name: str | None = None  # of that resource
    instance_id: str
    epoch: int
    incarnation: int
    started_ms: int
    until_ms: int  # when it ends by itself
    ended_ms: int | None = None  # absent: it is on
    ended_by: str | None = None  # EndedBy; a later release may have more words
    is_written: bool = False  # all its records are written: none will come any more
    records: int = 0  # written so far
    begin: AuditTotals
    end: AuditTotals | None = None


class AuditFiles(ObserverModel):
    """One audit as the observer keeps it; `files` are Parquet files, in the order of their records."""

    state: AuditState
    files: Annotated[tuple[str, ...], Field(max_length=100_000)] = ()
    bytes: int = 0
    records: int = 0  # in the files
    is_complete: bool = False  # it has ended, and all its records are in the files


class AuditList(ObserverModel):
    """Body of `AUDITS`: the oldest first."""

    audits: Annotated[tuple[AuditFiles, ...], Field(max_length=100_000)] = ()


AUDIT_COLUMNS: Final = ("ordinal", "kind", "number", "time_us", "available_us", "message_id", "counted")
"""Columns of the files: how many records came before; the fields of `AuditEvent`; how many records up to this one, and
with it, have a kind that counts in a total (`COUNTED`). `message_id` is a text, the others are integers of 64 bit.
"""


class AuditEvent(NamedTuple):
    """One record."""

    kind: int
    number: int
    """The number that the broker gave the message: higher than those of all messages that came before."""
    time_us: int
    available_us: int
    """Since when it can be delivered; 0 unless the kind is PRESENT or ENQUEUED."""
    message_id: str
    """Its beginning; empty if it has none, or unless the kind is PRESENT or ENQUEUED."""


_LAYOUT: Final = struct.Struct(">BQQQB")
"""Kind, number, time, available, bytes of the message-id, which follow; integers are big-endian."""


def packed(kind: int, number: int, time_us: int, available_us: int = 0, message_id: str = "") -> bytes:
    """One record as it is sent. A message-id of more than `MAX_ID_BYTES` is cut at a whole character."""
    told = message_id.encode()
    if len(told) > MAX_ID_BYTES:
        told = told[:MAX_ID_BYTES].decode(errors="ignore").encode()
    return _LAYOUT.pack(kind, number, time_us, available_us, len(told)) + told


def unpacked(records: bytes) -> Iterator[AuditEvent]:
    """The records that were sent. Raises ValueError if the last one is not whole."""
    at = 0
    while at < len(records):
        behind = at + _LAYOUT.size
        if behind > len(records):
            raise ValueError(f"{len(records) - at} bytes are no record")
        kind, number, time_us, available_us, length = _LAYOUT.unpack_from(records, at)
        at = behind + length
        if at > len(records):
            raise ValueError(f"a message-id of {length} bytes ends behind the last byte")
        yield AuditEvent(kind, number, time_us, available_us, records[behind:at].decode(errors="replace"))
