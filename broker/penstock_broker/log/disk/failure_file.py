"""A file in the log's folder that says: the log failed in its last run, so that what was delivered is not known.

From then on the broker delivers without writing it down. The file says so to the next start. Its name is synced as far
as the disk still does that, for a volume that is mounted anew on the same boot: where the machine was restarted since,
nobody knows what was delivered anyway. The file is empty, so it lasts as soon as its name does. Nobody waits for that
sync, and that it fails changes nothing. While the file can't be made, what is in the log must not be delivered: the
next start would take it for new.

Source: docs/decisions/042-failed-fdatasync.md.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock_broker.log.disk.files import FileLayer

__all__ = ["FailureFile", "was_left"]

LOGGER = logging.getLogger(__name__)

_NAME: Final = "failed"


class FailureFile:
    """The file of one run."""

    __slots__ = ("_files", "_folder", "is_missing", "when_made")

    def __init__(self, files: FileLayer, folder: Path) -> None:
        self._files, self._folder = files, folder
        self.is_missing = False
        """The log has failed, and the file could not be made. Looked at in each turn, so it is no property."""
        self.when_made: Callable[[], None] = lambda: None
        """Is called whenever the file was made, to have its name synced."""

    def leave(self) -> None:
        """The log has failed: leave the file, or note that it `is_missing`. May be called again."""
        path = self._folder / _NAME
        try:
            self._files.close(self._files.open(path, create=True))
        except OSError as error:
            if not self.is_missing:
                LOGGER.error(
                    "%s can't be made, so messages of durable queues are not delivered until it can, or the broker is "
                    "restarted: the next start would take them for new: %s",
                    path,
                    error,
                )
            self.is_missing = True
        else:
            if self.is_missing:
                LOGGER.warning("%s is made: messages of durable queues are delivered again", path)
            self.is_missing = False
            self.when_made()

    def remove(self) -> None:
        """Remove what the last run left. If that fails, it only says again what was true."""
        with suppress(OSError):
            if was_left(self._files, self._folder):
                self._files.unlink(self._folder / _NAME)


def was_left(files: FileLayer, folder: Path) -> bool:
    """Whether the file is there. Raises OSError."""
    return _NAME in files.names(folder)
