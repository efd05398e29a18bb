"""Bring a folder into a state that the broker may serve: read it, decide what counts, replay it, copy what is damaged,
and make the rest durable.

The order matters, and each step can be repeated after a crash in it: (1) what nobody was promised is wiped, so that it
can never be taken for something later; (2) blocks that no block calls synced are written again, because a failed write-
back may have left them in the page cache only; (3) everything read is synced, names included. Only then a new epoch
may begin.
"""

import logging
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from penstock_broker.log.disk.damage import DAMAGED, Damage, copy_name, save_copy, set_aside
from penstock_broker.log.disk.failure_file import was_left
from penstock_broker.log.disk.files import FileLayer, write_all
from penstock_broker.log.format.blocks import (
    SEGMENT_START,
    SegmentHeader,
    encode_segment_header,
    seed_of,
)
from penstock_broker.log.format.record_codec import PUT, Malformed, ack_record, chunks
from penstock_broker.log.format.records import Document, EndReason, Put, SegmentState
from penstock_broker.log.format.segment_states import segment_state_record
from penstock_broker.log.recovery.bodies import StagedBody, fetch_bodies
from penstock_broker.log.recovery.digest_files import DigestFiles, DigestUnusable
from penstock_broker.log.recovery.known_bodies import check_known_bodies
from penstock_broker.log.recovery.live_messages import (
    LiveMessage,
    PagedQueue,
    live_messages,
    lost_incarnations,
    paged_queues,
)
from penstock_broker.log.recovery.live_puts import Pageable
from penstock_broker.log.recovery.lost_segments import find_lost, log_lost
from penstock_broker.log.recovery.paged_puts import Batch, LiveRun
from penstock_broker.log.recovery.record_reader import KEPT_BYTES, Progress, RecordReader, no_progress
from penstock_broker.log.recovery.recovered_places import located
from penstock_broker.log.recovery.recovery_progress import RecoveryProgress
from penstock_broker.log.recovery.replay import Replay
from penstock_broker.log.scan.block_scan import Cut, Hole, KnownSegment, ScanResult, scan
from penstock_broker.log.scan.segment_files import FoundSegment, find_segments, refuse_unreadable_end
from penstock_broker.log.segments.checked_blocks import CheckedBlocks
from penstock_broker.log.segments.segment import Segment
from penstock_broker.log.segments.segment_reader import find_put
from penstock_broker.log.segments.segment_usage import SegmentUsage

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What the log holds."""

    documents: tuple[Document, ...]
    messages: dict[int, list[LiveMessage]]
    """By incarnation, in number order; a queue without messages has an empty list."""
    paged: dict[int, PagedQueue]
    """By incarnation, further messages of queues, whose bodies are in the log only."""
    epoch: int
    """How often the log had been opened."""
    sequence: int
    """The last block that counts."""
    clean: bool
    """The last run closed the log."""
    damage: tuple[Damage, ...]
    lost: dict[int, int]
    """By incarnation, how many messages were lost with their segment, a damaged document of their queue, or part of
    their body."""


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
    incomplete_in: set[int]
    """Numbers of the segments with the puts of these."""
    delivered_is_known: bool
    """Every delivered-up-to number was written, and has been read."""
    lost_segments: tuple[int, ...]
    """Those that are missing although they were still needed."""
    pageable: Pageable | None
    """By what rule bodies were left in the log."""


class FirstRecords(NamedTuple):
    """What recovery has to say in the first block of an epoch."""

    acks: list[bytes]
    """Of messages whose bodies can't be read."""
    delivered: list[tuple[int, int]]
    """Incarnations, and up to which message they may have delivered."""
    segments: tuple[bytes, ...] = ()
    """Of lost segments, that they are over: each is told of once."""
    acks_into: frozenset[int] = frozenset()
    """Numbers of the segments with the puts that the acks name."""
    asks_for_checkpoint: bool = False
    """Damage stays behind the last checkpoint: only the next one says that its deliveries are known again."""

    def note_acks(self, usage: SegmentUsage, since: int) -> None:
        """The acks were written to segments from this number on: they stay for as long as the puts that they name."""
        for segment in usage.segments:
            if segment.number >= since:
                segment.acks_into |= {number for number in self.acks_into if number < segment.number}


