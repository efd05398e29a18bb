"""Bring a folder into a state that the broker may serve: read it, decide what counts, replay it, copy what is damaged,
and make the rest durable.

The order matters, and each step can be repeated after a crash in it: (1) what nobody was promised is wiped, so that it
can never be taken for something later; (2) blocks that no block calls synced are written again, because a failed write-
back may have left them in the page cache only; (3) everything read is synced, names included. Only then a new epoch
may begin.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from penstock_broker.log.blocks import (
    SEGMENT_START,
    BlockFlag,
    BlockHeader,
    decode_segment_header,
    seed_of,
)
from penstock_broker.log.bodies import fetch_bodies
from penstock_broker.log.files import FileLayer, read_all, write_all
from penstock_broker.log.record_reader import Progress, RecordReader, unheard
from penstock_broker.log.records import Document
from penstock_broker.log.replay import LiveMessage, Replay, live_messages, lost_incarnations
from penstock_broker.log.scan import Cut, Hole, ScanResult, SegmentData, scan
from penstock_broker.log.segment_usage import Segment, SegmentUsage
from penstock_broker.log.spare_segments import number_of, segment_name

LOGGER = logging.getLogger(__name__)


class ForeignSegment(Exception):
    """A segment of another log lies in this folder. The message names the file to take away."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Synced data that can't be read: bytes [start, end) of a segment, the reason, and the file with their copy."""

    segment: int
    start: int
    end: int
    reason: str
    copy: Path | None
    """None if there was no space for it."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What the log holds."""

    documents: tuple[Document, ...]
    messages: dict[int, list[LiveMessage]]
    """By incarnation, in number order; a queue without messages has an empty list."""
    epoch: int
    """How often the log had been opened."""
    sequence: int
    """The last block that counts."""
    clean: bool
    """The last run closed the log."""
    damage: tuple[Damage, ...]
    lost: dict[int, int]
    """By incarnation, how many messages were lost with a damaged document of their queue, or part of their body."""


@dataclass(frozen=True, slots=True)
class Restored:
    """Everything that a `Log` starts from."""

    recovered: Recovered
    usage: SegmentUsage
    replay: Replay
    log_id: bytes | None
    """None if the folder held no log."""
    incomplete: dict[int, list[int]]
    """By incarnation, the live messages whose bodies can't be read."""
    delivered_is_known: bool
    """Every delivered-up-to number that was written has been read."""


@dataclass(frozen=True, slots=True)
class _Found:
    path: Path
    handle: int
    data: SegmentData


def recover(files: FileLayer, folder: Path, inline_bytes: int, progress: Progress = unheard) -> Restored:
    """Read all segments, and make durable what counts. Payloads longer than `inline_bytes` stay in the segments.

    Raises NewerFormat or ForeignSegment, which leave the folder unchanged, or OSError.
    """
    names = [name for name in files.names(folder) if name.startswith("segment-")]
    found, log_id = _read(files, folder, sorted(names, key=number_of))
    reader = RecordReader([item.data for item in found], progress)
    result = scan([item.data for item in found], seed_of(log_id or b""), reader.accept)
    replay, malformed = reader.replay, reader.malformed
    usage = SegmentUsage()
    damage = _copy_damaged(files, folder, found, [*_holes(result), *malformed])
    if result.cut is not None:
        kept = _make_durable(files, folder, found, result, result.cut)
        _add_segments(usage, kept, result, reader)
    incomplete = fetch_bodies(replay, files, usage, inline_bytes)
    delivered_is_known = replay.closed or replay.boot_id == files.boot_id()
    messages, without_document = live_messages(replay, delivered_is_known=delivered_is_known)
    _count_live(usage, replay, messages)
    sequence, epoch = _last(result)
    lost = lost_incarnations(without_document, replay) if damage else {}
    progress(reader.total, reader.total)
    recovered = Recovered(
        documents=tuple(replay.documents.values()),
        messages=messages,
        epoch=epoch,
        sequence=sequence,
        clean=replay.closed,
        damage=damage,
        lost=lost | {incarnation: len(numbers) for incarnation, numbers in incomplete.items()},
    )
    return Restored(recovered, usage, replay, log_id, incomplete, delivered_is_known)


def _last(result: ScanResult) -> tuple[int, int]:
    """The highest sequence and epoch that count."""
    blocks = [item for item in result.accepted if isinstance(item, BlockHeader)]
    highest = max((block.sequence for block in blocks), default=0)
    return highest, max((block.epoch for block in blocks), default=0)


def _read(files: FileLayer, folder: Path, names: Sequence[str]) -> tuple[list[_Found], bytes | None]:
    found: list[_Found] = []
    log_id: bytes | None = None
    contents = _Contents(files)
    for name in names:
        path, number = folder / name, number_of(name)
        handle = files.open(path, create=False)
        contents.handles[number] = handle
        header = decode_segment_header(files.pread(handle, SEGMENT_START, 0))
        if header is not None:
            if log_id is not None and header.log_id != log_id:
                raise ForeignSegment(f"{path} belongs to another log: take it out of the folder")
            log_id = header.log_id
        found.append(_Found(path, handle, SegmentData(number, files.size(handle), contents.load)))
    return found, log_id


