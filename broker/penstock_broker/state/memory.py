"""What the broker knows of the memory that messages take, and what it does about it now.

`messages.memory_watch` keeps it up to date; `management` and the forwarding path read it. Sizes are bytes. Source:
docs/decisions/084-memory.md.
"""

from __future__ import annotations

from typing import Final

from penstock_amqp.endpoint.events import AmqpError
from penstock_amqp.endpoint.links import PartialMemory
from penstock_broker.errors import amqp_error
from penstock_core.memory_level import MemoryLevel
from penstock_core.reason import Reason, Refuse

__all__ = ["FULL", "Memory"]

INCOMING_SHARE: Final = 8
"""One part in so many of the budget is for messages of which some parts are still to come."""

FULL: Final = Refuse(
    Reason.LIMIT_EXCEEDED,
    "The broker's memory is full (memory.maxBytes); send again once consumers have taken some messages.",
)
"""Why no message is taken now."""


class Memory:
    """Of one broker."""

    __slots__ = ("budget", "came", "incoming", "is_full", "is_tight", "level", "limit", "look_after", "mean",
                 "outgoing", "refused", "resident", "share", "spills", "used")  # fmt: skip

    def __init__(self, budget: int, limit: int) -> None:
        """`budget`: what messages may take; `limit`: what the process may take, 0 if nothing limits it."""
        self.budget = budget
        self.limit = limit
        self.level = MemoryLevel.OK
        self.is_tight = False
        """The level is not `OK`: producers are held back."""
        self.spills = False
        """Volatile messages of deep queues go to the log."""
        self.is_full = False
        """Messages are refused."""
        self.share = 0.0
        """0 to 1, or more: how much of its memory the broker uses."""
        self.used = 0
        """What messages took at the last look."""
        self.resident = 0
        """What the process had then; 0: not known."""
        self.came = 0
        """Bytes of messages that came since."""
        self.look_after = budget // 8
        """After so many, it is looked again at once."""
        self.mean = 1024
        """Bytes that a message takes, of those that came last."""
        self.refused = 0
        """Messages that were refused for want of memory since the start."""
        self.incoming = PartialMemory(budget // INCOMING_SHARE)
        """What is here of messages of which some parts are still to come, on all connections."""
        self.outgoing = 0
        """Output that waits for connections to take it, at the last look."""

    def set_level(self, level: MemoryLevel) -> None:
        """What holds from now on."""
        self.level = level
        self.is_tight = level is not MemoryLevel.OK
        self.spills = level in (MemoryLevel.SPILLING, MemoryLevel.FULL)
        self.is_full = level is MemoryLevel.FULL

    def refuse(self, count: int) -> AmqpError:
        """So many messages are refused: with what."""
        self.refused += count
        return amqp_error(FULL)
