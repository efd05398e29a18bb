"""The times of a queue's messages: those that are delayed, in the order in which they are due, and what is known of
those that expire.

Delayed messages are sorted by their time with the message's number behind it: putting one in its place and taking one
out of the middle cost the logarithm of the count, with a million messages too. Must not know the clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock_amqp.endpoint.events import AVAILABLE, EXPIRES, FLAGS, NUMBER, Entry
from penstock_broker.queue.flags import SCHEDULED
from penstock_broker.queue.level_walk import LOOKED_AT
from penstock_broker.queue.snapshots import MOST_COPIED
from penstock_broker.queue.sorted_messages import SortedMessages

__all__ = ["DelayedMessages", "ExpiryPass", "ExpiryState", "is_early"]

_NUMBER_BITS: Final = 64


def is_early(entry: Entry, now_us: int) -> bool:
    """Whether the message asked for a time that is yet to come. One that asked for none never waits for the clock,
    which may have been put back since it came.
    """
    return bool(entry[FLAGS] & SCHEDULED) and entry[AVAILABLE] > now_us


def _key(entry: Entry) -> int:
    """When the message is due, and behind that its number: it is available then, or has expired before."""
    available, expires = entry[AVAILABLE], entry[EXPIRES]
    return (min(available, expires) if expires else available) << _NUMBER_BITS | entry[NUMBER]


def _unpacked(blocks: list[list[tuple[int, Entry]]]) -> Iterator[Entry]:
    """Yield the entries, the last block first, and drop each block behind its last one."""
    while blocks:
        for _, entry in blocks.pop():
            yield entry


class DelayedMessages:
    """A set of entries by the time when something is to be done about them."""

    __slots__ = ("_ceiling", "_messages", "_newest")

    def __init__(self) -> None:
        self._messages: SortedMessages[tuple[int, Entry]] = SortedMessages()
        self._newest: Entry | None = None
        """Of all that wait the one with the highest number, if that is known."""
        self._ceiling = -1
        """No number here is higher."""

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, entry: Entry) -> bool:
        """True if the entry of the same number and times is here."""
        return self._messages.find(_key(entry)) is not None

    def __iter__(self) -> Iterator[Entry]:
        """By time, then number; nothing may change meanwhile."""
        return (entry for _, entry in self._messages)

    @property
    def blocks(self) -> list[list[tuple[int, Entry]]]:
        """As they are sorted: what an entry is sorted by, and the entry."""
        return self._messages.blocks

    def snapshot(self, below: int | None = None) -> Iterator[Entry]:
        """The same, as it is now, whatever changes while it is gone through.

        `below`: the number of the next message. If it is given, of very many messages those are left out that leave
        before they are looked at; else all are copied at once, block by block.
        """
        if below is not None and len(self) > MOST_COPIED:
            return self._walk(below, self._messages.blocks[-1][-1][0])
        blocks = [block.copy() for block in self._messages.blocks]
        blocks.reverse()
        return _unpacked(blocks)

    def _walk(self, below: int, last: int) -> Iterator[Entry]:
        """A few at a time, up to this key; what has the number `below` or a higher one came later."""
        at = -1
        while at < last and (found := self._messages.following(at, LOOKED_AT)):
            at = found[-1][0]
            yield from [entry for _, entry in found if entry[NUMBER] < below]

    def add(self, entry: Entry) -> None:
        """Put an entry in its place."""
        self._messages.add((_key(entry), entry))
        if entry[NUMBER] > self._ceiling:
            self._ceiling, self._newest = entry[NUMBER], entry

    def next_due(self) -> int:
        """When the first is due, microseconds since the epoch. Raises `IndexError` if there is none."""
        return self._messages.blocks[0][0][0] >> _NUMBER_BITS

    def pop_first(self) -> Entry:
        """Take out the first that is due. Raises `IndexError` if there is none."""
        return self._taken(self._messages.pop_first()[1])

    def remove(self, entry: Entry) -> Entry | None:
        """Take out the entry of the same number; None if it is not here."""
        found = self._messages.remove(_key(entry))
        return None if found is None else self._taken(found[1])

    def is_above_all(self, number: int) -> bool:
        """True if it is known at once that all numbers here are lower."""
        return number > self._ceiling

    def newest(self) -> Entry | None:
        """The entry with the highest number, left where it is. At once for the one that came last, else it is looked
        for.
        """
        if self._newest is None and self._messages:
            self._newest = max(self, key=lambda entry: entry[NUMBER])
            self._ceiling = self._newest[NUMBER]
        return self._newest

    def take_all(self) -> list[list[tuple[int, Entry]]]:
        """Hand over all blocks; nothing waits any more."""
        blocks = self._messages.take_all()
        self._newest, self._ceiling = None, -1
        return blocks

    def _taken(self, entry: Entry) -> Entry:
        if self._newest is not None and self._newest[NUMBER] == entry[NUMBER]:
            self._newest = None
        return entry


@dataclass(slots=True)
class ExpiryPass:
    """What is looked through for messages that have expired, one slice after the other."""

    entries: Iterator[Entry]
    seen: int = 0
    next_expiry: int = 0
    """When the first of those seen expires that have not yet; 0: none does."""


class ExpiryState:
    """What a queue knows of messages that expire. Times are microseconds since the epoch."""

    __slots__ = ("expired", "is_retimed", "may_expire", "next_due", "next_pass", "passing", "timer_ms")

    def __init__(self) -> None:
        self.may_expire = False
        """Some message had a time to live."""
        self.next_due = 0
        """When the first message that waits expires, or before; 0: none does."""
        self.next_pass = 0
        """When what waits may be looked through again for messages that have expired."""
        self.passing: ExpiryPass | None = None
        """The look for messages that have expired, while it is going on."""
        self.expired: deque[Entry] = deque()
        """Messages that have expired and are about to leave."""
        self.timer_ms: int | None = None
        """When the timer runs that looks at the times of this queue (monotonic, milliseconds); None: there is none."""
        self.is_retimed = False
        """The longest time to live has changed since messages came which may be here: what their entries say of it does
        not hold.
        """
