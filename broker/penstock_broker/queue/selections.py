"""The consumers of one queue that don't take everything: their cursors, shared by those with the same selector.

Must not know queues or links. Source: JMS 2.0, 3.8.1; AMQP 1.0 part 3, 3.4.5 (undeliverable-here).
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock_amqp.endpoint.events import Entry
from penstock_broker.queue.cursor import BacklogConsumer, Examination, SelectorCursor
from penstock_broker.queue.exclusions import Exclusions
from penstock_broker.queue.priority_level import PriorityLevel
from penstock_core.selector import Selector

__all__ = ["Selections"]


class Selections:
    """The cursors of one queue."""

    __slots__ = ("_excluded", "_excludes", "cursors", "examination")

    def __init__(self, excluded: Exclusions) -> None:
        """`excluded`: who said undeliverable-here, and of what."""
        self.examination = Examination()
        self.cursors: list[SelectorCursor] = []
        self._excluded = excluded
        self._excludes = False
        """Some consumer may have a cursor for the sake of `excluded`."""

    def select(self, consumer: BacklogConsumer, selector: Selector) -> None:
        """From now on the consumer gets only what `selector` selects."""
        cursor = next((each for each in self.cursors if each.consumer is None and each.selector == selector), None)
        if cursor is None:
            cursor = SelectorCursor(selector, self.examination, self._excluded)
        self._use(consumer, cursor)

    def exclude(self, consumer: BacklogConsumer, number: int) -> None:
        """The consumer is not to get this message again."""
        self._excluded.exclude(consumer, number)
        self._excludes = True
        self._own_cursor(consumer)

    def limit(self, consumer: BacklogConsumer, max_bytes: int) -> None:
        """The consumer is not to get longer messages."""
        self._own_cursor(consumer).max_bytes = max_bytes

    def drop(self, consumer: BacklogConsumer) -> None:
        """The consumer takes everything from now on."""
        cursor = consumer.cursor
        consumer.cursor = None
        if cursor is None:
            return
        cursor.users -= 1
        if not cursor.users:
            self.cursors.remove(cursor)
            self._ask()

    def left(self, consumer: BacklogConsumer) -> None:
        """The consumer is gone."""
        self.drop(consumer)
        self._excluded.left(consumer)

    def drop_needless(self) -> None:
        """Drop the cursors of those who take everything now that nothing is excluded any more."""
        if self._excludes and not self._excluded:
            self._excludes = False
            for cursor in [each for each in self.cursors if each.is_for_exclusion]:
                assert cursor.consumer is not None
                self.drop(cursor.consumer)

    def came_back(self, level: PriorityLevel, number: int) -> None:
        """A message is back in its place."""
        for cursor in self.cursors:
            cursor.came_back(level, number)

    def came_late(self, level: PriorityLevel, entry: Entry) -> None:
        """A delayed message waits now at a level with a tail."""
        for cursor in self.cursors:
            cursor.came_late(level, entry)

    def search_again(self, level: PriorityLevel) -> None:
        """Messages of a level that were looked at are in its tail now."""
        for cursor in self.cursors:
            cursor.search_again(level)

    def rest(self, levels: Iterable[PriorityLevel]) -> None:
        """Keep no bodies for the sake of searches that are not going on. Call it now and then."""
        for level in levels:
            if level.tail is not None:
                for cursor in self.cursors:
                    cursor.rest(level)

    def unread(self) -> OSError | None:
        """Why a consumer can't be served now, if one can't: what it looks for can't be read. Told once."""
        return next((error for cursor in self.cursors if (error := cursor.take_error()) is not None), None)

    def _own_cursor(self, consumer: BacklogConsumer) -> SelectorCursor:
        """A consumer's own cursor."""
        base = consumer.cursor
        if base is not None and base.consumer is not None:
            return base
        own = SelectorCursor(None, self.examination, self._excluded, consumer) if base is None else base.alone(consumer)
        self._use(consumer, own)
        return own

    def _use(self, consumer: BacklogConsumer, cursor: SelectorCursor) -> None:
        self.drop(consumer)
        if not cursor.users:
            self.cursors.append(cursor)
        cursor.users += 1
        consumer.cursor = cursor
        self._ask()

    def _ask(self) -> None:
        self.examination.ask_for(each.selector for each in self.cursors if each.selector is not None)
