"""Reads a log without changing it, and says what is in it: for `penstock log verify` and `penstock log repair`.

It reads as recovery does, by the same parts (`segment_files`, `scan`, `replay`), so that it comes to the same result.
In memory are one segment, a header for each block, and numbers for each live message, but no payloads.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from penstock_broker.log.disk.damage import DAMAGED, copy_name, missing_name
from penstock_broker.log.disk.files import FileLayer
from penstock_broker.log.disk.spare_segments import segment_name
from penstock_broker.log.format.blocks import BLOCK_HEADER, SEGMENT_START, BlockHeader, seed_of
from penstock_broker.log.format.records import Ack, Commit, Put, Record, StagedPut
from penstock_broker.log.recovery.lost_segments import LostSegments, find_lost
from penstock_broker.log.recovery.record_reader import Progress, malformed, no_progress, records_of
from penstock_broker.log.recovery.replay import Replay
from penstock_broker.log.scan.block_scan import Cut, Hole, KnownSegment, scan
from penstock_broker.log.scan.salvage import Salvage
from penstock_broker.log.scan.segment_files import FoundSegment, SegmentFiles, find_segments, refuse_unreadable_end

_DEAD_SIZES: Final = 10_000
"""Messages that have died whose sizes are kept for a while."""


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """One segment: `blocks` of it count, and the last of them ends at byte `end`."""

    number: int
    path: Path
    size: int
    blocks: int
    end: int
    is_sealed: bool


@dataclass(frozen=True, slots=True)
class QueueContent:
    """What one queue holds. `kind` and `name` are those of its document."""

    kind: str
    name: str
    incarnation: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something that is damaged: bytes [start, end) of a segment. `is_header`, `is_foreign`, `is_missing`: what it is,
    if not blocks; a missing segment has no bytes.

    `copy`: where it was set aside or noted before; None if it was not.
    """

    path: Path
    segment: int
    start: int
    end: int
    reason: str
    copy: Path | None = None
    is_header: bool = False
    is_foreign: bool = False
    is_missing: bool = False


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a log holds, and what of it is damaged."""

    folder: Path
    log_id: bytes | None
    segments: tuple[SegmentSummary, ...]
    absent: tuple[tuple[int, int], ...]
    """Spans (first, last) of segment numbers without a file: they were recycled, or are among the flaws."""
    epochs: tuple[int, int]
    """The first and the last that is still there; zeros if there is none."""
    sequences: tuple[int, int]
    """Of the first and the last block that counts; zeros if there is none."""
    claimed: int
    """The highest sequence that a block calls synced."""
    is_closed: bool
    """The broker stopped in order."""
    checkpoint: int
    """The segment in which the last whole checkpoint begins; 0 if there is none."""
    tail: Cut | None
    """Where the log ends. Sound blocks up to `tail.end` were promised to nobody: the next start drops them."""
    documents: int
    queues: tuple[QueueContent, ...]
    flaws: tuple[Flaw, ...]
    losses: dict[str, int]
    """By queue, how many messages that nobody has taken are lost, as far as it can still be seen."""

    @property
    def is_sound(self) -> bool:
        """Nothing is damaged that was not set aside before, and no message is lost for another reason."""
        return all(flaw.copy is not None for flaw in self.flaws) and (bool(self.flaws) or not self.losses)


def inspect_log(files: FileLayer, folder: Path, progress: Progress = no_progress) -> Inspection:
    """Read the whole log. Raises NewerFormat, ForeignSegment, Unreadable, or OSError."""
    segments = find_segments(files, folder)
    try:
        return _Reading(files, folder, segments, progress).inspection()
    finally:
        for item in (*segments.found, *segments.foreign):
            files.close(item.handle)


@dataclass(slots=True)
class _Contents:
    """What the records say, without payloads. `sizes`: bytes of each live message, and of some that have died."""

    replay: Replay = field(default_factory=Replay)
    salvage: Salvage = field(default_factory=Salvage)
    sizes: dict[int, int] = field(default_factory=dict[int, int])

    def take(self, records: list[Record], segment: int, start: int) -> None:
        bare = [self._without_payload(record) for record in records]
        self.replay.apply(bare, segment, start)
        self.salvage.follow(bare)
        if len(self.sizes) > 2 * len(self.replay.puts) + _DEAD_SIZES:
            self.sizes = {message: self.sizes[message] for message in self.replay.puts}

    def _without_payload(self, record: Record) -> Record:
        match record:
            case Put():
                self.sizes[record.message] = len(record.payload)
                return record._replace(payload=b"")
            case StagedPut():
                self.sizes[record.put.message] = len(record.put.payload) + record.length - record.offset
                return StagedPut(record.put._replace(payload=b""), record.body, record.offset, record.length)
            case Commit():
                inner = [self._without_payload(each) for each in record.records]
                return Commit(tuple(each for each in inner if isinstance(each, Put | StagedPut | Ack)))
            case _:
                return record

    def live_in(self, message: int) -> list[int]:
        """The incarnations in which a message is live, whether a document holds them or not."""
        return list(self.replay.puts[message].waits_in)

    def is_whole(self, message: int) -> bool:
        """Whether all parts of the message's body are there."""
        staged = self.replay.puts[message].staged
        if staged is None:
            return True
        body, _, length = staged
        reached = 0
        for place in self.replay.parts_of(body):
            if place.offset == reached:
                reached += place.length
        return reached == length


