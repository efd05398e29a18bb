"""The loop: one thread, raw epoll, turns bounded in time. Everything the broker does happens in a turn of it.

A turn: read ready sockets -> route and append to the log -> queues to consumers -> delivered-up-to numbers -> write the
log's block -> ask for the fdatasync -> flush sockets. What waits for a sync leaves in the turn in which the log says it
is done. At most 64 descriptors per poll, the deadline is checked between connections, and what did not get its turn is
the first in the next one. `turn` and `add` are public, so that a test can drive a whole broker on a clock of its own.

Written for speed: `turn` and what it calls run for every batch. Source: docs/decisions/022-one-thread.md and
docs/decisions/023-bounded-turns.md.
"""

from __future__ import annotations

import logging
import select
import socket
import sys
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from penstock_amqp.endpoint.events import AmqpError
from penstock_amqp.transports.tls import Wrapping
from penstock_broker.access.connection import Connection, Phase
from penstock_broker.access.listeners import Listener
from penstock_broker.access.lobby import Lobby
from penstock_broker.access.login_revalidation import CHECK_MS, LoginRevalidation
from penstock_broker.access.login_thread import LoginThread
from penstock_broker.access.logins import Logins
from penstock_broker.attach import connection_end, permission_review
from penstock_broker.clock import SYSTEM_CLOCK, Clock
from penstock_broker.errors import amqp_error
from penstock_broker.loop.acceptor import Acceptor
from penstock_broker.loop.connections import IDLE_MS, READ, Connections
from penstock_broker.loop.garbage import YoungCollection
from penstock_broker.loop.queue_visits import DISPATCH_SECONDS, QueueVisits
from penstock_broker.loop.ready_connections import ReadyConnections
from penstock_broker.loop.time_outs import SWEEP_MS, TimeOuts
from penstock_broker.messages import departures, dispatch, pacing, paging, store
from penstock_broker.messages.browse import serve_browser
from penstock_broker.state.broker import Broker
from penstock_core.reason import Refuse

__all__ = ["Loop"]

logger = logging.getLogger(__name__)

TURN_SECONDS: Final = 0.002
BUSY_READ_BYTES: Final = 16 * 1024
"""What is read of a connection at once while the broker does not keep up: then others do not wait long for their turn,
and credit of consumers comes in time."""
MAX_EVENTS: Final = 64
CLOSE_MS: Final = 5_000
"""How long clients get, when the broker stops, to take what we still have for them."""
CLOSED_PER_TURN: Final = 25
"""Clients that are sent a Close in one turn when the broker stops: one to two milliseconds."""
LAZY_SYNC_MS: Final = 5
LOOK_MS: Final = 2
"""A turn that did not look whether the log has idle work is followed by one that does after so long, or before."""
LOOK_TURNS: Final = 16
"""So many turns without a look are possible at most, however short they are."""


