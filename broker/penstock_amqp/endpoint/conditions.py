"""Error conditions: as AMQP names them for a peer, and as the engine names them.

The engine (proton 0.40) closes the whole connection for an error of a session too, and it names some errors by
conditions that AMQP does not have. An error of a session is answered by the end of that session, and then by the end
of the connection, because the engine accepts no more input. Source: AMQP 1.0 part 2, 2.7.4, 2.7.5, 2.8.14 and 2.8.17.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from penstock_amqp.frames.performatives import Detach, Disposition, Flow, Transfer
from penstock_amqp.types.encoder import encode
from penstock_amqp.types.values import Symbol, Value

__all__ = ["AmqpError", "Fault", "fault_of", "fitted"]


@dataclass(frozen=True, slots=True)
class AmqpError:
    """An error of AMQP part 2, 2.8.14."""

    condition: str
    description: str = ""
    info: dict[str, Value] = field(default_factory=dict[str, Value])


def fitted(error: AmqpError, frame_bytes: int) -> AmqpError:
    """`error` with as much of its description as fits `frame_bytes`, and its info if that fits too. 0: no limit."""
    if not frame_bytes:
        return error
    info = encode({Symbol(key): value for key, value in error.info.items()}) if error.info else b""
    described = error.description.encode()
    excess = len(error.condition) + len(described) + len(info) - frame_bytes
    if excess <= 0:
        return error
    if excess > len(described):
        return replace(error, description="", info={})
    return replace(error, description=described[: len(described) - excess].decode(errors="ignore"))


@dataclass(frozen=True, slots=True)
class Fault:
    """The error to close with, and whether it is one of a session."""

    error: AmqpError
    codes: frozenset[int] = frozenset()
    """Descriptors of the frames that can have caused an error of a session; empty if it is one of the connection."""


_ANY_OF_A_LINK: Final = frozenset((Flow.CODE, Transfer.CODE, Detach.CODE))
_TRANSFER: Final = frozenset((Transfer.CODE,))

# Condition and beginning of the description as the engine says them; AMQP's condition; frames that can be the cause.
_FAULTS: Final = (
    ("amqp:invalid-field", "no such handle", "amqp:session:unattached-handle", _ANY_OF_A_LINK),
    ("amqp:session:window-violation", "", "amqp:session:window-violation", _TRANSFER),
    ("amqp:session:invalid-field", "", "amqp:invalid-field", _TRANSFER),
    ("amqp:not allowed", "", "amqp:not-allowed", frozenset((Disposition.CODE,))),
)


def fault_of(error: AmqpError) -> Fault:
    """The error to send to the peer instead of `error`, which is the engine's."""
    for condition, beginning, told, codes in _FAULTS:
        if error.condition == condition and error.description.startswith(beginning):
            return Fault(AmqpError(told, error.description), codes)
    return Fault(error)
