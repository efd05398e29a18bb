"""The messages of one priority: those that came back or were looked at, and behind them the fresh ones.

Must not know queues or links.
"""

from __future__ import annotations

from collections import deque

from penstock_amqp.endpoint.events import NUMBER, Entry
from penstock_broker.queue.sorted_messages import SortedMessages

__all__ = ["PriorityLevel"]


class PriorityLevel:
    """What waits at one priority."""

    __slots__ = ("back", "fresh", "priority")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.fresh: deque[Entry] = deque()
        """In the order in which they became available."""
        self.back: SortedMessages[Entry] = SortedMessages()
        """What came back, and what a selecting consumer left for others: by number, before all that is fresh."""

    def __len__(self) -> int:
        return len(self.fresh) + len(self.back)

    def first(self) -> Entry | None:
        """The next entry, left where it is."""
        if self.back.blocks:
            return self.back.blocks[0][0]
        return self.fresh[0] if self.fresh else None

    def newest(self) -> Entry | None:
        """The entry that came last, left where it is."""
        return self.fresh[-1] if self.fresh else self.back.last()

    def remove(self, entry: Entry) -> None:
        """Take out an entry that is the first or last of the fresh ones, or one of the others."""
        fresh = self.fresh
        if fresh and fresh[0] is entry:
            fresh.popleft()
        elif fresh and fresh[-1] is entry:
            fresh.pop()
        else:
            self.back.remove(entry[NUMBER])
