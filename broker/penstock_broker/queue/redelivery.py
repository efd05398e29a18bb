"""What a queue knows of single messages that were delivered before: failed deliveries, and which messages fail again
and again. Most messages never enter any of it.

One message that fails again and again can hide in a healthy flow: the totals hardly show it. So a queue knows its worst
ones by name (`RepeatedMessages`). What is kept is bounded, in bytes too: of a longer message it is the message-id, or
bodies that the log holds would stay in memory, uncounted, in each of thousands of queues. It changes where a delivery
fails, where such a message is sent or comes back, and where it leaves.

While at most `KEPT` messages of a queue have failed repeatedly, all of them are known. Of more than that the worst ones
are kept; one that was left out comes back in with its next failure. Must not know links or the log. Source:
docs/decisions/032-delivery-attempts.md; docs/reference/management.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from penstock_amqp.endpoint.events import DATA, NUMBER, Entry
from penstock_amqp.errors import DecodeError
from penstock_amqp.messages.fields import Field, properties_field
from penstock_amqp.messages.message_codec import Message, Properties, encode_message
from penstock_amqp.messages.message_head import read_head
from penstock_broker.queue.disposal import Pile
from penstock_broker.queue.exclusions import Exclusions
from penstock_broker.queue.seen_numbers import SeenNumbers

__all__ = ["KEPT", "LEAST", "Redelivery", "RepeatedMessages"]

KEPT: Final = 32
"""So many messages are known at least, if so many have failed repeatedly."""

LEAST: Final = 2
"""Failed deliveries from which on a message is kept."""


KEPT_WHOLE: Final = 512
"""Bytes of a message that is kept as it is. It waits in memory anyway, or it could."""

LONGEST_ID: Final = 255
"""Characters or bytes that are kept of a message-id."""


class RepeatedMessages:
    """The worst messages of one queue; true while there is any."""

    __slots__ = ("_attempts", "_entries", "_in_flight")

    def __init__(self, attempts: Mapping[int, int]) -> None:
        """`attempts`: deliveries that failed, by message number, which the queue counts."""
        self._attempts = attempts
        self._entries: dict[int, Entry] = {}
        self._in_flight: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._entries)

    def failed(self, entry: Entry) -> None:
        """A delivery of the message has failed, which is counted already: it is not in flight now."""
        number, data, available, expires, flags = entry
        self._in_flight.discard(number)
        if self._attempts.get(number, 0) < LEAST:
            return
        known = self._entries.get(number)
        kept = _named(data) if known is None else known[DATA]
        self._entries[number] = entry if kept is data else (number, kept, available, expires, flags)
        if len(self._entries) > 2 * KEPT:  # sorted once for so many failures
            self._entries = {each[NUMBER]: each for each, _ in self.worst(KEPT)}
            self._in_flight &= self._entries.keys()

    def sent(self, number: int) -> None:
        """The message, of whatever kind, is in flight again."""
        if number in self._entries:
            self._in_flight.add(number)

    def came_back(self, number: int) -> None:
        """The message, of whatever kind, is not in flight any more, and has not left."""
        self._in_flight.discard(number)

    def forget(self, number: int) -> None:
        """The message, of whatever kind, has left for good."""
        if self._entries.pop(number, None) is not None:
            self._in_flight.discard(number)

    def is_in_flight(self, number: int) -> bool:
        """True if the message, one that is kept, is with a consumer."""
        return number in self._in_flight

    def worst(self, most: int) -> list[tuple[Entry, int]]:
        """At most so many messages with their failed deliveries: the highest number of these first, then the oldest.
        Of a long message, the bytes are those of a message with its message-id and nothing else.
        """
        counted = [(entry, self._attempts[number]) for number, entry in self._entries.items()]
        return sorted(counted, key=lambda pair: (-pair[1], pair[0][NUMBER]))[:most]


def _named(data: bytes) -> bytes:
    """The message, or a short one of the same message-id; nothing if a long one can't be read."""
    if len(data) <= KEPT_WHOLE:
        return data
    try:
        found = properties_field(data, read_head(data).start, Field.MESSAGE_ID)
    except DecodeError:
        return b""
    if isinstance(found, str | bytes):
        found = found[:LONGEST_ID]
    elif not isinstance(found, int | UUID):
        return b""  # it has none of the types of an id (3.2.11 to 3.2.14)
    return encode_message(Message(properties=Properties(message_id=found)))


class Redelivery:
    """What is known of single messages that were delivered before. Most messages never enter these."""

    __slots__ = ("attempts", "excluded", "repeated", "seen")

    def __init__(self) -> None:
        self.attempts: dict[int, int] = {}
        """Deliveries that failed and count, by message number."""
        self.repeated = RepeatedMessages(self.attempts)
        """The messages of which most deliveries failed."""
        self.seen = SeenNumbers()
        """Numbers that a consumer may have seen: their header says delivery-count > 0, but no attempt counts."""
        self.excluded = Exclusions()
        """Which consumers said undeliverable-here of which messages."""

    def delivery_count(self, number: int) -> int:
        """What the header of the next delivery says."""
        count = self.attempts.get(number, 0)
        return count or (1 if self.seen.holds(number) else 0)

    def forget(self, number: int) -> None:
        """The message has left for good."""
        self.attempts.pop(number, None)
        self.seen.forget(number)
        if self.excluded:
            self.excluded.forget(number)
        self.repeated.forget(number)

    def take_all(self) -> list[Pile]:
        """Hand over what is known; nothing is known any more."""
        piles: list[Pile] = [self.seen, self.attempts, *self.excluded.take_all()]
        self.seen, self.attempts = SeenNumbers(), {}
        self.repeated = RepeatedMessages(self.attempts)
        return piles
