"""The rules of a conservation audit: each message has exactly one account, and all counts of it agree.

Messages whose records look the same make one `Shape`, so that millions of messages are a few dozen shapes; each is
judged here. Pure. Source: docs/how-to/audit.md; docs/decisions/074-message-audit.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from penstock_api.message_audit import COUNTED, ENDS, TOTALS, AuditEvent, AuditState, AuditTotals, EndedBy, EventKind

__all__ = [
    "POLL_MS",
    "Account",
    "Fault",
    "LedgerTotals",
    "Shape",
    "Span",
    "account_of",
    "by_message",
    "compared_with_ledger",
    "compared_with_totals",
    "faults_of",
    "grown",
    "shape_of",
    "unfinished",
]

POLL_MS: Final = 30_000
"""A poll takes no longer: a row of the ledger shows the totals of a moment at most so long before its time."""


class Account(Enum):
    """Where a message is, or how it left."""

    WAITING = "waiting"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    EXPIRED = "expired"
    DEAD_LETTERED = "dead-lettered"
    DROPPED = "dropped"
    PURGED = "purged"
    MOVED = "moved"
    ENDED_WITH_QUEUE = "ended with the queue"


class Fault(Enum):
    """What must not be."""

    NO_ACCOUNT = "no account: it came, it did not leave, and it is not there"
    TWO_ENDS = "left more than once"
    LEFT_AND_WAITING = "left, and is still there"
    NEVER_CAME = "has records, but never came"
    CAME_TWICE = "came more than once"
    DELIVERED_AFTER_END = "was delivered after it had left"
    ACCEPTED_UNDELIVERED = "was accepted, but never delivered"


@dataclass(frozen=True, slots=True)
class Shape:
    """How the records of one message look."""

    present: int
    """Records of each kind."""
    enqueued: int
    ends: tuple[int, ...]
    """In the order of `ENDS`."""
    waiting: int
    is_delivered: bool
    is_delivered_after_end: bool


def shape_of(events: Sequence[AuditEvent]) -> Shape:
    """The shape of one message, from its records in their order."""
    kinds = [event.kind for event in events]
    first_end = min((at for at, kind in enumerate(kinds) if kind in ENDS), default=len(kinds))
    return Shape(
        present=kinds.count(EventKind.PRESENT),
        enqueued=kinds.count(EventKind.ENQUEUED),
        ends=tuple(kinds.count(kind) for kind in ENDS),
        waiting=kinds.count(EventKind.WAITING),
        is_delivered=EventKind.DELIVERED in kinds,
        is_delivered_after_end=EventKind.DELIVERED in kinds[first_end:],
    )


def faults_of(shape: Shape, ended_by: EndedBy) -> tuple[Fault, ...]:
    """What is wrong with messages of this shape; empty if they have exactly one account."""
    came, left = shape.present + shape.enqueued, sum(shape.ends)
    accepted = shape.ends[ENDS.index(EventKind.ACCEPTED)]
    rules = (
        (Fault.NO_ACCOUNT, came > 0 and left + shape.waiting == 0 and ended_by is not EndedBy.QUEUE_ENDED),
        (Fault.TWO_ENDS, left > 1),
        (Fault.LEFT_AND_WAITING, left > 0 and shape.waiting > 0),
        (Fault.NEVER_CAME, came == 0),
        (Fault.CAME_TWICE, came > 1 or shape.waiting > 1),
        (Fault.DELIVERED_AFTER_END, shape.is_delivered_after_end),
        # One that was in flight when the audit began was delivered before.
        (Fault.ACCEPTED_UNDELIVERED, accepted > 0 and shape.present == 0 and not shape.is_delivered),
    )
    return tuple(fault for fault, is_so in rules if is_so)


def account_of(shape: Shape) -> Account:
    """The account of messages of a shape without faults."""
    for kind, count in zip(ENDS, shape.ends, strict=True):
        if count:
            return Account[kind.name]
    return Account.WAITING if shape.waiting else Account.ENDED_WITH_QUEUE


def unfinished(state: AuditState, records: int, is_complete: bool) -> list[str]:
    """Why the records of an audit don't tell everything, as sentences; empty if they do.

    `records`: how many are there; `is_complete`: the observer has fetched all of them.
    """
    told: list[str] = []
    match state.ended_by:
        case None:
            told.append("The audit has not ended yet.")
        case EndedBy.TIME.value | EndedBy.REQUEST.value | EndedBy.QUEUE_ENDED.value:
            pass
        case EndedBy.OVERFLOW.value:
            told.append(
                f"The audit is not complete: its buffer was full after {state.records} records, because the observer "
                "did not fetch them in time. What happened later is not known."
            )
        case EndedBy.RESTART.value:
            told.append("The audit is not complete: the broker was restarted while it was on.")
        case EndedBy.FORGOTTEN.value:
            told.append("The audit is not complete: the broker gave up the rest before the observer had fetched it.")
        case other:
            told.append(f"The audit ended for a reason that this release does not know: {other}.")
    if records != state.records:
        told.append(f"Records are missing: {state.records} were written, {records} are here.")
    elif state.ended_by is not None and not is_complete:
        told.append("The observer has not fetched all records yet; wait for its next poll.")
    return told


def grown(kinds: Mapping[int, int]) -> dict[str, int]:
    """By how much the records say that each total grew. `kinds`: number of records by kind."""
    total = dict.fromkeys(TOTALS, 0)
    for kind, count in kinds.items():
        if kind in COUNTED:
            total[COUNTED[EventKind(kind)]] += count
    return total


def compared_with_totals(state: AuditState, kinds: Mapping[int, int]) -> list[str]:
    """Where the records differ from the broker's totals at the beginning and end of the audit, as sentences."""
    told: list[str] = []
    if kinds.get(EventKind.PRESENT, 0) != state.begin.depth:
        told.append(
            f"At the beginning the subscription held {state.begin.depth} messages, but "
            f"{kinds.get(EventKind.PRESENT, 0)} are listed."
        )
    if state.end is None:
        return told
    if state.ended_by != EndedBy.QUEUE_ENDED.value and kinds.get(EventKind.WAITING, 0) != state.end.depth:
        told.append(
            f"At the end the subscription held {state.end.depth} messages, but "
            f"{kinds.get(EventKind.WAITING, 0)} are listed."
        )
    by_records = grown(kinds)
    for name in TOTALS:
        by_total = _value(state.end, name) - _value(state.begin, name)
        if by_total != by_records[name]:
            told.append(f"The total {name} grew by {by_total}, but the records say {by_records[name]}.")
    return told


