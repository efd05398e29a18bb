"""What the volume of the ledger offers, and how it is divided: results have a part that the ledger never takes.

Source: docs/reference/observer.md, "Retention".
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["VolumeSpace", "results_limit", "room_for_results", "volume_space"]

RESULTS_SHARE: Final = 4
"""Results never take more than the volume's size divided by this."""


@dataclass(frozen=True, slots=True)
class VolumeSpace:
    """Bytes of a volume: its size, and what this process may still write."""

    total: int
    free: int


def volume_space(folder: Path) -> VolumeSpace:
    """The space of the volume that holds a folder. Raises OSError."""
    found = os.statvfs(folder)
    return VolumeSpace(total=found.f_blocks * found.f_frsize, free=found.f_bavail * found.f_frsize)


def results_limit(wanted_bytes: int, total_bytes: int) -> int:
    """How many bytes of results are kept on a volume of this size."""
    return min(wanted_bytes, total_bytes // RESULTS_SHARE)


def room_for_results(folder: Path, wanted_bytes: int) -> int:
    """Bytes that have to stay free for results: what is left of their limit, and at least the size of the largest one
    that is there, because a new result is written before an old one is deleted. Raises OSError.
    """
    if not folder.exists():
        return results_limit(wanted_bytes, volume_space(folder.parent).total)
    sizes = [path.stat().st_size for path in folder.iterdir()]
    limit = results_limit(wanted_bytes, volume_space(folder).total)
    return max(limit - sum(sizes), max(sizes, default=0))
