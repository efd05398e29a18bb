"""What is wrong, as AMQP says it to a peer. Source: AMQP 1.0 part 2, 2.8.14.

What the engine says when it gives a connection up, put into the words of AMQP.

The engine (proton 0.40) closes the connection for errors of a session too, and names some by conditions that AMQP does
not have. An error of a session is answered by the end of that session and then, because the engine takes no more, by
the end of the connection. Source: AMQP 1.0 part 2, 2.7.4, 2.7.5 and 2.8.17.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from penstock_amqp.endpoint.events import AmqpError
from penstock_amqp.frames.performatives import Detach, Disposition, Flow, Transfer
from penstock_amqp.types.values import Value

__all__ = ["AmqpError", "Fault", "fault_of"]


@dataclass(frozen=True, slots=True)
class AmqpError:
    """An error of AMQP part 2, 2.8.14."""

    condition: str
    description: str = ""
    info: dict[str, Value] = field(default_factory=dict[str, Value])


@dataclass(frozen=True, slots=True)
class Fault:
    """The error to close with. `codes`: descriptors of the frames that can have caused an error of a session; empty if
    it is one of the connection.
    """

    error: AmqpError
    codes: frozenset[int] = frozenset()


_ANY_OF_A_LINK: Final = frozenset((Flow.CODE, Transfer.CODE, Detach.CODE))
_TRANSFER: Final = frozenset((Transfer.CODE,))

# Condition and beginning of the description as the engine says them; condition to tell; causes.
_FAULTS: Final = (
    ("amqp:invalid-field", "no such handle", "amqp:session:unattached-handle", _ANY_OF_A_LINK),
    ("amqp:session:window-violation", "", "amqp:session:window-violation", _TRANSFER),
    ("amqp:session:invalid-field", "", "amqp:invalid-field", _TRANSFER),
    ("amqp:not allowed", "", "amqp:not-allowed", frozenset((Disposition.CODE,))),
)


def fault_of(error: AmqpError) -> Fault:
    """What to tell the peer instead of `error`."""
    for condition, beginning, told, codes in _FAULTS:
        if error.condition == condition and error.description.startswith(beginning):
            return Fault(AmqpError(told, error.description), codes)
    return Fault(error)