def first_records(restored: Restored, most: int) -> FirstRecords:
    """What the epoch's first block says of what was recovered. `most`: numbers that one record of acks may hold."""
    acks = [
        ack_record(incarnation, chunk, EndReason.DROPPED)
        for incarnation, lost in restored.incomplete.items()
        for chunk in chunks(lost, most)
    ]
    # What recovery concludes from a power failure must hold in later runs, which can't conclude it again.
    live: dict[int, int] = {}
    if not restored.delivered_is_known:
        recovered = restored.recovered
        live = {incarnation: each[-1].number for incarnation, each in recovered.messages.items() if each}
        for incarnation, queue in recovered.paged.items():
            live[incarnation] = max(queue.runs[-1].lasts[-1], live.get(incarnation, 0))
    over = (segment_state_record(SegmentState(number, is_over=True)) for number in restored.lost_segments)
    lacks = restored.replay.lacks_delivered
    return FirstRecords(acks, list(live.items()), tuple(over), frozenset(restored.incomplete_in), lacks)


def recover(
    files: FileLayer,
    folder: Path,
    inline_bytes: int,
    progress: Progress = no_progress,
    pageable: Pageable | None = None,
    kept_bytes: int = KEPT_BYTES,
) -> Restored:
    """Read all segments, and make durable what counts. Payloads longer than `inline_bytes` stay in the segments.

    `pageable`: which other payloads may stay there, if all that are alive take more than `kept_bytes`. Raises
    NewerFormat, ForeignSegment or Unreadable, which leave the folder unchanged, or OSError.
    """
    tracker = RecoveryProgress(progress)
    segments = find_segments(files, folder, tracker.opened)
    found, log_id = segments.found, segments.log_id
    seed = seed_of(log_id or b"")
    digests = DigestFiles(files, folder, seed)
    known = digests.known(found, tracker.opened) if pageable is not None and log_id is not None else {}
    reader, result, known = _read(found, known, digests, tracker, pageable, kept_bytes, inline_bytes)
    if result.cut is not None:
        refuse_unreadable_end(found, result.cut)
    replay, malformed = reader.replay, reader.malformed
    usage = SegmentUsage()
    damage = _copy_damaged(files, folder, found, [*_holes(result), *malformed], tracker)
    damage += tuple(_set_aside_foreign(files, item) for item in segments.foreign)
    lost_segments = find_lost(replay, result, [item.data for item in found], seed)
    log_lost(lost_segments, replay)
    damage += tuple(
        Damage(number, 0, 0, reason, None)
        for number, reason in zip(lost_segments.numbers, lost_segments.reasons, strict=True)
        if number not in {item.data.number for item in segments.foreign}
    )
    if result.cut is not None:
        kept = _make_durable(files, folder, found, result, result.cut, log_id, tracker)
        _add_segments(usage, kept, result, reader, known)
    digests.keep_only(known)
    _fetch_remarked(replay, files, usage, seed, tracker)
    bodies, incomplete, incomplete_in = fetch_bodies(
        replay, files, usage, inline_bytes, CheckedBlocks(files, seed), tracker.step
    )
    was_written = replay.closed or (replay.boot_id == files.boot_id() and not was_left(files, folder))
    delivered_is_known = was_written and not replay.lacks_delivered and not lost_segments.numbers
    messages, without_document = live_messages(replay, delivered_is_known=delivered_is_known)
    paged, others = _count_live(usage, replay, messages, bodies, delivered_is_known=delivered_is_known)
    for incarnation, count in others.items():
        without_document[incarnation] = without_document.get(incarnation, 0) + count
    lost = lost_incarnations(without_document, replay) if damage else {}
    for incarnation, numbers in incomplete.items():
        lost[incarnation] = lost.get(incarnation, 0) + len(numbers)
    for incarnation, count in (lost_segments.counts or {}).items():
        if incarnation in usage.queues:
            lost[incarnation] = lost.get(incarnation, 0) + count
    tracker.end(reader.total)
    recovered = Recovered(
        documents=tuple(replay.documents.values()),
        messages=messages,
        paged=paged,
        epoch=result.last.epoch if result.last is not None else 0,
        sequence=result.last.sequence if result.last is not None else 0,
        clean=replay.closed,
        damage=damage,
        lost=lost,
    )
    known_lost = lost_segments.numbers
    return Restored(
        recovered, usage, replay, log_id, incomplete, incomplete_in, delivered_is_known, known_lost, pageable
    )


