"""What a checkpoint restates: topology, delivered marks, delivery counts, remarks, reserved numbers. Knows no files.

Message numbers and acks are not here: they stay with the segments that hold them.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import TypeVar

from penstock_broker.log.encoding import count_record, document_record, mark_record, remark_record, start_record
from penstock_broker.log.records import Document
from penstock_broker.log.replay import Replay

MESSAGE_WINDOW = 1 << 32  # numbers reserved per start record; a crash skips what was left of them
INCARNATION_WINDOW = 1 << 20

Key = tuple[str, str]  # kind and key of a document
Pair = tuple[int, int]  # incarnation and message

T = TypeVar("T")


def longest_record(capacity: int) -> int:
    """Entries of one record of acks, marks or counts, where a block holds `capacity` bytes."""
    return min(1 << 16, capacity // 64)


def parts(items: Sequence[T], longest: int) -> Iterator[Sequence[T]]:
    """Pieces that one record may hold; none of nothing."""
    for start in range(0, len(items), longest):
        yield items[start : start + longest]


class State:
    """`longest`: entries of one record of marks or counts. `queues`: the incarnations that exist, kept up by others."""

    def __init__(
        self, replay: Replay, documents: Sequence[Document], queues: Collection[int], longest: int, boot_id: bytes
    ) -> None:
        self._queues, self._longest, self._boot_id = queues, longest, boot_id
        # Each with its record, so that a checkpoint is one join.
        self._documents: dict[Key, tuple[int, bytes]] = {}
        for item in documents:
            record = document_record(item.kind, item.key, item.incarnation, item.payload)
            self._documents[item.kind, item.key] = (item.incarnation, record)
        self._marks = {incarnation: mark for incarnation, mark in replay.marks.items() if incarnation in queues}
        self._counts = {
            pair: count for pair, count in replay.counts.items() if pair[0] in queues and replay.is_live(*pair)
        }
        self._remarks = {
            pair: remark_record(*pair, text)
            for pair, text in replay.remarks.items()
            if pair[0] in queues and replay.is_live(*pair)
        }
        self._message_ceiling = self._incarnation_ceiling = 0

    def __contains__(self, key: Key) -> bool:
        return key in self._documents

    def incarnation_of(self, key: Key) -> int:
        """What the document holds now; 0 if nothing, or if it does not exist."""
        return self._documents.get(key, (0, b""))[0]

    def set(self, key: Key, incarnation: int, record: bytes) -> None:
        self._documents[key] = (incarnation, record)

    def remove(self, key: Key) -> None:
        del self._documents[key]

    def end(self, incarnation: int) -> None:
        """The queue is gone, and what was noted of it."""
        self._marks.pop(incarnation, None)
        self._counts = {pair: count for pair, count in self._counts.items() if pair[0] != incarnation}
        self._remarks = {pair: record for pair, record in self._remarks.items() if pair[0] != incarnation}

    def acked(self, incarnation: int, messages: Sequence[int]) -> None:
        """Counts and remarks of messages that have left need no restating."""
        if self._counts or self._remarks:
            for message in messages:
                self._counts.pop((incarnation, message), None)
                self._remarks.pop((incarnation, message), None)

    def mark(self, marks: dict[int, int]) -> list[bytes]:
        """Take in marks per incarnation; the records of those that rose. A mark never falls."""
        before = self._marks
        risen = [
            (incarnation, mark)
            for incarnation, mark in marks.items()
            if incarnation in self._queues and mark > before.get(incarnation, 0)
        ]
        before.update(risen)
        return [mark_record(part) for part in parts(risen, self._longest)]

    def count(self, counts: dict[Pair, int]) -> list[bytes]:
        """Take in delivery counts; their records."""
        known = {pair: count for pair, count in counts.items() if pair[0] in self._queues}
        self._counts.update(known)
        return self._count_records(known)

    def remark(self, pair: Pair, record: bytes) -> None:
        """Take in what is said of a message, as its record."""
        self._remarks[pair] = record

    def _count_records(self, counts: dict[Pair, int]) -> list[bytes]:
        rows = [(*pair, count) for pair, count in counts.items()]
        return [count_record(part) for part in parts(rows, self._longest)]

    def lacks_numbers(self, next_message: int, next_incarnation: int) -> bool:
        """Whether half of the reserved numbers are used: time for more, so that those are synced long before."""
        messages_left = self._message_ceiling - next_message
        incarnations_left = self._incarnation_ceiling - next_incarnation
        return messages_left < MESSAGE_WINDOW // 2 or incarnations_left < INCARNATION_WINDOW // 2

    def reserve_numbers(self, next_message: int, next_incarnation: int) -> bytes:
        """The record that keeps later runs from giving these numbers away again."""
        self._message_ceiling = next_message + MESSAGE_WINDOW
        self._incarnation_ceiling = next_incarnation + INCARNATION_WINDOW
        return start_record(self._boot_id, self._message_ceiling, self._incarnation_ceiling)

    def restated(self) -> list[bytes]:
        """Everything but the numbers, as records."""
        marks = [mark_record(part) for part in parts(list(self._marks.items()), self._longest)]
        counts = self._count_records(self._counts)
        return [*(record for _, record in self._documents.values()), *marks, *counts, *self._remarks.values()]
