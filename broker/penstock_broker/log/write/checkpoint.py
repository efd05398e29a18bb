"""What a checkpoint says once more, so that older segments are not needed for it, and when a checkpoint is due.

That is: topology, delivered-up-to numbers, delivery counts, remarks, and the reserved numbers. Messages and acks are
not part of it: they stay in the segments that hold them. Knows no files.

Source: docs/decisions/041-segments-and-checkpoint.md.
"""

from collections.abc import Collection, Sequence
from itertools import chain
from typing import TypeVar

from penstock_broker.log.format.record_codec import (
    chunks,
    count_record,
    delivered_up_to_record,
    document_record,
    remark_record,
    start_record,
)
from penstock_broker.log.format.records import Document
from penstock_broker.log.recovery.replay import Replay

MESSAGE_WINDOW = 1 << 32
"""Message numbers that a start record reserves. After a crash, those that were not used are skipped."""
INCARNATION_WINDOW = 1 << 20

T = TypeVar("T")
Key = tuple[str, str]  # kind and key of a document
Pair = tuple[int, int]  # incarnation and message


class Numbers:
    """The numbers of messages and incarnations: none is given twice, also not after a restart.

    A start record reserves them ahead of use, as a ceiling below which no later run gives a number away.
    Source: docs/decisions/038-numbers-never-reused.md.
    """

    def __init__(self, replay: Replay, boot_id: bytes) -> None:
        """`boot_id` becomes part of each start record."""
        self.message = max(replay.message_ceiling, replay.highest_message + 1)
        """The next message number."""
        self.incarnation = replay.incarnation_ceiling
        """The next incarnation number."""
        self.first_unwritten = self.message
        """No put that is still to be written has a lower message number."""
        self.short_from = 0
        """From this message number on it is time to reserve more: half of the reserved numbers of messages, or of
        incarnations, are used, so that what is reserved now is synced long before it is used."""
        self._boot_id = boot_id
        self._short_incarnation = 0

    def next_message(self) -> int:
        """A number for a message that is not logged, or for a body; they come from the same series as those of puts."""
        number = self.message
        self.message = number + 1
        return number

    def next_messages(self, count: int) -> int:
        """The first of `count` consecutive numbers for messages that are not logged."""
        number = self.message
        self.message = number + count
        return number

    def next_incarnation(self) -> int:
        """A number for one life of a queue."""
        number = self.incarnation
        self.incarnation = number + 1
        if self.incarnation > self._short_incarnation:
            self.short_from = 0
        return number

    def reserve(self) -> bytes:
        """Reserve numbers; the start record that does so."""
        self.short_from = self.message + MESSAGE_WINDOW // 2 + 1
        self._short_incarnation = self.incarnation + INCARNATION_WINDOW // 2
        return start_record(self._boot_id, self.message + MESSAGE_WINDOW, self.incarnation + INCARNATION_WINDOW)


