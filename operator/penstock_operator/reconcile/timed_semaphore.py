"""A semaphore whose places are lent for a limited time: who needs longer goes on without one.

So who waits for an answer that never comes keeps nobody else from asking.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

__all__ = ["TimedSemaphore"]


class TimedSemaphore:
    """So many places; each is given back after `seconds` at the latest."""

    def __init__(self, count: int, seconds: float) -> None:
        self._free = asyncio.Semaphore(count)
        self._seconds = seconds

    @asynccontextmanager
    async def place(self) -> AsyncGenerator[None]:
        """Wait for a place. The body may go on when its time is over, and then others run beside it."""
        await self._free.acquire()
        is_lent = True

        def give_back() -> None:
            nonlocal is_lent
            if is_lent:
                is_lent = False
                self._free.release()

        end = asyncio.get_running_loop().call_later(self._seconds, give_back)
        try:
            yield
        finally:
            end.cancel()
            give_back()
