"""What can be wrong with bytes from the other side.

    WireError
      DecodeError     bytes that are not AMQP 1.0, or beyond our bounds; names the offset
      EncodeError     a value that AMQP cannot carry
      TapError        the tapped frames and the engine's events disagree
      SaslError       a peer that breaks the SASL dialogue
      ProtocolError   frames that can be read and may not be sent; names the condition

Each of them concerns one connection (or one message) and never another. `TokenError` stands beside them: a token that
can be read and is not accepted.
"""

from __future__ import annotations

__all__ = ["DecodeError", "EncodeError", "ProtocolError", "SaslError", "TapError", "TokenError", "WireError"]


class WireError(Exception):
    """Base of all errors of this package that a peer's bytes can cause."""


class DecodeError(WireError):
    """Bytes that do not follow AMQP 1.0, or go beyond our bounds.

    `offset` counts from the first byte handed to the function that raised it.
    """

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(f"{reason} (at byte {offset})")
        self.reason = reason
        self.offset = offset

    def __reduce__(self) -> tuple[type[DecodeError], tuple[str, int]]:
        return DecodeError, (self.reason, self.offset)


class EncodeError(WireError):
    """A value that AMQP 1.0 cannot carry."""


class TapError(WireError):
    """The attaches that were tapped are not those the engine reported: the connection cannot be trusted any more."""


class SaslError(WireError):
    """The peer broke the SASL dialogue: wrong frame, too long, or out of turn."""


class ProtocolError(WireError):
    """A frame that can be read and that AMQP does not allow there.

    `session_channel`: the peer's channel of the session that it concerns, if it is an error of a session; else None.
    """

    def __init__(self, condition: str, reason: str, session_channel: int | None = None) -> None:
        super().__init__(reason)
        self.condition = condition
        self.session_channel = session_channel


class TokenError(ValueError):
    """A signed token that is not accepted; the message says why, without showing the token."""