class _Contents:
    """Reads segments and keeps one of them at a time: the whole log need not fit into memory."""

    def __init__(self, files: FileLayer) -> None:
        self.handles: dict[int, int] = {}
        self._files = files
        self._number, self._content = -1, b""

    def load(self, number: int) -> bytes:
        if number != self._number:
            self._content = b""  # free one before the next is read
            self._content, self._number = read_all(self._files, self.handles[number]), number
        return self._content


def _holes(result: ScanResult) -> list[tuple[Hole, str]]:
    holes = [item for item in result.accepted if isinstance(item, Hole)]
    return [(hole, f"blocks {hole.first} to {hole.last} were synced and cannot be read") for hole in holes]


def _copy_damaged(
    files: FileLayer, folder: Path, found: Sequence[_Found], holes: Sequence[tuple[Hole, str]]
) -> tuple[Damage, ...]:
    damage: list[Damage] = []
    by_number = {item.data.number: item for item in found}
    for hole, reason in holes:
        content = by_number[hole.segment].data.data[hole.start : hole.end]
        name = f"{segment_name(hole.segment).removesuffix('.log')}-{hole.start}-{hole.end}.bin"
        copy = _save(files, folder / "damaged", name, content)
        damage.append(Damage(hole.segment, hole.start, hole.end, reason, copy))
        LOGGER.error("the log is damaged: %s, bytes %d to %d: %s; copy: %s", by_number[hole.segment].path, hole.start,
                     hole.end, reason, copy or "none, the disk is full")  # fmt: skip
    return tuple(damage)


def _save(files: FileLayer, folder: Path, name: str, content: bytes) -> Path | None:
    try:
        if name in files.names(folder):
            return folder / name
        handle = files.open(folder / name, create=True)
        try:
            write_all(files, handle, content, 0)
            files.fdatasync(handle)
        finally:
            files.close(handle)
        files.fsync_folder(folder)
    except OSError as error:
        LOGGER.error("the damaged bytes could not be copied to %s: %s", folder / name, error)
        return None
    return folder / name


def _make_durable(
    files: FileLayer, folder: Path, found: Sequence[_Found], result: ScanResult, cut: Cut
) -> list[_Found]:
    """Wipe what was not promised, rewrite what may be in memory only, and sync all. Returns the segments that stay."""
    kept = [item for item in found if item.data.number <= cut.segment]
    for item in found:
        if item.data.number > cut.segment:
            files.close(item.handle)
            files.unlink(item.path)
    by_number = {item.data.number: item for item in kept}
    last = by_number[cut.segment]
    if cut.end > cut.offset:
        write_all(files, last.handle, bytes(cut.end - cut.offset), cut.offset)
    for block in result.accepted:
        if isinstance(block, BlockHeader) and block.sequence > result.claimed:
            item = by_number[block.segment]
            write_all(files, item.handle, item.data.data[block.offset : block.end], block.offset)
    for item in kept:
        files.fdatasync(item.handle)
    files.fsync_folder(folder)
    return kept


def _add_segments(usage: SegmentUsage, kept: Sequence[_Found], result: ScanResult, reader: RecordReader) -> None:
    replay = reader.replay
    ends = {block.segment: block for block in result.accepted if isinstance(block, BlockHeader)}
    highest = 0
    for item in kept:
        number = item.data.number
        first = replay.first_messages.get(number, highest + 1)
        highest = replay.last_messages.get(number, highest)
        last = ends.get(number)
        size = max(item.data.size, SEGMENT_START)
        sealed = last is not None and bool(last.flags & BlockFlag.SEAL)
        end = size if sealed else SEGMENT_START if last is None else last.end
        acks_into, last_message = replay.acks_into.get(number, set()), replay.last_messages.get(number, 0)
        segment = Segment(
            number, item.path, item.handle, size, end, first, last_message=last_message, acks_into=acks_into
        )
        segment.blocks = reader.blocks.get(number, segment.blocks)
        segment.definitions = reader.definitions.get(number, segment.definitions)
        usage.add_segment(segment)


def _count_live(usage: SegmentUsage, replay: Replay, messages: dict[int, list[LiveMessage]]) -> None:
    usage.queues = {incarnation: {} for incarnation in messages}
    puts = replay.puts
    for incarnation, queue in messages.items():
        for segment, together in groupby([message.number for message in queue], lambda number: puts[number].segment):
            usage.restore(incarnation, list(together), segment)
    for number in replay.staged & puts.keys():
        live = puts[number]
        if live.staged is not None:
            places = replay.parts.get(live.staged[0], ())
            segments = [usage.by_number[segment] for segment in dict.fromkeys(place.segment for place in places)]
            usage.hold_body(number, live.waits_in, segments)
