"""An event loop whose clock is moved by what waits: a sleep of ten seconds ends at once, and at the right time.

For code that waits only on its own tasks; the loop does not wait for sockets, threads or processes.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import TypeVar

__all__ = ["run_in_virtual_time"]

T = TypeVar("T")


class _Jump(selectors.SelectSelector):
    """Moves the clock instead of waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "every task waits for another one: nothing can happen any more"
        self.now += max(timeout, 0.0)
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now


def run_in_virtual_time(main: Coroutine[None, None, T]) -> T:
    """What `main` returns; inside, `asyncio.get_running_loop().time()` begins at 0."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(main)
