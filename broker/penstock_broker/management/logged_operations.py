"""What people and programs did over `$management`: a line in the log for each PURGE, MOVE, REDRIVE and DELETE, with
who did it and how many messages it concerned. Source: docs/reference/log-lines.md.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from penstock_api.management import Operation
from penstock_broker.access.connection import Connection

__all__ = ["Caller", "caller_of", "tell_deleted", "tell_handled"]

logger = logging.getLogger(__name__)


class Caller(NamedTuple):
    """Who sent a request."""

    user: str
    peer: str
    listener: str


def caller_of(connection: Connection) -> Caller:
    """Who sends requests on a connection, as it logged in."""
    return Caller(connection.login.user, connection.transport.peer, connection.listener.name)


def tell_deleted(caller: Caller, what: str, name: str, messages: int | None = None) -> None:
    """Something was deleted; `messages`: how many went with it, None: it held none by its kind."""
    lost = "" if messages is None else f" with {messages} messages"
    logger.info("%s: DELETE of the %s %r%s", _told(caller), what, name, lost)


def tell_handled(
    caller: Caller, operation: Operation, queue: str, messages: int, left: int, why: str | None, destination: str | None
) -> None:
    """A PURGE, MOVE or REDRIVE is done; `left`: messages that had to stay, and `why` the last of them."""
    to = "" if destination is None else f" to {destination!r}"
    stayed = "" if not left else f"; {left} had to stay, the last because: {why}"
    logger.info(
        "%s: %s of %d messages of the queue %r%s%s", _told(caller), operation.value, messages, queue, to, stayed
    )


def _told(caller: Caller) -> str:
    return f"User {caller.user!r} ({caller.peer}, listener {caller.listener})"
