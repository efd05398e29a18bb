"""Says what runs while nothing else is printed: on a terminal in a line that changes, else in a line now and then."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TextIO

__all__ = ["ERASE", "LINE_SECONDS", "RunningLine", "elapsed", "width_of"]

LOOK_SECONDS: Final = 1.0
"""How often the line on a terminal changes."""
LINE_SECONDS: Final = 30.0
"""How often a line is added where lines stay, as in the log of CI: 120 in an hour."""
ERASE: Final = "\r\x1b[K"


@dataclass(slots=True)
class RunningLine:
    """`width`: columns of the terminal; None for a file. `now`: seconds, of any clock."""

    out: TextIO
    width: int | None
    now: Callable[[], float]
    _wrote: float = float("-inf")
    _is_shown: bool = False

    def show(self, text: Callable[[], str]) -> None:
        """Write `text`, if it is time to. To be called often."""
        now = self.now()
        if now - self._wrote < (LINE_SECONDS if self.width is None else LOOK_SECONDS):
            return
        self._wrote = now
        self._is_shown = self.width is not None
        self._put(f"{text()}\n" if self.width is None else f"{ERASE}{text()[: self.width - 1]}")

    def clear(self) -> None:
        """Something else is about to be printed: it is not time to for a while."""
        self._wrote = self.now()
        if self._is_shown:
            self._is_shown = False
            self._put(ERASE)

    def _put(self, text: str) -> None:
        self.out.write(text)
        self.out.flush()


def width_of(out: TextIO, terminal: str) -> int | None:
    """The columns of the terminal on which `out` is shown; None if it is none, or cannot erase. `terminal`: $TERM."""
    return shutil.get_terminal_size().columns if out.isatty() and terminal not in ("", "dumb") else None


def elapsed(seconds: float) -> str:
    """Minutes and seconds, as 12:05."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
