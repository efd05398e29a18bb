"""How far the start of a broker has come: written by the start itself, read by the probes and the log lines about it.

Source: docs/decisions/026-probes.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["STUCK_SECONDS", "StartProgress"]

STUCK_SECONDS: Final = 60
"""A start that has not advanced for so long is not alive any more."""


class StartProgress:
    """The steps of one start: the log is read, then what it holds is put in place.

    One thread calls `reading` and `restoring`, another one may ask at any time.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        """`seconds`: a monotonic clock."""
        self._seconds = seconds
        self._began = self._advanced = seconds()
        self._read = (0, 0)
        self._restored: tuple[int, int, int] | None = None

    def reading(self, done: int, total: int) -> None:
        """`done` of `total` bytes, or of other equal parts, of the log are read."""
        if (done, total) != self._read:
            self._advanced = self._seconds()
        self._read = done, total

    def restoring(self, done: int, total: int, messages: int = 0) -> None:
        """The log is read, and `done` of `total` queues hold again what it kept for them: so many `messages`, those of
        a queue that is being filled included.
        """
        if (done, total, messages) != self._restored:
            self._advanced = self._seconds()
        self._restored = done, total, messages

    @property
    def is_stuck(self) -> bool:
        """Nothing has advanced for `STUCK_SECONDS`."""
        return self._seconds() - self._advanced > STUCK_SECONDS

    def sentence(self) -> str:
        """What the start does, for people: it begins with `recovering, 40 %` while the log is read."""
        done, total = self._read
        if self._restored is not None:
            text = "recovering, the log is read; {} of {} queues are restored".format(*self._restored)
        elif not total:
            text = "recovering, the log is being opened"
        else:
            text = f"recovering, {done * 100 // total} % of the log is read"
        idle = int(self._seconds() - self._advanced)
        return f"{text}; nothing has advanced for {idle} s" if self.is_stuck else text

    def seconds_left(self) -> int | None:
        """How long reading will go on at the rate of the whole start so far, seconds. None: nobody can tell."""
        done, total = self._read
        if self._restored is not None or not done:
            return None
        return int((self._seconds() - self._began) * (total - done) / done)
