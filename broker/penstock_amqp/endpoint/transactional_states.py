"""Delivery states that name a transaction: read from deliveries, and given as answers to them.

The engine keeps a state that it does not know as its descriptor and its list, which is all that is needed. This module
must not know what a transaction does. Source: AMQP 1.0 part 4, 4.5.5 and 4.5.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from penstock_amqp import errors
from penstock_amqp.endpoint.buffers import Ptr
from penstock_amqp.endpoint.events import AmqpError, Enlisted, Event, Held, Outcome, Settled
from penstock_amqp.endpoint.proton.deliveries import any_in_state, is_settled, remote_state, state_list
from penstock_amqp.frames.performatives import Accepted, Error, Modified, Rejected, Released
from penstock_amqp.messages.transaction_types import Declared, TransactionalState, read_state, state_fields
from penstock_amqp.types.composites import Composite
from penstock_amqp.types.values import Described, Symbol

__all__ = [
    "DECLARED",
    "TRANSACTIONAL",
    "accepted_in",
    "acquired_in",
    "any_transactional",
    "declared",
    "enlisted",
    "is_transactional",
    "joined",
    "named_transaction",
    "outcome_of",
    "rejected_in",
    "transfer_transaction",
]

TRANSACTIONAL: Final = TransactionalState.CODE
DECLARED: Final = Declared.CODE

DeliveryState: TypeAlias = Composite | Described | None


def is_transactional(received: Ptr) -> bool:
    """True if the transfer, or the disposition, names a transaction."""
    return remote_state(received) == TRANSACTIONAL


def any_transactional(came: Sequence[tuple[object, list[Event]]]) -> bool:
    """Whether the first message of any of these runs names a transaction. Each is the only event of its list."""
    return any_in_state(came, TRANSACTIONAL)


def transfer_transaction(received: Ptr) -> bytes | None:
    """The txn-id that a transfer names; None if it names none. Raises `DecodeError` if it can't be read."""
    return _state(received).txn_id if is_transactional(received) else None


def named_transaction(received: Ptr | None) -> bytes | None:
    """The same for a transfer that is refused anyway: None also if the txn-id can't be read."""
    if received is None:
        return None
    try:
        return transfer_transaction(received)
    except errors.WireError:
        return None


def enlisted(received: Ptr, held: Held) -> Enlisted | None:
    """What a disposition wants done with `held` in a transaction; None if it can't be read."""
    try:
        state = _state(received)
    except errors.WireError:
        return None
    settled = is_settled(received)
    return Enlisted(held[0], settled, state.txn_id, outcome_of(state.outcome, held), [(received, held)])


def joined(before: Event, enlisted: Enlisted) -> bool:
    """Add accepted deliveries to the event `before`, if both are of the same link and transaction; True if they were
    added.
    """
    last = before[2]
    if (
        not isinstance(last, Enlisted)
        or last.link is not enlisted.link
        or last.txn_id != enlisted.txn_id
        or last.is_settled != enlisted.is_settled
        or last.end is not None
        or enlisted.end is not None
    ):
        return False
    last.deliveries.extend(enlisted.deliveries)
    return True


def declared(txn_id: bytes) -> bytes:
    """The state that answers a declare, as an encoded list: the name of the new transaction."""
    return state_fields(Declared(txn_id=txn_id))


@lru_cache(maxsize=64)
def accepted_in(txn_id: bytes) -> bytes:
    """The state of a message that is accepted if the transaction commits, as an encoded list."""
    return state_fields(TransactionalState(txn_id=txn_id, outcome=Accepted()))


def acquired_in(txn_id: bytes) -> bytes:
    """The state of a transfer whose message is acquired in the transaction, as an encoded list."""
    return state_fields(TransactionalState(txn_id=txn_id))


def rejected_in(txn_id: bytes, error: AmqpError) -> bytes:
    """The state of a message that its transaction does not take, as an encoded list."""
    info = {Symbol(key): value for key, value in error.info.items()}
    told = Error(condition=Symbol(error.condition), description=error.description or None, info=info or None)
    return state_fields(TransactionalState(txn_id=txn_id, outcome=Rejected(error=told)))


def _state(received: Ptr) -> TransactionalState:
    return _read(state_list(received))


@lru_cache(maxsize=64)
def _read(fields: bytes) -> TransactionalState:
    """Decode a state; cached, because all deliveries of a transaction come with the same few states."""
    return read_state(fields)


def outcome_of(state: DeliveryState, held: Held) -> Settled | None:
    """How the delivery ends if the transaction commits; None: it is accepted."""
    match state:
        case Accepted():
            return None
        case Released():
            return Settled(held, Outcome.RELEASED)
        case Modified():
            failed, elsewhere = bool(state.delivery_failed), bool(state.undeliverable_here)
            annotations = {Symbol(key): value for key, value in (state.message_annotations or {}).items()}
            return Settled(held, Outcome.MODIFIED, failed=failed, undeliverable_here=elsewhere, annotations=annotations)
        case Rejected():
            return Settled(held, Outcome.REJECTED, error=_error(state.error))
        case None:
            return Settled(held, Outcome.NONE)
        case _:
            return Settled(held, Outcome.UNKNOWN)


def _error(error: Error | None) -> AmqpError | None:
    return None if error is None else AmqpError(error.condition, error.description or "")