class Checkpoint:
    """The content of a checkpoint, except for the reserved numbers: kept up to date as records are appended."""

    def __init__(self, replay: Replay, documents: Sequence[Document], queues: Collection[int], most: int) -> None:
        """`queues`: the incarnations that exist, kept up to date by the caller.

        `most`: how many numbers or counts one record may hold.
        """
        self._queues, self._most = queues, most
        # Each document with its record, so that a checkpoint is one join.
        self._documents: dict[Key, tuple[int, bytes]] = {}
        for item in documents:
            record = document_record(item.kind, item.key, item.incarnation, item.payload)
            self._documents[item.kind, item.key] = (item.incarnation, record)
        self._delivered_up_to = {
            incarnation: message for incarnation, message in replay.delivered_up_to.items() if incarnation in queues
        }
        # By incarnation and message: what ends with a queue is given up at once, however much others have.
        self.counts: dict[int, dict[int, int]] = {}
        self.remarks: dict[int, dict[int, bytes]] = {}
        """As long as both are empty, `acked` has nothing to do."""
        for pair, count in replay.counts.items():
            if pair[0] in queues and replay.is_live(*pair):
                self.counts.setdefault(pair[0], {})[pair[1]] = count
        for pair, text in replay.remarks.items():
            if pair[0] in queues and replay.is_live(*pair):
                self.remark(pair, remark_record(*pair, text))

    def __contains__(self, key: Key) -> bool:
        return key in self._documents

    def incarnation_of(self, key: Key) -> int:
        """The incarnation that the document holds now; 0 if it holds none or does not exist."""
        return self._documents.get(key, (0, b""))[0]

    def set_document(self, key: Key, incarnation: int, record: bytes) -> None:
        """The document holds this incarnation; `record` is its document record."""
        self._documents[key] = (incarnation, record)

    def remove_document(self, key: Key) -> None:
        """The document is gone. KeyError if it did not exist."""
        del self._documents[key]

    def end_queue(self, incarnation: int) -> None:
        """The queue is gone, and with it what is known about its messages."""
        self._delivered_up_to.pop(incarnation, None)
        self.counts.pop(incarnation, None)
        self.remarks.pop(incarnation, None)

    def acked(self, incarnation: int, messages: Sequence[int]) -> None:
        """The messages have left: their counts and remarks are not needed any more."""
        if (counts := self.counts.get(incarnation)) is not None:
            _forget(counts, messages)
            if not counts:
                del self.counts[incarnation]
        if (remarks := self.remarks.get(incarnation)) is not None:
            _forget(remarks, messages)
            if not remarks:
                del self.remarks[incarnation]

    def delivered_up_to(self, numbers: dict[int, int]) -> list[bytes]:
        """Take in delivered-up-to numbers by incarnation. Returns the records of those that rose; they never fall."""
        known, queues = self._delivered_up_to.get, self._queues
        risen = [pair for pair in numbers.items() if pair[1] > known(pair[0], 0) and pair[0] in queues]
        self._delivered_up_to.update(risen)
        return [delivered_up_to_record(chunk) for chunk in chunks(risen, self._most)]

    def count(self, counts: dict[Pair, int]) -> list[bytes]:
        """Take in delivery counts. Returns their records."""
        rows = [(*pair, count) for pair, count in counts.items() if pair[0] in self._queues]
        for incarnation, message, count in rows:
            self.counts.setdefault(incarnation, {})[message] = count
        return self._count_records(rows)

    def remark(self, pair: Pair, record: bytes) -> None:
        """Take in a remark about a message, as its record."""
        self.remarks.setdefault(pair[0], {})[pair[1]] = record

    def records(self) -> list[bytes]:
        """Everything, as records."""
        delivered = [delivered_up_to_record(chunk) for chunk in chunks(list(self._delivered_up_to.items()), self._most)]
        counts = [(queue, *each) for queue, own in self.counts.items() for each in own.items()]
        documents = (record for _, record in self._documents.values())
        remarks = chain.from_iterable(own.values() for own in self.remarks.values())
        return [*documents, *delivered, *self._count_records(counts), *remarks]

    def _count_records(self, rows: Sequence[tuple[int, int, int]]) -> list[bytes]:
        return [count_record(chunk) for chunk in chunks(rows, self._most)]


def _forget(notes: dict[int, T], messages: Sequence[int]) -> None:
    for message in messages:
        notes.pop(message, None)


class CheckpointSchedule:
    """When a checkpoint is due, and which segments are needed for topology until the next one is synced."""

    def __init__(self, kept_from: int, written: int, segment_bytes: int) -> None:
        """`written`: bytes in the segments since the checkpoint that begins in segment `kept_from`."""
        self.kept_from = kept_from
        """Topology in older segments is not needed: a synced checkpoint begins in this one."""
        self.written = written
        """Bytes of blocks since the last checkpoint."""
        # A run that ended before its checkpoint left segments that only a checkpoint can free.
        self.segment_begun = written > segment_bytes
        """A segment was begun since a checkpoint was considered last: it is time to consider one."""
        self.unsynced: list[tuple[int, int]] = []
        """The checkpoints that are not known to be synced: last block, first segment."""

    def note_checkpoint(self, sequence: int, segment: int) -> None:
        """A checkpoint was written: `sequence` is its last block, `segment` the one in which it begins."""
        self.segment_begun = False
        self.written = 0
        self.unsynced.append((sequence, segment))

    def note_synced(self, sequence: int) -> None:
        """Every block up to `sequence` is synced; so is a checkpoint that ends there."""
        while self.unsynced and self.unsynced[0][0] <= sequence:
            self.kept_from = self.unsynced.pop(0)[1]
