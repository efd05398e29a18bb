"""One process per data folder: an flock that ends with the process, whatever way it ends."""

import fcntl
import os
from pathlib import Path


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