def _read(
    found: Sequence[FoundSegment],
    known: dict[int, KnownSegment],
    digests: DigestFiles,
    tracker: RecoveryProgress,
    pageable: Pageable | None,
    kept_bytes: int,
    inline_bytes: int,
) -> tuple[RecordReader, ScanResult, dict[int, KnownSegment]]:
    """Read the records, of known segments by their digests, and say which are known. If anything is wrong with the log
    then all of it is read: what is lost is found out from the segments alone.
    """
    while True:
        data = [replace(item.data, known=known.get(item.data.number)) for item in found]
        reader = RecordReader(data, tracker.reading, pageable, kept_bytes, digests.load)
        try:
            result = scan(data, digests.seed, reader.accept)
            if known:
                by_number = {item.data.number: item for item in found}
                told = (digests.files, by_number, known, digests.seed, inline_bytes, tracker.step)
                check_known_bodies(reader.replay, *told)
        except DigestUnusable as error:
            LOGGER.warning("all segments are read: %s", error)
        else:
            if not known or (result.is_in_order and not result.holes and not reader.malformed):
                return reader, result, known
        known = {}
        tracker.again()


def _holes(result: ScanResult) -> list[tuple[Hole, str]]:
    return [(hole, f"blocks {hole.first} to {hole.last} were synced and cannot be read") for hole in result.holes]


def _copy_damaged(
    files: FileLayer,
    folder: Path,
    found: Sequence[FoundSegment],
    holes: Sequence[tuple[Hole, str]],
    tracker: RecoveryProgress,
) -> tuple[Damage, ...]:
    damage: list[Damage] = []
    by_number = {item.data.number: item for item in found}
    for hole, reason in holes:
        content = by_number[hole.segment].data.data[hole.start : hole.end]
        copy = save_copy(files, folder / DAMAGED, copy_name(hole.segment, hole.start, hole.end), content)
        damage.append(Damage(hole.segment, hole.start, hole.end, reason, copy))
        tracker.step()
        LOGGER.error("the log is damaged: %s, bytes %d to %d: %s; copy: %s", by_number[hole.segment].path, hole.start,
                     hole.end, reason, copy or "none, the disk is full")  # fmt: skip
    return tuple(damage)


def _set_aside_foreign(files: FileLayer, item: FoundSegment) -> Damage:
    reason = "it is a segment of another log"
    files.close(item.handle)
    moved = set_aside(files, item.path)
    LOGGER.error("the log is damaged: %s: %s; it was moved to %s", item.path, reason, moved)
    return Damage(item.data.number, 0, item.data.size, reason, moved)


def _make_durable(
    files: FileLayer,
    folder: Path,
    found: Sequence[FoundSegment],
    result: ScanResult,
    cut: Cut,
    log_id: bytes | None,
    tracker: RecoveryProgress,
) -> list[FoundSegment]:
    """Wipe what was not promised, rewrite what may be in memory only, and sync all. Returns the segments that stay.

    Without a log id none does: the first start ended before it had promised anything.
    """
    kept: list[FoundSegment] = []
    for item in found:
        if log_id is not None and item.data.number <= cut.segment:
            kept.append(item)
        else:
            files.close(item.handle)
            files.unlink(item.path)
    if log_id is None:
        files.fsync_folder(folder)
        return []
    by_number = {item.data.number: item for item in kept}
    last = by_number[cut.segment]
    for item in kept:
        if item.header is None:  # the next start must find the log's id, also if only this segment is left
            size = max(item.data.size, SEGMENT_START)
            page = encode_segment_header(SegmentHeader(item.data.number, size, log_id, 0))
            write_all(files, item.handle, page, 0)
    if cut.end > cut.offset:
        write_all(files, last.handle, bytes(cut.end - cut.offset), cut.offset)
    for block in result.unclaimed:
        item = by_number[block.segment]
        write_all(files, item.handle, item.data.data[block.offset : block.end], block.offset)
    for item in kept:
        files.fdatasync(item.handle)
        tracker.step()
    files.fsync_folder(folder)
    return kept


