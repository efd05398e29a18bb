"""Which consumers of one queue are not to get which messages again: what they called undeliverable here.

A client may call every message so that it gets: a million that it can't handle, or ten. A bit is kept for each, not a
set. What is kept goes with the message or with the consumer. Must not know queues or links. Source: AMQP 1.0 part 3,
3.4.5 (undeliverable-here).
"""

from __future__ import annotations

from penstock_broker.queue.seen_numbers import SeenNumbers

__all__ = ["Exclusions"]


class Exclusions(dict[object, SeenNumbers]):
    """Message numbers by consumer, which is compared by identity; true while there is any. The forwarding path asks for
    nothing else.
    """

    __slots__ = ("_of_anybody",)

    def __init__(self) -> None:
        super().__init__()
        self._of_anybody = SeenNumbers()
        """All numbers, and some of consumers that are gone: most messages are in none, whose end costs one look."""

    def exclude(self, consumer: object, number: int) -> None:
        """The consumer is not to get this message again."""
        self.setdefault(consumer, SeenNumbers()).note(number)
        self._of_anybody.note(number)

    def holds(self, consumer: object, number: int) -> bool:
        """Whether the consumer is not to get this message."""
        numbers = self.get(consumer)
        return numbers is not None and numbers.holds(number)

    def forget(self, number: int) -> None:
        """The message has left for good."""
        if not self._of_anybody.holds(number):
            return
        self._of_anybody.forget(number)
        for consumer, numbers in list(self.items()):
            numbers.forget(number)
            if not numbers:
                del self[consumer]
        if not self:
            self._of_anybody = SeenNumbers()

    def left(self, consumer: object) -> None:
        """The consumer is gone: as if it had never refused anything."""
        if self.pop(consumer, None) is not None and not self:
            self._of_anybody = SeenNumbers()

    def take_all(self) -> list[SeenNumbers]:
        """Hand over all that is known; nothing is known any more."""
        taken = [pieces for pieces in (self._of_anybody, *self.values()) if pieces]
        self._of_anybody = SeenNumbers()
        self.clear()
        return taken
