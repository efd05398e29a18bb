"""What a counted run measures with: calls into the C engine, fdatasyncs and instructions, and a clock that a loaded
machine does not move.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from penstock_broker.log import RealFiles

__all__ = ["Callgrind", "CountingFiles", "CountingLibrary", "SteppingTime"]


class CountingLibrary:
    """Stands for the C engine: functions count their calls between one `toggle` and the next, constants pass."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._counts = 0
        self.calls = 0

    def toggle(self) -> None:
        self._counts ^= 1

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._library, name)
        if not callable(found):
            return found

        def counted(*arguments: Any) -> Any:
            self.calls += self._counts
            return found(*arguments)

        setattr(self, name, counted)
        return counted


class CountingFiles(RealFiles):
    """The real file system; counts fdatasyncs."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs = 0

    def fdatasync(self, handle: int) -> None:
        self.syncs += 1
        super().fdatasync(handle)


class SteppingTime:
    """A clock that a loaded machine does not move: 100 us per look, and turns that never run out of time."""

    def __init__(self) -> None:
        self.us = 1_700_000_000_000_000
        self._idle_seconds = 0.0

    def idle_seconds(self) -> float:
        """For slices of idle work: 50 us per look."""
        self._idle_seconds += 50e-6
        return self._idle_seconds

    def now_us(self) -> int:
        self.us += 100
        return self.us

    def now_ms(self) -> int:
        return self.us // 1000


class Callgrind:
    """Switches callgrind's counting, under which this process runs. `library` is callgrind.c, compiled."""

    def __init__(self, library: str) -> None:
        # Loaded before the fork, and without the lock of the interpreter being let go: a call is a few instructions.
        functions = ctypes.PyDLL(library)
        self.start: Callable[[], object] = functions.start
        self.stop: Callable[[], object] = functions.stop
        self.toggle: Callable[[], object] = functions.toggle
