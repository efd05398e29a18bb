"""The log's part of a turn: delivered-up-to numbers, the turn's block, its sync, and what the log does in idle time.

Written for speed: `finish` and `maintain` run in every turn. Source: docs/decisions/037-answer-after-sync.md,
docs/decisions/040-lazy-acks.md and docs/decisions/042-failed-fdatasync.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from penstock_broker.access.connection import Phase
from penstock_broker.attach import connection_end
from penstock_broker.loop.connections import IDLE_MS, Connections
from penstock_broker.loop.stop import Stop
from penstock_broker.state.broker import Broker
from penstock_core.sync_delay import MOST_ANSWERS, SLOW_US, SyncDelay

__all__ = ["LogTurn"]

logger = logging.getLogger(__name__)

LAZY_SYNC_MS: Final = 5
LOOK_MS: Final = 2
"""A turn that did not look whether the log has idle work is followed by one that does after so long, or before."""
LOOK_TURNS: Final = 16
"""So many turns without a look are possible at most, however short they are."""

DELAY_MS: Final = 1
"""The least for which the loop can sleep while the next sync waits; who comes wakes it."""
SLOW: Final = SLOW_US / 1e6


class LogTurn:
    """What the turns of one broker do for its log."""

    def __init__(self, broker: Broker, connections: Connections, stop: Stop, seconds: Callable[[], float]) -> None:
        self._broker, self._connections, self._stop, self._seconds = broker, connections, stop, seconds
        self._log, self._clock = broker.log, broker.clock
        self.maintained = False
        """The last turn had idle work of the log to do, and there may be more."""
        self._lazy_sync_ms = 0
        self._waits_for_syncs = broker.log.waits_for_syncs
        self._looked_ms = 0
        """When it was looked last whether the log has idle work."""
        self._looks_late = False
        """The last turn did not look."""
        self._tells_blocks = logger.isEnabledFor(logging.DEBUG)
        """Looked at once: a turn must not pay for lines that nobody reads."""
        self._told_block = broker.log.sequence
        self._delay = SyncDelay()
        self._is_delayed = False
        """The next sync waits for those who were just answered."""
        self._requested = 0.0
        """When the sync that is under way was requested, in seconds of the clock; 0: none is, or its end was noted."""
        self._was_under_way = False
        """It still was at the end of the last turn."""
        self.began = 0.0
        """When the turn did, in seconds of the clock."""

    def longest_wait_ms(self) -> int:
        """How long the loop may wait for a descriptor, as far as the log is concerned."""
        if self._is_delayed:
            return DELAY_MS
        return LOOK_MS if self._looks_late else LAZY_SYNC_MS if self._log.wants_sync else IDLE_MS

    def finish(self) -> None:
        """Delivered-up-to numbers, the log's block, the sync, sockets: in this order. The disk works while sockets are
        flushed; where a sync holds the turn, it comes last."""
        broker, log = self._broker, self._log
        sync, work = broker.sync, broker.work
        if delivers := bool(work.delivered):
            log.delivered_up_to({queue.incarnation: queue.delivered_up_to for queue in work.delivered})
            work.delivered.clear()
        sync.write()
        if delivers and log.failure_file.is_missing:
            self._connections.drop_unsent()
        if self._tells_blocks:
            self._tell_block()
        if sync.is_awaited:
            if log.sync_may_have_ended:
                log.collect()  # while this turn was at work: another turn would only cost time
            if sync.has_synced_waiting:
                self._release()
            if log.failed is not None and sync.is_awaited:
                self._abandon()
        # Acks alone may wait a little: what a crash loses of them is delivered once more. Producers that wait for
        # compaction wait for whatever was written: with its sync segments become free.
        is_wanted = (log.wants_sync and (sync.is_awaited or self._clock.now_ms >= self._lazy_sync_ms)) or (
            work.held and log.sequence != log.synced
        )
        self._is_delayed = False
        if is_wanted and self._delay.is_open and not work.held:
            waiting = sync.count_waiting(self._delay.expected)
            self._is_delayed = not self._delay.is_over(int(self.began * 1e6), waiting)
            is_wanted = not self._is_delayed
        if is_wanted:
            self._lazy_sync_ms = self._clock.now_ms + LAZY_SYNC_MS
            if not self._waits_for_syncs and log.request_sync():
                self._requested = self._seconds()
        if work.dirty:
            self._connections.flush()
        if self._requested:
            self._was_under_way = not log.sync_may_have_ended
        if is_wanted and self._waits_for_syncs:
            log.request_sync()

    def note_synced(self) -> None:
        """The log's descriptor has become readable: a sync has ended."""
        self._log.collect()
        self._release()

    def _release(self) -> None:
        """Let the answers go that waited for blocks which are synced."""
        broker, requested = self._broker, self._requested
        sync = broker.sync
        if requested and sync.has_synced_waiting:
            self._requested = 0.0
            took = self.began - requested
            if took >= SLOW and self._was_under_way:
                answered, waiting = sync.count_synced(), sync.count_waiting(MOST_ANSWERS)
                self._delay.sync_ended(int(self.began * 1e6), int(took * 1e6), answered, waiting)
        sync.release(broker.fail_connection, broker.clock)

    def maintain(self, began: float, *, was_idle: bool) -> None:
        """Do idle work of the log, if it has some. `began`: when the turn did, in seconds of the clock. `was_idle`: no
        descriptor was ready in it.

        In short turns that follow each other at once it is looked once in a millisecond whether the log has idle work:
        to look takes as long as a tenth of such a turn.
        """
        clock = self._clock
        now_ms = clock.now_ms
        self._looks_late = now_ms == self._looked_ms and not (
            self.maintained or was_idle or clock.turns % LOOK_TURNS == 0
        )
        if self._looks_late:
            return
        self._looked_ms = now_ms
        log = self._log
        self.maintained = log.wants_maintenance
        if self.maintained:
            log.maintain(log.maintenance_ms(1000 * (self._seconds() - began)))

    def _tell_block(self) -> None:
        """A turn's block, for `--log-level debug`."""
        log = self._log
        if log.sequence != self._told_block:
            self._told_block = log.sequence
            turns = self._clock.turns
            logger.debug("Block %d of the log is written, %d is synced; turn %d", log.sequence, log.synced, turns)

    def _abandon(self) -> None:
        """The log has failed: close the connections that wait for a sync, since none will come."""
        for connection in self._broker.sync.abandon():
            if connection.phase in (Phase.OPENING, Phase.OPEN):
                connection_end.close_connection(self._broker, connection, self._broker.storage_refusal())
        self._stop.log_failed()
