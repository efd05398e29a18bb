"""The file of `--output`: who reads it sees a whole document, that of this run or the one before."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from penstock_api.whole_files import write_whole

__all__ = ["write_output"]


def write_output(path: Path, body: bytes) -> None:
    """Write a document, or leave what is there: if the disk is full, or if the run is killed meanwhile. The file keeps
    its mode, and a link to it stays one. What is no file, such as a pipe, is written to as it is, and so is a file in a
    folder that takes no new ones. Raises OSError.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        target.write_bytes(body)
        return

    def write(hidden: Path) -> None:
        hidden.write_bytes(body)
        if target.exists():
            shutil.copymode(target, hidden)

    try:
        write_whole(target, write)
    except FileNotFoundError:
        if not target.exists():  # nor is its folder
            raise
        # Else another run wrote at the same time, and its document has just taken this place.
    except PermissionError:
        target.write_bytes(body)
