"""Bring a folder back to a state that the broker may serve: read, judge, replay, set damage aside, make it durable.

Order matters and each step can be repeated after a crash in it: (1) what nobody was promised is wiped, so that it can
never be taken for something later; (2) blocks that no block calls synced are written again, because a failed write-
back may have left them in the page cache only; (3) everything read is synced, names included. Only then a new epoch
may begin.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock_broker.log.blocks import (
    BLOCK_HEADER,
    SEGMENT_START,
    BlockFlag,
    BlockHeader,
    decode_segment_header,
    seed_of,
)
from penstock_broker.log.bodies import Bodies
from penstock_broker.log.bodies import fetch_bodies
from penstock_broker.log.files import FileLayer, read_all, write_all
from penstock_broker.log.segment_usage import Living, Segment
from penstock_broker.log.records import Document, Malformed, decode_records
from penstock_broker.log.replay import Message, Replay, live_messages, lost_incarnations
from penstock_broker.log.scan import Cut, Hole, SegmentData, Verdict, judge
from penstock_broker.log.spare_segments import number_of, segment_name

LOGGER = logging.getLogger(__name__)


class ForeignSegment(Exception):
    """A segment of another log lies in this folder. Take it away."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Synced data that cannot be read: which bytes of which segment, why, and their copy (None: no space for it)."""

    segment: int
    start: int
    end: int
    reason: str
    copy: Path | None


@dataclass(frozen=True, slots=True)
class Recovered:
    """What the log holds. `messages` is per incarnation, in number order; incarnations without messages have an empty
    list.

    `sequence`: the last block that counts. `clean`: the last run closed the log. `lost`: messages that fell to damage
    (their incarnation's document, or a part of their body did), by incarnation.
    """

    documents: tuple[Document, ...]
    messages: dict[int, list[Message]]
    epoch: int
    sequence: int
    clean: bool
    damage: tuple[Damage, ...]
    lost: dict[int, int]


@dataclass(frozen=True, slots=True)
class Restored:
    """Everything a Log starts from. `sequence` is the last accepted block, all of it synced.

    `incomplete`: live messages, by incarnation, whose bodies can't be read. `exact_marks`: all marks were read.
    """

    recovered: Recovered
    living: Living
    bodies: Bodies
    replay: Replay
    log_id: bytes | None
    sequence: int
    incomplete: dict[int, list[int]]
    exact_marks: bool


@dataclass(frozen=True, slots=True)
class _Found:
    path: Path
    handle: int
    data: SegmentData


def recover(files: FileLayer, folder: Path, inline_bytes: int) -> Restored:
    """Read all segments and make them servable. Longer payloads than `inline_bytes` are left in the segments.

    Raises NewerFormat, ForeignSegment, or OSError; the folder is then unchanged.
    """
    names = [name for name in files.names(folder) if name.startswith("segment-")]
    found, log_id = _read(files, folder, sorted(names, key=number_of))
    verdict = judge([item.data for item in found], seed_of(log_id or b""))
    replay, malformed = _replay(verdict, {item.data.number: item.data for item in found})
    living = Living()
    bodies = Bodies(files, living)
    damage = _set_aside(files, folder, found, [*_holes(verdict), *malformed])
    if verdict.cut is not None:
        kept = _make_durable(files, folder, found, verdict, verdict.cut)
        _add_segments(living, kept, verdict, replay)
    incomplete = fetch_bodies(replay, living, bodies, inline_bytes)
    exact = replay.closed or replay.boot_id == files.boot_id()
    messages, strangers = live_messages(replay, exact_marks=exact)
    _count(living, replay, messages)
    sequence, epoch = _last(verdict)
    lost = lost_incarnations(strangers, replay) if damage else {}
    recovered = Recovered(
        documents=tuple(replay.documents.values()),
        messages=messages,
        epoch=epoch,
        sequence=sequence,
        clean=replay.closed,
        damage=damage,
        lost=lost | {incarnation: len(numbers) for incarnation, numbers in incomplete.items()},
    )
    return Restored(recovered, living, bodies, replay, log_id, sequence, incomplete, exact)


