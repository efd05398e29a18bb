"""Messages of groups that wait for the consumers which own these groups, out of the way of all others.

Must not know queues or links. Source: docs/decisions/031-queue-order.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock_amqp.endpoint.events import Entry
from penstock_broker.queue.cursor import BacklogConsumer
from penstock_broker.queue.disposal import Pile
from penstock_broker.queue.priority_level import PriorityLevel
from penstock_broker.queue.sorted_messages import SortedMessages

__all__ = ["Reservations"]


class Reservations:
    """What is reserved for each consumer, by priority."""

    __slots__ = ("_reserved",)

    def __init__(self) -> None:
        self._reserved: dict[BacklogConsumer, dict[int, SortedMessages[Entry]]] = {}

    def __len__(self) -> int:
        return sum(len(messages) for _, messages in self.all())

    def all(self) -> Iterator[tuple[BacklogConsumer, SortedMessages[Entry]]]:
        """All that is reserved, with whom it is for."""
        for consumer, reserved in self._reserved.items():
            for messages in reserved.values():
                yield consumer, messages

    def at(self, priority: int) -> list[SortedMessages[Entry]]:
        """What is reserved at a priority."""
        return [reserved[priority] for reserved in self._reserved.values() if priority in reserved]

    def heads(self, priority: int) -> list[tuple[Entry, BacklogConsumer]]:
        """The first message of each consumer at a priority."""
        found = [
            (reserved[priority].first(), each) for each, reserved in self._reserved.items() if priority in reserved
        ]
        return [(head, consumer) for head, consumer in found if head is not None]

    def of(self, consumer: BacklogConsumer, level: PriorityLevel) -> SortedMessages[Entry] | None:
        """What is reserved for a consumer at a level; None also if that is nothing."""
        reserved = self._reserved.get(consumer) if self._reserved else None
        return reserved.get(level.priority) if reserved is not None else None

    def by_priority(self, consumer: BacklogConsumer) -> list[SortedMessages[Entry]]:
        """What is reserved for a consumer."""
        return list(self._reserved.get(consumer, {}).values())

    def add(self, consumer: BacklogConsumer, level: PriorityLevel, entry: Entry) -> None:
        """Reserve a message that was taken out of its level."""
        self._reserved.setdefault(consumer, {}).setdefault(level.priority, SortedMessages()).add(entry)

    def pop(self, consumer: BacklogConsumer) -> list[SortedMessages[Entry]]:
        """Hand over what was reserved for a consumer."""
        return list(self._reserved.pop(consumer, {}).values())

    def take_all(self) -> list[Pile]:
        """Hand over all; nothing is reserved any more."""
        piles: list[Pile] = [messages.take_all() for _, messages in self.all()]
        self._reserved.clear()
        return piles
