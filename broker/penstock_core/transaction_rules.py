"""The life of one local transaction as far as rules decide about it: what it takes, when it is over, what a discharge
leads to.

A transaction is open until it is discharged, or rolled back for a reason of the broker's: then its controller learns
that from the next discharge. Its age counts from its first work, not from its declaration, because clients declare the
next transaction as soon as one has ended and may then wait for hours for a message. A message that the broker does not
take dooms its transaction: nothing of it is to be committed without what its sender put into it.

Must not know messages, links or clocks. Source: AMQP 1.0 part 4; issue 4 ("Transactions").
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from penstock_core.reason import Reason, Refuse

__all__ = [
    "UNKNOWN",
    "BeginTransaction",
    "CommitTransaction",
    "Discharge",
    "Fail",
    "RollBackTransaction",
    "Taken",
    "TransactionLimits",
    "TransactionState",
    "Usage",
    "abandon",
    "age_deadline_ms",
    "decide_declare",
    "decide_discharge",
    "decide_post",
    "decide_settle",
    "doom",
    "failed_commit",
    "time_out",
]


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """What one transaction, and all of one connection, may hold. Sizes in bytes, ages in milliseconds."""

    messages: int
    """Messages posted and deliveries settled in one transaction."""
    bytes: int
    """Of the messages posted in one transaction."""
    connection_bytes: int
    """The same, over all transactions of a connection."""
    memory_bytes: int
    """Of what is in memory of the messages posted, over all transactions of the broker."""
    connection_open: int
    """Transactions of a connection at a time."""
    age_ms: int
    """From its first work on; 0: no limit."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What all open transactions of a connection hold."""

    open: int = 0
    bytes: int = 0
    memory: int = 0
    """Bytes that all transactions of the broker hold in memory."""


@dataclass(frozen=True, slots=True)
class TransactionState:
    """One transaction that was declared and not discharged."""

    messages: int = 0
    bytes: int = 0
    memory: int = 0
    """Those of the bytes that are in memory."""
    since_ms: int | None = None
    """When its first work came; None: it has done nothing."""
    fault: Refuse | None = None
    """Why it can't be committed any more; what it posted is given up."""
    is_over: bool = False
    """It was rolled back without having been discharged: nothing is left but to say so."""

    @property
    def is_sound(self) -> bool:
        """True if it may still be committed."""
        return self.fault is None


@dataclass(frozen=True, slots=True)
class BeginTransaction:
    """A transaction begins."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The work is part of the transaction, which is in `state` now."""

    state: TransactionState


@dataclass(frozen=True, slots=True)
class Fail:
    """The work is not taken, for the reason `refuse`; the transaction is doomed, in `state`."""

    state: TransactionState
    refuse: Refuse


@dataclass(frozen=True, slots=True)
class CommitTransaction:
    """Apply everything; if that can't be, `failed_commit` says what to tell."""


@dataclass(frozen=True, slots=True)
class RollBackTransaction:
    """Undo everything, and tell `refuse` if there is one: a commit was asked for, or the transaction is not known."""

    refuse: Refuse | None


Discharge: TypeAlias = CommitTransaction | RollBackTransaction | Refuse

UNKNOWN: Final = Refuse(
    Reason.TRANSACTION_UNKNOWN,
    "No transaction of this name is open here: it ended, or was declared on another link; declare one.",
)


def decide_declare(usage: Usage, limits: TransactionLimits, *, names_global: bool) -> BeginTransaction | Refuse:
    """May a transaction begin? `names_global`: the declaration carries the name of a distributed one."""
    if names_global:
        return Refuse(
            Reason.NOT_IMPLEMENTED, "Distributed transactions are not implemented; declare without a global-id."
        )
    if usage.open >= limits.connection_open:
        return Refuse(
            Reason.LIMIT_EXCEEDED,
            f"The connection has {usage.open} open transactions, its limit; discharge one "
            "(transactions.maxOpenPerConnection).",
        )
    return BeginTransaction()


def decide_post(
    state: TransactionState,
    usage: Usage,
    size: int,
    limits: TransactionLimits,
    now_ms: int,
    *,
    in_memory: int | None = None,
    messages: int = 1,
) -> Taken | Fail:
    """May a message of `size` bytes be sent in this transaction? `in_memory`: so many of them are not in the log yet,
    None: all. `messages`: so many at once, `size` is of all; if that fails, some of them may be taken one by one.
    """
    in_memory = size if in_memory is None else in_memory
    if state.fault is not None:
        return Fail(state, state.fault)
    refuse = (
        _too_many(state, messages, limits)
        or _too_large(state, usage, size, limits)
        or _no_memory(usage, in_memory, limits)
    )
    if refuse is not None:
        return Fail(doom(_begun(state, now_ms), refuse), refuse)
    begun = _begun(state, now_ms)
    memory = begun.memory + in_memory
    return Taken(replace(begun, messages=begun.messages + messages, bytes=begun.bytes + size, memory=memory))


