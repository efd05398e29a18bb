"""Watches how full the volume is: says it in the log, names the largest queues, and has producers held back.

Twice a second the share in use is read; what it means stands in `penstock_core.storage_level`. While the volume is more
than 70 % full, the queues are gone through every ten seconds, some hundred per step, so that a broker with many
thousand of them loses no turn. What being held back means is `messages.held_credit`'s.

Source: docs/decisions/046-producers-held-back.md and 076-nothing-lost-by-default.md.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from penstock_broker.messages.held_credit import HeldCredit
from penstock_broker.state.broker import Broker
from penstock_broker.state.storage import LargeQueue, VolumeSpace
from penstock_broker.topology.records import PointToPointQueue, Subscription
from penstock_core.storage_level import StorageLevel, level_of

__all__ = ["LARGEST", "Measure", "StorageWatch"]

logger = logging.getLogger(__name__)

CHECK_MS: Final = 500
SCAN_PAUSE_MS: Final = 10_000
SCAN_STEP_MS: Final = 10
QUEUES_PER_STEP: Final = 500
"""About a tenth of a millisecond."""
RECOVERED_AFTER_MS: Final = 10_000
"""The volume counts as full until nothing has been refused for this time: each emptied segment takes messages again for
a moment, and a line for each would say nothing."""
LARGEST: Final = 3

Measure = Callable[[], VolumeSpace]


class StorageWatch:
    """Of one broker. `start` begins; from then on the broker's timers drive it."""

    def __init__(self, broker: Broker, measure: Measure | None, credit: HeldCredit) -> None:
        """`measure`: the space of the volume, now; may raise OSError. None: its size is not known, only whether it is
        full.
        """
        self._broker = broker
        self._credit = credit
        self._measure = measure
        self._is_unmeasured = False
        """The last `measure` failed."""
        self._refused = 0
        """Messages refused until the last look."""
        self._refused_ms = 0
        """When messages were last refused, or would have been."""
        self._full_since_ms = 0
        """0: it is not full."""
        self._refused_before = 0
        """Messages refused before the volume became full."""
        self._told = StorageLevel.OK
        """The level of which the log spoke last."""
        self._scan: Iterator[Subscription | PointToPointQueue] | None = None
        self._found: list[LargeQueue] = []
        self._scanned_ms: int | None = None

    def start(self) -> None:
        """Look for the first time, and from now on."""
        self._broker.clock.after(0, self._check)

    # -- how full it is ------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        clock = self._broker.clock
        clock.after(CHECK_MS, self._check)
        if self._broker.log.failed is not None:
            self._make_failure_file()
            return
        storage = self._broker.storage
        self._read_space()
        before = storage.level
        storage.level = level_of(storage.used_share, before, storage.held_from, refuses=self._refuses())
        if (storage.level is StorageLevel.FULL) != (before is StorageLevel.FULL):
            self._tell_full(storage.level is StorageLevel.FULL)
        self._credit.hold(of_volume=storage.level.holds_back)
        if storage.level.rank > before.rank:
            self._scanned_ms = None  # the line about it names the queues as they are now
        if storage.level is StorageLevel.OK:
            storage.largest = ()
            self._scanned_ms = None
            self._tell_level()
        elif self._scan is None and (self._scanned_ms is None or clock.now_ms - self._scanned_ms >= SCAN_PAUSE_MS):
            self._begin_scan()
        elif self._scan is None:
            self._tell_level()

    def _make_failure_file(self) -> None:
        """The volume may take a file again, so that what is in the log can be delivered."""
        file = self._broker.log.failure_file
        if not file.is_missing:
            return
        file.leave()
        if not file.is_missing:
            self._schedule_some(deque(self._broker.topology.by_incarnation.values()))

    def _schedule_some(self, nodes: deque[Subscription | PointToPointQueue]) -> None:
        """Let queues deliver again, some in each turn."""
        for _ in range(min(QUEUES_PER_STEP, len(nodes))):
            self._broker.work.schedule(nodes.popleft().queue)  # one that has ended meanwhile is empty
        if nodes:
            self._broker.clock.after(0, partial(self._schedule_some, nodes))

    def _read_space(self) -> None:
        if self._measure is None:
            return
        storage = self._broker.storage
        try:
            space = self._measure()
        except OSError as error:
            if not self._is_unmeasured:
                logger.warning("The space of the volume can't be read, so it is not known how full it is: %s", error)
            self._is_unmeasured = True
            return
        self._is_unmeasured = False
        storage.total_bytes = space.total
        storage.used_bytes = max(space.total - space.free - self._broker.log.prepared_bytes, 0)

    def _refuses(self) -> bool:
        """Whether durable messages are refused, or were within the last `RECOVERED_AFTER_MS`."""
        broker = self._broker
        is_full = not broker.log.accepts_publishing() and not broker.log.makes_room()
        if is_full or broker.storage.refused != self._refused:
            self._refused = broker.storage.refused
            self._refused_ms = broker.clock.now_ms
            return True
        return self._full_since_ms > 0 and broker.clock.now_ms - self._refused_ms < RECOVERED_AFTER_MS

    # -- the log's lines -----------------------------------------------------------------------------------------------

    def _tell_full(self, is_full: bool) -> None:
        storage, now_ms = self._broker.storage, self._broker.clock.now_ms
        if is_full:
            self._full_since_ms = now_ms
            logger.error(
                "The volume is full: durable messages are refused (StorageFull) until consumers have taken some of "
                "those stored. %s",
                self._advice(),
            )
            return
        logger.warning(
            "The volume takes durable messages again, after %d s in which %d were refused",
            (now_ms - self._full_since_ms) // 1000,
            storage.refused - self._refused_before,
        )
        self._full_since_ms = 0
        self._refused_before = storage.refused

    def _tell_level(self) -> None:
        """Say that another threshold was passed, upwards or downwards. That it is full is said at once, and apart."""
        storage, told = self._broker.storage, self._told
        if storage.level is told or storage.level is StorageLevel.FULL:
            return
        self._told = storage.level
        used = round(100 * storage.used_share)
        if storage.level is StorageLevel.HELD_BACK:
            logger.warning(
                "The volume is %d %% full: producers of durable messages get little credit from now on. %s",
                used,
                self._advice(),
            )
        elif storage.level.rank > told.rank:
            logger.warning("The volume is %d %% full. %s", used, self._advice())
        elif told is StorageLevel.HELD_BACK:
            logger.info("The volume is %d %% full: producers get their whole credit again", used)
        else:
            logger.info("The volume is %d %% full again", used)

    def _advice(self) -> str:
        """Who holds most, and what to do."""
        total = self._broker.storage.total_bytes
        largest = ", ".join(
            f"{each.name!r} ({each.depth_bytes} bytes{f', {100 * each.depth_bytes // total} %' if total else ''}, "
            f"{each.consumers} consumers)"
            for each in self._broker.storage.largest
        )
        named = f"The largest queues are {largest}. " if largest else ""
        return (
            f"{named}Let their consumers work, limit them (limits.maxBytes with overflow), or have subscriptions that "
            "nobody uses end (delivery.idleExpirySeconds)"
        )

    # -- the largest queues --------------------------------------------------------------------------------------------

    def _begin_scan(self) -> None:
        self._scan = iter(list(self._broker.topology.by_incarnation.values()))
        self._found = []
        self._scan_step()

    def _scan_step(self) -> None:
        """Look at some queues more; those that have ended meanwhile are empty."""
        scan, found = self._scan, self._found
        assert scan is not None
        for _ in range(QUEUES_PER_STEP):
            node = next(scan, None)
            if node is None:
                self._end_scan()
                return
            queue = node.queue
            if queue.is_logged and queue.depth_bytes > (found[0].depth_bytes if len(found) == LARGEST else 0):
                consumers = len(queue.links.consumers)
                large = LargeQueue(queue.depth_bytes, queue.name, isinstance(node, Subscription), consumers)
                (heapq.heappush if len(found) < LARGEST else heapq.heapreplace)(found, large)
        self._broker.clock.after(SCAN_STEP_MS, self._scan_step)

    def _end_scan(self) -> None:
        self._scan = None
        self._scanned_ms = self._broker.clock.now_ms
        if self._broker.storage.level is not StorageLevel.OK:
            self._broker.storage.largest = tuple(sorted(self._found, reverse=True))
            self._tell_level()
