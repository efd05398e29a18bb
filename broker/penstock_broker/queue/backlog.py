"""What waits in a queue, in the order in which it is handed out, and who may get it.

Higher priorities first; within one, what came back before what is fresh, both in publishing order. While all messages
have the normal priority, none belongs to a group and every consumer takes everything (`is_plain`), the forwarding path
works on the two fields of the `normal` lane directly. Otherwise `take` finds the next message for a consumer:

- A selecting consumer steps over what it does not select (`selection`).
- A message of a group that another consumer has is put by for that one (`_own`), once: nobody meets it again. The
  owner takes from what is put by and from the lanes, whichever is older. What its owner does not select is anybody's.

Must not know links' engines, sockets or the log. Source: section 4 of the design; JMS 2.0, 3.4.10 and 3.8.1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Set
from heapq import merge
from itertools import chain
from typing import Final

from penstock_amqp.endpoint.events import Entry
from penstock_broker.queue.cursor import Examination, MessageTaker, SelectorCursor
from penstock_broker.queue.disposal import Pile
from penstock_broker.queue.flags import GROUPED, ORDERED, level
from penstock_broker.queue.groups import Group, Groups
from penstock_broker.queue.priority_level import PriorityLevel
from penstock_broker.queue.sorted_messages import SortedMessages
from penstock_core.handing_out import NORMAL_LEVEL
from penstock_core.selector import Selector

__all__ = ["EXAMINED_PER_VISIT", "Backlog"]

EXAMINED_PER_VISIT: Final = 200
"""Messages that a visit looks at for consumers that don't take everything: about a millisecond."""


def _given(copied: deque[Entry]) -> Iterator[Entry]:
    """One after the other, let go of with the next: what was consumed meanwhile is not freed at once in the end."""
    while copied:
        yield copied.popleft()