def _add_segments(
    usage: SegmentUsage, kept: Sequence[FoundSegment], result: ScanResult, reader: RecordReader, known: Container[int]
) -> None:
    replay = reader.replay
    highest = 0
    for item in kept:
        number = item.data.number
        first = replay.first_messages.get(number, highest + 1)
        highest = replay.last_messages.get(number, highest)
        last = result.ends.get(number)
        size = max(item.data.size, SEGMENT_START)
        sealed = last is not None and last.is_seal
        end = size if sealed else SEGMENT_START if last is None else last.end
        acks_into, last_message = replay.acks_into.get(number, set()), replay.last_messages.get(number, 0)
        segment = Segment(
            number, item.path, item.handle, size, end, first, last_message=last_message, acks_into=acks_into
        )
        segment.has_digest = number in known
        segment.copied = replay.copied.get(number, [])
        segment.blocks = reader.blocks.get(number, segment.blocks)
        segment.definitions = reader.definitions.get(number, segment.definitions)
        usage.add_segment(segment)


def _count_live(
    usage: SegmentUsage,
    replay: Replay,
    messages: dict[int, list[LiveMessage]],
    bodies: dict[int, StagedBody],
    *,
    delivered_is_known: bool,
) -> tuple[dict[int, PagedQueue], dict[int, int]]:
    """Note what lives in which segment; the paged messages by incarnation, and how many no document holds."""
    usage.queues = {incarnation: {} for incarnation in messages}
    puts = replay.puts
    if usage.segments:
        _note_bytes(usage, replay)
        usage.locate(located(replay), replay.highest_message + 1)
    for incarnation, queue in messages.items():
        for segment, together in groupby([message.number for message in queue], lambda number: puts[number].segment):
            usage.restore(incarnation, list(together), segment)
    for number in replay.repeated & puts.keys():
        usage.by_number[puts[number].segment].copied_from.update(puts[number].older)
    for number, body in bodies.items():
        usage.hold_body(number, puts[number].waits_in, body)
    sizes: dict[Batch, int] = {}

    def counted(incarnation: int, batch: Batch, run: LiveRun) -> None:
        usage.restore_run(incarnation, run.firsts, run.lasts, batch.segment)
        sizes[batch] = max(sizes.get(batch, 0), run.bytes + run.messages * PUT.size)

    found = paged_queues(replay, delivered_is_known=delivered_is_known, counted=counted)
    for batch, size in sizes.items():
        usage.by_number[batch.segment].put_bytes += size
    return found


def _note_bytes(usage: SegmentUsage, replay: Replay) -> None:
    """Note how many bytes the live messages of each segment take; bodies that came in parts do not count."""
    by_number, staged = usage.by_number, replay.staged
    for number, live in replay.puts.items():
        by_number[live.segment].put_bytes += PUT.size if number in staged else PUT.size + len(live.put.payload)


def _fetch_remarked(
    replay: Replay, files: FileLayer, usage: SegmentUsage, seed: int, tracker: RecoveryProgress
) -> None:
    """Read those paged messages of which a queue has changed a part: queues keep them in memory."""
    paged = replay.paged
    for incarnation, number in replay.remarks if paged is not None else ():
        if paged is None or number in replay.puts or not paged.holds(incarnation, number):
            continue
        segment = usage.by_number.get(paged.segment_of(number))
        put: Put | None = None
        why = "it is not where the log says"
        try:
            put = find_put(files, segment, number, seed) if segment is not None else None
        except Malformed as error:
            why = str(error)
        tracker.step()
        if put is None:
            LOGGER.error("the log is damaged: message %d can't be read again: %s; this run does without what was noted "
                         "of it", number, why)  # fmt: skip
        else:
            replay.bring_back(put)