class Loop:
    """Drives a broker until `stop`."""

    def __init__(self, broker: Broker, listeners: list[Listener], clock: Clock = SYSTEM_CLOCK) -> None:
        self.broker = broker
        self._listeners = listeners
        self._clock = clock
        broker.clock.seconds = clock.seconds
        self._epoll = select.epoll()
        self._readers: dict[int, tuple[Callable[[], None], Callable[[], None] | None]] = {}
        """By descriptor, those that are no connections: the lobby, the log, signals, probes; see `watch`."""
        clients, warnings = broker.clients, broker.warnings
        self._lobby = Lobby(broker.settings.limits, warnings, clients.rejections)
        self.connections = Connections(broker, self._epoll, self._lobby, clock.seconds)
        self.time_outs = TimeOuts(broker, self.connections, self._lobby)
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
        self._acceptor = Acceptor(broker, self._epoll, self._lobby, self.connections, self._logins, clock.seconds)
        self._running = False
        self._closes_all = False
        """The broker stops, and what was published before is accepted."""
        self._ready = ReadyConnections()
        self._visits = QueueVisits(broker, clock.seconds)
        self._lazy_sync_ms = 0
        self._maintained = False
        """The last turn had idle work of the log to do, and there may be more."""
        self._looked_ms = 0
        """When it was looked last whether the log has idle work."""
        self._looks_late = False
        """The last turn did not look."""
        self._tells_blocks = logger.isEnabledFor(logging.DEBUG)
        """Looked at once: a turn must not pay for lines that nobody reads."""
        self._told_block = broker.log.sequence
        self.watch(self._lobby.descriptor, self._acceptor.serve_lobby)
        self.watch(self._login_thread.descriptor, self._login_thread.collect)
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
            self._lobby.watch(listener)
            self._logins.preload(listener)

    def add(self, listener: Listener, sock: socket.socket, peer: str, wrapping: Wrapping | None = None) -> None:
        """Serve a connected, non-blocking socket as one that `listener` accepted."""
        self._acceptor.add(listener, sock, peer, wrapping)

    def run(self) -> None:
        """Run the event loop until `stop` has sent a Close to every client, and all output is sent."""
        sys.setswitchinterval(0.0005)
        log, garbage = self.broker.log, YoungCollection()
        garbage.begin()
        self._running = True
        try:
            while self._running:
                self.turn()
                garbage.step(log.next_number)
        finally:
            garbage.end()

    # -- one turn -----------------------------------------------------------------------------------------------------

    def turn(self, *, may_wait: bool = True) -> None:
        """One turn; it waits for something to do unless it may not."""
        broker, connections, work, turn_clock = self.broker, self.connections, self.broker.work, self.broker.clock
        piles = broker.topology.disposal.piles
        has_work = bool(
            work.ready
            or work.browsing
            or work.dirty
            or work.draining
            or work.streaming
            or work.fan_outs
            or work.departures
            or self._visits.paces
            or connections.behind
            or self._ready.count
            or piles
            or self._maintained  # idle time is used, and publishers may be waiting
            or broker.sync.has_synced_waiting
            or (work.held and not broker.must_wait)  # not all of those who waited are released yet
        )
        ready = self._epoll.poll(0 if has_work or not may_wait else self._wait_seconds(), MAX_EVENTS)
        clock = self._clock.seconds
        began = clock()
        deadline = began + TURN_SECONDS
        turn_clock.now_us = self._clock.now_us()
        turn_clock.now_ms = self._clock.now_ms()
        turn_clock.turns += 1
        if turn_clock.timers.are_due(turn_clock.now_ms):
            turn_clock.timers.run(turn_clock.now_ms, lambda: clock() < deadline)
        if work.fan_outs:
            store.advance_fan_outs(broker)  # those that come now are written in this turn, and begin with the next
        if work.departures:
            departures.advance(broker)
        self._acceptor.others_have_work = has_work or len(ready) > 1
        self._serve(ready, deadline)
        if work.held and not broker.must_wait:
            connections.release_held()
        if connections.behind:
            connections.catch_up(deadline)
        self._dispatch(deadline)
        self._finish()
        if broker.memory.came > broker.memory.look_after:
            broker.look_at_memory()
        if broker.paging.queues:
            paging.keep_up(broker)
        if piles:
            broker.topology.disposal.free_slice()
        self._maintain(began, is_idle=not ready)

    def _wait_seconds(self) -> float:
        """How long nothing has to be done unless a descriptor is ready."""
        broker = self.broker
        most_ms = LOOK_MS if self._looks_late else LAZY_SYNC_MS if broker.log.wants_sync else IDLE_MS
        return broker.clock.timers.wait_ms(self._clock.now_ms(), most_ms) / 1000

    def _maintain(self, began: float, *, is_idle: bool) -> None:
        """Do idle work of the log, if it has some. In short turns that follow each other at once it is looked once in a
        millisecond whether it has: to look takes as long as a tenth of such a turn.
        """
        now_ms = self.broker.clock.now_ms
        self._looks_late = not (
            is_idle or self._maintained or now_ms != self._looked_ms or self.broker.clock.turns % LOOK_TURNS == 0
        )
        if self._looks_late:
            return
        self._looked_ms = now_ms
        log = self.broker.log
        self._maintained = log.wants_maintenance
        if self._maintained:
            log.maintain(log.maintenance_ms(1000 * (self._clock.seconds() - began)))

    def _serve(self, ready: list[tuple[int, int]], deadline: float) -> None:
        """Serve the descriptors that are ready; connections that are left at the deadline are the first next time."""
        clock = self._clock.seconds
        connections, waiting = self.connections, self._ready
        by_fd, turn = connections.by_fd, self.broker.clock.turns
        had_waiting = is_late = waiting.count > 0
        reads_ahead = len(ready) > 1 and not self.broker.log.makes_room()
        for fd, mask in ready:
            connection = by_fd.get(fd)
            if connection is None:
                if connections.ahead:
                    connections.handle_ahead()
                reader = self._readers.get(fd)
                if reader is not None:
                    self._call(*reader)
            elif is_late:
                waiting.add(connection, mask, turn)
            elif reads_ahead and mask == READ and connections.read_ahead(connection):
                is_late = clock() > deadline
            else:
                if connections.ahead:
                    connections.handle_ahead()
                connections.serve(connection, mask)
                is_late = clock() > deadline
        if connections.ahead:
            connections.handle_ahead()
        if had_waiting:
            connection, mask = waiting.pop_oldest()
            while True:
                if connection.phase is not Phase.GONE:
                    connections.serve(connection, mask)
                if not waiting.count or clock() > deadline:
                    break
                connection, mask = waiting.pop()

    def _call(self, action: Callable[[], None], failed: Callable[[], None] | None) -> None:
        try:
            action()
        except Exception:
            if failed is None:
                raise
            failed()

    def _dispatch(self, deadline: float) -> None:
        broker = self.broker
        if broker.work.ready:
            is_behind = self._visits.serve(deadline)
            self.connections.read_bytes = BUSY_READ_BYTES if is_behind or self._ready.count else 0
        elif self._visits.paces:
            self._visits.paces = pacing.look(broker, ())
        browsing = broker.work.browsing
        for _ in range(len(browsing)):
            browser = browsing.popleft()
            try:
                serve_browser(broker, browser)
            except Exception:
                self.connections.fail(browser.connection)
        if broker.work.draining:
            dispatch.finish_drains(broker)
        if broker.work.streaming:
            self.connections.advance_streams(max(deadline, self._clock.seconds() + DISPATCH_SECONDS))

    def _finish(self) -> None:
        """Delivered-up-to numbers, the log's block, the sync, sockets: in this order. The disk works while sockets are
        flushed; where a sync holds the turn, it comes last.
        """
        broker = self.broker
        log = broker.log
        if broker.work.delivered:
            log.delivered_up_to({queue.incarnation: queue.delivered_up_to for queue in broker.work.delivered})
            broker.work.delivered.clear()
        broker.sync.write()
        if self._tells_blocks:
            self._tell_block()
        if broker.sync.is_awaited:
            if log.sync_may_have_ended:
                log.collect()  # while this turn was at work: another turn would only cost time
            if broker.sync.has_synced_waiting:
                broker.sync.release(broker.fail_connection, broker.clock)
        if log.failed is not None and broker.sync.is_awaited:
            self._abandon()
        # Acks alone may wait a little: what a crash loses of them is delivered once more.
        is_due = broker.sync.is_awaited or broker.clock.now_ms >= self._lazy_sync_ms
        # Producers that wait for compaction wait for whatever was written: with its sync segments become free.
        is_wanted = (log.wants_sync and is_due) or (broker.work.held and log.sequence != log.synced)
        if is_wanted:
            self._lazy_sync_ms = broker.clock.now_ms + LAZY_SYNC_MS
            if not log.waits_for_syncs:
                log.request_sync()
        self.connections.flush()
        if is_wanted and log.waits_for_syncs:
            log.request_sync()

    def _tell_block(self) -> None:
        """A turn's block, for `--log-level debug`."""
        log = self.broker.log
        if log.sequence != self._told_block:
            self._told_block = log.sequence
            logger.debug("Block %d of the log is written, %d is synced; turn %d", log.sequence, log.synced,
                         self.broker.clock.turns)  # fmt: skip

    def _abandon(self) -> None:
        """The log has failed: close the connections that wait for a sync, since none will come."""
        for connection in self.broker.sync.abandon():
            if connection.phase in (Phase.OPENING, Phase.OPEN):
                connection_end.close_connection(self.broker, connection, self.broker.storage_refusal())
        if self.broker.is_stopping and not self._closes_all:
            self._close_all()  # which waited for the sync, too

    # -- the end ------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop accepting connections, send a Close to every client, and end when all have closed theirs, or after
        `CLOSE_MS`.
        """
        broker = self.broker
        if broker.is_stopping:
            return
        broker.is_stopping = True
        for listener in self._listeners:
            if listener.sock is not None:
                self._lobby.unwatch(listener)
                listener.close()
        # What was published before is accepted before the Close.
        broker.sync.after_sync(None, self._close_all)
        broker.clock.timers.at(broker.clock.now_ms + CLOSE_MS, self._end)

    def _close_all(self) -> None:
        self._closes_all = True
        if self.broker.work.fan_outs:
            self.broker.clock.after(0, self._close_all)  # what is on its way into many queues is accepted before, too
            return
        self._close_some(deque(self.broker.clients.connections.values()))

    def _close_some(self, left: deque[Connection]) -> None:
        """Close the next of these connections; the others are still served."""
        told = AmqpError("amqp:connection:forced", "The broker is stopping; connect again.")
        is_over = self.broker.clock.stint()
        for _ in range(min(CLOSED_PER_TURN, len(left))):
            connection_end.close_connection(self.broker, left.popleft(), told)
            if is_over():  # each may have very many deliveries that go back
                break
        if left:
            self.broker.clock.after(0, partial(self._close_some, left))
        else:
            self._check_end()

    def _check_end(self) -> None:
        broker, half_closed = self.broker, self.connections.half_closed
        half_closed.look(broker.clock.now_ms)
        if not broker.clients.connections and broker.sync.is_idle and not half_closed:
            self._end()
        else:
            broker.clock.timers.at(broker.clock.now_ms + 10, self._check_end)

    def _end(self) -> None:
        self._drop_some(deque(self.broker.clients.connections.values()))

    def _drop_some(self, left: deque[Connection]) -> None:
        """Drop the next of these connections, which have not taken their Close in time; end behind the last."""
        is_over = self.broker.clock.stint()
        while left:
            self.connections.drop(left.popleft())
            if is_over():
                break
        if left:
            self.broker.clock.after(0, partial(self._drop_some, left))
        else:
            self._running = False

    def close(self) -> None:
        """Give the loop's own descriptors and its thread back; nothing of it may be used afterwards."""
        self._login_thread.close()
        self.connections.close()
        self._lobby.close()
        self._epoll.close()
