"""The wire types of AMQP transactions: the coordinator's messages, and delivery states that name a transaction.

Must not know what a transaction does. Source: AMQP 1.0 part 4, sections 4.5.2 to 4.5.6.
"""

# ruff: noqa: RUF009 - optional() and required() return dataclass fields, which ruff cannot see.

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from penstock_amqp.errors import DecodeError
from penstock_amqp.messages.message_codec import decode_message
from penstock_amqp.types import composites as kinds
from penstock_amqp.types.composites import Composite, from_value, optional, required, to_value
from penstock_amqp.types.decoder import decode, decode_one
from penstock_amqp.types.encoder import encode
from penstock_amqp.types.values import Described, ULong, Value

__all__ = [
    "CAPABILITIES",
    "Declare",
    "Declared",
    "Discharge",
    "TransactionalState",
    "read_request",
    "read_state",
    "state_fields",
]

CAPABILITIES: Final = ("amqp:local-transactions", "amqp:multi-txns-per-ssn", "amqp:multi-ssns-per-txn")
"""What our coordinator can do (4.5.7): several transactions at a time, each over several sessions of a connection."""

_VALUE: Final = b"\x00\x53\x77"

MAX_ID: Final = 32
"""Longest txn-id, in bytes (4.5.4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declare(Composite):
    """Asks for a transaction (4.5.2)."""

    CODE: ClassVar[int] = 0x31
    NAME: ClassVar[str] = "amqp:declare:list"

    global_id: Value = optional(kinds.ANY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Discharge(Composite):
    """Ends a transaction: rolls it back if `fail`, commits it otherwise (4.5.3)."""

    CODE: ClassVar[int] = 0x32
    NAME: ClassVar[str] = "amqp:discharge:list"

    txn_id: bytes = required(kinds.BINARY)
    fail: bool | None = optional(kinds.BOOLEAN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared(Composite):
    """The outcome of a declare: the id of the new transaction (4.5.5)."""

    CODE: ClassVar[int] = 0x33
    NAME: ClassVar[str] = "amqp:declared:list"

    txn_id: bytes = required(kinds.BINARY)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalState(Composite):
    """The state of a delivery that belongs to a transaction, with the outcome that holds if it commits (4.5.6)."""

    CODE: ClassVar[int] = 0x34
    NAME: ClassVar[str] = "amqp:transactional-state:list"

    txn_id: bytes = required(kinds.BINARY)
    outcome: Composite | Described | None = optional(kinds.STATE)


def read_request(data: bytes) -> Declare | Discharge:
    """Read a message to a coordinator. Raises `DecodeError`."""
    # Clients send the value alone.
    body, end = decode(data, len(_VALUE)) if data.startswith(_VALUE) else (None, 0)
    if end != len(data):
        body = decode_message(data).body
    request = from_value(body, (Declare, Discharge))
    assert isinstance(request, Declare | Discharge)
    return request


def read_state(fields: bytes) -> TransactionalState:
    """Read a transactional state from its encoded list (the descriptor is not part of it). Raises `DecodeError`."""
    value = decode_one(fields) if fields else []
    state = from_value(Described(ULong(TransactionalState.CODE), value), TransactionalState)
    if len(state.txn_id) > MAX_ID:
        raise DecodeError(f"a txn-id has at most {MAX_ID} bytes, not {len(state.txn_id)}", 0)
    return state


def state_fields(state: Declared | TransactionalState) -> bytes:
    """The encoded list of `state`, without its descriptor."""
    return encode(to_value(state).value)
