"""Parts of bodies as they are read from segments: only from blocks whose checksum was found right in that read.

A flipped bit must not reach a consumer as good data. The checksum is over a whole block, so a block is read and checked
as a whole, and the last ones are kept, because a body is read in smaller pieces.
"""

import errno
import logging
from collections import OrderedDict

from penstock_broker.log.disk.files import FileLayer
from penstock_broker.log.format.blocks import BLOCK_HEADER
from penstock_broker.log.format.record_codec import Malformed
from penstock_broker.log.segments.segment import Segment
from penstock_broker.log.segments.segment_reader import sound_block

LOGGER = logging.getLogger(__name__)

KEPT = 16
"""Blocks that are kept in memory. Blocks with parts have at most 512 KiB, so these are at most 8 MiB."""


class CheckedBlocks:
    """Reads bytes of blocks. Those that were read last are kept."""

    def __init__(self, files: FileLayer, seed: int) -> None:
        """`seed`: see `blocks.seed_of`."""
        self._files, self._seed = files, seed
        self._kept: OrderedDict[tuple[Segment, int], memoryview] = OrderedDict()

    def read(self, segment: Segment, block: int, at: int, length: int) -> bytes:
        """`length` bytes from byte `at` of the segment's file on, which lie in the block that begins at byte `block`.

        Raises OSError, with EBADMSG if the block is not what was written.
        """
        key = segment, block
        records = self._kept.get(key)
        if records is None:
            records = self._kept[key] = self._checked(segment, block)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        start = at - block - BLOCK_HEADER.size
        return bytes(records[start : start + length])

    def _checked(self, segment: Segment, block: int) -> memoryview:
        try:
            (found,) = (each for each in sound_block(self._files, segment, block, self._seed) if each is not None)
        except Malformed as error:
            if isinstance(error.__cause__, OSError):
                raise error.__cause__ from None  # the disk may give it at another time
            LOGGER.error("the log is damaged: %s, byte %d: a part of a large message is not as it was written",
                         segment.path, block)  # fmt: skip
            raise OSError(errno.EBADMSG, f"{segment.path}, byte {block}: {error}") from error
        return found.records
