"""What the safety of the log relies on, each with a way to switch it off: syncs, checksums, and the order of things.

Syncs and writes are left out by a file layer under one part of the log. Checksums and orderings are switched off by a
function that takes the place of another one. The log itself has no switches for this.
"""

# pyright: reportPrivateUsage=false, reportUnknownLambdaType=false, reportUnknownArgumentType=false
# Functions of the log are replaced by others that take whatever those took.

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from broker.log.simulated_files import SimulatedFiles

from penstock_broker.log import log
from penstock_broker.log.append import recycler
from penstock_broker.log.compaction import ack_compaction, live_contents
from penstock_broker.log.disk import syncers
from penstock_broker.log.disk.files import Buffer, FileLayer
from penstock_broker.log.format import blocks
from penstock_broker.log.format.blocks import BLOCK_MAGIC, SEGMENT_HEADER, SEGMENT_MAGIC, BlockHeader, SegmentHeader
from penstock_broker.log.format.route_sets import SegmentRoutes
from penstock_broker.log.scan import block_scan
from penstock_broker.log.segments import segment_reader, segment_usage
from penstock_broker.log.write import checkpoint, sync

__all__ = ["OFF", "Off"]

Off = Callable[[pytest.MonkeyPatch], None]
Lacks = Callable[[str, str, bytes], bool]
"""Whether a call is left out: by its name, the name of the file, and what is written."""


class _Lacking:
    """A file layer over another, which leaves calls out."""

    def __init__(self, inner: SimulatedFiles, lacks: Lacks) -> None:
        self._inner, self._lacks = inner, lacks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def pwrite(self, handle: int, data: Buffer, offset: int) -> int:
        if self._lacks("pwrite", self._inner.path_of(handle).name, bytes(data)):
            return len(data)
        return self._inner.pwrite(handle, data, offset)

    def fdatasync(self, handle: int) -> None:
        if not self._lacks("fdatasync", self._inner.path_of(handle).name, b""):
            self._inner.fdatasync(handle)

    def fsync_folder(self, folder: Path) -> None:
        if not self._lacks("fsync_folder", "", b""):
            self._inner.fsync_folder(folder)

    def unlink(self, path: Path) -> None:
        if not self._lacks("unlink", path.name, b""):
            self._inner.unlink(path)


def _under(part: str, lacks: Lacks) -> Off:
    """Leave calls out under one part of the log, by its name in the module `log`."""

    def off(patch: pytest.MonkeyPatch) -> None:
        made = getattr(log, part)

        def lacking(files: SimulatedFiles, *rest: Any, **options: Any) -> Any:
            return made(_Lacking(files, lacks), *rest, **options)

        patch.setattr(log, part, lacking)

    return off


def _each(call: str) -> Lacks:
    return lambda called, file, data: called == call


