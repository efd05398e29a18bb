"""What can go wrong for a client.

    ConnectionError
      TransportError      the connection is gone, or never came about; connect again
    ManagementError       the broker answered no
    RequestRefused        the broker did not take the request at all

Besides, `TimeoutError` when an answer takes too long, and `sasl.client.NotAuthenticated` when the broker does not take
our credentials.
"""

from __future__ import annotations

__all__ = ["ManagementError", "RequestRefused", "TransportError"]


class TransportError(ConnectionError):
    """The connection to the broker ended or could not be made. `condition` is what the broker said, if it did."""

    def __init__(self, reason: str, condition: str | None = None) -> None:
        super().__init__(f"{reason} ({condition})" if condition else reason)
        self.reason = reason
        self.condition = condition

    def again(self) -> TransportError:
        """The same for somebody else: an exception carries the traceback of whoever it was raised to."""
        return TransportError(self.reason, self.condition)


class RequestRefused(Exception):
    """The broker rejected the message that carried the request; other requests go on."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(f"the broker rejected the request: {description} ({condition})")
        self.condition = condition
        self.description = description


class ManagementError(Exception):
    """The broker answered a request with a status that is not a success.

    `reason` is a word of the closed list in docs/reference/rules.md, `condition` an AMQP error condition; nobody parses
    `description`. `body` may hold details, such as the containers in the way.
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
