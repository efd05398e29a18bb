"""What the volume of the ledger offers, and how it is divided: results and rollups have parts of their own.

Source: docs/reference/observer.md, "Retention".
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock_api.failure import CannotRun

__all__ = [
    "ROLLUPS_SHARE",
    "VOLUME_FAULTS",
    "VolumeSpace",
    "at_start",
    "results_limit",
    "room_for",
    "room_for_results",
    "volume_space",
]

log = logging.getLogger(__name__)

VOLUME_FAULTS: Final = frozenset({errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT})
"""What a volume says that is read-only, full or broken. It may be mended while the observer runs; any other error is
one of the settings.
"""

RESULTS_SHARE: Final = 4
"""Results never take more than the volume's size divided by this."""
ROLLUPS_SHARE: Final = 8
"""Nor do rollups by this."""


@dataclass(frozen=True, slots=True)
class VolumeSpace:
    """Bytes of a volume: its size, and what this process may still write."""

    total: int
    free: int


def volume_space(folder: Path) -> VolumeSpace:
    """The space of the volume that holds a folder. Raises OSError."""
    found = os.statvfs(folder)
    return VolumeSpace(total=found.f_blocks * found.f_frsize, free=found.f_bavail * found.f_frsize)


@contextmanager
def at_start(what: str, folder: Path) -> Generator[None]:
    """The start of an observer does without this if the volume fails, which is logged: live states need no volume.

    Raises CannotRun for any other OSError.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in VOLUME_FAULTS:
            raise CannotRun(
                f"the {what} folder {folder} can't be used: {error}.", "Make it readable and writable."
            ) from error
        log.error("the %s folder %s can't be used as it should: %s; the observer goes on without", what, folder, error)


def results_limit(wanted_bytes: int, total_bytes: int, share: int = RESULTS_SHARE) -> int:
    """How many bytes of results, or of what has another share, are kept on a volume of this size."""
    return min(wanted_bytes, total_bytes // share)


def room_for(*parts: Callable[[], int]) -> int:
    """Bytes that have to stay free for all of them. Raises OSError."""
    return sum(part() for part in parts)


def room_for_results(folder: Path, wanted_bytes: int, share: int = RESULTS_SHARE) -> int:
    """Bytes that have to stay free for results, or for what has another share: what is left of their limit, and at
    least the size of the largest one that is there, because a new one is written before an old one is deleted. Raises
    OSError.
    """
    if not folder.exists():
        return results_limit(wanted_bytes, volume_space(folder.parent).total, share)
    sizes = [path.stat().st_size for path in folder.iterdir()]
    limit = results_limit(wanted_bytes, volume_space(folder).total, share)
    return max(limit - sum(sizes), max(sizes, default=0))