def _instead(place: Any, name: str, made: Callable[[Any], Any]) -> Off:
    """Put what `made` makes of a function in its place."""

    def off(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(place, name, made(getattr(place, name)))

    return off


# Syncs and writes -----------------------------------------------------------------------------------------------------


def _former_segments_unsynced(patch: pytest.MonkeyPatch) -> None:
    """Of the files with unsynced blocks, only the newest is synced."""

    class NewestOnly(_Lacking):
        def fdatasync(self, handle: int) -> None:
            newest = max(path for path in self._inner.paths() if path.name.startswith("segment-"))
            if self._inner.path_of(handle) == newest:
                self._inner.fdatasync(handle)

    part = "choose"
    made = getattr(log, part)

    def choose(files: FileLayer, *rest: Any) -> Any:
        assert isinstance(files, SimulatedFiles)
        return made(NewestOnly(files, _each("nothing")), *rest)

    patch.setattr(log, part, choose)


def _names_unsynced(left_out: int) -> Off:
    """Syncs of the folder with this token are called done, and are not done."""

    def unsynced(submit: Any) -> Any:
        def submitted(syncer: Any, token: int, folder: Path) -> None:
            if token != left_out:
                submit(syncer, token, folder)
                return
            syncer._done.append((token, None))
            os.eventfd_write(syncer.descriptor, 1)

        return submitted

    return _instead(syncers.InlineSyncer, "submit_folder", unsynced)


def _tried_again(once: Callable[..., OSError | None]) -> Any:
    def synced(files: FileLayer, handles: Sequence[int]) -> OSError | None:
        return None if once(files, handles) is None else once(files, handles)

    return synced


# Checksums and what a block says of itself ----------------------------------------------------------------------------


def _unchecked(_: object) -> Any:
    def decoded(segment: memoryview, offset: int, number: int, seed: int) -> BlockHeader | None:
        claim = blocks.claimed_block(segment, offset, number, at=offset)
        return claim.header if claim is not None and claim.header.end <= len(segment) else None

    return decoded


class _Alike(int):
    """A checksum that is never another one."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


def _header_unchecked(_: object) -> Any:
    def decoded(data: bytes, offset: int) -> SegmentHeader | None:
        if len(data) < offset + SEGMENT_HEADER.size:
            return None
        magic, _, _, _, number, size, log_id, time_ms, _, _ = SEGMENT_HEADER.unpack_from(data, offset)
        return SegmentHeader(number, size, log_id, time_ms) if magic == SEGMENT_MAGIC else None

    return decoded


# Orderings ------------------------------------------------------------------------------------------------------------


def _checkpoint_unawaited(note: Any) -> Any:
    def noted(schedule: checkpoint.CheckpointSchedule, sequence: int, segment: int) -> None:
        note(schedule, sequence, segment)
        schedule.kept_from = segment

    return noted


def _end_unawaited(leaving: Any) -> Any:
    def left(segment: Any, sequence: int) -> Any:
        return leaving(segment, 0)

    return left


def _release_unnoted(lower: Any) -> Any:
    def lowered(usage: Any, tallies: Any, number: int, *rest: Any) -> None:
        segment = usage.by_number[number]
        before = segment.released_by
        lower(usage, tallies, number, *rest)
        segment.released_by = before

    return lowered


def _older_puts_unnoted(move: Any) -> Any:
    def moved(usage: Any, source: Any, target: Any, *rest: Any) -> None:
        move(usage, source, target, *rest)
        target.copied_from.clear()

    return moved


def _moved_parts_unawaited(move: Any) -> Any:
    def moved(usage: Any, segments: Any, source: Any, *rest: Any) -> None:
        before = source.released_by
        move(usage, segments, source, *rest)
        source.released_by = before

    return moved


def _moved_acks_unawaited(write: Any) -> Any:
    def written(compaction: Any, made: Any, acks: Any, first_message: int) -> None:
        before = [source.released_by for source in acks.sources]
        write(compaction, made, acks, first_message)
        for source, released_by in zip(acks.sources, before, strict=True):
            source.released_by = released_by

    return written


def _acks_unmoved(_: object) -> Any:
    def written(compaction: Any, made: Any, acks: Any, first_message: int) -> None:
        for source in acks.sources:
            source.acks_into -= acks.held
        made.usage.acks_moved()

    return written


def _acks_forgotten(ack: Any) -> Any:
    def acked(*arguments: Any) -> set[int]:
        ack(*arguments)
        return set()

    return acked


def _acks_unnoted(patch: pytest.MonkeyPatch) -> None:
    def noted(found: live_contents.LiveContents, incarnation: int, messages: Sequence[int]) -> None:
        pass

    patch.setattr(live_contents.LiveContents, "note", noted)


def _acks_unnoted_and_unseen(patch: pytest.MonkeyPatch) -> None:
    def disagreement(found: live_contents.LiveContents) -> Iterator[None]:
        yield None

    _acks_unnoted(patch)
    patch.setattr(live_contents.LiveContents, "disagreement", disagreement)


def _one_boot(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedFiles, "boot_id", lambda self: b"\1" * 16)


def _both(one: Off, other: Off) -> Off:
    def off(patch: pytest.MonkeyPatch) -> None:
        one(patch)
        other(patch)

    return off


_END: Final = _instead(recycler, "_Leaving", _end_unawaited)
_FREED: Final = _instead(segment_usage.SegmentUsage, "_lower", _release_unnoted)
_CHECKPOINT: Final = _instead(checkpoint.CheckpointSchedule, "note_checkpoint", _checkpoint_unawaited)
_MOVED_ACKS: Final = _instead(ack_compaction.AckCompaction, "write", _moved_acks_unawaited)
_PARTS: Final = _instead(segment_usage.SegmentUsage, "move_part", _moved_parts_unawaited)


OFF: Final[dict[str, Off]] = {
    # syncs
    "blocks are synced before they are promised": _under("choose", _each("fdatasync")),
    "a former segment is synced with the newest": _former_segments_unsynced,
    "a failed sync is not repeated": _instead(syncers, "_sync", _tried_again),
    "the name of a new segment is synced": _names_unsynced(sync._NEW_NAME),
    "the new name of a recycled segment is synced": _names_unsynced(sync._SPARE_NAME),
    "the name of the file that says that the log failed is synced": _names_unsynced(sync._FAILURE_FILE),
    "the zeros of a spare segment are synced": _under(
        "choose", lambda call, file, data: call == "fdatasync" and file.startswith("spare-")
    ),
    "recovery syncs what it has read": _under("recover", _each("fdatasync")),
    "recovery syncs names": _under("recover", _each("fsync_folder")),
    "recovery writes again what may be in memory only": _under(
        "recover", lambda call, file, data: call == "pwrite" and data.startswith(BLOCK_MAGIC)
    ),
    "recovery wipes what it cuts": _under(
        "recover", lambda call, file, data: call == "pwrite" and not data.strip(b"\0")
    ),
    "recovery deletes segments behind the cut": _under("recover", _each("unlink")),
    # checksums, and what a block says of itself
    "a block has a checksum": _instead(block_scan, "decode_block", _unchecked),
    "the checksum begins with the log's id": _instead(blocks, "crc32", lambda crc32: lambda data, seed=0: crc32(data)),
    "a block that is read again has its checksum checked": _instead(
        segment_reader, "crc32", lambda _: lambda data, seed=0: _Alike()
    ),
    "a segment's header has a checksum": _instead(blocks, "_decode_header_at", _header_unchecked),
    "what a block says was synced is no torn tail": _instead(block_scan._Found, "claimed", lambda _: lambda found: 0),
    "a torn tail is no damage": _instead(block_scan._Found, "claimed", lambda _: lambda found: 1 << 62),
    # orderings
    "a segment is over when the block that freed it is synced": _FREED,
    "a segment is over when the checkpoint behind it is synced": _CHECKPOINT,
    "a segment is recycled when the block that freed it, or the record of its end, is synced": _both(_FREED, _END),
    "a segment is recycled when the checkpoint behind it, or the record of its end, is synced": _both(
        _CHECKPOINT, _END
    ),
    "a segment is recycled when the record of its end is synced": _END,
    "acks stay as long as the puts that they name": _instead(segment_usage.SegmentUsage, "ack", _acks_forgotten),
    "acks that keep segments are written again before these are free": _instead(
        ack_compaction.AckCompaction, "write", _acks_unmoved
    ),
    "a segment is over when its acks that were written again are synced": _MOVED_ACKS,
    "a segment is recycled when its acks that were written again, or the record of its end, are synced": _both(
        _MOVED_ACKS, _END
    ),
    "acks of copies name the older puts too": _instead(segment_usage.SegmentUsage, "move", _older_puts_unnoted),
    "a segment is over when its parts of bodies that were moved are synced": _PARTS,
    "a segment is recycled when its moved parts of bodies, or the record of its end, are synced": _both(_PARTS, _END),
    "compaction notes acks": _acks_unnoted,
    "compaction notes acks, or sees by the tallies that it did not": _acks_unnoted_and_unseen,
    "a body keeps the segments that it lies in": _instead(
        segment_usage.SegmentUsage, "hold_body", lambda _: lambda *arguments: None
    ),
    "a route set is defined in each segment that uses it": _instead(
        SegmentRoutes, "clear", lambda _: lambda routes: None
    ),
    "numbers are reserved before they are used": _instead(
        checkpoint, "start_record", lambda made: lambda boot_id, *ceilings: made(boot_id, 0, 0)
    ),
    "a restart of the machine is told from one of the process": _one_boot,
    "what recovery concludes of deliveries is written": _instead(
        log, "first_records", lambda made: lambda *told: made(*told)._replace(delivered=[])
    ),
}
