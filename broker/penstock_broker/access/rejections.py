"""Counts who is turned away at the door, by reason: guessed passwords, limits, broken handshakes.

Logs of strangers are cut; these counts are whole, and what an alert can be built on. Must not know connections.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from penstock_amqp.errors import WireError
from penstock_amqp.sasl.frames import SaslCode
from penstock_amqp.transports.websocket import WebSocketError

__all__ = ["RejectionReason", "Rejections", "reason_of_code", "reason_of_error"]


class RejectionReason(Enum):
    """Why somebody did not get in. Values are keys of `refusals` in a broker's state (docs/management.md)."""

    LOGIN_FAILED = "LoginFailed"
    """Wrong user, password, token or certificate, or a mechanism that is not offered."""
    LOGIN_UNAVAILABLE = "LoginUnavailable"
    """The secret could not be checked: too many wait, or a file can't be read."""
    LOGIN_TIMED_OUT = "LoginTimedOut"
    """`limits.loginSeconds`."""
    PROTOCOL_ERROR = "ProtocolError"
    """It spoke neither SASL nor AMQP, or wrongly."""
    TLS_FAILED = "TlsFailed"
    """No handshake: another version, or no good certificate."""
    WEB_SOCKET_REFUSED = "WebSocketRefused"
    """Another path, subprotocol or origin, or no WebSocket at all."""
    TOO_MANY_STRANGERS = "TooManyUnauthenticated"
    """`limits.unauthenticatedPerPeer`."""
    TOO_MANY_CONNECTIONS = "TooManyConnections"
    """`limits.connections`, `connectionsPerUser`, `connectionsPerPeer`."""
    CONTAINER_IN_USE = "ContainerInUse"
    """Its container-id is another connection's, and one of them asked to be the only one."""


_OF_CODE: Final = {
    SaslCode.AUTH: RejectionReason.LOGIN_FAILED,
    SaslCode.SYS: RejectionReason.LOGIN_UNAVAILABLE,
    SaslCode.SYS_TEMP: RejectionReason.LOGIN_UNAVAILABLE,
    SaslCode.SYS_PERM: RejectionReason.PROTOCOL_ERROR,
}


def reason_of_code(code: SaslCode) -> RejectionReason:
    """The reason that a SASL outcome stands for."""
    return _OF_CODE[code]


def reason_of_error(error: WireError) -> RejectionReason:
    """The reason that an error below SASL stands for."""
    return RejectionReason.WEB_SOCKET_REFUSED if isinstance(error, WebSocketError) else RejectionReason.TLS_FAILED


class Rejections:
    """How many connections of one broker were turned away since it started."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(RejectionReason, 0)

    def count(self, why: RejectionReason) -> None:
        """One more."""
        self._counts[why] += 1

    def totals(self) -> dict[str, int]:
        """By reason, those that never happened included: a rate needs a zero to begin with."""
        return {why.value: count for why, count in self._counts.items()}