def _last(verdict: Verdict) -> tuple[int, int]:
    """The highest sequence and epoch that count."""
    blocks = [item for item in verdict.accepted if isinstance(item, BlockHeader)]
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
    """The bytes of one segment at a time: the whole log need not fit into memory."""

    def __init__(self, files: FileLayer) -> None:
        self.handles: dict[int, int] = {}
        self._files = files
        self._number, self._content = -1, b""

    def load(self, number: int) -> bytes:
        if number != self._number:
            self._content = b""  # let go of one before the next is read
            self._content, self._number = read_all(self._files, self.handles[number]), number
        return self._content


def _replay(verdict: Verdict, data: dict[int, SegmentData]) -> tuple[Replay, list[tuple[Hole, str]]]:
    replay = Replay()
    malformed: list[tuple[Hole, str]] = []
    for item in verdict.accepted:
        if isinstance(item, Hole):
            replay.gap()
            continue
        start = item.offset + BLOCK_HEADER.size
        records = memoryview(data[item.segment].data)[start : start + item.length]
        try:
            replay.apply(list(decode_records(records)), item.segment, start)
        except Malformed as error:
            replay.gap()
            hole = Hole(item.segment, item.offset, item.end, item.sequence, item.sequence)
            malformed.append((hole, f"block {item.sequence} is sound but its records are not: {error}"))
    return replay, malformed


def _holes(verdict: Verdict) -> list[tuple[Hole, str]]:
    holes = [item for item in verdict.accepted if isinstance(item, Hole)]
    return [(hole, f"blocks {hole.first} to {hole.last} were synced and cannot be read") for hole in holes]


def _set_aside(
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
        LOGGER.error("the damaged part could not be copied to %s: %s", folder / name, error)
        return None
    return folder / name


def _make_durable(files: FileLayer, folder: Path, found: Sequence[_Found], verdict: Verdict, cut: Cut) -> list[_Found]:
    """Wipe what was not promised, rewrite what may be in memory only, sync all; the segments that stay."""
    kept = [item for item in found if item.data.number <= cut.segment]
    for item in found:
        if item.data.number > cut.segment:
            files.close(item.handle)
            files.unlink(item.path)
    by_number = {item.data.number: item for item in kept}
    last = by_number[cut.segment]
    if cut.end > cut.offset:
        write_all(files, last.handle, bytes(cut.end - cut.offset), cut.offset)
    for block in verdict.accepted:
        if isinstance(block, BlockHeader) and block.sequence > verdict.claimed:
            item = by_number[block.segment]
            write_all(files, item.handle, item.data.data[block.offset : block.end], block.offset)
    for item in kept:
        files.fdatasync(item.handle)
    files.fsync_folder(folder)
    return kept


def _add_segments(living: Living, kept: Sequence[_Found], verdict: Verdict, replay: Replay) -> None:
    ends = {block.segment: block for block in verdict.accepted if isinstance(block, BlockHeader)}
    highest = 0
    for item in kept:
        number = item.data.number
        first = replay.first_messages.get(number, highest + 1)
        highest = replay.last_messages.get(number, highest)
        last = ends.get(number)
        size = max(item.data.size, SEGMENT_START)
        sealed = last is not None and bool(last.flags & BlockFlag.SEAL)
        end = size if sealed else SEGMENT_START if last is None else last.end
        names, last_message = replay.named.get(number, set()), replay.last_messages.get(number, 0)
        segment = Segment(number, item.path, item.handle, size, end, first, last_message=last_message, names=names)
        living.add_segment(segment)


def _count(living: Living, replay: Replay, messages: dict[int, list[Message]]) -> None:
    living.queues = {incarnation: {} for incarnation in messages}
    for incarnation, queue in messages.items():
        for message in queue:
            living.restore(incarnation, message.number, replay.puts[message.number].segment)
    for number, live in replay.puts.items():
        if live.staged is not None:
            places = replay.parts.get(live.staged[0], ())
            segments = [living.by_number[segment] for segment in dict.fromkeys(place.segment for place in places)]
            living.hold(number, set(live.incarnations).difference(live.acked), segments)
