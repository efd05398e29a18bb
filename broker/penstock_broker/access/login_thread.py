"""The thread for the slow part of logins: hashing passwords, checking tokens, reading files.

Work is passed to the thread in a queue. The thread returns a function that the loop has to call with the result, and
wakes the loop by a descriptor; so a login never blocks the loop. Hashing releases the interpreter lock. Must not know
SASL or connections. Source: docs/decisions/025-password-hashing.md.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

__all__ = ["Finish", "LoginThread", "Work"]

logger = logging.getLogger(__name__)

Finish: TypeAlias = Callable[[], None]
"""What the loop does with the result of some work."""
Work: TypeAlias = Callable[[], Finish]
"""What the thread does. It must not raise."""


class LoginThread:
    """One per broker; started with the first work."""

    def __init__(self) -> None:
        self._submitted: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        """None ends the thread."""
        self._done: deque[Finish] = deque()
        self._thread: threading.Thread | None = None
        self.is_ending = False
        """Nothing more is begun."""
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Readable when `collect` has something to do."""

    def submit(self, work: Work) -> None:
        """Do `work` on the thread, behind what was submitted before, and on the loop what it returns."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="logins", daemon=True)
            self._thread.start()
        self._submitted.put(work)

    def _run(self) -> None:
        while (work := self._submitted.get()) is not None and not self.is_ending:
            self._done.append(work())
            os.eventfd_write(self.descriptor, 1)

    def collect(self) -> None:
        """Do on the loop what the thread's work returned."""
        os.eventfd_read(self.descriptor)
        while self._done:
            try:
                self._done.popleft()()
            except Exception:
                # Whoever waits for it is closed at the end of the time for logins.
                logger.exception("The result of a login could not be used")

    def close(self) -> None:
        """End the thread, behind the work that it is at, and give the descriptor back. What else was submitted is not
        done: there may be a password of each of a thousand users to be hashed.
        """
        self.is_ending = True
        if self._thread is not None:
            self._submitted.put(None)
            self._thread.join()
        os.close(self.descriptor)
