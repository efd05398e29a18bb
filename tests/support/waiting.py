"""Waits for what another process does by itself, where there is nothing to wait on but asking."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

__all__ = ["until", "wait_until"]

SECONDS = 30.0


async def wait_until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Ask until it holds. Raises `TimeoutError`."""
    async with asyncio.timeout(SECONDS):
        while not await holds():
            await asyncio.sleep(0.05)


def until(holds: Callable[[], bool], what: str) -> None:
    """The same without a loop. `what` did not come true if it fails."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