class Backlog:
    """The waiting messages of one queue."""

    __slots__ = ("_excluded", "_lanes", "_own", "_selections", "examination", "groups", "is_plain", "normal")

    def __init__(self, excluded: dict[int, set[MessageTaker]]) -> None:
        """`excluded`: who said undeliverable-here, by message number."""
        self.normal = PriorityLevel(NORMAL_LEVEL)
        self.is_plain = True
        self.groups: Groups | None = None
        self.examination = Examination()
        self._excluded = excluded
        self._lanes = [self.normal]
        """Highest level first."""
        self._selections: list[SelectorCursor] = []
        self._own: dict[MessageTaker, dict[int, SortedMessages[Entry]]] = {}
        """Messages put by for the consumers of their groups, by level."""

    # -- all that waits ---------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        put_by = sum(len(shelf) for shelves in self._own.values() for shelf in shelves.values())
        return sum(len(lane) for lane in self._lanes) + put_by

    def __iter__(self) -> Iterator[Entry]:
        """All that waits, in the order of hand-out; nothing may change meanwhile."""
        for lane in self._lanes:
            yield from merge(lane.back, *self._put_by(lane.level))
            yield from lane.fresh

    def snapshot(self) -> Iterator[Entry]:
        """The same, as it is now, whatever changes while it is gone through. Copied at once: a million in 10 ms."""
        parts: list[Iterable[Entry]] = []
        for lane in self._lanes:
            shelves = [shelf for shelf in (lane.back, *self._put_by(lane.level)) if shelf.blocks]
            copies = [_given(deque(chain.from_iterable(shelf.blocks))) for shelf in shelves]
            parts += copies if len(copies) < 2 else [merge(*copies)]
            parts.append(_given(lane.fresh.copy()))
        return chain.from_iterable(parts)

    def copy(self) -> deque[Entry]:
        """A snapshot to take from."""
        if self.is_plain and not self.normal.back.blocks:
            return self.normal.fresh.copy()
        return deque(self.snapshot())

    def _put_by(self, at_level: int) -> list[SortedMessages[Entry]]:
        return [shelves[at_level] for shelves in self._own.values() if at_level in shelves]

    def oldest(self) -> list[Entry]:
        """Candidates for the message that waits longest."""
        heads = [lane.first() for lane in self._lanes]
        heads += [lane.fresh[0] for lane in self._lanes if lane.fresh]
        heads += [shelf.first() for shelves in self._own.values() for shelf in shelves.values()]
        return [head for head in heads if head is not None]

    def pick(self, chosen: Set[int], passed: Set[int]) -> list[Entry]:
        """Take `chosen` out of wherever they wait. They are among `passed`: the next messages of a snapshot whose
        messages before these were passed the same way.

        What was passed counts as looked at: it is put behind what else was, before all that is fresh. So nothing is
        passed over twice however few are chosen, and a call costs what it passes.
        """
        taken: list[Entry] = []
        for lane in self._lanes:
            fresh = lane.fresh
            while fresh and fresh[0][0] in passed:
                entry = fresh.popleft()
                if entry[0] in chosen:
                    taken.append(entry)
                else:
                    lane.back.add(entry)
                    for selection in self._selections:
                        selection.came_back(lane, entry[0])
        missing = chosen - {entry[0] for entry in taken} if taken else chosen
        if missing:
            shelves = [shelf for lane in self._lanes for shelf in (lane.back, *self._put_by(lane.level))]
            for shelf in shelves:
                if shelf.blocks:
                    taken += [found for number in missing if (found := shelf.remove(number)) is not None]
        return sorted(taken)

    def drop_oldest(self) -> Entry | None:
        """Take out the oldest message of the lowest priority that waits."""
        for lane in reversed(self._lanes):
            shelf = min(
                (shelf for shelf in (lane.back, *self._put_by(lane.level)) if shelf.blocks),
                key=lambda shelf: shelf.blocks[0][0][0],
                default=None,
            )
            if shelf is not None:
                return shelf.pop_first()
            if lane.fresh:
                return lane.fresh.popleft()
        return None

    def drop_newest(self) -> Entry | None:
        """Take out the message that came last."""
        newest = [(entry, lane) for lane in self._lanes if (entry := lane.newest()) is not None]
        if not newest:
            return None
        entry, lane = max(newest, key=lambda pair: pair[0][0])
        lane.remove(entry)
        return entry

    def take_all(self) -> list[Pile]:
        """All that waits, and what is remembered of groups, which are the caller's; nothing is here any more."""
        piles: list[Pile] = [shelf.take_all() for shelves in self._own.values() for shelf in shelves.values()]
        for lane in self._lanes:
            piles += (lane.back.take_all(), lane.fresh)
            lane.fresh = deque()
        if self.groups is not None:
            piles += self.groups.take_all()
        self._own.clear()
        return piles

    # -- coming in --------------------------------------------------------------------------------------------------

    def put(self, entries: Iterable[Entry]) -> None:
        """Put messages behind those of their priority."""
        for entry in entries:
            self._place(entry).fresh.append(entry)

    def put_back(self, entry: Entry) -> None:
        """Put a message back in its place."""
        if self.is_plain and not entry[4] & ORDERED:
            self.normal.back.add(entry)
            return
        lane = self._place(entry)
        lane.back.add(entry)
        if self.groups is not None:
            self.groups.release(entry[0])
        for selection in self._selections:
            selection.came_back(lane, entry[0])

    def _place(self, entry: Entry) -> PriorityLevel:
        """The lane of a message; what it needs to be handed out in order is there from now on."""
        if entry[4] & GROUPED and self.groups is None:
            self.groups = Groups()
            self.is_plain = False
        at_level = level(entry)
        if at_level == NORMAL_LEVEL:
            return self.normal
        for lane in self._lanes:
            if lane.level == at_level:
                return lane
        self.is_plain = False
        lane = PriorityLevel(at_level)
        self._lanes = sorted((*self._lanes, lane), key=lambda each: -each.level)
        return lane

    # -- going out --------------------------------------------------------------------------------------------------

    def take(self, consumer: MessageTaker) -> Entry | None:
        """Take out the next message for a consumer; None if there is none, or the examination's budget is spent."""
        if self.is_plain:
            normal = self.normal
            if normal.back.blocks:
                return normal.back.pop_first()
            return normal.fresh.popleft() if normal.fresh else None
        for lane in self._lanes:
            entry = self._find(lane, consumer)
            if entry is None:
                if self.examination.budget <= 0:
                    return None
                continue
            own = self._own_of(consumer, lane)
            if own is None or own.remove(entry[0]) is None:
                lane.remove(entry)
            return self._handed_out(entry, consumer)
        return None

    def take_many(self, consumer: MessageTaker, count: int) -> list[Entry]:
        """Take out the next messages for a consumer, `count` at most; fewer where `take` would find no more."""
        taken: list[Entry] = []
        if self._selections or self.groups is not None:
            while len(taken) < count and (entry := self.take(consumer)) is not None:
                taken.append(entry)
            return taken
        for lane in self._lanes:
            back, fresh = lane.back, lane.fresh
            while back.blocks and len(taken) < count:
                taken.append(back.pop_first())
            left = count - len(taken)
            if left < len(fresh):
                return taken + [fresh.popleft() for _ in range(left)]
            taken += fresh
            fresh.clear()
        return taken

    def has_for(self, consumer: MessageTaker) -> bool:
        """True if `take` may find something, now or in a later visit."""
        self.examination.budget = EXAMINED_PER_VISIT
        found = any(self._find(lane, consumer) is not None for lane in self._lanes)
        return found or self.examination.budget <= 0

    def _find(self, lane: PriorityLevel, consumer: MessageTaker) -> Entry | None:
        """The next message of a lane for a consumer, left where it is: in the lane, or put by."""
        own = self._own_of(consumer, lane)
        mine = own.first() if own is not None else None
        while (entry := self._next(lane, consumer)) is not None:
            if mine is not None and mine[0] < entry[0]:
                return mine
            if not entry[4] & GROUPED or not self._put_by_for_owner(lane, entry, consumer):
                return entry
        return mine if self.examination.budget > 0 else None

    def _own_of(self, consumer: MessageTaker, lane: PriorityLevel) -> SortedMessages[Entry] | None:
        """What is put by for a consumer."""
        shelves = self._own.get(consumer) if self._own else None
        return shelves.get(lane.level) if shelves is not None else None

    def _next(self, lane: PriorityLevel, consumer: MessageTaker) -> Entry | None:
        if consumer.selection is not None:
            return consumer.selection.next(lane, self._selections)
        return lane.first()

    def _put_by_for_owner(self, lane: PriorityLevel, entry: Entry, consumer: MessageTaker) -> bool:
        assert self.groups is not None, "grouped messages are noticed when they come in"
        group = self.groups.owner(entry)
        if group is None or group.consumer is consumer:
            return False
        if group.consumer.selection is not None and not group.consumer.selection.wants(entry):
            return False
        self.examination.budget -= 1
        lane.remove(entry)
        self._own.setdefault(group.consumer, {}).setdefault(lane.level, SortedMessages()).add(entry)
        self.groups.hold(entry, group)
        return True

    def _handed_out(self, entry: Entry, consumer: MessageTaker) -> Entry:
        if entry[4] & GROUPED and self.groups is not None:
            closed = self.groups.take(entry, consumer)
            if closed is not None and closed.held > 1:
                self._free(closed)
        return entry

    def _free(self, group: Group) -> None:
        """What was put by for the consumer of a group that is closed is anybody's, in its place."""
        assert self.groups is not None
        for shelf in self._own.get(group.consumer, {}).values():
            for entry in [entry for entry in shelf if self.groups.holds(entry, group)]:
                shelf.remove(entry[0])
                self.put_back(entry)

    # -- consumers --------------------------------------------------------------------------------------------------

    def select(self, consumer: MessageTaker, selector: Selector) -> None:
        """From now on the consumer gets only what `selector` selects."""
        selection = next(
            (each for each in self._selections if each.consumer is None and each.selector == selector), None
        )
        if selection is None:
            selection = SelectorCursor(selector, self.examination, self._excluded)
        self._use(consumer, selection)

    def exclude(self, consumer: MessageTaker, number: int) -> None:
        """The consumer is not to get this message again."""
        self._excluded.setdefault(number, set()).add(consumer)
        self._selection_alone(consumer)

    def limit(self, consumer: MessageTaker, max_bytes: int) -> None:
        """The consumer is not to get longer messages."""
        self._selection_alone(consumer).max_bytes = max_bytes

    def _selection_alone(self, consumer: MessageTaker) -> SelectorCursor:
        """A consumer's own selection."""
        base = consumer.selection
        if base is not None and base.consumer is not None:
            return base
        own = SelectorCursor(None, self.examination, self._excluded, consumer) if base is None else base.alone(consumer)
        self._use(consumer, own)
        return own

    def left(self, consumer: MessageTaker) -> None:
        """The consumer is gone: what was put by for it is anybody's, in its place."""
        self._drop_selection(consumer)
        if self.groups is not None:
            self.groups.left(consumer)
        for shelf in self._own.pop(consumer, {}).values():
            for entry in shelf:
                self.put_back(entry)
        for refusers in self._excluded.values():
            refusers.discard(consumer)

    def calm_down(self) -> None:
        """Go back to the plain way if nothing needs another."""
        if self._selections or any(len(lane) for lane in self._lanes if lane is not self.normal):
            return
        if self.groups is not None and (self.groups or self.normal):
            return
        self._lanes = [self.normal]
        self._own.clear()
        self.groups = None
        self.is_plain = True

    def _use(self, consumer: MessageTaker, selection: SelectorCursor) -> None:
        self._drop_selection(consumer)
        if not selection.users:
            self._selections.append(selection)
        selection.users += 1
        consumer.selection = selection
        self.is_plain = False
        self._ask()

    def _drop_selection(self, consumer: MessageTaker) -> None:
        selection = consumer.selection
        consumer.selection = None
        if selection is None:
            return
        selection.users -= 1
        if not selection.users:
            self._selections.remove(selection)
            self._ask()

    def _ask(self) -> None:
        self.examination.ask_for(each.selector for each in self._selections if each.selector is not None)
