"""What waits in a queue, in the order in which it is handed out, and which consumer may get it.

Higher priorities come first; within one priority, messages that came back come before fresh ones, both in publishing
order. While all messages have the normal priority, none belongs to a group and every consumer takes everything
(`is_plain`), the forwarding path works on the two fields of the `normal` level directly. Otherwise `take` finds the
next message for a consumer:

- A consumer with a selector steps over what it does not select (`cursor`).
- A message of a group that another consumer owns is reserved for that one (`_reserved`), once: no other consumer meets
  it again. The owner takes from what is reserved and from the levels, whichever is older. A message that the owner of
  its group does not select may go to any consumer.

Must not know links' engines, sockets or the log. Source: docs/decisions/031-queue-order.md; JMS 2.0, 3.4.10 and 3.8.1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from heapq import merge
from itertools import chain, count
from typing import Final

from penstock_amqp.endpoint.events import FLAGS, NUMBER, Entry
from penstock_broker.queue import snapshots
from penstock_broker.queue.closed_groups import ClosedGroups
from penstock_broker.queue.cursor import BacklogConsumer
from penstock_broker.queue.disposal import Pile
from penstock_broker.queue.exclusions import Exclusions
from penstock_broker.queue.flags import GROUPED, ORDERED, SCHEDULED, priority_of
from penstock_broker.queue.groups import Groups
from penstock_broker.queue.level_walk import LevelWalks
from penstock_broker.queue.priority_level import PriorityLevel, longest_waiting
from penstock_broker.queue.reservations import Reservations
from penstock_broker.queue.selections import Selections
from penstock_broker.queue.snapshots import LazyCopy, snapshot
from penstock_broker.queue.sorted_messages import SortedMessages
from penstock_core.dispatch_order import NORMAL_LEVEL
from penstock_core.selector import Selector

__all__ = ["EXAMINED_PER_VISIT", "Backlog"]

EXAMINED_PER_VISIT: Final = 200
"""Messages that a visit looks at for consumers that don't take everything: about a millisecond."""

GIVEN_BACK_PER_VISIT: Final = 1000
"""Messages reserved for the owner of a closed group that a visit looks at: about a millisecond and a half."""