@dataclass(frozen=True, slots=True)
class LedgerTotals:
    """One row of the ledger within the audit."""

    time_ms: int
    totals: Mapping[str, int]

    def since(self, begin: AuditTotals) -> int:
        """How many records that count were written before the moment that the row shows."""
        return sum(self.totals[name] - _value(begin, name) for name in TOTALS)


@dataclass(frozen=True, slots=True)
class Span:
    """Records in a row that count, between two rows of the ledger."""

    kinds: Mapping[int, int]
    """Number of records by kind."""
    first_us: int
    last_us: int


def compared_with_ledger(begin: AuditTotals, rows: Sequence[LedgerTotals], spans: Sequence[Span | None]) -> list[str]:
    """Where rows of the ledger differ from the records, as sentences.

    The broker makes a row in one instant, so all its totals are those behind one record. `spans[i]`: the records behind
    the moment of row i - 1 (or the beginning) up to that of row i, `spans[-1]` those behind the last row; None: none.
    """
    told: list[str] = []
    kinds: dict[int, int] = {}
    for at, row in enumerate(rows):
        span = spans[at]
        if span is not None:
            kinds = {kind: kinds.get(kind, 0) + span.kinds.get(kind, 0) for kind in {*kinds, *span.kinds}}
        expected = grown(kinds)
        for name in TOTALS:
            by_row = row.totals[name] - _value(begin, name)
            if by_row != expected[name]:
                told.append(
                    f"By the ledger's row of {row.time_ms} ms the total {name} had grown by {by_row}, by the records "
                    f"by {expected[name]}."
                )
        if span is not None and span.last_us // 1000 > row.time_ms:
            told.append(f"The ledger's row of {row.time_ms} ms shows what happened later, at {span.last_us} us.")
        later = next((each for each in spans[at + 1 :] if each is not None), None)
        if later is not None and later.first_us // 1000 < row.time_ms - POLL_MS:
            told.append(f"The ledger's row of {row.time_ms} ms does not show what happened at {later.first_us} us.")
    return told


def is_within(row: LedgerTotals, state: AuditState) -> bool:
    """Whether a row of the ledger shows a moment between the beginning and the end of an audit, by its totals: times
    do not tell that if the clock was set.
    """
    if state.end is None:
        return False
    whole = sum(_value(state.end, name) - _value(state.begin, name) for name in TOTALS)
    return 0 < row.since(state.begin) < whole


def clock_was_set(state: AuditState, steps_ms: Sequence[int]) -> str | None:
    """A sentence if the broker's clock was set during an audit. `steps_ms`: by how much, each time, as the ledger's
    rows within the audit tell it.
    """
    step_ms = sum(steps_ms)
    if steps_ms:
        how = f"set {'back' if step_ms < 0 else 'forward'} by {abs(step_ms) / 1000:g} s"
    elif state.ended_ms is not None and state.ended_ms < state.started_ms:
        how = "set back"
    else:
        return None
    return (
        f"The broker's clock was {how} during the audit, so times can't be compared: neither the rows of the ledger "
        "nor the sojourns. Accounts and totals are right. Audit again to compare the rest."
    )


def _value(totals: AuditTotals, name: str) -> int:
    found: int = getattr(totals, name)
    return found


def by_message(events: Iterable[AuditEvent]) -> dict[int, list[AuditEvent]]:
    """The records of each message, by its number, in their order."""
    found: dict[int, list[AuditEvent]] = {}
    for event in events:
        found.setdefault(event.number, []).append(event)
    return found
