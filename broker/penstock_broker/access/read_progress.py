"""How much is read of a connection at once, and how far the loop is with it.

Must not read: that is `access.connection`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock_amqp.endpoint.events import Event, EventKind

__all__ = ["BULK_BYTES", "BUSY_READ_BYTES", "LONG_READ", "READ_BYTES", "TURN_BUDGET", "ReadProgress", "has_long"]

TURN_BUDGET: Final = 64
"""What a connection may ask for in a turn, as `endpoint.events.weight` weighs it; the rest waits for the next turns.

If one read brings more, the connection is not read again for as many turns as that takes.
"""

BULK_BYTES: Final = 8 * 1024
"""A read that brings so much takes long: these are some fifty short messages."""

READ_BYTES: Final = 64 * 1024
"""What is read of a connection at once, unless the loop says otherwise: some four hundred short messages."""

LONG_READ: Final = 4
"""So many times as much is read at once of a connection whose messages are long: what a turn costs beside its messages
is shared by some 200 messages of 1 KiB then, and not by 60. Source: docs/decisions/095-reads-of-long-messages.md."""

LONG_BYTES: Final = 512
"""Messages of so many bytes are long."""

BUSY_READ_BYTES: Final = 16 * 1024
"""What is read of a connection at once while the broker does not keep up: then others do not wait long for their turn,
and credit of consumers comes in time."""


@dataclass(slots=True, eq=False)
class ReadProgress:
    """How far the loop is with reading from a connection."""

    unread: bytes = b""
    """AMQP bytes that came and wait for their turn; nothing is read from the socket meanwhile."""
    debt: int = 0
    """What it asked for beyond `TURN_BUDGET`: it is not read again for as many turns as that takes."""
    is_bulk: bool = False
    """The last read brought much, so the next one is likely to take long."""
    has_long: bool = False
    """The last read that was full brought long messages."""
    is_behind: bool = False
    """It is in the loop's list of connections with something unread."""
    is_held: bool = False
    """It is not read until the log has synced the long messages that it brought."""
    spared_until_ms: int = 0
    """Until then, on the monotonic clock, its silence does not count: it was not read."""


def has_long(size: int, events: list[Event], before: bool) -> bool:
    """Whether a read of so many bytes brought long messages; as `before` if it brought only parts of one."""
    count = sum(1 if event[0] is EventKind.OTHER else len(event[2]) for event in events)
    return size >= LONG_BYTES * count if count else before
