"""How much memory this process may have, how much it has, how large blocks of it grow, and giving back what is free.

The limit is the least of those of its control groups (version 2: `memory.max`, version 1: `memory.limit_in_bytes`), of
its address space (`ulimit -v`), and of the machine's memory. Source: cgroup(7); the kernel's
Documentation/admin-guide/cgroup-v2.rst; getrlimit(2); proc(5), statm; mallopt(3).
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

__all__ = ["ProcessMemory", "map_large_blocks", "memory_limit"]

_ROOT: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")
_STATM: Final = Path("/proc/self/statm")
_RESIDENT: Final = 1
"""Place of the pages in memory, in `_STATM`."""

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""Parameters of mallopt(3), from glibc's malloc.h."""
_MAPPED_BYTES: Final = 1024 * 1024 + 64 * 1024
"""Larger than a message that is kept in one piece, so that messages come from the heap."""
_KEPT_FREE_BYTES: Final = 64 * 1024 * 1024
"""At the end of the heap: as much as glibc comes to by itself. It begins with 128 KiB, with which the heap would shrink
and grow again and again."""


def memory_limit(root: Path = _ROOT, own: Path = _OWN) -> int:
    """Bytes of memory that this process may have."""
    pages: int = os.sysconf("SC_PHYS_PAGES")
    physical = pages * resource.getpagesize()
    address_space = resource.getrlimit(resource.RLIMIT_AS)[0]
    found = [_number(path) for path in _limit_files(root, own)]
    if address_space != resource.RLIM_INFINITY:
        found.append(address_space)
    return min((physical, *(limit for limit in found if limit)))


def _limit_files(root: Path, own: Path) -> Iterable[Path]:
    """The files with the limits of the process's control groups and of all above them.

    Within a container, the groups that `own` names may not be there: then those of the root are the container's.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        lines = []
    yield root / "memory.max"
    yield root / "memory" / "memory.limit_in_bytes"
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        base, file = (root / "memory", "memory.limit_in_bytes") if controllers else (root, "memory.max")
        group = PurePosixPath(name.lstrip("/"))
        for each in (group, *group.parents):
            yield base / each / file


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def map_large_blocks() -> None:
    """Have the C library map each block of more than a megabyte by itself, whatever was freed before.

    Such a block grows by moving its pages. From the heap, to which glibc goes over by itself once a large block was
    freed, it is copied into new pages. In one call that took 12 ms for the list in which the engine keeps what a
    connection with a million deliveries has settled. Another C library than glibc does as it always does.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _MAPPED_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_FREE_BYTES)


class ProcessMemory:
    """Of this process."""

    def __init__(self) -> None:
        self._page = resource.getpagesize()
        library = ctypes.CDLL(None)
        self._trim = getattr(library, "malloc_trim", None)  # glibc has it

    def resident(self) -> int:
        """Bytes of memory that it has; 0 if the system does not say."""
        try:
            return int(_STATM.read_text().split()[_RESIDENT]) * self._page
        except (OSError, IndexError, ValueError):
            return 0

    def trim(self) -> None:
        """Give back to the system what is free."""
        if self._trim is not None:
            self._trim(0)
