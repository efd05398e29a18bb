"""Frees in a thread what the engine's C library holds of connections that are gone.

For each delivery that a connection ever had at one time the library keeps about a kilobyte, so a connection that had a
million takes most of a second to free. Where there are very many connections, the C library may give some hundred
megabytes back to the kernel when one of them is freed. The thread runs C functions without Python's lock, so the loop
goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

__all__ = ["EngineMemory"]


class EngineMemory:
    """The thread; it is started when it is first needed."""

    def __init__(self) -> None:
        self._actions: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def free(self, action: Callable[[], None]) -> None:
        """Call `action` in the thread, after those that came before."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="penstock-engine-memory", daemon=True)
            self._thread.start()
        self._actions.put(action)

    def _run(self) -> None:
        while (action := self._actions.get()) is not None:
            action()

    def close(self) -> None:
        """Wait until all is freed, and end the thread."""
        if self._thread is not None:
            self._actions.put(None)
            self._thread.join()
            self._thread = None
