"""What can go wrong for a client.

    ConnectionError
      TransportError      the connection ended or could not be made; connect again
        NoAnswer          the address neither accepts nor refuses a connection, as that of a pod that is gone
    ManagementError       the broker answered with an error status
    RequestRefused        the broker rejected the message of the request
      RequestTooLong      the broker would; it was not sent

Besides, `TimeoutError` when a reply takes too long, and `sasl.client.NotAuthenticated` when the broker refuses the
credentials.
"""

from __future__ import annotations

__all__ = ["ManagementError", "NoAnswer", "RequestRefused", "RequestTooLong", "TransportError"]


class TransportError(ConnectionError):
    """The connection to the broker ended or could not be made. `condition`: the AMQP error condition that the broker
    sent, if it sent one."""

    def __init__(self, reason: str, condition: str | None = None) -> None:
        super().__init__(f"{reason} ({condition})" if condition else reason)
        self.reason = reason
        self.condition = condition

    def again(self) -> TransportError:
        """A new error with the same text, for another caller: an exception object keeps the traceback of where it was
        raised."""
        return TransportError(self.reason, self.condition)


class NoAnswer(TransportError):
    """Nothing answers at the address, not even with a refusal."""


class RequestRefused(Exception):
    """The broker rejected the message that carried the request; other requests are not affected."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(f"the broker rejected the request: {description} ({condition})")
        self.condition = condition
        self.description = description


class RequestTooLong(RequestRefused):
    """The request is longer than the broker takes, or than its sender wants it to be. It was not sent: the broker would
    have ended the link, and with it every request that waits for a reply.
    """

    def __init__(self, size: int, most: int) -> None:
        super().__init__("amqp:link:message-size-exceeded", f"it has {size:,} bytes, and may have {most:,}")


class ManagementError(Exception):
    """The broker answered a request with a status that is not a success.

    `reason` is a word of the closed list in docs/reference/rules.md, `condition` an AMQP error condition; `description`
    is for people and not meant to be parsed. `body` may hold details, such as the containers whose links prevent a
    deletion.
    """

    def __init__(
        self, status: int, description: str, *, condition: str | None, reason: str | None, body: object = None
    ) -> None:
        named = ", ".join(word for word in (condition, reason) if word)
        super().__init__(f"{status}: {description}" + (f" ({named})" if named else ""))
        self.status = status
        self.description = description
        self.condition = condition
        self.reason = reason
        self.body = body
