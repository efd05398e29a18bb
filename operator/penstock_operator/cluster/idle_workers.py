"""The workers that have nothing to do. Each is woken for one resource, and only one of them looks at the clock.

Two hundred workers that all look into the queue after each change cost more than the change itself. Synchronous apart
from `wait`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

__all__ = ["IdleWorkers"]


class IdleWorkers:
    """Those that wait, in the order in which they began. A worker that was woken looks into the queue."""

    def __init__(self) -> None:
        self._with_clock: asyncio.Future[None] | None = None
        self._others: deque[asyncio.Future[None]] = deque()

    async def wait(self, seconds: Callable[[], float | None]) -> None:
        """Wait until this worker is woken. If no other one looks at the clock, it also ends after that many seconds;
        None: not by itself.
        """
        woken = asyncio.get_running_loop().create_future()
        if self._with_clock is not None:
            self._others.append(woken)
            await woken
            return
        self._with_clock = woken
        try:
            async with asyncio.timeout(seconds()):
                await woken
        except TimeoutError:
            return
        finally:
            self._with_clock = None
            self._wake_other()  # one of them looks at the clock from now on

    def wake(self) -> None:
        """There is something to do for one worker."""
        if not self._wake_other():
            self.look_at_the_clock()

    def look_at_the_clock(self) -> None:
        """What is due next may be due at another time."""
        if self._with_clock is not None and not self._with_clock.done():
            self._with_clock.set_result(None)

    def _wake_other(self) -> bool:
        while self._others:
            woken = self._others.popleft()
            if not woken.done():  # else it was cancelled
                woken.set_result(None)
                return True
        return False
