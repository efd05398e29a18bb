"""The log and the waiting list of what may leave once it is synced.

"No accept, attach reply, detach reply, management answer or discharge leaves before the fdatasync that covers every
record it depends on" (design, section 4): whoever appends a record hands what depends on it to `after_sync` in the same
turn. If the log fails, nothing that waits will ever run: `abandon` says who waited, so that they can be told.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from penstock_broker.connections.connection import Connection
from penstock_broker.log import Log

__all__ = ["Journal"]

logger = logging.getLogger(__name__)


class Journal:
    """The log and what waits for it. One turn: append, `after_sync`, `write`, `request_sync`; later `release`."""

    __slots__ = ("_this_turn", "_waiting", "log", "syncs")

    def __init__(self, log: Log) -> None:
        self.log = log
        self.syncs = 0
        """Syncs that came to an end."""
        self._this_turn: list[tuple[Connection | None, Callable[[], None]]] = []
        self._waiting: deque[tuple[int, list[tuple[Connection | None, Callable[[], None]]]]] = deque()

    def after_sync(self, connection: Connection | None, action: Callable[[], None]) -> None:
        """Run `action`, which concerns `connection`, once every record appended so far is synced."""
        self._this_turn.append((connection, action))

    def write(self) -> int:
        """Write this turn's records as one block; its sequence."""
        sequence = self.log.write()
        if self._this_turn:
            self._waiting.append((sequence, self._this_turn))
            self._this_turn = []
        return sequence

    def release(self) -> None:
        """Run what waited for blocks that are synced by now."""
        self.syncs += 1
        synced = self.log.synced
        waiting = self._waiting
        while waiting and waiting[0][0] <= synced:
            for _, action in waiting.popleft()[1]:
                try:
                    action()
                except Exception:
                    logger.exception("What waited for the log could not be done")

    def abandon(self) -> set[Connection]:
        """Forget everything that waits; the connections it concerned."""
        concerned = {connection for _, actions in self._waiting for connection, _ in actions if connection is not None}
        self._waiting.clear()
        return concerned

    @property
    def is_awaited(self) -> bool:
        """Something waits for a block that was written."""
        return bool(self._waiting)

    @property
    def has_synced_waiting(self) -> bool:
        """Something waited for a block that is synced already: `release` has work without a sync coming."""
        return bool(self._waiting) and self._waiting[0][0] <= self.log.synced

    @property
    def is_idle(self) -> bool:
        """Nothing waits."""
        return not self._waiting and not self._this_turn
