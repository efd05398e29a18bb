"""Tasks that live and end together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

__all__ = ["run_until_first_ends"]


async def run_until_first_ends(*coroutines: Coroutine[None, None, None]) -> int:
    """Run all of them until one ends, end the others, and return which one it was.

    Raises:
        What one of them raised, also while it was ended.
    """
    tasks = [asyncio.create_task(each) for each in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for result in ended:
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result
    return next(place for place, task in enumerate(tasks) if task in done)
