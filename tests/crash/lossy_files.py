"""File layers for a whole broker process that is killed. On the real disk of the lossy one is only what a returned
fdatasync covers.

Writes stay in the process's memory until `fdatasync` writes them to the file, and names until `fsync_folder`; kill -9
takes both, as a power cut would. A small mapped file tells, after the kill, how many blocks had been written and how
many were synced; and through it the killer arms the process: it then kills itself when it has written its next block,
so that the kill surely meets one that is not synced.
"""

import mmap
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from enum import IntEnum
from errno import EIO
from pathlib import Path
from struct import Struct
from zlib import crc32

from penstock_broker.log.disk.files import Buffer, RealFiles

_TALLY = Struct("<QQQQ")
_HIDDEN = ".unsynced-"
WRITTEN_BEFORE_FAILURE = 50
"""Blocks, of `FailingFiles`."""


class Work(IntEnum):
    """What compaction and paging did, see `crash.work_count`."""

    RECYCLED = 0
    """Segments of which nothing was needed any more."""
    COMPACTED = 1
    """Of these, the segments from which messages had been copied."""
    COPIED = 2
    """Messages that compaction copied, counted per queue."""
    READ_BACK = 3
    """Messages that were read from the log into a queue."""

    @property
    def told(self) -> str:
        """Its name, for people."""
        return self.name.lower().replace("_", " ")


_WORK = Struct("<" + "Q" * len(Work))


class Tally:
    """Writes so far, how many of them a returned fdatasync covers, and the work done; survives the process, not the
    machine.
    """

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        size = _TALLY.size + _WORK.size
        os.ftruncate(descriptor, size)
        self._map = mmap.mmap(descriptor, size)
        os.close(descriptor)
        self.written = 0

    def reset(self) -> None:
        self._map[:] = bytes(_TALLY.size + _WORK.size)

    def arm(self) -> None:
        """The next block written is the last thing the process does."""
        self._map[16] = 1

    def arm_at(self, point: str, when: str) -> None:
        """This point (`broker.log.crash_points`), met before, within or behind, is the last thing the process does."""
        self._map[24:32] = _code(point, when)

    def reached(self, point: str, when: str) -> None:
        """The process is at this point."""
        if self._map[24:32] == _code(point, when):
            os.kill(os.getpid(), signal.SIGKILL)

    def wrote(self) -> None:
        self.written += 1
        self._map[:8] = self.written.to_bytes(8, "little")
        if self._map[16]:
            os.kill(os.getpid(), signal.SIGKILL)

    def synced(self, up_to: int) -> None:
        self._map[8:16] = up_to.to_bytes(8, "little")

    def read(self) -> tuple[int, int]:
        """(written, synced)"""
        written, synced, _, _ = _TALLY.unpack_from(self._map)
        return written, synced

    def did(self, work: Work, count: int) -> None:
        """So much more of this was done."""
        begin = _TALLY.size + 8 * work
        before = int.from_bytes(self._map[begin : begin + 8], "little")
        self._map[begin : begin + 8] = (before + count).to_bytes(8, "little")

    def done(self) -> Counter[Work]:
        """What was done since the last `reset`."""
        return Counter(dict(zip(Work, _WORK.unpack_from(self._map, _TALLY.size), strict=True)))


def _code(point: str, when: str) -> bytes:
    return crc32(f"{point} {when}".encode()).to_bytes(8, "little")


class CountingFiles(RealFiles):
    """The real file system, with a tally. It has no descriptor for Linux AIO, so that each fdatasync is seen."""

    def __init__(self, tally: Tally) -> None:
        super().__init__()
        self._tally = tally

    def pwrite(self, handle: int, data: Buffer, offset: int) -> int:
        written = super().pwrite(handle, data, offset)
        self._tally.wrote()
        return written

    def fdatasync(self, handle: int) -> None:
        up_to = self._tally.written
        super().fdatasync(handle)
        self._tally.synced(up_to)

    def descriptor(self, handle: int) -> int | None:
        return None


class FailingFiles(CountingFiles):
    """Its disk fails soon: then no sync succeeds."""

    def fdatasync(self, handle: int) -> None:
        if self._tally.written > WRITTEN_BEFORE_FAILURE:
            raise OSError(EIO, "the disk has failed")
        super().fdatasync(handle)


class LossyFiles(RealFiles):
    """Keeps what is unsynced in memory.

    `forgetful`: its fdatasync returns without doing anything, as on a lying disk.
    """

    def __init__(self, tally: Tally, *, forgetful: bool = False) -> None:
        super().__init__()
        self._tally = tally
        self._forgetful = forgetful
        self._unsynced: dict[int, list[tuple[int, bytes]]] = {}
        self._sizes: dict[int, int] = {}
        self._names: list[Callable[[], None]] = []
        self._visible: dict[Path, Path] = {}  # name -> where the file is now
        self._lock = threading.Lock()
        self._boot = os.urandom(16)

    def names(self, folder: Path) -> list[str]:
        for name in super().names(folder):
            if name.startswith(_HIDDEN) and folder / name not in self._visible.values():
                os.unlink(folder / name)  # made by a process that was killed before it synced the folder
        return [name for name in super().names(folder) if not name.startswith(_HIDDEN)]

    def open(self, path: Path, *, create: bool) -> int:
        if create and path not in self._visible and not path.exists():
            hidden = path.with_name(_HIDDEN + path.name)
            handle = super().open(hidden, create=True)  # first: another thread may sync the folder at any time
            self._visible[path] = hidden
            self._names.append(lambda: self._appear(path, hidden))
        else:
            handle = super().open(self._visible.get(path, path), create=create)
        self._unsynced[handle] = []
        self._sizes[handle] = super().size(handle)
        return handle

    def _appear(self, path: Path, hidden: Path) -> None:
        os.rename(hidden, path)
        del self._visible[path]

    def close(self, handle: int) -> None:
        del self._unsynced[handle], self._sizes[handle]
        super().close(handle)

    def size(self, handle: int) -> int:
        return self._sizes[handle]

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        unsynced = self._unsynced[handle]  # asked first: what is synced meanwhile is in the file then
        content = bytearray(super().pread(handle, length, offset))
        for start, data in unsynced:
            begin, end = max(start, offset), min(start + len(data), offset + length)
            if begin < end:
                content.extend(bytes(max(0, end - offset - len(content))))
                content[begin - offset : end - offset] = data[begin - start : end - start]
        return bytes(content)

    def pwrite(self, handle: int, data: Buffer, offset: int) -> int:
        with self._lock:
            self._unsynced[handle].append((offset, bytes(data)))
        self._sizes[handle] = max(self._sizes[handle], offset + len(data))
        self._tally.wrote()
        return len(data)

    def fdatasync(self, handle: int) -> None:
        up_to = self._tally.written
        with self._lock:
            writes = list(self._unsynced[handle])
        if not self._forgetful:
            for offset, data in writes:
                os.pwrite(handle, data, offset)
        with self._lock:  # not before: whoever reads meanwhile has to find them
            self._unsynced[handle] = self._unsynced[handle][len(writes) :]
        if not self._forgetful:
            self._tally.synced(up_to)

    def rename(self, old: Path, new: Path) -> None:
        self._names.append(lambda: os.rename(old, new))

    def unlink(self, path: Path) -> None:
        self._names.append(lambda: os.unlink(path))

    def fsync_folder(self, folder: Path) -> None:
        changes, self._names = self._names, []
        for change in changes:
            change()

    def boot_id(self) -> bytes:
        return self._boot

    def descriptor(self, handle: int) -> int | None:
        return None
