"""Messages that are too long for memory: written to the log in parts as they come, whether they are durable or not.

An `IncomingLargeMessage` that is dropped before it is finished (the delivery was aborted, or its link or connection
went) gives its room in the log back, and so does a message that no queue holds any more. A message that no record names
is gone after a restart, as volatile messages are. A sender that is faster than the disk is held back; otherwise the
rest would wait in the operating system's page cache, without a bound. Source: docs/decisions/034-large-messages.md.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock_amqp.endpoint.conditions import AmqpError
from penstock_amqp.endpoint.incoming_messages import SPOOL_BYTES
from penstock_amqp.errors import DecodeError
from penstock_amqp.messages.sections import body_at
from penstock_broker.errors import amqp_error
from penstock_broker.log import Log, NoRoom
from penstock_core.reason import Reason, Refuse

__all__ = ["IncomingLargeMessage"]


class IncomingLargeMessage:
    """One of them on its way in. A `Sink` of the endpoint."""

    def __init__(self, log: Log, refusal: AmqpError, written: Callable[[], None]) -> None:
        """`refusal`: the error if the log has no room. `written` is called after each piece, because its sender may
        have to wait for the disk.
        """
        self._log = log
        self._refusal = refusal
        self._written = written
        self._body = log.stage()
        self._is_full = False

    def append(self, data: bytes) -> None:
        """The next bytes."""
        if self._is_full:
            return
        try:
            self._log.append(self._body, data)
            self._written()
        except NoRoom:
            self._is_full = True
            self._log.discard(self._body)

    def finish(self, head: bytes) -> bytes | AmqpError:
        """The message, of which `head` is the beginning; or why it can't be taken."""
        if self._is_full:
            return self._refusal
        try:
            if body_at(head) is None or len(head) > self._log.longest_head:
                return _too_long(min(SPOOL_BYTES, self._log.longest_head))
            return self._log.payload_of(self._body, head, len(head))
        except NoRoom:
            return self._refusal
        except DecodeError as error:
            return AmqpError("amqp:decode-error", f"The message can't be read: {error}")


def _too_long(most: int) -> AmqpError:
    return amqp_error(
        Refuse(
            Reason.LIMIT_EXCEEDED,
            f"The header, annotations and properties of this message take more than {most} bytes, which is the most "
            "for a message longer than 1 MiB; send less of them, or a shorter body.",
        )
    )
