"""Writes digests of sealed segments while the broker runs, in slices of a turn, so that a start need not read them.

A segment gets one if it is still needed some seconds after it was sealed: where messages are consumed as they come,
segments are recycled before, and nothing is done for them. A digest is written when the whole segment is synced, and is
never synced itself: at a start it is whole, or the segment is read. Source: docs/decisions/085-digests.md.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from struct import error as StructError
from typing import Final

from penstock_broker.log.disk.files import FileLayer, write_all
from penstock_broker.log.format.record_codec import Malformed
from penstock_broker.log.recovery.digest_builder import DigestBuilder, TooLarge
from penstock_broker.log.recovery.live_puts import Pageable
from penstock_broker.log.segments.segment import Segment
from penstock_broker.log.segments.segment_digest import digest_name
from penstock_broker.log.segments.segment_reader import sound_blocks
from penstock_broker.log.write.writer import SegmentWriter

__all__ = ["DigestWriter"]

LOGGER = logging.getLogger(__name__)

LARGEST_SHARE: Final = 8
"""A digest has at most an eighth of its segment's size. Else the segment has none, and is read at a start."""
WRITTEN_BYTES: Final = 128 * 1024
"""Bytes that are written between two pauses."""


class DigestWriter:
    """Makes one digest at a time."""

    def __init__(
        self,
        files: FileLayer,
        writer: SegmentWriter,
        pageable: Pageable | None,
        after_ms: int,
        clock: Callable[[], int],
    ) -> None:
        """`pageable`: which messages may be left in the log at a start; None: no digests are written. `after_ms`: how
        long a segment has to be sealed; `clock`: milliseconds since 1970.
        """
        self._files, self._writer, self._pageable = files, writer, pageable
        self._after_ms, self._clock = after_ms, clock
        self._newest = 0
        self._sealed: deque[tuple[int, int]] = deque()  # segments without a digest, and since when they are known
        self._steps: Iterator[None] | None = None
        self._awaited = 0

    def wants_work(self, *, is_full: bool) -> bool:
        """Whether `work` has something to do now. Asked in each turn. `is_full`: the disk is, so nothing is written."""
        if self._pageable is None or is_full:
            return False
        if self._steps is not None:
            return self._writer.synced >= self._awaited
        segments = self._writer.usage.segments
        if segments[-1].number != self._newest:
            self._note_sealed()
        return bool(self._sealed) and self._next() is not None

    def work(self, more: Callable[[], bool]) -> None:
        """Go on while `more()`."""
        if self._steps is None:
            segment = self._next()
            if segment is None or self._pageable is None:
                return
            self._sealed.popleft()
            self._steps = self._make(segment, self._pageable)
        for _ in self._steps:
            if self._writer.synced < self._awaited or not more():
                return
        self._steps, self._awaited = None, 0

    def forget(self, segment: Segment) -> None:
        """The segment is recycled. Raises OSError."""
        if segment.has_digest:
            with suppress(FileNotFoundError):  # nothing is lost if somebody has deleted it
                self._files.unlink(self._writer.folder / digest_name(segment.number))

    def _note_sealed(self) -> None:
        segments, now = self._writer.usage.segments, self._clock()
        self._sealed += [
            (each.number, now) for each in segments[:-1] if each.number >= self._newest and not each.has_digest
        ]
        self._newest = segments[-1].number

    def _next(self) -> Segment | None:
        """The segment whose turn it is; None if none is sealed for so long."""
        while self._sealed:
            number, since = self._sealed[0]
            # Less than nothing has passed: the clock was put back, and the time noted before says nothing.
            if 0 <= self._clock() - since < self._after_ms:
                return None
            segment = self._writer.usage.by_number.get(number)
            if segment is not None:
                return segment
            self._sealed.popleft()
        return None

    def _make(self, segment: Segment, pageable: Pageable) -> Iterator[None]:
        writer = self._writer
        most = segment.size // LARGEST_SHARE
        builder = DigestBuilder(segment.number, segment.first_message, writer.seed, pageable, most)
        try:
            for block in sound_blocks(self._files, segment, writer.seed):
                yield
                if not self._is_there(segment):
                    return
                if block is not None:
                    yield from builder.add(block.header, block.records)
            if not builder.is_complete:
                return
            self._awaited = builder.seal_sequence
            yield
            if self._is_there(segment):  # else nobody would delete the file before the next start
                yield from self._write(segment, builder)
        except TooLarge as error:
            LOGGER.debug("segment %d has no digest: %s", segment.number, error)
        except (Malformed, StructError, ValueError) as error:
            LOGGER.warning("segment %d has no digest, because it can't be read: %s", segment.number, error)

    def _write(self, segment: Segment, builder: DigestBuilder) -> Iterator[None]:
        """Raises TooLarge."""
        pieces = builder.finished()
        path = self._writer.folder / digest_name(segment.number)
        try:
            handle = self._files.open(path, create=True)
            segment.has_digest = True
            try:
                waiting, size, at = list[bytes](), 0, 0
                for piece in pieces:
                    waiting.append(piece)
                    size += len(piece)
                    if size >= WRITTEN_BYTES:
                        write_all(self._files, handle, b"".join(waiting), at)
                        waiting, size, at = [], 0, at + size
                        yield
                        if not self._is_there(segment):
                            return
                write_all(self._files, handle, b"".join(waiting), at)
            finally:
                self._files.close(handle)
        except OSError as error:  # what is there of it is deleted with the segment, or by the next start
            LOGGER.warning("%s can't be written, so the next start reads the segment: %s", path, error)

    def _is_there(self, segment: Segment) -> bool:
        """Whether the segment was not recycled meanwhile."""
        return self._writer.usage.by_number.get(segment.number) is segment
