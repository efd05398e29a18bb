"""Watches how much memory messages take: says it in the log, has producers held back, and messages refused.

Five times a second, and as soon as much has come, the totals of all queues are summed up (`paging.page_deep_queues`,
some thousand queues at a time), with what transactions, messages that are still coming, and waiting output take. What
the sum means stands in `penstock_core.memory_level`. As the sum may be wrong, the size of the process counts too.

Source: docs/decisions/084-memory.md.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from penstock_broker.access.connection import Connection
from penstock_broker.messages import paging
from penstock_broker.messages.held_credit import HeldCredit
from penstock_broker.messages.memory_account import ENTRY_BYTES
from penstock_broker.state.broker import Broker
from penstock_core.memory_level import MemoryLevel, level_of, used_share

__all__ = ["MemoryWatch", "Process"]

logger = logging.getLogger(__name__)

CONNECTIONS_PER_LOOK: Final = 1000
"""About a third of a millisecond."""

LEAST_STEP: Final = 256 * 1024
"""However little room is left, so many bytes may come before it is looked again within a turn."""

TRIMMED_MS: Final = 10_000
"""So often at most, memory that is free within the process is given back to the system."""


class Process(Protocol):
    """The process in which the broker runs."""

    def resident(self) -> int:
        """Bytes of memory that it has; 0 if that is not known."""
        ...

    def trim(self) -> None:
        """Give back to the system what is free."""
        ...


class MemoryWatch:
    """Of one broker. `start` begins; from then on the broker's timers drive it, and its loop if much has come."""

    def __init__(self, broker: Broker, credit: HeldCredit, process: Process | None) -> None:
        """`process`: None if its size does not count."""
        self._broker = broker
        self._credit = credit
        self._process = process
        self._rounds = 0
        """Rounds over all queues that were over at the last look."""
        self._number = broker.log.next_number
        self._unasked: list[Connection] = []
        self._output = 0
        self._told = MemoryLevel.OK
        self._refused_before = 0
        self._trimmed_ms = 0

    def start(self) -> None:
        """Look for the first time, and from now on."""
        self._broker.clock.after(0, self._check)

    def _check(self) -> None:
        self._broker.clock.after(paging.LOOK_MS, self._check)
        self.look()

    def look(self) -> None:
        """Sum up, and do what follows from it."""
        broker, memory = self._broker, self._broker.memory
        paging.page_deep_queues(broker)
        self._ask_connections()
        if broker.paging.rounds != self._rounds:
            self._rounds = broker.paging.rounds
            self._note_mean()
            memory.came = 0
        memory.used = (
            broker.paging.taken + memory.came + broker.transactions.memory + memory.incoming.bytes + memory.outgoing
        )
        if self._process is not None:
            memory.resident = self._process.resident()
        memory.share = used_share(memory.used, memory.budget, memory.resident, memory.limit)
        before = memory.level
        memory.set_level(level_of(memory.share, before))
        room = round((1.0 - memory.share) * memory.budget)
        memory.look_after = memory.came + max(room // 8, LEAST_STEP)
        self._credit.hold(of_all=memory.is_tight)
        self._trim(before)
        self._tell()

    def _note_mean(self) -> None:
        memory, number = self._broker.memory, self._broker.log.next_number
        if number > self._number and memory.came:
            memory.mean = memory.came // (number - self._number) + ENTRY_BYTES
        self._number = number

    def _ask_connections(self) -> None:
        """What waits of the output of some connections; those that were asked first are asked again once all were."""
        for _ in range(min(CONNECTIONS_PER_LOOK, len(self._unasked))):
            connection = self._unasked.pop()
            self._output += len(connection.transport.backlog) + len(connection.reading.unread) + connection.turn_bytes
        if not self._unasked:
            self._broker.memory.outgoing, self._output = self._output, 0
            self._unasked = list(self._broker.clients.connections.values())

    def _trim(self, before: MemoryLevel) -> None:
        """The process looks larger than it is while memory that was freed has not been given back."""
        memory, now_ms = self._broker.memory, self._broker.clock.now_ms
        if self._process is None or now_ms - self._trimmed_ms < TRIMMED_MS:
            return
        if memory.level.rank < before.rank or (memory.is_tight and memory.used < memory.budget // 2):
            self._trimmed_ms = now_ms
            self._process.trim()

    def _tell(self) -> None:
        """Say that another threshold was passed, upwards or downwards."""
        memory, told = self._broker.memory, self._told
        if memory.level is told:
            return
        self._told = memory.level
        taken = f"Messages take {memory.used} of {memory.budget} bytes of memory"
        if memory.limit:
            taken += f", and the process has {memory.resident} of {memory.limit}"
        if memory.level.rank > told.rank:
            (logger.error if memory.is_full else logger.warning)("%s: %s. %s", taken, _MEANINGS[memory.level], _CURE)
            return
        if told is MemoryLevel.FULL:
            logger.warning("%s: they are taken again, after %d were refused", taken, self._since_refused())
        if memory.level is MemoryLevel.OK:
            logger.info("%s: producers get their whole credit again", taken)

    def _since_refused(self) -> int:
        refused = self._broker.memory.refused - self._refused_before
        self._refused_before = self._broker.memory.refused
        return refused


_MEANINGS: Final = {
    MemoryLevel.OK: "there is room",
    MemoryLevel.HELD_BACK: "producers get credit only for what there is room for",
    MemoryLevel.SPILLING: "messages that were sent as not durable are written to the log, too",
    MemoryLevel.FULL: "messages are refused until consumers have taken some",
}
_CURE: Final = "Let consumers work, or raise the container's memory limit, and memory.maxBytes if it is set"
