"""Spare segments: files of a segment's size that wait to be used, filled with zeros ahead of need or recycled.

Zeros are really written: an fdatasync into a merely allocated file costs up to nine times as much, because the file's
metadata have to be written too. The files are named `spare-N.log`; N has no meaning. Nothing here knows what a segment
holds.
"""

import errno
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock_broker.log.disk.files import FileLayer, write_all

LOGGER = logging.getLogger(__name__)

SLICE = 256 * 1024
"""Bytes of zeros that are written at a time."""
READY_BY: Final = 0.75
"""The part of the newest segment that may be written before the next one has to be ready. Room is left for a turn that
writes much at once."""
_ZEROS = bytes(SLICE)
_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""Clients have all of them, for a while: no reason to give the log up."""
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, *_NO_DESCRIPTOR})


@dataclass(frozen=True, slots=True)
class SpareSegment:
    """A file of a segment's size. Its bytes are zeros or what a former segment held."""

    path: Path
    handle: int


@dataclass(slots=True)
class _Filling:
    """A spare segment of which the first `written` bytes are filled with zeros."""

    path: Path
    handle: int
    written: int


class SpareSegments:
    """The spare segments of one folder. `full`: the last attempt to make another one found no space on the disk, or no
    descriptor for it.
    """

    def __init__(self, files: FileLayer, folder: Path, size: int, reserve: int, ready: int) -> None:
        """`size`: bytes of each; `reserve`: how many messages may not use; `ready`: how many more are to be ready."""
        self._files = files
        self._folder = folder
        self._size = size
        self._least_reserve, self._ready_ahead = reserve, ready
        self.reserve = reserve
        """How many are kept back for acks, topology and compaction, while more can be made."""
        self._ready: list[SpareSegment] = []
        self._renamed: list[SpareSegment] = []
        """Recycled segments whose new names are not synced yet."""
        self._filling: _Filling | None = None
        self._next_name = 1
        self._pace: tuple[int, int, int] | None = None
        """What was written of the newest segment, and what was there of spares, when `lag` first looked at it; and of
        how many bytes more all of them are to be there."""
        self.full = False

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def _wanted(self) -> int:
        return self.reserve + self._ready_ahead

    def reserve_for(self, checkpoint: int, capacity: int) -> None:
        """Keep back so many that also a checkpoint of this size fits, whose bytes begin a segment of their own.

        `capacity`: bytes of records in a segment. Without it a full disk could not be drained: what a checkpoint does
        not say once more keeps its segment.
        """
        more = 0 if checkpoint < capacity // 2 else checkpoint // capacity + 1
        self.reserve = self._least_reserve + more

    @property
    def size(self) -> int:
        """Bytes of each."""
        return self._size

    @property
    def filled_bytes(self) -> int:
        """Bytes that are written of a spare that is not ready yet."""
        return self._filling.written if self._filling is not None else 0

    @property
    def lacking(self) -> bool:
        """Whether `fill` has something to do: fewer are ready than wanted, or the disk counts as full. What is recycled
        on a full disk may be as many as are wanted; that there is space again shows only when one more is made.
        """
        return self.full or len(self._ready) < self._wanted

    def lag(self, used: int) -> int:
        """How many bytes of spares are lacking, now that `used` bytes of the newest segment are written: more than
        the reserve has to be there when it ends, or who begins the next one has to fill a whole one at once.
        """
        ready, size, kept = len(self._ready), self._size, self.reserve
        there = ready + len(self._renamed)
        if there > kept or self.full or ready >= self._wanted:
            return 0
        have = there * size + (self._filling.written if self._filling is not None else 0)
        if self._pace is None:
            by = max(int(READY_BY * size), (used + size) // 2)
            self._pace = used, have, max(by - used, 1)
        began, had, within = self._pace
        lacked = (kept + 1) * size - had
        due = lacked * (used - began) // within if used - began < within else lacked
        return had + due - have if due > have - had else 0

    def adopt(self, names: list[str]) -> None:
        """Take over the spare segments of an earlier run.

        Those of another size are deleted; one that is filled in part will be filled further.
        """
        for name in names:
            self._next_name = max(self._next_name, number_of(name) + 1)
            path = self._folder / name
            handle = self._files.open(path, create=False)
            size = self._files.size(handle)
            if size == self._size:
                self._ready.append(SpareSegment(path, handle))
            elif size < self._size and self._filling is None:
                self._filling = _Filling(path, handle, size)
            else:
                self._files.close(handle)
                self._files.unlink(path)

    def recycle(self, path: Path, handle: int, size: int) -> bool:
        """Make a spare of a segment of which nothing is needed; delete it if its size is another or there are plenty.

        Its new name, or its end, has to be synced before anything relies on it that the segment never comes back: the
        caller has the folder synced, calls `names_are_synced` then, and recycles nothing in between. Returns whether it
        was deleted.
        """
        if size == self._size and len(self._ready) <= self._wanted:
            spare = self._new_path()
            self._files.rename(path, spare)
            self._renamed.append(SpareSegment(spare, handle))
            return False
        self._files.close(handle)
        self._files.unlink(path)
        return True

    @property
    def is_renaming(self) -> bool:
        """Whether something was recycled that can be used as soon as the names are synced."""
        return bool(self._renamed)

    def names_are_synced(self) -> None:
        """What was recycled can be used."""
        self._ready += self._renamed
        self._renamed.clear()

    def take(self) -> SpareSegment | None:
        """A spare to write a segment in; None if there is none."""
        self._pace = None
        return self._ready.pop() if self._ready else None

    def fill(self, more: Callable[[], bool]) -> int | None:
        """Write zeros in slices while `more()`, one at least. Returns the handle to sync, or None if none was written.

        If the disk is full, or no descriptor is left, `full` is set; other errors are raised as OSError.
        """
        return self._fill(more) if self.lacking else None

    def fill_one(self) -> bool:
        """Make one more spare now, wanted or not, however long it takes. False if there is no space on the disk."""
        before = len(self._ready)
        if self._renamed:  # its sync is under way, and can't be waited for
            self._files.fsync_folder(self._folder)
            self.names_are_synced()
        while len(self._ready) == before:
            if self._fill(lambda: True) is None:
                return False
        return True

    def close(self) -> None:
        """Close the files."""
        for spare in (*self._ready, *self._renamed):
            self._files.close(spare.handle)
        if self._filling is not None:
            self._files.close(self._filling.handle)

    def _fill(self, more: Callable[[], bool]) -> int | None:
        try:
            filling = self._filling or self._begin()
            begin = filling.written
            while filling.written < self._size and (filling.written == begin or more()):
                piece = min(SLICE, self._size - filling.written)
                write_all(self._files, filling.handle, _ZEROS[:piece], filling.written)
                filling.written += piece
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            if error.errno in _NO_DESCRIPTOR and not self.full:
                LOGGER.warning("no further log segment can be opened, which counts as a full disk: %s", error)
            self.full = True
            return None
        if filling.written == self._size:
            self.full = False
            self._ready.append(SpareSegment(filling.path, filling.handle))
            self._filling = None
        return filling.handle

    def _begin(self) -> _Filling:
        path = self._new_path()
        self._filling = _Filling(path, self._files.open(path, create=True), 0)
        return self._filling

    def _new_path(self) -> Path:
        name = f"spare-{self._next_name:016x}.log"
        self._next_name += 1
        return self._folder / name


def segment_name(number: int) -> str:
    """The file name of a segment; the number is in hexadecimal."""
    return f"segment-{number:016x}.log"


def number_of(name: str) -> int:
    """The number in the file name of a segment or spare."""
    return int(name.removesuffix(".log").rpartition("-")[2], 16)
