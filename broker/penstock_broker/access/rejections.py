"""Counts the connections that were rejected before or at their Open, by reason, and warns of them.

Warnings are bounded (`warning_throttle`); the counts are complete, so that an alert can be built on them. Must not know
connections.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from penstock_amqp.errors import WireError
from penstock_amqp.sasl.frames import SaslCode
from penstock_amqp.transports.websocket import WebSocketError
from penstock_broker.warning_throttle import WarningThrottle

__all__ = ["RejectionReason", "Rejections", "reason_of_code", "reason_of_error"]


class RejectionReason(Enum):
    """Why a connection was rejected. Values are keys of `refusals` in a broker's state
    (docs/reference/management.md).
    """

    LOGIN_FAILED = "LoginFailed"
    """Wrong user, password, token or certificate, or a mechanism that is not offered."""
    LOGIN_UNAVAILABLE = "LoginUnavailable"
    """The secret could not be checked: too many logins wait, or a file can't be read."""
    LOGIN_TIMED_OUT = "LoginTimedOut"
    """`limits.loginSeconds`."""
    PROTOCOL_ERROR = "ProtocolError"
    """The peer spoke neither SASL nor AMQP, or made an error in it."""
    TLS_FAILED = "TlsFailed"
    """The TLS handshake failed: another version, or no good certificate."""
    WEB_SOCKET_REFUSED = "WebSocketRefused"
    """Another path, subprotocol or origin, or no WebSocket at all."""
    TOO_MANY_UNAUTHENTICATED = "TooManyUnauthenticated"
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
    """The reason that an error of TLS or WebSocket stands for."""
    return RejectionReason.WEB_SOCKET_REFUSED if isinstance(error, WebSocketError) else RejectionReason.TLS_FAILED


class Rejections:
    """The rejected connections of one broker since it started."""

    def __init__(self, warnings: WarningThrottle) -> None:
        self._warnings = warnings
        self._counts = dict.fromkeys(RejectionReason, 0)

    def count(self, reason: RejectionReason) -> None:
        """Count one more."""
        self._counts[reason] += 1

    def warn(self, reason: RejectionReason, text: str, *arguments: object) -> None:
        """Count one more, and log a warning that says which connection it was."""
        self.count(reason)
        self._warnings.warn(text, *arguments)

    def totals(self) -> dict[str, int]:
        """By reason, those that never happened included: a rate needs a zero to begin with."""
        return {reason.value: count for reason, count in self._counts.items()}
