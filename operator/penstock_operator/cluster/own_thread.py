"""A thread with an event loop of its own, for what must not wait behind the operator's other work.

Thousands of resources that change at once, on a node whose processors are taken, let the operator's loop take seconds
for each turn, and a request needs several turns. Source: docs/decisions/129-the-process-goes-on.md.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["OwnThread"]

T = TypeVar("T")


class OwnThread:
    """Runs coroutines in its own loop until `end`. What they share with others must be plain values."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine, which runs there; who is cancelled while it waits cancels it, too."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    def end(self) -> None:
        """Cancel what still runs there, and end the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(_cancel_others())
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
