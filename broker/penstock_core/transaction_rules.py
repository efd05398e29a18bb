"""The rules about one local transaction: what it may hold, when it is over, and what a discharge leads to.

A transaction is open until it is discharged, or until the broker rolls it back; in that case its controller learns of
it from the reply to the next discharge. Its age counts from its first work, not from its declaration, because clients
declare the next transaction as soon as one has ended, and may then wait for hours for a message. If the broker refuses
a message in a transaction, the transaction can't be committed any more: nothing of it may be committed without what its
sender put into it.

It must not know messages, links or clocks. Source: AMQP 1.0 part 4; docs/decisions/035-transactions.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from penstock_core.reason import Reason, Refuse

__all__ = [
    "IN_PART",
    "OTHER_TRANSACTION",
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
    "acquired",
    "acquisition_room",
    "age_deadline_ms",
    "decide_acquisition",
    "decide_declare",
    "decide_discharge",
    "decide_post",
    "decide_settle",
    "failed_commit",
    "time_out",
    "with_fault",
]


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """What one transaction, and all of one connection, may hold. Sizes in bytes, ages in milliseconds."""

    messages: int
    """Messages posted and deliveries settled in one transaction; as many may be acquired in it."""
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
    """What all open transactions of a connection hold, in bytes."""

    open: int = 0
    bytes: int = 0
    memory: int = 0
    """Bytes that all transactions of the broker hold in memory."""


@dataclass(frozen=True, slots=True)
class TransactionState:
    """One transaction that was declared and not discharged."""

    messages: int = 0
    acquired: int = 0
    """Deliveries that were sent in it unsettled."""
    bytes: int = 0
    memory: int = 0
    """Those of the bytes that are in memory."""
    since_ms: int | None = None
    """When its first work came, in milliseconds; None: it has done nothing."""
    fault: Refuse | None = None
    """Why it can't be committed any more; None: it still can. What it posted is dropped."""
    is_over: bool = False
    """The broker rolled it back before it was discharged; the reply to the discharge will say so."""

    @property
    def is_sound(self) -> bool:
        """True if it may still be committed."""
        return self.fault is None


@dataclass(frozen=True, slots=True)
class BeginTransaction:
    """A transaction begins."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The work is accepted; `state` is the transaction with it."""

    state: TransactionState


@dataclass(frozen=True, slots=True)
class Fail:
    """The work is refused for the reason `refuse`; the transaction, now in `state`, can't be committed any more."""

    state: TransactionState
    refuse: Refuse


@dataclass(frozen=True, slots=True)
class CommitTransaction:
    """Apply everything. If that fails, `failed_commit` gives the error for the controller."""


@dataclass(frozen=True, slots=True)
class RollBackTransaction:
    """Undo everything. `refuse` is the error for a controller that asked for a commit; None: it asked for this."""

    refuse: Refuse | None


Discharge: TypeAlias = CommitTransaction | RollBackTransaction | Refuse

IN_PART: Final = Refuse(
    Reason.INVALID_REQUEST,
    "A message of it had come in part only; send all of a message before the discharge of its transaction.",
)
"""4.4.1: the control link is closed."""

OTHER_TRANSACTION: Final = Refuse(
    Reason.TRANSACTION_ROLLED_BACK,
    "The transaction was rolled back: a delivery that another open transaction acquired was settled in it; settle it "
    "in that one.",
)
"""4.4.2: the control link is closed."""

UNKNOWN: Final = Refuse(
    Reason.TRANSACTION_UNKNOWN,
    "No transaction of this name is open here: it ended, or was declared on another link; declare one.",
)


def decide_declare(usage: Usage, limits: TransactionLimits, *, names_global: bool) -> BeginTransaction | Refuse:
    """Whether a transaction may begin. `names_global`: the declaration carries a global-id, for a distributed one."""
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
    """Whether messages may be sent in this transaction.

    Args:
        size: bytes of all of them.
        in_memory: how many of these bytes are not in the log yet; None: all.
        messages: how many messages. If several together are refused, fewer of them may still be accepted.
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
        return Fail(with_fault(_begun(state, now_ms), refuse), refuse)
    begun = _begun(state, now_ms)
    memory = begun.memory + in_memory
    return Taken(replace(begun, messages=begun.messages + messages, bytes=begun.bytes + size, memory=memory))


def decide_settle(
    state: TransactionState, limits: TransactionLimits, now_ms: int, deliveries: int = 1
) -> TransactionState:
    """The transaction after deliveries were settled in it. They can't be refused: beyond the limit the transaction
    can't be committed any more.
    """
    begun = _begun(state, now_ms)
    refuse = _too_many(state, deliveries, limits) if state.is_sound else None
    counted = replace(begun, messages=begun.messages + deliveries)
    return counted if refuse is None else with_fault(counted, refuse)


def decide_acquisition(state: TransactionState | None) -> Refuse | None:
    """Whether a link may acquire in a transaction; `state` is None if the connection knows no such transaction."""
    if state is None:
        return UNKNOWN
    return state.fault if state.is_over else None


def acquisition_room(state: TransactionState, limits: TransactionLimits, *, settled: bool) -> int:
    """How many messages more may be acquired in the transaction. `settled`: they are sent settled."""
    return max(limits.messages - (state.messages if settled else state.acquired), 0)


def acquired(state: TransactionState, now_ms: int, deliveries: int, *, settled: bool) -> TransactionState:
    """The transaction after it has acquired deliveries. Those that were sent settled count as settled in it."""
    begun = _begun(state, now_ms)
    if settled:
        return replace(begun, messages=begun.messages + deliveries)
    return replace(begun, acquired=begun.acquired + deliveries)


def with_fault(state: TransactionState, fault: Refuse) -> TransactionState:
    """The transaction, which can't be committed any more because of `fault`; an earlier fault stays."""
    return state if state.fault is not None else replace(state, fault=fault, bytes=0, memory=0)


def age_deadline_ms(state: TransactionState, limits: TransactionLimits) -> int | None:
    """When it is rolled back for its age, in milliseconds; None: not as it is now."""
    if not limits.age_ms or state.since_ms is None or state.is_over:
        return None
    return state.since_ms + limits.age_ms


def time_out(state: TransactionState, limits: TransactionLimits) -> TransactionState:
    """The transaction after it was rolled back for its age; the reply to its discharge will say so."""
    told = Refuse(
        Reason.TRANSACTION_TIMED_OUT,
        f"The transaction was rolled back {limits.age_ms // 1000} s after its first work (transactions.maxAgeSeconds); "
        "do it again, in less time.",
    )
    return abandon(replace(state, fault=told))


def abandon(state: TransactionState) -> TransactionState:
    """The transaction after the broker rolled it back."""
    return replace(state, is_over=True, messages=0, acquired=0, bytes=0, memory=0)


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
    """The error for a controller whose commit failed."""
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
