"""The loop: one thread, raw epoll, turns bounded in time. Everything the broker does happens in a turn of it.

A turn: read ready sockets -> route and append to the log -> queues to consumers -> delivered-up-to numbers -> write the
log's block -> ask for the fdatasync -> flush sockets. What waits for a sync leaves in the turn in which the log says it
is done. A poll names at most 64 new descriptors, the deadline is checked between connections (or behind some that are
read by one call), and what did not get its turn is the first in the next one. `turn` and `add` are public, so that a
test can drive a whole broker on a clock of its own.

Written for speed: `turn` and what it calls run for every batch. Source: docs/decisions/022-one-thread.md and
docs/decisions/023-bounded-turns.md.
"""

from __future__ import annotations

import logging
import select
import socket
import sys
from collections import deque
from collections.abc import Callable, Sized
from typing import Final

from penstock_amqp.transports.tls import Wrapping
from penstock_broker.access.connection import Connection, Phase
from penstock_broker.access.listeners import Listener
from penstock_broker.access.login_revalidation import CHECK_MS, LoginRevalidation
from penstock_broker.access.login_thread import LoginThread
from penstock_broker.access.logins import Logins
from penstock_broker.access.read_progress import BUSY_READ_BYTES, READ_BYTES
from penstock_broker.access.unauthenticated_connections import UnauthenticatedConnections
from penstock_broker.attach import connection_end, permission_review
from penstock_broker.clock import SYSTEM_CLOCK, Clock
from penstock_broker.errors import amqp_error
from penstock_broker.loop.acceptor import Acceptor
from penstock_broker.loop.connections import Connections
from penstock_broker.loop.garbage import YoungCollection
from penstock_broker.loop.log_turn import LogTurn
from penstock_broker.loop.plain_sockets import FEW
from penstock_broker.loop.queue_visits import DISPATCH_SECONDS, QueueVisits
from penstock_broker.loop.read_ahead import READ
from penstock_broker.loop.ready_connections import MAX_EVENTS, ReadyConnections
from penstock_broker.loop.stop import Stop
from penstock_broker.loop.time_outs import SWEEP_MS, TimeOuts
from penstock_broker.messages import delivery_returns, drains, pacing, paging, store
from penstock_broker.messages.browse import serve_browser
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Browser
from penstock_core.reason import Refuse

__all__ = ["Loop"]

logger = logging.getLogger(__name__)

TURN_SECONDS: Final = 0.002
SHORT_TURN_SECONDS: Final = 0.0002
"""Of a turn, while consumers take all that they have credit for and messages wait: their next credit is seen soon."""
LIGHT_SECONDS: Final = 0.001
"""Of a short turn, for those who send little. One read of a producer takes a short turn's time, and fifty consumers
with a credit of one are not to wait for fifty of these."""
SEVERAL_BULK: Final = 2
"""Connections that sent much, read in one turn. With one alone a turn is not much longer than this read."""
LATE_TOGETHER: Final = 32
"""Of connections that waited for this turn, so many are handled together at most: what they brought takes time of the
turn only when it is handled."""


