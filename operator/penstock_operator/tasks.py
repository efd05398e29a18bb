"""Tasks that live and end together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Final

__all__ = ["end_if_cancelled", "run_until_first_ends"]

CANCEL_AGAIN_SECONDS: Final = 30.0
"""A task that goes on for so long after it was cancelled is cancelled again. Longer than what tasks do at their end."""


async def run_until_first_ends(
    *coroutines: Coroutine[None, None, None], cancel_again_seconds: float = CANCEL_AGAIN_SECONDS
) -> int:
    """Run all of them until one ends, end the others, and return which one it was.

    Raises:
        What one of them raised, also while it was ended.
    """
    tasks = [asyncio.create_task(each) for each in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        left = set(tasks)
        while left:  # a cancellation can get lost: see `end_if_cancelled`
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=cancel_again_seconds)
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for result in ended:
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result
    return next(place for place, task in enumerate(tasks) if task in done)


def end_if_cancelled() -> None:
    """Raise CancelledError if the current task was cancelled, and got another exception instead, which was handled.

    `asyncio.gather` raises what one of its parts has raised although the task that waits for it was cancelled in the
    same turn of the loop, and so does a TaskGroup. A task that goes on after any exception calls this.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
