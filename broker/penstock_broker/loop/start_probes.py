"""Answers probes and logs the progress while the broker starts: the loop does not turn yet, and a log may be long.

A thread of its own, which ends before the loop begins and hands the port over to it. That it answers says nothing about
the start; so what it answers is the progress, and a start that does not advance any more is not live. Source:
docs/decisions/026-probes.md.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from penstock_broker.loop.probes import Probes, ProbeState
from penstock_broker.loop.start_progress import StartProgress

__all__ = ["start_probes"]

logger = logging.getLogger(__name__)

LINE_SECONDS: Final = 2
"""How often the log says how far the start is."""


@contextmanager
def start_probes(
    sock: socket.socket | None, progress: StartProgress, line_seconds: float = LINE_SECONDS
) -> Generator[None, None, None]:
    """Answer at `sock`, if there is one, and log the progress every `line_seconds`, until the block ends."""
    serving = _Thread(sock, progress, line_seconds)
    serving.start()
    try:
        yield
    finally:
        serving.stop()


class _Thread:
    """Watches descriptors and times, as the loop does, for the few requests of a start."""

    def __init__(self, sock: socket.socket | None, progress: StartProgress, line_seconds: float) -> None:
        self._sock, self._progress, self._line_seconds = sock, progress, line_seconds
        self._poll = select.epoll()
        self._readers: dict[int, tuple[Callable[[], None], Callable[[], None] | None]] = {}
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._wake, self._wakened = os.pipe2(os.O_CLOEXEC)
        self._running = True
        self._thread = threading.Thread(target=self._run, name="start-probes", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        os.write(self._wakened, b"x")
        self._thread.join()
        self._poll.close()
        os.close(self._wake)
        os.close(self._wakened)

    # What `Probes` needs of a watcher

    def watch(self, fd: int, action: Callable[[], None], failed: Callable[[], None] | None = None) -> None:
        self._readers[fd] = action, failed
        self._poll.register(fd, select.EPOLLIN)

    def unwatch(self, fd: int) -> None:
        if self._readers.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def after(self, milliseconds: float, action: Callable[[], None]) -> None:
        self._due.append((time.monotonic() + milliseconds / 1000, action))

    def _run(self) -> None:
        self.watch(self._wake, self._end)
        probes = Probes(self._sock, self, self._state) if self._sock is not None else None
        self.after(self._line_seconds * 1000, self._say)
        while self._running:
            first = min(when for when, _ in self._due)  # `_say` is always among them
            for fd, _ in self._poll.poll(max(0.0, first - time.monotonic())):
                self._read(fd)
            now = time.monotonic()
            due = [action for when, action in self._due if when <= now]
            self._due = [each for each in self._due if each[0] > now]
            for action in due:
                action()
        if probes is not None:
            probes.close()

    def _read(self, fd: int) -> None:
        action, failed = self._readers.get(fd, (None, None))
        if action is None:
            return
        try:
            action()
        except Exception:
            logger.exception("Descriptor %d could not be served while the broker starts", fd)
            if failed is not None:
                failed()

    def _end(self) -> None:
        self._running = False

    def _say(self) -> None:
        left = self._progress.seconds_left()
        logger.info("Start: %s%s", self._progress.sentence(), "" if left is None else f"; about {left} s are left")
        self.after(self._line_seconds * 1000, self._say)

    def _state(self) -> ProbeState:
        text = self._progress.sentence()
        return ProbeState(not self._progress.is_stuck, text, False, text)