class Loop:
    """Drives a broker until `stop`."""

    def __init__(self, broker: Broker, listeners: list[Listener], clock: Clock = SYSTEM_CLOCK) -> None:
        self.broker = broker
        self._listeners = listeners
        self._clock = clock
        broker.clock.seconds = clock.seconds
        epoll = self._epoll = select.epoll()
        self._readers: dict[int, tuple[Callable[[], None], Callable[[], None] | None]] = {}
        """By descriptor, what is no connection: epoll of unauthenticated ones, log, signals, probes; see `watch`."""
        clients, warnings = broker.clients, broker.warnings
        self._unauthenticated = UnauthenticatedConnections(broker.settings.limits, warnings, clients.rejections)
        self.connections = Connections(broker, epoll, self._unauthenticated, clock.seconds)
        self.time_outs = TimeOuts(broker, self.connections, self._unauthenticated)
        broker.fail_connection = self.connections.fail
        self._login_thread = LoginThread()
        self.login_revalidation = LoginRevalidation(
            broker.clock, clients.connections, self._login_thread, warnings, close=self._close_for
        )
        self._logins = Logins(
            broker.clock,
            clients.connections,
            self._login_thread,
            clients.rejections,
            clients.login_lines,
            deliver=self.connections.answered,
            logged_in=self.login_revalidation.logged_in,
        )
        self._acceptor = Acceptor(broker, epoll, self._unauthenticated, self.connections, self._logins, clock.seconds)
        self._stop = Stop(broker, listeners, self._unauthenticated, self.connections)
        self._log_turn = LogTurn(broker, self.connections, self._stop, clock.seconds)
        self._ready = ReadyConnections()
        self._visits = QueueVisits(broker, clock.seconds)
        self._left_over: tuple[Sized, ...] = (
            broker.work.ready,
            broker.work.browsing,
            broker.work.dirty,
            broker.work.draining,
            broker.work.streaming,
            broker.work.fan_outs,
            broker.work.delivery_returns,
            broker.topology.disposal.piles,
            self.connections.behind,
        )
        """What earlier turns may have left for the next one: lists that stay the same objects."""
        self.watch(self._unauthenticated.descriptor, self._acceptor.serve_unauthenticated)
        self.watch(self._login_thread.descriptor, self._login_thread.collect)
        self.watch(broker.log.descriptor, self._log_turn.note_synced)
        if any(listener.has_revocable_logins for listener in listeners):
            broker.clock.timers.at(clock.now_ms() + CHECK_MS, self.login_revalidation.check)

    def _close_for(self, connection: Connection, refuse: Refuse) -> None:
        connection_end.close_connection(self.broker, connection, amqp_error(refuse))

    def watch(self, fd: int, action: Callable[[], None], failed: Callable[[], None] | None = None) -> None:
        """Call `action` whenever `fd` is readable.

        `failed` is called if it raises an exception, while that is handled: it closes what the descriptor belongs to.
        Without it the descriptor belongs to the broker, which ends with the exception: a start recovers everything.
        """
        self._readers[fd] = (action, failed)
        self._epoll.register(fd, READ)

    def unwatch(self, fd: int) -> None:
        """Forget a descriptor."""
        if self._readers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def after(self, milliseconds: int, action: Callable[[], None]) -> None:
        """Call `action` once, so much later than this turn."""
        self.broker.clock.after(milliseconds, action)

    def accept_connections(self) -> None:
        """Accept connections from now on; the listeners are bound."""
        self.broker.clock.after(SWEEP_MS, self.time_outs.sweep)
        if self.broker.settings.permissions_file is not None:
            permission_review.watch(self.broker)
        for listener in self._listeners:
            self._unauthenticated.watch(listener)
            self._logins.preload(listener)

    def add(self, listener: Listener, sock: socket.socket, peer: str, wrapping: Wrapping | None = None) -> None:
        """Serve a connected, non-blocking socket as one that `listener` accepted."""
        self._acceptor.add(listener, sock, peer, wrapping)

    def run(self) -> None:
        """Run the event loop until `stop` has sent a Close to every client, and all output is sent."""
        sys.setswitchinterval(0.0005)
        log, garbage = self.broker.log, YoungCollection()
        garbage.begin()
        try:
            while not self._stop.is_over:
                self.turn()
                garbage.step(log.next_number)
        finally:
            garbage.end()

    # -- one turn -----------------------------------------------------------------------------------------------------

    def turn(self, *, may_wait: bool = True) -> None:
        """One turn; it waits for something to do unless it may not."""
        broker, connections, work, turn_clock = self.broker, self.connections, self.broker.work, self.broker.clock
        has_work = bool(
            any(self._left_over)
            or self._visits.paces
            or self._ready.count
            or self._log_turn.maintained  # idle time is used, and publishers may be waiting
            or broker.sync.has_synced_waiting
            or (work.held and not broker.must_wait)  # not all of those who waited are released yet
        )
        most_events = self._ready.most_events if self._ready.count else MAX_EVENTS
        ready = self._epoll.poll(0 if has_work or not may_wait else self._wait_seconds(), most_events)
        clock = self._clock.seconds
        began = self._log_turn.began = clock()
        turn_clock.now_us = self._clock.now_us()
        deadline = began + (SHORT_TURN_SECONDS if began < self._visits.short_until else TURN_SECONDS)
        turn_clock.now_ms = now_ms = self._clock.now_ms()
        turn_clock.turns += 1
        if turn_clock.timers.next_ms <= now_ms:
            turn_clock.timers.run(now_ms, lambda: clock() < deadline)
        if work.fan_outs:
            store.advance_fan_outs(broker)  # those that come now are written in this turn, and begin with the next
        if work.delivery_returns:
            delivery_returns.advance(broker)
        self._serve(ready, deadline, has_work)
        if work.held and not broker.must_wait:
            connections.release_held()
        if connections.behind:
            connections.catch_up(max(deadline, began + LIGHT_SECONDS))
        if work.ready or self._visits.paces:
            self._visit_queues(deadline)
        if work.browsing:
            self._serve_browsers(work.browsing)
        if work.draining:
            drains.finish_drains(broker)
        if work.streaming:
            connections.advance_streams(max(deadline, clock() + DISPATCH_SECONDS))
        self._log_turn.finish()
        if broker.memory.came > broker.memory.look_after:
            self._look_at_memory()
        if broker.paging.queues:
            # Its exceptions end the broker, as those of the log do: a message might be neither in memory nor where it
            # is read from the log again. A start recovers everything.
            paging.serve_tails(broker)
        if broker.topology.disposal.piles:
            self._free_slice()
        self._log_turn.maintain(began, was_idle=not ready)

    def _wait_seconds(self) -> float:
        """How long nothing has to be done unless a descriptor is ready."""
        timers = self.broker.clock.timers
        return timers.wait_ms(self._clock.now_ms(), self._log_turn.longest_wait_ms()) / 1000

    def _serve(self, ready: list[tuple[int, int]], deadline: float, has_work: bool) -> None:
        """Serve the descriptors that are ready; connections that are left at the deadline are the first next time.

        `has_work`: the turn had something to do before it looked at them.
        """
        clock, connections, waiting = self._clock.seconds, self.connections, self._ready
        ahead = connections.ahead
        had_waiting = is_late = waiting.count > 0
        if had_waiting:
            ready = waiting.new_among(ready, READ)
        reads_ahead, bulk = not self.broker.log.makes_room(), 0
        at, count = 0, len(ready)
        while at < count:
            fd, mask = ready[at]
            connection = connections.by_fd.get(fd)
            if (
                count - at >= FEW
                and connection is not None
                and connection.light_line is not None
                and reads_ahead
                and not is_late
                and (done := ahead.read_together(ready, at)) != at
            ):
                at = done
                is_late = clock() > deadline
                continue
            at += 1
            if connection is None:
                if ahead.batches:
                    ahead.handle()
                reader = self._readers.get(fd)
                if reader is not None:
                    self._acceptor.others_have_work = has_work or count > 1
                    self._call(*reader)
            elif is_late:
                waiting.add(connection, fd, mask, self.broker.clock.turns)
            else:
                if mask != READ or not reads_ahead or not ahead.read(connection):
                    if ahead.batches:
                        ahead.handle()
                    connections.serve(connection, mask)
                    bulk += connection.reading.is_bulk
                is_late = clock() > deadline
        if had_waiting:
            light_deadline = max(deadline, self._log_turn.began + LIGHT_SECONDS)
            connection, mask = waiting.pop_oldest()
            while True:
                if connection.phase is not Phase.GONE and not (mask == READ and reads_ahead and ahead.read(connection)):
                    if ahead.batches:
                        ahead.handle()
                    connections.serve(connection, mask)
                    bulk += connection.reading.is_bulk
                elif len(ahead.batches) >= LATE_TOGETHER:
                    ahead.handle()
                if not waiting.count or clock() > (light_deadline if waiting.has_light else deadline):
                    break
                connection, mask = waiting.pop()
        if ahead.batches:
            ahead.handle()
        if bulk >= SEVERAL_BULK or ahead.beside_bulk:
            self._serve_beside_bulk(bulk)

    def _serve_beside_bulk(self, bulk: int) -> None:
        """Keep turns short while somebody who sends little sends beside several who send much. `bulk`: how many of
        these this turn has read; short turns read one.
        """
        ahead, visits = self.connections.ahead, self._visits
        now = self._clock.seconds()
        if ahead.has_light:
            visits.keep_turns_short()
        ahead.has_light = False
        ahead.beside_bulk = bulk >= SEVERAL_BULK or (bulk > 0 and now < visits.short_until)

    def _call(self, action: Callable[[], None], failed: Callable[[], None] | None) -> None:
        try:
            action()
        except Exception:
            if failed is None:
                raise
            failed()

    def _visit_queues(self, deadline: float) -> None:
        if self.broker.work.ready:
            is_behind = self._visits.serve(deadline, self._log_turn.began + SHORT_TURN_SECONDS)
            self.connections.ahead.read_bytes = BUSY_READ_BYTES if is_behind or self._ready.count else READ_BYTES
        else:
            self._visits.paces = pacing.give_credit(self.broker, ())

    def _look_at_memory(self) -> None:
        memory = self.broker.memory
        try:
            self.broker.look_at_memory()
        except Exception:
            logger.exception("Memory could not be summed up; its timer tries again")
            memory.look_after = sys.maxsize

    def _free_slice(self) -> None:
        disposal = self.broker.topology.disposal
        try:
            disposal.free_slice()
        except Exception:
            logger.exception("What a queue that has ended held could not be freed in slices; it is freed at once")
            disposal.piles.popleft()

    def _serve_browsers(self, browsing: deque[Browser]) -> None:
        for _ in range(len(browsing)):
            if not browsing:  # one that was served took others of its connection down with it
                break
            browser = browsing.popleft()
            try:
                serve_browser(self.broker, browser)
            except Exception:
                self.connections.fail(browser.connection)

    # -- the end ------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop accepting connections, send a Close to every client, and end when all have closed theirs, or after some
        seconds.
        """
        self._stop.begin()

    def close(self) -> None:
        """Give the loop's own descriptors and its thread back; nothing of it may be used afterwards."""
        self._login_thread.close()
        self.connections.close()
        self._unauthenticated.close()
        self._epoll.close()
