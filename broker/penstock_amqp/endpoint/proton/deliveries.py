"""What is read from a single delivery, and done to it, if the engine's batches do not cover it.

This module must not know what a transaction or an outcome means to the broker. Source: AMQP 1.0 part 2, 2.6.12; part 3,
3.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock_amqp.endpoint.buffers import MESSAGE, MESSAGE_BYTES, Ptr, unpack
from penstock_amqp.endpoint.events import AmqpError, Event, EventKind, Held, Outcome, Settled
from penstock_amqp.endpoint.proton import ffi
from penstock_amqp.endpoint.proton.data_objects import decoded, read_condition, write_condition
from penstock_amqp.types.values import Symbol, Value

__all__ = [
    "ACCEPTED",
    "FINAL",
    "NO_STATE",
    "RECEIVED",
    "REJECTED",
    "RELEASED",
    "abort",
    "advance",
    "any_in_state",
    "is_aborted",
    "is_partial",
    "is_settled",
    "link_of",
    "outcome",
    "read",
    "read_before",
    "remote_state",
    "send_part",
    "set_outcome",
    "set_rejected",
    "set_state",
    "settle",
    "state_list",
    "tag_of",
    "unsent_bytes",
    "update",
]

NO_STATE: Final = 0
RECEIVED: Final = ffi.RECEIVED
ACCEPTED: Final = ffi.ACCEPTED
REJECTED: Final = ffi.REJECTED
RELEASED: Final = ffi.RELEASED

FINAL: Final = frozenset((ffi.ACCEPTED, ffi.REJECTED, ffi.RELEASED, ffi.MODIFIED))
"""States that end a delivery."""

link_of = ffi.delivery_link
is_partial = ffi.delivery_partial
is_aborted = ffi.delivery_aborted
is_settled = ffi.delivery_settled  # by the peer
remote_state = ffi.delivery_remote_state  # a descriptor; 0: none
tag_of = ffi.delivery_tag
unsent_bytes = ffi.delivery_pending  # of a delivery of ours: those that the engine holds
update = ffi.delivery_update
settle = ffi.delivery_settle
abort = ffi.delivery_abort
advance = ffi.link_advance
_any_in_state: Any = ffi.compiled and ffi.compiled.any_in_state


def any_in_state(came: Sequence[tuple[object, list[Event]]], state: int) -> bool:
    """Whether the first message of any of these runs has this state. Each is the only event of its list."""
    if _any_in_state is not None:
        found: bool = _any_in_state(came, state)
        return found
    return any(event[0] is EventKind.MESSAGES and remote_state(event[2][0][0]) == state for _, (event,) in came)


def read(link: Ptr, size: int = MESSAGE_BYTES) -> bytes:
    """Read up to `size` bytes of the link's current delivery; none if there are none (yet)."""
    taken = ffi.link_recv(link, MESSAGE, size)
    return unpack(MESSAGE, taken) if taken > 0 else b""


def read_before(size: int) -> bytes:
    """The first `size` bytes of `buffers.MESSAGE`, which the engine read before it gave a notice."""
    return unpack(MESSAGE, size)


def send_part(link: Ptr, data: bytes) -> None:
    """Send some bytes of the link's current delivery."""
    ffi.link_send(link, data, len(data))


def outcome(delivery: Ptr, state: int, held: Held) -> Settled:
    """How the peer ended a delivery of ours with an outcome other than accepted; `state` is that of `remote_state`."""
    remote = ffi.delivery_remote(delivery)
    if state == ffi.MODIFIED:
        return Settled(
            held,
            Outcome.MODIFIED,
            failed=ffi.disposition_is_failed(remote),
            undeliverable_here=ffi.disposition_is_undeliverable(remote),
            annotations=_annotations(decoded(ffi.disposition_annotations(remote))),
        )
    if state == ffi.REJECTED:
        return Settled(held, Outcome.REJECTED, error=read_condition(ffi.disposition_condition(remote)))
    if state == ffi.RELEASED:
        return Settled(held, Outcome.RELEASED)
    return Settled(held, Outcome.NONE if state == 0 else Outcome.UNKNOWN)


def set_outcome(delivery: Ptr, end: Settled) -> None:
    """Tell the peer how a delivery of ours ended."""
    local = ffi.delivery_local(delivery)
    match end.outcome:
        case Outcome.REJECTED:
            if end.error is not None:
                write_condition(ffi.disposition_condition(local), end.error)
            code = ffi.REJECTED
        case Outcome.MODIFIED:
            ffi.disposition_set_failed(local, end.failed)
            ffi.disposition_set_undeliverable(local, end.undeliverable_here)
            code = ffi.MODIFIED
        case Outcome.RELEASED | Outcome.NONE | Outcome.UNKNOWN | Outcome.DAMAGED:
            code = ffi.RELEASED
    ffi.delivery_update(delivery, code)


def set_rejected(delivery: Ptr, error: AmqpError) -> None:
    """Put the reason into the answer to a delivery; `update` with `REJECTED` then sends it."""
    write_condition(ffi.disposition_condition(ffi.delivery_local(delivery)), error)


def state_list(delivery: Ptr) -> bytes:
    """The peer's state of a delivery as an encoded list, for a state that the engine does not know."""
    return ffi.data_bytes(ffi.disposition_data(ffi.delivery_remote(delivery)))


def set_state(delivery: Ptr, fields: bytes) -> None:
    """Set the fields (an encoded list) of a state that the engine does not know; `update` then sends it."""
    ffi.set_data(ffi.disposition_data(ffi.delivery_local(delivery)), fields)


def _annotations(value: Value) -> dict[Symbol, Value]:
    return {key: each for key, each in value.items() if isinstance(key, Symbol)} if isinstance(value, dict) else {}
