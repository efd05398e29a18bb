"""A file in the log's folder that says: the log failed in its last run, so that what was delivered is not known.

From then on the broker delivers without writing it down. The file says so to the next start. It is never synced: where
the machine was restarted since, nobody knows what was delivered anyway.
"""

import logging
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock_broker.log.disk.files import FileLayer

__all__ = ["leave_mark", "remove_mark", "was_left"]

LOGGER = logging.getLogger(__name__)

_NAME: Final = "failed"


def leave_mark(files: FileLayer, folder: Path) -> None:
    """Leave the file. A disk on which no file can be made either gets none: this is logged."""
    try:
        files.close(files.open(folder / _NAME, create=True))
    except OSError as error:
        LOGGER.warning("%s can't be made, so the next start takes messages for new that are delivered from now on: %s",
                       folder / _NAME, error)  # fmt: skip


def was_left(files: FileLayer, folder: Path) -> bool:
    """Whether the file is there. Raises OSError."""
    return _NAME in files.names(folder)


def remove_mark(files: FileLayer, folder: Path) -> None:
    """Remove the file, if it is there. If that fails, it only says again what was true."""
    with suppress(OSError):
        if was_left(files, folder):
            files.unlink(folder / _NAME)
