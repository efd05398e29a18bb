"""The messages of one priority: those that came back or were looked at, and behind them the fresh ones.

Must not know queues or links.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from penstock_amqp.endpoint.events import FLAGS, NUMBER, Entry
from penstock_broker.queue.disposal import Pile
from penstock_broker.queue.flags import SCHEDULED
from penstock_broker.queue.paged_tail import PagedTail
from penstock_broker.queue.sorted_messages import SortedMessages
from penstock_broker.queue.tail_pieces import PageableCount, take_chosen

__all__ = ["PriorityLevel", "longest_waiting"]

PULLED: Final = 64
"""Messages that are read at once where the oldest is dropped and none is in memory."""

PULLED_BYTES: Final = 262_144

LOOKED_AT: Final = 1000
"""Messages that were delayed, of which the one that waits longest is looked for: a tenth of a millisecond."""


class PriorityLevel:
    """What waits at one priority."""

    __slots__ = ("arrivals", "back", "fresh", "priority", "tail")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.fresh: deque[Entry] = deque()
        """In the order in which they became available; the first of them, if there is a tail."""
        self.arrivals: deque[Entry] = self.fresh
        """Where messages come in: behind the fresh ones, or behind the tail."""
        self.tail: PagedTail | None = None
        """What waits behind the fresh ones and is not in memory; None: nothing."""
        self.back: SortedMessages[Entry] = SortedMessages()
        """What came back, and what a selecting consumer left for others: by number, before all that is fresh."""

    def __len__(self) -> int:
        here = len(self.fresh) + len(self.back)
        return here if self.tail is None else here + len(self.tail)

    def begin_tail(self, tail: PagedTail) -> None:
        """What comes from now on waits in the tail."""
        self.tail = tail
        self.arrivals = tail.arrivals

    def end_tail(self) -> None:
        """The tail holds nothing but what has come last, which joins the fresh messages."""
        assert self.tail is not None and not self.tail.held, "messages of the tail would be lost"
        self.fresh.extend(self.tail.arrivals)
        self.tail, self.arrivals = None, self.fresh

    def forget_bodies(self, keep: int, pageable: PageableCount, most: int) -> bool:
        """Take messages, `most` at most, over into the tail, so that `keep` are left in memory. True if some are of
        what came back or was looked at, which is done when too many of these alone are there.
        """
        assert self.tail is not None
        if len(self.back) <= 2 * keep:
            if len(self.fresh) > 2 * keep:
                self.tail.take_back(self.fresh, keep, pageable, most)
            return False
        if self.fresh:
            self.tail.take_back(self.fresh, 0, pageable, most)
            return False
        last = [self.back.pop_last() for _ in range(min(most, len(self.back) - keep))]
        last.reverse()
        self.tail.take_back(deque(last), 0, pageable, most)
        return True

    def pull(self, most: int, most_bytes: int) -> None:
        """Move the first messages of the tail to the fresh ones; without a tail nothing happens. Raises OSError."""
        tail = self.tail
        if tail is not None:
            self.fresh.extend(tail.pull(most, most_bytes))
            if not tail.held:
                self.end_tail()

    def all_fresh(self) -> Iterator[Entry]:
        """The fresh messages and the tail; nothing may change meanwhile."""
        yield from self.fresh
        if self.tail is not None:
            yield from self.tail.snapshot()

    def take_all_fresh(self) -> list[Pile]:
        """Hand over what is in memory of these; nothing is here any more."""
        piles: list[Pile] = [self.fresh]
        if self.tail is not None:
            piles += self.tail.take_all()
        self.fresh = deque()
        self.arrivals = self.fresh
        self.tail = None
        return piles

    def first(self) -> Entry | None:
        """The next entry, left where it is."""
        if self.back.blocks:
            return self.back.blocks[0][0]
        return self.fresh[0] if self.fresh else None

    def heads(self) -> list[Entry]:
        """Entries of which one has waited longest, of all whose bodies are in memory."""
        return [*longest_waiting(self.back), *islice(self.fresh, 1)]

    def newest(self) -> Entry | None:
        """The entry that came last, left where it is; None also if it is not in memory."""
        if self.tail is not None and len(self.tail):
            return self.tail.arrivals[-1] if self.tail.arrivals else None
        return self.fresh[-1] if self.fresh else self.back.last()

    def in_memory(self) -> Iterator[Entry]:
        """The fresh messages and those of the tail whose bodies are in memory; nothing may change meanwhile."""
        yield from self.fresh
        if self.tail is not None:
            yield from self.tail.in_memory()

    def remove(self, entry: Entry) -> None:
        """Take out an entry that is the first or last of the fresh ones, or one of the others."""
        fresh = self.fresh
        if self.tail is not None and self.tail.arrivals and self.tail.arrivals[-1] is entry:
            self.tail.arrivals.pop()
        elif fresh and fresh[0] is entry:
            fresh.popleft()
        elif fresh and fresh[-1] is entry:
            fresh.pop()
        elif self.back.remove(entry[NUMBER]) is None and self.tail is not None:
            if entry in fresh:
                fresh.remove(entry)
            else:
                self.tail.remove_all((entry,))

    def waits(self, entry: Entry) -> bool:
        """Whether a message that was seen among the fresh ones or in the tail is still there."""
        return entry in self.fresh or (self.tail is not None and self.tail.holds(entry))

    def pop_fresh(self) -> Entry | None:
        """Take out the oldest of the fresh messages and the tail. Raises OSError."""
        if not self.fresh:
            self.pull(PULLED, PULLED_BYTES)
        return self.fresh.popleft() if self.fresh else None

    def read_newest(self) -> None:
        """See that the message that came last is in memory. Raises OSError."""
        if self.tail is not None and not self.tail.arrivals and (entry := self.tail.pop_newest()) is not None:
            self.tail.arrivals.append(entry)

    def pick_window(self, chosen: Mapping[int, Entry]) -> list[Entry]:
        """Take `chosen` out of the fresh messages before a tail, which are few; the others keep their places."""
        return take_chosen(self.fresh, chosen)


def longest_waiting(messages: SortedMessages[Entry]) -> list[Entry]:
    """Entries of which one has waited longest: the first that was not delayed, and those before it. Of very many that
    were delayed the first ones.
    """
    heads: list[Entry] = []
    for entry in islice(messages, LOOKED_AT):
        heads.append(entry)
        if not entry[FLAGS] & SCHEDULED:
            break
    return heads
