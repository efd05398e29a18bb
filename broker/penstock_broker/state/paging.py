"""What the broker knows of the memory that backlogs take, and the queues that keep only their first messages there.

The limits are bytes of bodies and of what goes with them. Source: docs/decisions/082-paging.md.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from penstock_broker.queue.queue import Queue

__all__ = ["Paging"]

BACKLOG_BYTES: Final = 256 * 1024 * 1024
"""What all backlogs together may take, at most half of what all messages may."""

WINDOW_MESSAGES: Final = 4096
"""The first messages of a queue that are in memory, at most."""

WINDOW_BYTES: Final = 4 * 1024 * 1024
"""The same in bytes."""

LEAST_WINDOW_BYTES: Final = 64 * 1024
"""However many queues there are."""

LEAST_WINDOW_MESSAGES: Final = 16
"""However long they are."""

QUEUE_BYTES: Final = 32 * 1024 * 1024
"""A queue that takes no more than this is left in memory, unless all queues together take too much; at most an eighth
of what all messages may take."""


class Paging:
    """The limits, and the queues with tails."""

    __slots__ = (
        "all_bytes",
        "asked_bytes",
        "asked_count",
        "least_window_bytes",
        "least_window_messages",
        "most_queue_bytes",
        "most_window_bytes",
        "queue_bytes",
        "queues",
        "retry_ms",
        "rounds",
        "taken",
        "unasked",
        "window_bytes",
    )

    def __init__(self, budget: int) -> None:
        """`budget`: what all messages may take in memory, see `state.memory`."""
        self.all_bytes = min(BACKLOG_BYTES, budget // 2)
        """What all backlogs together may take before smaller queues are paged too."""
        self.most_queue_bytes = min(QUEUE_BYTES, budget // 8)
        self.most_window_bytes = min(WINDOW_BYTES, budget // 32)
        self.queue_bytes = self.most_queue_bytes
        """A queue that takes more gets a tail."""
        self.window_bytes = self.most_window_bytes
        """What is in memory of a queue with a tail."""
        self.least_window_bytes = LEAST_WINDOW_BYTES
        self.least_window_messages = LEAST_WINDOW_MESSAGES
        self.queues: deque[Queue] = deque()
        """Those with a tail."""
        self.unasked: list[Queue] = []
        """Queues that have not been asked yet in this round."""
        self.asked_bytes = 0
        """What those take that were asked in this round."""
        self.asked_count = 0
        """How many of these hold messages."""
        self.taken = 0
        """What all took in the last round that is over."""
        self.rounds = 0
        """How many rounds are over."""
        self.retry_ms: dict[Queue, int] = {}
        """When a queue may be read again after a failure; milliseconds of the turn's clock."""

    def end_round(self) -> None:
        """All queues were asked; the next round may begin."""
        self.rate(self.asked_bytes, self.asked_count)
        self.taken, self.rounds = self.asked_bytes, self.rounds + 1
        self.asked_bytes = self.asked_count = 0

    def rate(self, taken: int, holders: int) -> None:
        """All queues were asked: `holders` of them hold messages, and take so many bytes."""
        if taken > self.all_bytes:
            share = self.all_bytes // max(holders, 1)
            self.window_bytes = min(max(share // 2, self.least_window_bytes), self.most_window_bytes)
            self.queue_bytes = min(2 * self.window_bytes, self.most_queue_bytes)
        elif taken < self.all_bytes // 2:
            self.window_bytes, self.queue_bytes = self.most_window_bytes, self.most_queue_bytes

    def window_messages(self, queue: Queue) -> int:
        """How many messages make a window of this queue."""
        each = queue.depth_bytes // max(queue.depth, 1) + 1
        return max(min(WINDOW_MESSAGES, self.window_bytes // each), self.least_window_messages)