class _Reading:
    """One inspection."""

    def __init__(self, files: FileLayer, folder: Path, segments: SegmentFiles, progress: Progress) -> None:
        self._folder, self._segments = folder, segments
        self._by_number = {item.data.number: item for item in segments.found}
        self._progress, self._total = progress, sum(item.data.size for item in segments.found)
        self._done, self._reading = 0, -1
        self._blocks: dict[int, int] = {}  # by segment, how many count
        self._copies = set(files.names(folder / DAMAGED))
        self._contents = _Contents()
        self._flaws: list[Flaw] = []

    def inspection(self) -> Inspection:
        found = self._segments.found
        result = scan([item.data for item in found], seed_of(self._segments.log_id or b""), self._accept)
        if result.cut is not None:
            refuse_unreadable_end(found, result.cut)
        self._note_files()
        replay = self._contents.replay
        first, last = result.first, result.last
        numbers = [item.data.number for item in found]
        steps = pairwise(numbers)
        lost = find_lost(replay, result, [item.data for item in found], seed_of(self._segments.log_id or b""))
        self._note_missing(lost)
        queues, losses = self._counts(lost.counts or {})
        return Inspection(
            folder=self._folder,
            log_id=self._segments.log_id,
            segments=tuple(self._summaries(result.ends)),
            absent=tuple((before + 1, number - 1) for before, number in steps if number > before + 1),
            epochs=(first.epoch, last.epoch) if first and last else (0, 0),
            sequences=(first.sequence, last.sequence) if first and last else (0, 0),
            claimed=result.claimed,
            is_closed=replay.closed,
            checkpoint=replay.checkpoint,
            tail=result.cut,
            documents=len(replay.documents),
            queues=queues,
            flaws=tuple(self._flaws),
            losses=losses,
        )

    def _summaries(self, ends: dict[int, BlockHeader]) -> Iterator[SegmentSummary]:
        for item in self._segments.found:
            number, end = item.data.number, ends.get(item.data.number)
            sealed = end is not None and end.is_seal
            reached = SEGMENT_START if end is None else end.end
            yield SegmentSummary(number, item.path, item.data.size, self._blocks.get(number, 0), reached, sealed)

    def _accept(self, item: BlockHeader | Hole | KnownSegment) -> None:
        """The next block or hole of the log."""
        assert not isinstance(item, KnownSegment), "all segments are read here"
        segment = self._by_number[item.segment]
        if item.segment != self._reading:
            if item.segment > self._reading + 1:  # a checkpoint that goes over the segments between is not whole
                self._contents.replay.gap()
            self._reading = item.segment
            self._progress(self._done, self._total)
            self._done += segment.data.size
        if isinstance(item, Hole):
            self._note_hole(segment, item, f"blocks {item.first} to {item.last} were synced and cannot be read")
            return
        self._blocks[item.segment] = self._blocks.get(item.segment, 0) + 1
        records, error = records_of(segment.data.data, item)
        if error:
            self._note_hole(segment, *malformed(item, error))
        else:
            self._contents.take(records, item.segment, item.offset + BLOCK_HEADER.size)

    def _note_missing(self, lost: LostSegments) -> None:
        foreign = {item.data.number for item in self._segments.foreign}
        for number, reason in zip(lost.numbers, lost.reasons, strict=True):
            if number not in foreign:
                note = self._folder / DAMAGED / missing_name(number) if missing_name(number) in self._copies else None
                self._flaws.append(
                    Flaw(self._folder / segment_name(number), number, 0, 0, reason, note, is_missing=True)
                )

    def _note_hole(self, item: FoundSegment, hole: Hole, reason: str) -> None:
        self._contents.replay.gap()
        self._contents.salvage.look_at(item.data.data[hole.start : hole.end])
        name = copy_name(hole.segment, hole.start, hole.end)
        copy = self._folder / DAMAGED / name if name in self._copies else None
        self._flaws.append(Flaw(item.path, hole.segment, hole.start, hole.end, reason, copy))

    def _note_files(self) -> None:
        for item in self._segments.found if self._segments.log_id is not None else ():
            if item.header is None:
                reason = "neither copy of the segment's header is sound"
                self._flaws.append(Flaw(item.path, item.data.number, 0, SEGMENT_START, reason, is_header=True))
        for item in self._segments.foreign:
            reason = "it is a segment of another log"
            self._flaws.append(Flaw(item.path, item.data.number, 0, item.data.size, reason, is_foreign=True))

    def _counts(self, lost_with_segments: Mapping[int, int]) -> tuple[tuple[QueueContent, ...], dict[str, int]]:
        contents, replay = self._contents, self._contents.replay
        messages = {each.incarnation: 0 for each in replay.documents.values() if each.incarnation}
        sizes = dict(messages)
        lost = contents.salvage.losses(replay.ended)
        for incarnation in messages.keys() & lost_with_segments.keys():
            lost[incarnation] = lost.get(incarnation, 0) + lost_with_segments[incarnation]
        for message in replay.puts:
            is_whole = contents.is_whole(message)
            for incarnation in contents.live_in(message):
                if incarnation in messages and is_whole:
                    messages[incarnation] += 1
                    sizes[incarnation] += contents.sizes[message]
                elif incarnation in messages or (self._flaws and incarnation not in replay.ended):
                    lost[incarnation] = lost.get(incarnation, 0) + 1
        queues = tuple(
            QueueContent(each.kind, each.key, each.incarnation, messages[each.incarnation], sizes[each.incarnation])
            for each in sorted(replay.documents.values(), key=lambda each: (each.kind, each.key))
            if each.incarnation
        )
        names, losses = contents.salvage.names, dict[str, int]()
        for incarnation, count in lost.items():
            name = names.get(incarnation, f"a queue without name (incarnation {incarnation})")
            losses[name] = losses.get(name, 0) + count
        return queues, losses