class Backlog:
    """The waiting messages of one queue."""

    __slots__ = (
        "_closed", "_levels", "_reserved", "_walks", "examination", "groups", "is_plain", "normal", "selections",
    )  # fmt: skip

    def __init__(self, excluded: Exclusions) -> None:
        """`excluded`: who said undeliverable-here, and of what."""
        self.normal = PriorityLevel(NORMAL_LEVEL)
        self.is_plain = True
        self.groups: Groups | None = None
        self.selections = Selections(excluded)
        self.examination = self.selections.examination
        self._levels = [self.normal]
        """Highest priority first."""
        self._reserved = Reservations()
        self._walks = LevelWalks(self.selections)
        self._closed = ClosedGroups()
        """Of them messages are still reserved. Meanwhile nobody gets anything, so that the order stays."""

    # -- all that waits ---------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return sum(len(level) for level in self._levels) + len(self._reserved)

    @property
    def levels(self) -> Sequence[PriorityLevel]:
        """Highest priority first."""
        return self._levels

    def __iter__(self) -> Iterator[Entry]:
        """All that waits, in the order of hand-out; nothing may change meanwhile."""
        for level in self._levels:
            yield from merge(level.back, *self._reserved.at(level.priority))
            yield from level.all_fresh()

    def in_memory(self) -> Iterator[Entry]:
        """All that waits and whose body is in memory, in no order; nothing may change meanwhile."""
        for level in self._levels:
            yield from chain(level.back, *self._reserved.at(level.priority), level.in_memory())

    def snapshot(self, due_us: int = 0, below: int | None = None) -> Iterator[Entry]:
        """The same, as it is now, whatever changes while it is gone through. Raises OSError.

        `below`: the number of the next message. If it is given, of what takes too long to be copied in one turn only
        that is found which has not left before it is looked at (`snapshots`).
        """
        return snapshot(self._levels, self._walks, self._not_fresh, due_us, below)

    def _not_fresh(self, level: PriorityLevel) -> list[SortedMessages[Entry]]:
        return [level.back, *self._reserved.at(level.priority)]

    def next_expiry(self, due_us: int) -> int:
        """When the first message expires of what `snapshot` leaves out; 0: none does."""
        tails = [level.tail for level in self._levels if level.tail is not None]
        return min((due for tail in tails if (due := tail.next_expiry(due_us))), default=0)

    def copy(self, below: int) -> deque[Entry] | LazyCopy:
        """A snapshot to take from; `below`: the number of the next message."""
        if len(self) > snapshots.MOST_COPIED or any(level.tail is not None for level in self._levels):
            return LazyCopy(self.snapshot(below=below))
        if self.is_plain and not self.normal.back.blocks:
            return self.normal.fresh.copy()
        return deque(self.snapshot())

    def oldest(self) -> list[Entry]:
        """The first entries of all parts: one of them waits longest."""
        heads = [head for level in self._levels for head in level.heads()]
        return heads + [head for _, messages in self._reserved.all() for head in longest_waiting(messages)]

    def ends(self) -> tuple[Entry, Entry] | None:
        """The entries that are handed out first and last, left where they are; None if none waits, if the order is not
        that of arrival, or if the last is not in memory."""
        if not self.is_plain:
            return None
        first, last = self.normal.first(), self.normal.newest()
        return None if first is None or last is None else (first, last)

    def pick(self, chosen: Mapping[int, Entry], passed: Set[int]) -> list[Entry]:
        """Take `chosen` (by number) out of wherever they wait. They are among `passed`, the next part of a snapshot;
        all earlier parts of it were passed to this method before.

        What was passed and not chosen moves from the fresh messages to those that were looked at, if there is no tail.
        So no message is passed twice, however few are chosen, and a call costs as much as `passed` is long.
        """
        taken: list[Entry] = []
        for level in self._levels:
            fresh = level.fresh
            if level.tail is not None:
                taken += level.pick_window(chosen)
                continue
            while fresh and fresh[0][0] in passed:
                entry = fresh.popleft()
                if entry[NUMBER] in chosen:
                    taken.append(entry)
                else:
                    level.back.add(entry)
                    self.selections.came_back(level, entry[NUMBER])
        missing = chosen.keys() - {entry[NUMBER] for entry in taken} if taken else chosen.keys()
        if missing:
            reserved = [
                messages for level in self._levels for messages in (level.back, *self._reserved.at(level.priority))
            ]
            for messages in reserved:
                if messages.blocks:
                    taken += messages.remove_all(missing)
            for level in self._levels:
                if level.tail is not None:
                    taken += level.tail.remove_all(chosen[number] for number in missing)
        return sorted(taken)

    def first(self) -> tuple[Entry, BacklogConsumer | None] | None:
        """The message with which all that waits begins, left where it is, and the consumer for which it is reserved."""
        for level in self._levels:
            heads: list[tuple[Entry, BacklogConsumer | None]] = [(head, None)] if (head := level.back.first()) else []
            heads += self._reserved.heads(level.priority)
            if heads:
                return min(heads, key=lambda pair: pair[0][NUMBER])
            if level.fresh:
                return level.fresh[0], None
        return None

    def drop_oldest(self) -> Entry | None:
        """Take out the oldest message of the lowest priority that waits."""
        for level in reversed(self._levels):
            messages = min(
                (messages for messages in (level.back, *self._reserved.at(level.priority)) if messages.blocks),
                key=lambda messages: messages.blocks[0][0][0],
                default=None,
            )
            if messages is not None:
                return messages.pop_first()
            if (entry := level.pop_fresh()) is not None:
                return entry
        return None

    def drop_newest(self) -> Entry | None:
        """Take out the message that came last. Raises OSError, as `drop_oldest` does."""
        for level in self._levels:
            level.read_newest()
        newest = [(entry, level) for level in self._levels if (entry := level.newest()) is not None]
        if not newest:
            return None
        entry, level = max(newest, key=lambda pair: pair[0][NUMBER])
        level.remove(entry)
        return entry

    def take_all(self) -> list[Pile]:
        """Hand over all that waits, and what is remembered of groups; the backlog is empty then."""
        self._closed.clear()
        piles = self._reserved.take_all()
        for level in self._levels:
            piles += (level.back.take_all(), *level.take_all_fresh())
        if self.groups is not None:
            piles += self.groups.take_all()
        return piles

    # -- coming in --------------------------------------------------------------------------------------------------

    def put(self, entries: Iterable[Entry]) -> None:
        """Put messages behind those of their priority."""
        for entry in entries:
            level = self._place(entry)
            level.arrivals.append(entry)
            if level.tail is not None and entry[FLAGS] & SCHEDULED:
                self.selections.came_late(level, entry)

    def put_back(self, entry: Entry) -> None:
        """Put a message back in its place."""
        if self.is_plain and not entry[FLAGS] & ORDERED:
            self.normal.back.add(entry)
            return
        level = self._place(entry)
        level.back.add(entry)
        if self.groups is not None:
            self.groups.release(entry[NUMBER])
        self.selections.came_back(level, entry[NUMBER])

    def _place(self, entry: Entry) -> PriorityLevel:
        """The level of a message; what it needs to be handed out in order is there from now on."""
        if entry[FLAGS] & GROUPED and self.groups is None:
            self.groups = Groups()
            self.is_plain = False
        priority = priority_of(entry)
        if priority == NORMAL_LEVEL:
            return self.normal
        for level in self._levels:
            if level.priority == priority:
                return level
        self.is_plain = False
        level = PriorityLevel(priority)
        self._levels = sorted((*self._levels, level), key=lambda each: -each.priority)
        return level

    # -- going out --------------------------------------------------------------------------------------------------

    def take(self, consumer: BacklogConsumer) -> Entry | None:
        """Take out the next message for a consumer; None if there is none, or the examination's budget is spent."""
        if self.is_plain:
            normal = self.normal
            if normal.back.blocks:
                return normal.back.pop_first()
            return normal.fresh.popleft() if normal.fresh else None
        if self._closed.searches and not self._give_back_closed():
            return None
        for level in self._levels:
            entry = self._find(level, consumer)
            if entry is None:
                if self.examination.budget <= 0 or not self._is_through(level, consumer):
                    return None
                continue
            own = self._reserved.of(consumer, level)
            if own is None or own.remove(entry[NUMBER]) is None:
                level.remove(entry)
            return self._handed_out(entry, consumer)
        return None

    def take_many(self, consumer: BacklogConsumer, count: int) -> list[Entry]:
        """Take out the next messages for a consumer, `count` at most; fewer where `take` would find no more."""
        taken: list[Entry] = []
        if self.selections.cursors or self.groups is not None:
            while len(taken) < count and (entry := self.take(consumer)) is not None:
                taken.append(entry)
            return taken
        for level in self._levels:
            back, fresh = level.back, level.fresh
            while back.blocks and len(taken) < count:
                taken.append(back.pop_first())
            left = count - len(taken)
            if left < len(fresh):
                return taken + [fresh.popleft() for _ in range(left)]
            taken += fresh
            fresh.clear()
            if level.tail:
                break  # lower priorities wait until what is behind the window has been read
        return taken

    def has_for(self, consumer: BacklogConsumer) -> bool:
        """True if `take` may find something, now or in a later visit."""
        if self._closed.searches:
            return True
        self.examination.budget = EXAMINED_PER_VISIT
        found = any(self._find(level, consumer) or not self._is_through(level, consumer) for level in self._levels)
        return found or self.examination.budget <= 0

    def _is_through(self, level: PriorityLevel, consumer: BacklogConsumer) -> bool:
        """Whether a level in which nothing was found has nothing for the consumer that is still to be read."""
        if not level.tail:  # one that nothing is left in, as when all of it expired, is nothing to wait for
            return True
        return consumer.cursor is not None and consumer.cursor.has_searched(level)

    def _find(self, level: PriorityLevel, consumer: BacklogConsumer) -> Entry | None:
        """The next message of a level for a consumer, left where it is: in the level, or reserved."""
        own = self._reserved.of(consumer, level)
        mine = own.first() if own is not None else None
        while (entry := self._next(level, consumer)) is not None:
            if mine is not None and mine[NUMBER] < entry[NUMBER]:
                return mine
            if not entry[FLAGS] & GROUPED or not self._reserve_for_owner(level, entry, consumer):
                return entry
        return mine if self.examination.budget > 0 and self._is_through(level, consumer) else None

    def _next(self, level: PriorityLevel, consumer: BacklogConsumer) -> Entry | None:
        if consumer.cursor is not None:
            return consumer.cursor.next(level, self.selections.cursors)
        return level.first()

    def _reserve_for_owner(self, level: PriorityLevel, entry: Entry, consumer: BacklogConsumer) -> bool:
        assert self.groups is not None, "grouped messages are noticed when they come in"
        group = self.groups.owner(entry)
        if group is None or group.consumer is consumer:
            return False
        if group.consumer.cursor is not None and not group.consumer.cursor.wants(entry):
            return False
        self.examination.budget -= 1
        level.remove(entry)
        self._reserved.add(group.consumer, level, entry)
        self.groups.hold(entry, group)
        return True

    def _handed_out(self, entry: Entry, consumer: BacklogConsumer) -> Entry:
        if entry[FLAGS] & GROUPED and self.groups is not None:
            closed = self.groups.take(entry, consumer)
            if closed is not None and closed.held > 1:
                self._closed.add(closed, self.groups, self._reserved.by_priority(closed.consumer))
                self._give_back_closed()
        return entry

    def _give_back_closed(self) -> bool:
        """What was reserved for the owners of closed groups goes back to its place, for any consumer: a slice of it.
        False, and the visit is over, if more is left.
        """
        if self.examination.budget > 0:
            for entry in self._closed.take(GIVEN_BACK_PER_VISIT):
                self.put_back(entry)
        if self._closed.searches:
            self.examination.budget = 0
        return not self._closed.searches

    # -- consumers --------------------------------------------------------------------------------------------------

    def select(self, consumer: BacklogConsumer, selector: Selector) -> None:
        """From now on the consumer gets only what `selector` selects."""
        self.selections.select(consumer, selector)
        self.is_plain = False

    def exclude(self, consumer: BacklogConsumer, number: int) -> None:
        """The consumer is not to get this message again."""
        self.selections.exclude(consumer, number)
        self.is_plain = False

    def limit(self, consumer: BacklogConsumer, max_bytes: int) -> None:
        """The consumer is not to get longer messages."""
        self.selections.limit(consumer, max_bytes)
        self.is_plain = False

    def left(self, consumer: BacklogConsumer, most: int = 0) -> bool:
        """The consumer is gone: `most` messages (0: all) that were reserved for it go back to their places, for any
        other. True if more are left."""
        self.selections.left(consumer)
        if self.groups is not None:
            self.groups.left(consumer)
        self._closed.drop(consumer)
        return self.give_back(consumer, most)

    def give_back(self, consumer: BacklogConsumer, most: int = 0) -> bool:
        """The same with the next ones."""
        for messages in self._reserved.by_priority(consumer):
            for moved in count(1):
                if not messages.blocks:
                    break
                self.put_back(messages.pop_first())
                if moved == most:
                    return True
        self._reserved.pop(consumer)
        return False

    def calm_down(self) -> None:
        """Go back to the plain way of handing out if nothing needs another one."""
        self.selections.drop_needless()
        if self.selections.cursors or any(len(level) for level in self._levels if level is not self.normal):
            return
        if self.groups is not None and (self.groups or self.normal):
            return
        self._levels = [self.normal]
        self._reserved.take_all()
        self._closed.clear()
        self.groups = None
        self.is_plain = True
