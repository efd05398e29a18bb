"""The log and the waiting list of what may leave once it is synced.

"No accept, attach reply, detach reply, management answer or discharge leaves before the fdatasync that covers every
record it depends on" (design, section 4): whoever appends a record hands what depends on it to `after_sync` in the same
turn. Source: section 4 of the design.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from penstock_broker.log.log import Log

__all__ = ["Journal"]


class Journal:
    """The log and what waits for it. One turn: append, `after_sync`, `write`, `request_sync`; later `synced`."""

    __slots__ = ("_this_turn", "_waiting", "log", "syncs")

    def __init__(self, log: Log) -> None:
        self.log = log
        self.syncs = 0
        """Syncs that came to an end."""
        self._this_turn: list[Callable[[], None]] = []
        self._waiting: deque[tuple[int, list[Callable[[], None]]]] = deque()

    def after_sync(self, action: Callable[[], None]) -> None:
        """Run `action` once every record appended so far in this turn is synced."""
        self._this_turn.append(action)

    def write(self) -> None:
        """Write this turn's records as one block."""
        sequence = self.log.write()
        if self._this_turn:
            self._waiting.append((sequence, self._this_turn))
            self._this_turn = []

    def release(self) -> None:
        """Run what waited for blocks that are synced by now."""
        self.syncs += 1
        synced = self.log.synced
        waiting = self._waiting
        while waiting and waiting[0][0] <= synced:
            for action in waiting.popleft()[1]:
                action()

    @property
    def is_awaited(self) -> bool:
        """Something waits for a block that was written."""
        return bool(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Nothing waits."""
        return not self._waiting and not self._this_turn
