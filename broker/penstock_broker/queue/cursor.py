"""How far the consumers of a queue that share a selector have looked through the backlog, so that no message is
examined twice.

A message that a selector does not select stays for others, in its place. What lies before the cursor's position was
examined already; what came back into that part since, or was found to match while another cursor looked at it, is
remembered as a hint. So each message costs one evaluation per selector, however long the backlog is; its properties are
decoded once for all selectors of the queue (`Examination`).

A consumer that called a message undeliverable here, or has met one that is longer than it takes, gets a cursor of its
own, which steps over such messages.

Part of the forwarding path where a queue has such consumers. Must not know links' engines or sockets. Source: JMS 2.0,
3.8.1; AMQP 1.0 part 3, 3.4.5 (undeliverable-here).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Final, Protocol

from penstock_amqp.endpoint.events import DATA, NUMBER, Entry
from penstock_amqp.errors import DecodeError
from penstock_amqp.messages.message_head import read_head
from penstock_amqp.messages.selected_fields import Selectable, SelectedFields
from penstock_broker.queue.exclusions import Exclusions
from penstock_broker.queue.paged_tail import PagedTail
from penstock_broker.queue.priority_level import PriorityLevel
from penstock_broker.queue.selection_search import SelectionSearch
from penstock_core.selector import Selector

__all__ = ["BacklogConsumer", "Examination", "SelectorCursor"]

_MIN_HINTS: Final = 64
"""Fewer hints than this are never tidied."""


class BacklogConsumer(Protocol):
    """A consumer, as far as a backlog knows it. Compared by identity."""

    cursor: SelectorCursor | None
    """What it takes of the backlog, which sets this; None: everything."""


class Examination:
    """Reads what the selectors of one queue ask of a message, once for all of them, and counts what that costs."""

    __slots__ = ("_fields", "_last", "_values", "budget", "total")

    def __init__(self) -> None:
        self._fields = SelectedFields(())
        self._last = -1
        self._values: dict[str, Selectable | None] | None = None
        self.budget = 0
        """Messages that may still be looked at in this visit of the queue."""
        self.total = 0
        """Evaluations so far."""

    def ask_for(self, selectors: Iterable[Selector]) -> None:
        """These are the selectors from now on."""
        self._fields = SelectedFields({name for selector in selectors for name in selector.names})
        self._last = -1

    def selects(self, selector: Selector, entry: Entry) -> bool:
        """Evaluate a selector; a message whose fields can't be read is not selected."""
        self.total += 1
        if entry[NUMBER] != self._last:
            self._last = entry[NUMBER]
            try:
                self._values = self._fields.read(entry[DATA], read_head(entry[DATA]))
            except DecodeError:
                self._values = None
        return self._values is not None and selector.selects(self._values.get)


