"""The folder of a log that no broker uses, found from what the user named, and how reading it can fail."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock_api.failure import CannotRun, Failure, Misuse
from penstock_broker.log import (
    FolderLocked,
    ForeignSegment,
    NewerFormat,
    NotSaved,
    Unreadable,
    lock_folder,
    watch_folder,
)

__all__ = ["unused_log"]

CURE: Final = "See docs/how-to/damaged-log.md."


@contextmanager
def unused_log(named: Path, *, is_changed: bool = False) -> Generator[Path, None, None]:
    """The log's folder, kept from brokers meanwhile. What goes wrong with it in the block becomes a `Failure`.

    `is_changed`: the block writes to it.
    """
    folder = named
    try:
        folder = _folder(named)
        lock = lock_folder(folder) if is_changed else watch_folder(folder)
        try:
            yield folder
        finally:
            if lock is not None:
                os.close(lock)
    except FolderLocked as error:
        raise CannotRun(f"{error}.", "Stop that broker: a log can be looked at while nobody writes to it.") from error
    except NewerFormat as error:
        raise CannotRun(f"the log in {folder} can't be read: {error}.", "Use the Penstock that wrote it.") from error
    except (ForeignSegment, Unreadable, NotSaved) as error:
        raise Failure(f"the log is damaged: {error}.", CURE) from error
    except OSError as error:
        raise CannotRun(f"the log in {folder} can't be used: {error}.", "Check its volume and owner.") from error


def _folder(named: Path) -> Path:
    for folder in (named, named / "log"):
        if folder.is_dir() and any(each.name.startswith("segment-") for each in folder.iterdir()):
            return folder
    raise Misuse(f"{named} holds no log.", "Name the data folder of a broker, or the folder log in it.")
