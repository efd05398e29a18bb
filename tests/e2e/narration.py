"""Says what the demo does, behind the minutes and seconds since it began, and that a step which takes long goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import Final

import click

__all__ = ["STILL_SECONDS", "Narration"]

STILL_SECONDS: Final = 20.0
"""After so many seconds without a word it is said that the last step goes on, and for how long."""
LOOK_SECONDS: Final = 1.0


class Narration:
    """`say` may be called by any thread. Within `with`, a thread calls `still`.

    `waits_for_a_person`: texts behind which nothing goes on, so that nothing more is said.
    """

    def __init__(
        self,
        tell: Callable[[str], object] = click.echo,
        clock: Callable[[], float] = time.monotonic,
        waits_for_a_person: Collection[str] = (),
    ) -> None:
        self._tell, self._clock, self._waits_for_a_person = tell, clock, waits_for_a_person
        self._began = self._said_at = self._step_at = clock()
        self._step = ""
        self._lock = threading.Lock()
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="narration", daemon=True)

    def __enter__(self) -> Narration:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()
        self._thread.join()

    def say(self, text: str) -> None:
        """Say each line of the text. The last one names what goes on now."""
        with self._lock:
            lines = text.splitlines()
            self._step = "" if text in self._waits_for_a_person or not lines else lines[-1]
            self._step_at = self._said_at = self._clock()
            for line in lines:
                self._tell(f"{self._stamp()} {line}")

    def still(self) -> None:
        """Say that the last step goes on, if nothing was said for long."""
        with self._lock:
            now = self._clock()
            if self._step and now - self._said_at >= STILL_SECONDS:
                self._said_at = now
                self._tell(f"{self._stamp()}   {now - self._step_at:.0f} s since: {self._step}")

    def _stamp(self) -> str:
        seconds = int(self._clock() - self._began)
        return f"[{seconds // 60}:{seconds % 60:02}]"

    def _watch(self) -> None:
        while not self._has_ended.wait(LOOK_SECONDS):
            self.still()
