"""Segments in waiting: zero-filled ahead of need, or recycled. Decides nothing about what lives in the log.

Zeros are really written: an fdatasync into a merely allocated file costs up to nine times as much (metadata). Files
are named `spare-N.log`, where N says nothing.
"""

import errno
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock_broker.log.files import FileLayer, write_all

SLICE = 256 * 1024
_ZEROS = bytes(SLICE)


@dataclass(frozen=True, slots=True)
class Spare:
    """A whole segment's worth of space, its bytes zeros or a former life's."""

    path: Path
    handle: int


@dataclass(slots=True)
class _Filling:
    path: Path
    handle: int
    written: int


class Spares:
    """The pool. `full`: the last attempt to make another found no space."""

    def __init__(self, files: FileLayer, folder: Path, size: int, wanted: int) -> None:
        self._files = files
        self._folder = folder
        self._size = size
        self._wanted = wanted
        self._ready: list[Spare] = []
        self._filling: _Filling | None = None
        self._next_name = 1
        self.full = False

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def lacking(self) -> bool:
        """Whether `fill` has something to do."""
        return len(self._ready) < self._wanted

    def adopt(self, names: list[str]) -> None:
        """Take over the spares of an earlier run; those of another size are deleted, one half filled is continued."""
        for name in names:
            self._next_name = max(self._next_name, number_of(name) + 1)
            path = self._folder / name
            handle = self._files.open(path, create=False)
            size = self._files.size(handle)
            if size == self._size:
                self._ready.append(Spare(path, handle))
            elif size < self._size and self._filling is None:
                self._filling = _Filling(path, handle, size)
            else:
                self._files.close(handle)
                self._files.unlink(path)

    def recycle(self, path: Path, handle: int, size: int) -> None:
        """A segment without live records becomes a spare, or is deleted if it has another size or there are plenty.

        Its new name (or its end) is durable on return: a later step may rely on that segment never coming back.
        """
        if size == self._size and len(self._ready) <= self._wanted:
            spare = self._name()
            self._files.rename(path, spare)
            self._ready.append(Spare(spare, handle))
        else:
            self._files.close(handle)
            self._files.unlink(path)
        self._files.fsync_folder(self._folder)

    def take(self) -> Spare | None:
        """A spare to write a segment in, the readiest first; None if there is none at all."""
        return self._ready.pop() if self._ready else None

    def fill(self, more: Callable[[], bool]) -> int | None:
        """Write zeros in slices while `more()`; the handle to sync if anything was written.

        OSError other than no space passes.
        """
        return self._fill(more) if self.lacking else None

    def _fill(self, more: Callable[[], bool]) -> int | None:
        try:
            filling = self._filling or self._begin()
            while filling.written < self._size and more():
                piece = min(SLICE, self._size - filling.written)
                write_all(self._files, filling.handle, _ZEROS[:piece], filling.written)
                filling.written += piece
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self.full = True
            return None
        self.full = False
        if filling.written == self._size:
            self._ready.append(Spare(filling.path, filling.handle))
            self._filling = None
        return filling.handle

    def fill_one(self) -> bool:
        """Make one more spare now, wanted or not, however long it takes; False if there is no space."""
        before = len(self._ready)
        while len(self._ready) == before:
            if self._fill(lambda: True) is None:
                return False
        return True

    def close(self) -> None:
        for spare in self._ready:
            self._files.close(spare.handle)
        if self._filling is not None:
            self._files.close(self._filling.handle)

    def _begin(self) -> _Filling:
        path = self._name()
        self._filling = _Filling(path, self._files.open(path, create=True), 0)
        return self._filling

    def _name(self) -> Path:
        name = f"spare-{self._next_name:016x}.log"
        self._next_name += 1
        return self._folder / name


def segment_name(number: int) -> str:
    """The file name of a segment; the number is in hexadecimal."""
    return f"segment-{number:016x}.log"


def number_of(name: str) -> int:
    """The number in the name of a segment or spare."""
    return int(name.removesuffix(".log").rpartition("-")[2], 16)
