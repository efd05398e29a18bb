"""The machine that a benchmark ran on: what it is, how busy it was, and what its disk can do."""

from __future__ import annotations

import os
import platform
import statistics
import time
from pathlib import Path

__all__ = ["described", "disk_limit"]

BLOCK = 4096
"""The smallest write of a log: a header and a message of 1 KiB."""
FILE_BYTES = 32 << 20


def described(folder: Path) -> dict[str, object]:
    """As it is at this moment. `folder`: where the brokers keep their data."""
    cpu = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    return {
        "processor": cpu[0] if cpu else platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "file_system": _file_system(folder),
        "load": os.getloadavg()[0],
        "fdatasync_ms": round(disk_limit(folder, 1, 0.5)[1] * 1e3, 3),
        "time": time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime()),
    }


def disk_limit(folder: Path, messages: int, seconds: float) -> tuple[float, float]:
    """How many messages of 1 KiB a disk can keep in a second if so many are written and synced together, and the next
    ones after them, into a file that is full already, as a log's are; and the median time of a write and its fdatasync.
    """
    path = folder / "fdatasync"
    data = os.urandom(max(BLOCK, messages * 1024))
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(descriptor, bytes(FILE_BYTES), 0)
        os.fsync(descriptor)
        took: list[float] = []
        began = last = time.perf_counter()
        while last - began < seconds:
            place = len(took) * len(data) % (FILE_BYTES - len(data))
            os.pwrite(descriptor, data, place // BLOCK * BLOCK)
            os.fdatasync(descriptor)
            now = time.perf_counter()
            took.append(now - last)
            last = now
    finally:
        os.close(descriptor)
        path.unlink()
    return len(took) * messages / (last - began), statistics.median(took)


def _file_system(folder: Path) -> str:
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    within = [(place, kind) for place, kind in mounts if folder.resolve().is_relative_to(place)]
    return max(within, key=lambda mount: len(mount[0]))[1]
