"""Files that are there whole or not at all, also after a loss of power."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from penstock_api.ledger_format import HIDDEN_PREFIX

__all__ = ["fsync_folder", "write_whole"]


def write_whole(path: Path, write: Callable[[Path], object]) -> int:
    """Make or replace a file; its size in bytes. `write` gets a hidden name beside it.

    What `write` has written is synced and renamed, then the folder is synced. Raises OSError, and what `write` raises;
    then the file is as it was before, and nothing else is left.
    """
    hidden = path.with_name(f"{HIDDEN_PREFIX}{path.name}")
    try:
        write(hidden)
        with hidden.open("rb") as file:
            os.fsync(file.fileno())
        size = hidden.stat().st_size
        hidden.rename(path)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise
    fsync_folder(path.parent)
    return size


def fsync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