class SelectorCursor:
    """One selector's way through the backlog; shared by the consumers that have it, or of one consumer alone."""

    __slots__ = (
        "_excluded",
        "_hints",
        "_positions",
        "_searches",
        "consumer",
        "examination",
        "max_bytes",
        "selector",
        "users",
    )

    def __init__(
        self,
        selector: Selector | None,
        examination: Examination,
        excluded: Exclusions,
        consumer: BacklogConsumer | None = None,
    ) -> None:
        self.selector = selector
        self.examination = examination
        self._excluded = excluded
        self.consumer = consumer
        """The only consumer that has it; None if several share it."""
        self.max_bytes = 0
        """Its consumer takes no longer message; 0: any."""
        self.users = 0
        """How many consumers have it."""
        self._positions: dict[int, int] = {}
        """By priority: what lies back with a lower number was examined."""
        self._hints: dict[int, list[tuple[int, bool]]] = {}
        """By priority, a heap: numbers below the cursor that are worth a look, and whether the selector is known to
        select them.
        """
        self._searches: dict[int, SelectionSearch] = {}
        """By priority, for levels of which only the first messages are in memory: nothing of them moves back."""

    def alone(self, consumer: BacklogConsumer) -> SelectorCursor:
        """A selection of this one's selector for a consumer that needs its own."""
        own = SelectorCursor(self.selector, self.examination, self._excluded, consumer)
        own.max_bytes = self.max_bytes
        own._positions = dict(self._positions)
        own._hints = {priority: list(hints) for priority, hints in self._hints.items()}
        own._searches = {priority: search.copy() for priority, search in self._searches.items()}
        return own

    @property
    def is_for_exclusion(self) -> bool:
        """All that it keeps from its consumer is what that one called undeliverable here."""
        return self.consumer is not None and self.selector is None and not self.max_bytes

    def wants(self, entry: Entry) -> bool:
        """True if its consumers may get the message."""
        if self.consumer is not None and not self._allows(entry):
            return False
        return self.selector is None or self.examination.selects(self.selector, entry)

    def _allows(self, entry: Entry) -> bool:
        if self.consumer is None:
            return True
        is_too_long = 0 < self.max_bytes < len(entry[DATA])
        return not is_too_long and not self._excluded.holds(self.consumer, entry[NUMBER])

    def next(self, level: PriorityLevel, cursors: Sequence[SelectorCursor]) -> Entry | None:
        """The next message of a level that is wanted, left where it is; None if there is none, or the budget is spent.

        Fresh ones that are not wanted move to those that were looked at; `cursors` are all of the queue.
        """
        if self._hints and (entry := self._hinted(level)) is not None:
            return entry
        priority, back, fresh = level.priority, level.back, level.fresh
        examination = self.examination
        while back.blocks and (entry := back.at_or_behind(self._positions.get(priority, 0))) is not None:
            if examination.budget <= 0:
                return None
            examination.budget -= 1
            if self.wants(entry):
                return entry
            self._positions[priority] = entry[NUMBER] + 1
        if level.tail is not None:
            return self._search(level, level.tail)
        while fresh and examination.budget > 0:
            examination.budget -= 1
            entry = fresh[0]
            if self.wants(entry):
                return entry
            back.add(fresh.popleft())
            self._examined(priority, entry[NUMBER])
            for other in cursors:
                if other is not self:
                    other._moved_back(level, entry)
        return None

    def _search(self, level: PriorityLevel, tail: PagedTail) -> Entry | None:
        search = self._searches.get(level.priority)
        if search is None or not search.is_of(tail):
            search = self._searches[level.priority] = SelectionSearch(level, tail)
        if self.examination.budget <= 0:
            return None
        entry, looked = search.next(level, self.wants, self.examination.budget)
        self.examination.budget -= looked
        return entry

    def has_searched(self, level: PriorityLevel) -> bool:
        """Whether nothing is left to look at in a level with a tail, if the last look found nothing."""
        search = self._searches.get(level.priority)
        return search is not None and search.error is None

    def take_error(self) -> OSError | None:
        """Why a search can't go on, if one can't; told once."""
        for search in self._searches.values():
            if search.error is not None:
                error, search.error = search.error, None
                return error
        return None

    def came_late(self, level: PriorityLevel, entry: Entry) -> None:
        """A message that was delayed is there now: have a look at it if the search may be beyond."""
        search = self._searches.get(level.priority)
        if search is not None and self.wants(entry):
            search.came_late(level, entry)

    def rest(self, level: PriorityLevel) -> None:
        """Keep no bodies for the sake of a search that is not going on."""
        search = self._searches.get(level.priority)
        if search is not None:
            search.rest(level)

    def search_again(self, level: PriorityLevel) -> None:
        """Messages that were examined elsewhere may be in the level's tail now."""
        self._searches.pop(level.priority, None)

    def _hinted(self, level: PriorityLevel) -> Entry | None:
        hints = self._hints.get(level.priority)
        while hints and self.examination.budget > 0:
            self.examination.budget -= 1  # also for what others took: there may be a million
            number, is_sure = hints[0]
            entry = level.back.find(number)
            if entry is not None and (self._allows(entry) if is_sure else self.wants(entry)):
                return entry
            heappop(hints)
        return None

    def _examined(self, priority: int, number: int) -> None:
        if number >= self._positions.get(priority, 0):
            self._positions[priority] = number + 1

    def _moved_back(self, level: PriorityLevel, entry: Entry) -> None:
        """Another selection left a fresh message; while its properties are decoded, see whether it is one for us."""
        priority, number = level.priority, entry[NUMBER]
        if level.back.at_or_behind(self._positions.get(priority, 0)) is entry:  # all that was before it is examined
            self.examination.budget -= 1
            if self.wants(entry):
                self._hint(level, number, True)
            self._examined(priority, number)
        else:
            self.came_back(level, number)

    def came_back(self, level: PriorityLevel, number: int) -> None:
        """A message is back in its place: have a look at it if the cursor is beyond."""
        if number < self._positions.get(level.priority, 0):
            self._hint(level, number, False)

    def _hint(self, level: PriorityLevel, number: int, is_sure: bool) -> None:
        hints = self._hints.setdefault(level.priority, [])
        heappush(hints, (number, is_sure))
        if len(hints) > _MIN_HINTS + 2 * len(level.back):
            # Others took most of what they point to.
            hints[:] = {hint for hint in hints if level.back.find(hint[0]) is not None}
            heapify(hints)