def decide_settle(
    state: TransactionState, limits: TransactionLimits, now_ms: int, deliveries: int = 1
) -> TransactionState:
    """Deliveries were settled in this transaction. They can't be refused: beyond the limit they doom the
    transaction.
    """
    begun = _begun(state, now_ms)
    refuse = _too_many(state, deliveries, limits) if state.is_sound else None
    counted = replace(begun, messages=begun.messages + deliveries)
    return counted if refuse is None else doom(counted, refuse)


def doom(state: TransactionState, fault: Refuse) -> TransactionState:
    """It can't be committed any more; the first fault is the one that is told."""
    return state if state.fault is not None else replace(state, fault=fault, bytes=0, memory=0)


def age_deadline_ms(state: TransactionState, limits: TransactionLimits) -> int | None:
    """When its time is over; None: never, as it stands."""
    if not limits.age_ms or state.since_ms is None or state.is_over:
        return None
    return state.since_ms + limits.age_ms


def time_out(state: TransactionState, limits: TransactionLimits) -> TransactionState:
    """Its time is over: it is rolled back now, and its controller is told at the next opportunity."""
    told = Refuse(
        Reason.TRANSACTION_TIMED_OUT,
        f"The transaction was rolled back {limits.age_ms // 1000} s after its first work (transactions.maxAgeSeconds); "
        "do it again, in less time.",
    )
    return abandon(replace(state, fault=told))


def abandon(state: TransactionState) -> TransactionState:
    """It was rolled back by the broker."""
    return replace(state, is_over=True, messages=0, bytes=0, memory=0)


def decide_discharge(state: TransactionState | None, *, fail: bool) -> Discharge:
    """What a discharge leads to; `state` is None if the link knows no such transaction."""
    if state is None:
        return UNKNOWN
    if fail:
        return RollBackTransaction(None)
    if state.fault is None:
        return CommitTransaction()
    if state.fault.reason is Reason.TRANSACTION_TIMED_OUT:
        return RollBackTransaction(state.fault)
    return RollBackTransaction(failed_commit(state.fault))


def failed_commit(cause: Refuse) -> Refuse:
    """What to tell whoever asked for a commit that could not be."""
    return Refuse(
        Reason.TRANSACTION_ROLLED_BACK,
        f"The transaction was rolled back: {cause.description}",
        (("penstock:cause", cause.reason.value), *cause.info),
    )


def _begun(state: TransactionState, now_ms: int) -> TransactionState:
    return state if state.since_ms is not None else replace(state, since_ms=now_ms)


def _too_many(state: TransactionState, more: int, limits: TransactionLimits) -> Refuse | None:
    if state.messages + more <= limits.messages:
        return None
    return Refuse(
        Reason.LIMIT_EXCEEDED,
        f"The transaction would hold more than {limits.messages} messages, its limit (transactions.maxMessages); "
        "commit more often.",
    )


def _too_large(state: TransactionState, usage: Usage, size: int, limits: TransactionLimits) -> Refuse | None:
    if state.bytes + size > limits.bytes:
        return Refuse(
            Reason.LIMIT_EXCEEDED,
            f"With this message the transaction would hold {state.bytes + size} bytes, its limit is {limits.bytes} "
            "(transactions.maxBytes); commit more often.",
        )
    if usage.bytes + size > limits.connection_bytes:
        return Refuse(
            Reason.LIMIT_EXCEEDED,
            f"With this message the connection's transactions would hold {usage.bytes + size} bytes, their limit is "
            f"{limits.connection_bytes} (transactions.maxBytesPerConnection); commit more often.",
        )
    return None


def _no_memory(usage: Usage, in_memory: int, limits: TransactionLimits) -> Refuse | None:
    if usage.memory + in_memory <= limits.memory_bytes:
        return None
    return Refuse(
        Reason.LIMIT_EXCEEDED,
        f"With this message the transactions of all clients would hold {usage.memory + in_memory} bytes in memory, "
        f"their limit is {limits.memory_bytes} (transactions.maxBytesInMemory); try again once others have ended.",
    )
