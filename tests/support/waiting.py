"""Waits for what another process does by itself, where there is nothing to wait on but asking."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

__all__ = ["found", "until", "wait_until"]

SECONDS = 300.0
"""Only a test that fails waits so long."""

T = TypeVar("T")


async def wait_until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Ask until it holds. Raises `TimeoutError`."""
    async with asyncio.timeout(SECONDS):
        while not await holds():
            await asyncio.sleep(0.05)


def until(holds: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
    """The same without a loop. Raises `TimeoutError`: `what` did not come true."""
    found(lambda: holds() or None, what, seconds)


def found(look: Callable[[], T | None], what: str, seconds: float = SECONDS, *, every: float = 0.02) -> T:
    """What `look` returns once it is not None; it looks at least once, and again after `every` seconds.

    Raises `TimeoutError`. What `look` raises ends the waiting, such as that the process that was to do it has died.
    """
    deadline = time.monotonic() + seconds
    while (seen := look()) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} s in vain for {what}")
        time.sleep(every)
    return seen
