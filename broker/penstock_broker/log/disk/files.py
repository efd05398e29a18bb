"""What the log asks of a file system, the real file system, and the lock of the log's folder.

Nothing else in the log touches files. The interface `FileLayer` is narrow so that tests can replace the file system by
one in memory that forgets whatever no returned `fdatasync` covers. Every method raises OSError as the system does.
"""

import errno
import fcntl
import os
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class FolderLocked(Exception):
    """Another process serves this folder. The message names that process."""


class FileLayer(Protocol):
    """The file operations that the log uses. Handles are small integers; paths are absolute.

    What was written survives a crash of the machine only after `fdatasync` has returned, and a new or changed name only
    after `fsync_folder` has returned.
    """

    def names(self, folder: Path) -> list[str]:
        """The names of the files in `folder`, which is created if it does not exist."""
        ...

    def open(self, path: Path, *, create: bool) -> int: ...

    def close(self, handle: int) -> None: ...

    def size(self, handle: int) -> int: ...

    def pread(self, handle: int, length: int, offset: int) -> bytes: ...

    def pwrite(self, handle: int, data: Buffer, offset: int) -> int:
        """Write at an offset. Returns how many bytes were written, which can be fewer than were given."""
        ...

    def fdatasync(self, handle: int) -> None:
        """Wait until the file's content is on the disk. May be called from another thread than the other methods."""
        ...

    def rename(self, old: Path, new: Path) -> None: ...

    def link(self, old: Path, new: Path) -> None:
        """Give the file a second name."""
        ...

    def unlink(self, path: Path) -> None: ...

    def fsync_folder(self, folder: Path) -> None:
        """Wait until the names in the folder are on the disk. May be called from another thread, as `fdatasync`."""
        ...

    def boot_id(self) -> bytes:
        """16 bytes that stay the same until the machine starts anew, so for as long as unsynced writes survive."""
        ...

    def descriptor(self, handle: int) -> int | None:
        """The kernel's descriptor of the file, if an asynchronous fdatasync on it means the same as `fdatasync`.

        None if it does not: the log then calls `fdatasync` itself.
        """
        ...


class RealFiles:
    """The file system of the machine. Handles are file descriptors.

    A folder whose names were synced once stays open: they can be synced again when no descriptor is left.
    """

    def __init__(self) -> None:
        self._folders: dict[Path, int] = {}
        weakref.finalize(self, _close_all, self._folders)

    def names(self, folder: Path) -> list[str]:
        folder.mkdir(parents=True, exist_ok=True)
        return sorted(os.listdir(folder))

    def open(self, path: Path, *, create: bool) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)

    def close(self, handle: int) -> None:
        os.close(handle)

    def size(self, handle: int) -> int:
        return os.fstat(handle).st_size

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        return os.pread(handle, length, offset)

    def pwrite(self, handle: int, data: Buffer, offset: int) -> int:
        return os.pwrite(handle, data, offset)

    def fdatasync(self, handle: int) -> None:
        os.fdatasync(handle)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def link(self, old: Path, new: Path) -> None:
        os.link(old, new)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def fsync_folder(self, folder: Path) -> None:
        descriptor = self._folders.get(folder)
        if descriptor is None:
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            descriptor = self._folders.setdefault(folder, opened)
            if descriptor != opened:  # another thread came first
                os.close(opened)
        os.fsync(descriptor)

    def boot_id(self) -> bytes:
        text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        return bytes.fromhex(text.strip().replace("-", ""))

    def descriptor(self, handle: int) -> int | None:
        return handle


def _close_all(folders: dict[Path, int]) -> None:
    for descriptor in folders.values():
        os.close(descriptor)


class ReadOnlyFiles(RealFiles):
    """The file system of the machine, of which nothing is changed: for tools that only look."""

    def names(self, folder: Path) -> list[str]:
        return sorted(os.listdir(folder)) if folder.is_dir() else []

    def open(self, path: Path, *, create: bool) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def pwrite(self, handle: int, data: Buffer, offset: int) -> int:
        raise OSError(errno.EROFS, "only reading is allowed here")

    def rename(self, old: Path, new: Path) -> None:
        raise OSError(errno.EROFS, "only reading is allowed here")

    def link(self, old: Path, new: Path) -> None:
        raise OSError(errno.EROFS, "only reading is allowed here")

    def unlink(self, path: Path) -> None:
        raise OSError(errno.EROFS, "only reading is allowed here")


def write_all(files: FileLayer, handle: int, data: Buffer, offset: int) -> None:
    """Write all of `data` at `offset`, by as many calls of `pwrite` as it takes. Raises OSError."""
    written = files.pwrite(handle, data, offset)
    while written < len(data):
        more = files.pwrite(handle, memoryview(data)[written:], offset + written)
        if not more:
            raise OSError(errno.EIO, "the file system took no byte of a write, and gave no error")
        written += more


def read_all(files: FileLayer, handle: int) -> bytes:
    """The content of the whole file, by as many calls of `pread` as it takes. Raises OSError."""
    size, pieces, offset = files.size(handle), list[bytes](), 0
    while offset < size:
        piece = files.pread(handle, size - offset, offset)
        if not piece:
            break
        pieces.append(piece)
        offset += len(piece)
    return b"".join(pieces) if len(pieces) != 1 else pieces[0]


def read_file(files: FileLayer, path: Path) -> bytes:
    """The content of the file of that name. Raises OSError."""
    handle = files.open(path, create=False)
    try:
        return read_all(files, handle)
    finally:
        files.close(handle)


def watch_folder(folder: Path) -> int | None:
    """Make sure that no broker serves the folder, without changing anything in it. Raises FolderLocked or OSError.

    The returned descriptor keeps brokers out until it is closed; None if no broker has ever served the folder.
    """
    try:
        descriptor = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    _take_lock(folder, descriptor, fcntl.LOCK_SH)
    return descriptor


def lock_folder(folder: Path) -> int:
    """Take the lock of the folder, so that one process at a time serves it. Raises FolderLocked.

    The returned descriptor holds the lock (`flock`) until it is closed, and at the latest until the process ends.
    """
    _make_folder(folder)
    path = folder / "lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    _take_lock(folder, descriptor, fcntl.LOCK_EX)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
    return descriptor


def _make_folder(folder: Path) -> None:
    """Create the folder and those above it that are missing, each with a name that survives a crash of the machine."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in reversed(missing):
        with suppress(PermissionError):  # who may write in a folder need not be allowed to open it
            above = os.open(each.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(above)
            finally:
                os.close(above)


def _take_lock(folder: Path, descriptor: int, how: int) -> None:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise FolderLocked(f"{folder} is in use by process {owner}") from None
