"""The queue of actions that wait for the log's fdatasync: each runs once every record that it depends on is on disk.

No accept, attach reply, detach reply, management reply or discharge is sent before the fdatasync that covers every
record it depends on: code that appends a record gives what depends on it to `after_sync` in the same turn. If the log
fails, nothing that waits will ever run: `abandon` returns the connections that waited, so that they can be closed.
Source: docs/decisions/037-answer-after-sync.md.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from penstock_broker.access.connection import Connection
from penstock_broker.clock import TurnClock
from penstock_broker.log import Log
from penstock_broker.topology.store import Topology

__all__ = ["SyncQueue"]

logger = logging.getLogger(__name__)

_Waiting: TypeAlias = tuple[Sequence[Connection], Callable[[], None]]
"""An action, and the connections that it concerns."""


class SyncQueue:
    """Actions that wait for a sync. A turn calls `after_sync`, then `write`; `release` is called after the sync."""

    __slots__ = (
        "_counted",
        "_cut_in",
        "_log",
        "_this_turn",
        "_topology",
        "_waiting",
        "is_awaited",
        "syncs",
        "topology_sequence",
    )

    def __init__(self, log: Log, topology: Topology) -> None:
        self._log = log
        self._topology = topology
        self.syncs = 0
        """How many syncs have ended."""
        self.topology_sequence = 0
        """The sequence of the last block of the log that holds a change of the topology."""
        self.is_awaited = False
        """An action waits for a block that was written. Looked at several times in a turn, so it is no property."""
        self._counted = log.synced
        """What was synced when `syncs` was counted."""
        self._cut_in = -1
        """The turn in which `release` last left something."""
        self._this_turn: list[_Waiting] = []
        self._waiting: deque[tuple[int, list[_Waiting]]] = deque()

    def when_durable(self, connection: Connection, action: Callable[[], None]) -> None:
        """Run `action`, which concerns `connection`, now, or as soon as every change of the topology is synced.

        Changes of earlier turns and of other clients count too: a reply promises that what it names will be there.
        """
        is_durable = not self._topology.has_unsynced and self._log.synced >= self.topology_sequence
        if not is_durable or self.has_synced_waiting:  # what was to be answered before this comes first
            self.after_sync(connection, action)
        else:
            action()

    def after_sync(self, connection: Connection | None, action: Callable[[], None]) -> None:
        """Run `action`, which concerns `connection`, once every record appended so far is synced."""
        self._this_turn.append(((connection,) if connection is not None else (), action))

    def after_sync_of(self, connections: Sequence[Connection], action: Callable[[], None]) -> None:
        """The same for an action that concerns several connections. It deals itself with what fails of one."""
        self._this_turn.append((connections, action))

    def write(self) -> int:
        """Write this turn's records as one block; returns its sequence."""
        sequence = self._log.write()
        if self._topology.has_unsynced:
            self._topology.has_unsynced = False
            self.topology_sequence = sequence
        if self._this_turn:
            self._waiting.append((sequence, self._this_turn))
            self._this_turn = []
            self.is_awaited = True
        return sequence

    def count_synced(self) -> int:
        """How many answers wait for blocks that are synced already."""
        synced = self._log.synced
        return sum(len(who) or 1 for sequence, actions in self._waiting if sequence <= synced for who, _ in actions)

    def count_waiting(self, most: int) -> int:
        """How many answers wait for a sync; `most` if there are more."""
        synced, found = self._log.synced, 0
        for sequence, actions in self._waiting:
            if sequence > synced:
                for connections, _ in actions:
                    found += len(connections) or 1
                    if found >= most:
                        return most
        return found

    def release(self, fail: Callable[[Connection], None], clock: TurnClock) -> None:
        """Run the actions whose blocks are synced by now, in one slice of a turn: very many clients may have waited for
        one sync. `fail` closes a connection whose action fails.
        """
        synced = self._log.synced
        if synced != self._counted:
            self._counted = synced
            self.syncs += 1
        if self._cut_in == clock.turns:
            return
        waiting, is_over = self._waiting, clock.stint()
        while waiting and waiting[0][0] <= synced:
            sequence, actions = waiting.popleft()
            self.is_awaited = bool(waiting)  # an action may bring about another answer: `when_durable`
            for at, (connections, action) in enumerate(actions, 1):
                try:
                    action()
                except Exception:
                    for connection in connections:
                        fail(connection)
                    if not connections:
                        logger.exception("What the broker itself waits for the log with has failed: %r", action)
                if is_over():
                    self._cut_in = clock.turns
                    if at < len(actions):
                        waiting.appendleft((sequence, actions[at:]))
                    self.is_awaited = bool(waiting)
                    return
        self.is_awaited = bool(waiting)

    def abandon(self) -> set[Connection]:
        """Forget every action that waits for a sync; returns the connections that they concern."""
        lost = [each for each in self._waiting if each[0] > self._log.synced]
        self._waiting = deque(each for each in self._waiting if each[0] <= self._log.synced)
        self.is_awaited = bool(self._waiting)
        return {connection for _, actions in lost for connections, _ in actions for connection in connections}

    @property
    def has_synced_waiting(self) -> bool:
        """An action waits for a block that is synced already: `release` has work although no sync is under way."""
        return self.is_awaited and self._waiting[0][0] <= self._log.synced

    @property
    def is_idle(self) -> bool:
        """No action waits."""
        return not self._waiting and not self._this_turn
