"""What a command costs with all processes that it starts, also those that outlive it for a moment, as Spark's does."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Cost", "cost_of"]

_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one run of a command."""

    exit_code: int
    cpu_seconds: float
    wall_seconds: float
    peak_bytes: int
    """The most that its processes had resident together, looked at five times a second."""
    errors: str


def cost_of(command: Sequence[str], log: Path, environment: dict[str, str] | None = None) -> Cost:
    """Run a command to its end. Its output goes to `log`. No other child of this process may run meanwhile."""
    ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)
    before, began, peak = _cpu_seconds(), time.monotonic(), 0
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **(environment or {})})
        while process.poll() is None:
            peak = max(peak, _resident_bytes())
            time.sleep(0.2)
    wall = time.monotonic() - began
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    return Cost(process.returncode, _cpu_seconds() - before, wall, peak, log.read_text(errors="replace")[-2000:])


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _resident_bytes() -> int:
    """Of all processes below this one."""
    children: dict[int, list[tuple[int, int]]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:  # it ended
                continue
            children.setdefault(int(fields[1]), []).append((int(entry), int(fields[21]) * _PAGE))
    total, below = 0, [os.getpid()]
    while below:
        for pid, size in children.get(below.pop(), ()):
            total += size
            below.append(pid)
    return total
