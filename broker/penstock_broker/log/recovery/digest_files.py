"""The files of digests: which of them speak of the segments that are there.

A digest is never synced and nothing is promised about it: whatever is not a whole digest of just this segment is
deleted, and the segment is read instead. Source: docs/decisions/085-digests.md.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from penstock_broker.log.disk.files import FileLayer, read_file
from penstock_broker.log.disk.spare_segments import number_of
from penstock_broker.log.format.blocks import BLOCK_HEADER, SEGMENT_START, BlockFlag, BlockHeader, decode_block
from penstock_broker.log.format.record_codec import Malformed
from penstock_broker.log.scan.block_scan import KnownSegment
from penstock_broker.log.scan.segment_files import FoundSegment, names_of
from penstock_broker.log.segments.segment_digest import Digest, DigestHead, decode_digest, decode_head, digest_name

__all__ = ["DigestFiles", "DigestUnusable"]

LOGGER = logging.getLogger(__name__)


class DigestUnusable(Exception):
    """What a digest says does not fit what was read before it: the segments have to be read. The message says why."""


@dataclass(frozen=True, slots=True)
class DigestFiles:
    """Those of one folder."""

    files: FileLayer
    folder: Path
    seed: int
    """Of the log; see `blocks.seed_of`."""

    def known(self, found: Iterable[FoundSegment], opened: Callable[[], None]) -> dict[int, KnownSegment]:
        """By number, the segments of which a digest says what is in them. What can't be read is left out. `opened` is
        called after each digest.
        """
        numbers = {number_of(name) for name in names_of("digest", self.files.names(self.folder))}
        known: dict[int, KnownSegment] = {}
        for item in found:
            if item.data.number not in numbers or item.header is None:
                continue
            head = self._head(item)
            opened()
            if head is not None:
                first = (
                    item.data.number,
                    SEGMENT_START,
                    0,
                    BlockFlag.NONE,
                    head.first_epoch,
                    head.first_sequence,
                    0,
                    0,
                )
                known[item.data.number] = KnownSegment(BlockHeader(*first), head.seal)
        return known

    def load(self, number: int) -> Digest:
        """The digest of a segment that is among the known ones. Raises DigestUnusable."""
        try:
            digest = decode_digest(self._read(number), self.seed)
        except (OSError, Malformed) as error:
            raise DigestUnusable(str(error)) from error
        if digest is None:
            raise DigestUnusable(f"{digest_name(number)} has changed")
        return digest

    def keep_only(self, numbers: Iterable[int]) -> None:
        """Delete all others: those of segments that are gone, and those that could not be used."""
        wanted = set(numbers)
        for name in names_of("digest", self.files.names(self.folder)):
            if number_of(name) not in wanted:
                self.files.unlink(self.folder / name)

    def _head(self, item: FoundSegment) -> DigestHead | None:
        """What the digest of a segment says it speaks of, if that is this segment."""
        number = item.data.number
        try:
            head = decode_head(self._read(number), self.seed)
            if head is None or head.segment != number:
                return None
            at = head.seal.offset
            content = self.files.pread(item.handle, BLOCK_HEADER.size, at)
        except OSError as error:
            LOGGER.warning("%s is not used: %s", self.folder / digest_name(number), error)
            return None
        seal = decode_block(memoryview(content), at, number, self.seed, view_at=at)
        return head if seal == head.seal else None

    def _read(self, number: int) -> bytes:
        return read_file(self.files, self.folder / digest_name(number))
