"""What of a log can't be read, and how it is set aside: copied, or moved as a whole, to the folder `damaged`."""

import errno
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock_broker.log.disk.files import FileLayer, write_all

LOGGER = logging.getLogger(__name__)

DAMAGED = "damaged"
"""The folder, beside the segments, with what was set aside."""
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
"""Errors of file systems on which a file can't have a second name."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Synced data that can't be read: bytes [start, end) of a segment, the reason, and the file with their copy. Both
    numbers are zero if the whole segment is missing.
    """

    segment: int
    start: int
    end: int
    reason: str
    copy: Path | None
    """None if there was no space for it, or nothing to copy."""


def copy_name(segment: int, start: int, end: int) -> str:
    """The name of the file in `damaged` with these bytes of a segment."""
    return f"segment-{segment:016x}-{start}-{end}.bin"


def missing_name(segment: int) -> str:
    """The name of the file in `damaged` which says that a segment is missing."""
    return f"segment-{segment:016x}.missing"


def save_copy(files: FileLayer, folder: Path, name: str, content: bytes) -> Path | None:
    """Write `content` durably to `folder / name`; a whole copy that is there already stays. None if that fails."""
    path = folder / name
    try:
        is_there = name in files.names(folder)
        handle = files.open(path, create=True)
        try:
            if not is_there or files.size(handle) != len(content):  # a crash may have left a part of it
                write_all(files, handle, content, 0)
                files.fdatasync(handle)
        finally:
            files.close(handle)
        files.fsync_folder(folder)
    except OSError as error:
        LOGGER.error("the damaged bytes could not be copied to %s: %s", path, error)
        return None
    return path


def set_aside(files: FileLayer, path: Path) -> Path:
    """Move a whole file to `damaged` beside it, under a name that is free there. Raises OSError."""
    target = _free_name(files, path)
    files.rename(path, target)
    files.fsync_folder(target.parent)
    files.fsync_folder(path.parent)
    return target


def replace_file(files: FileLayer, path: Path, replacement: Path) -> None:
    """Put another file in place of this one, which stays in `damaged`. Raises OSError.

    At no time is there no file of this name, so that a crash in between leaves the one or the other, unless the file
    system has no second names of files.
    """
    target = _free_name(files, path)
    try:
        files.link(path, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        set_aside(files, path)
    else:
        files.fsync_folder(target.parent)
    files.rename(replacement, path)
    files.fsync_folder(path.parent)
    files.fsync_folder(target.parent)


def _free_name(files: FileLayer, path: Path) -> Path:
    folder = path.parent / DAMAGED
    taken = files.names(folder)
    name, number = path.name, 1
    while name in taken:
        number += 1
        name = f"{path.name}.{number}"
    return folder / name
