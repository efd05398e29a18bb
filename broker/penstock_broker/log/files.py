"""What the log asks of a file system, and the real one. Nothing else in this package touches files.

The interface is narrow so that tests can stand in with one that forgets whatever no returned `fdatasync` covers.
Every method raises OSError as the system does.

One process per data folder: an flock that ends with the process, whatever way it ends.
"""


import os
from pathlib import Path
from typing import Protocol
import fcntl


Buffer = bytes | bytearray | memoryview


class FileLayer(Protocol):
    """Handles are small integers; paths are absolute.

    Writes are promised only by a returned `fdatasync`, names by `fsync_folder`.
    """

    def names(self, folder: Path) -> list[str]:
        """File names in `folder`, which is made if missing."""
        ...

    def open(self, path: Path, *, create: bool) -> int: ...

    def close(self, handle: int) -> None: ...

    def size(self, handle: int) -> int: ...

    def pread(self, handle: int, length: int, offset: int) -> bytes: ...

    def pwrite(self, handle: int, data: Buffer, offset: int) -> int:
        """Bytes written, which can be fewer than given."""
        ...

    def fdatasync(self, handle: int) -> None:
        """May be called from another thread than the rest."""
        ...

    def rename(self, old: Path, new: Path) -> None: ...

    def unlink(self, path: Path) -> None: ...

    def fsync_folder(self, folder: Path) -> None: ...

    def boot_id(self) -> bytes:
        """16 bytes that stay the same for as long as unsynced writes survive: one life of the machine."""
        ...

    def descriptor(self, handle: int) -> int | None:
        """The kernel's descriptor on which an asynchronous fdatasync means the same as `fdatasync`, or None."""
        ...


class RealFiles:
    """The file system. Handles are file descriptors."""

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

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def fsync_folder(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def boot_id(self) -> bytes:
        text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        return bytes.fromhex(text.strip().replace("-", ""))

    def descriptor(self, handle: int) -> int | None:
        return handle


def write_all(files: FileLayer, handle: int, data: Buffer, offset: int) -> None:
    """pwrite until everything is written."""
    written = files.pwrite(handle, data, offset)
    while written < len(data):
        written += files.pwrite(handle, memoryview(data)[written:], offset + written)


def read_all(files: FileLayer, handle: int) -> bytes:
    """The whole file; a short read is continued."""
    size, parts, offset = files.size(handle), list[bytes](), 0
    while offset < size:
        part = files.pread(handle, size - offset, offset)
        if not part:
            break
        parts.append(part)
        offset += len(part)
    return b"".join(parts) if len(parts) != 1 else parts[0]

class FolderLocked(Exception):
    """Another process serves this folder. The message names it."""


def lock_folder(folder: Path) -> int:
    """Take the lock or raise FolderLocked. The returned descriptor holds it until closed."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise FolderLocked(
            f"{folder} is in use by process {owner}: stop that broker, or give this one another folder"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
    return descriptor
