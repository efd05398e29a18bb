"""The loop: one thread, raw epoll, turns bounded in time. Everything the broker does happens in a turn of it.

A turn: read ready sockets -> route and append to the log -> queues to consumers -> delivered marks -> write the log's
block -> flush sockets -> ask for the fdatasync. What waits for a sync leaves in the turn in which the log says it is
done. At most 16 descriptors per poll, the deadline is checked between connections, and what did not get its turn is
the first in the next one. `turn` and `add` are public, so that a whole broker can be driven by hand on a clock of its
own.

An exception while one connection is served closes that connection and is logged; it never ends the broker.

Written for speed: `turn` and what it calls run for every batch.
"""

from __future__ import annotations

import gc
import logging
import select
import sys
from collections import deque
from collections.abc import Callable
from typing import Final

from penstock_amqp.endpoint.events import AmqpError, Event
from penstock_broker.access.connection import Connection, Phase
from penstock_broker.access.listeners import Listener
from penstock_broker.access.login_revalidation import WATCH_MS
from penstock_broker.attach import open, permission_review
from penstock_broker.clock import SYSTEM_CLOCK, Clock
from penstock_broker.loop.connections import IDLE_MS, READ, SWEEP_MS, WRITE, Connections
from penstock_broker.loop.events import handle
from penstock_broker.messages import dispatch
from penstock_broker.messages.browse import serve_browser
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker

__all__ = ["Loop"]

logger = logging.getLogger(__name__)

TURN_SECONDS: Final = 0.002
DISPATCH_SECONDS: Final = 0.001
"""What queues get of a turn at least, lest reading fills the list of those that are ready faster than it empties."""
LOBBY_SECONDS: Final = 0.001
"""What those who have not logged in yet may take of a turn, beside the step of one of them."""
LOBBY_REST_MS: Final = 2
"""How long they wait after they used it up while others work: a third of the time is theirs at most."""
MAX_EVENTS: Final = 16
GOODBYE_MS: Final = 5_000
"""How long a closing peer gets to take what we still have for it."""
LAZY_SYNC_MS: Final = 5
MAINTENANCE_MS: Final = 1.0
COLLECT_MS: Final = 10_000

_LOST: Final = select.EPOLLHUP | select.EPOLLERR


class Loop(Connections):
    """Drives a broker until `stop`."""

    def __init__(self, broker: Broker, ports: list[Listener], clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(broker)
        self._ports = ports
        self._clock = clock
        self._readers: dict[int, Callable[[], None]] = {}
        """Descriptors that are no connections: the lobby, the log, signals, probes."""
        self._running = False
        self._others_work = False
        """In this turn there is more to do than the lobby."""
        self._left: list[tuple[int, int]] = []
        """Connections that were ready when a turn's time was over, and their events: the first in the next."""
        self._events: list[Event] = []
        self._lazy_sync_ms = 0
        self.watch(self._lobby.descriptor, self._serve_lobby)
        self.watch(self._logins.descriptor, self._logins.collect)
        if any(port.logins_may_end for port in ports):
            broker.clock.timers.at(clock.now_ms() + WATCH_MS, self.standing.watch)
        self._collect_ms = clock.now_ms() + COLLECT_MS

    def watch(self, fd: int, action: Callable[[], None]) -> None:
        """Call `action` whenever `fd` is readable."""
        self._readers[fd] = action
        self._epoll.register(fd, READ)

    def unwatch(self, fd: int) -> None:
        """Forget a descriptor."""
        if self._readers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def open_ports(self) -> None:
        """Take connections from now on; the ports are bound."""
        self.broker.clock.after(SWEEP_MS, self._sweep)
        if self.broker.settings.permissions_file is not None:
            permission_review.watch(self.broker)
        for port in self._ports:
            assert port.sock is not None
            self._lobby.watch(port)
            self._logins.preload(port)

    def run(self) -> None:
        """Turn until `stop` has told everybody and everything is out."""
        sys.setswitchinterval(0.0005)
        gc.collect()
        gc.freeze()
        gc.disable()
        self._running = True
        try:
            while self._running:
                self.turn()
        finally:
            gc.enable()

    # -- one turn ---------------------------------------------------------------------------------------------------

    def turn(self, *, may_wait: bool = True) -> None:
        """One turn; it waits for something to do unless it may not."""
        broker = self.broker
        remains = broker.topology.remains
        has_work = bool(
            broker.work.ready
            or broker.work.browsing
            or broker.work.dirty
            or broker.work.draining
            or broker.work.streaming
            or self._behind
            or self._left
            or remains
        )
        self._set_clock()
        log = broker.log
        most_ms = LAZY_SYNC_MS if log.sequence != log.synced or log.wants_maintenance else IDLE_MS
        wait_ms = 0 if has_work or not may_wait else broker.clock.timers.wait_ms(broker.clock.now_ms, most_ms)
        ready = self._epoll.poll(wait_ms / 1000, MAX_EVENTS)
        clock = self._clock.seconds
        deadline = clock() + TURN_SECONDS
        self._set_clock()
        broker.clock.turns += 1
        broker.clock.timers.run(broker.clock.now_ms)
        by_fd = self._by_fd
        self._others_work = has_work or len(ready) > 1
        if self._left:
            # Else whoever stands first in the poll's order, and asks for much, would be the only one served.
            ready = list({**dict(self._left), **dict(ready)}.items())
            self._left = []
        is_late = False
        for fd, mask in ready:
            connection = by_fd.get(fd)
            if connection is None:
                reader = self._readers.get(fd)
                if reader is not None:
                    reader()
            elif is_late:
                self._left.append((fd, mask))
            else:
                self._serve(connection, mask)
                is_late = clock() > deadline
        if broker.work.held and not broker.is_behind_disk:
            self._release_held()
        if self._behind:
            self._catch_up(deadline)
        self._dispatch(deadline)
        self._finish()
        if remains:
            remains.let_go()
        if log.wants_maintenance:
            log.maintain(MAINTENANCE_MS)
        if not ready and not has_work:
            self._idle()

    def _set_clock(self) -> None:
        self.broker.clock.now_us = self._clock.now_us()
        self.broker.clock.now_ms = self._clock.now_ms()

    def _serve(self, connection: Connection, mask: int) -> None:
        try:
            if mask & WRITE:
                self._unblocked(connection)
                self._note_behind(connection)
            if mask & (READ | _LOST):
                self._read(connection)
        except Exception:
            self._failed(connection)

    def _catch_up(self, deadline: float) -> None:
        """Go on with connections that asked for much at once: one step each, behind those that asked for little."""
        behind, self._behind = self._behind, deque()
        while behind:
            connection = behind.popleft()
            connection.is_behind = False
            try:
                self._read(connection)
                self._let_in(connection)
            except Exception:
                self._failed(connection)
            if self._clock.seconds() > deadline:
                break
        self._behind.extendleft(reversed(behind))

    def _serve_lobby(self) -> None:
        """Strangers get a slice of the turn, one step of one of them after the other."""
        clock = self._clock.seconds
        deadline = clock() + LOBBY_SECONDS
        while (ready := self._lobby.next()) is not None:
            who, mask = ready
            if isinstance(who, Listener):
                self._accept(who)
            else:
                connection = self._by_fd[who]
                self._serve(connection, mask)
                self._let_in(connection)
            if clock() > deadline:
                if self._others_work:
                    self._epoll.modify(self._lobby.descriptor, 0)
                    self.broker.clock.after(LOBBY_REST_MS, self._open_lobby)
                break

    def _open_lobby(self) -> None:
        self._epoll.modify(self._lobby.descriptor, READ)

    def _read(self, connection: Connection) -> None:
        if connection.phase is Phase.GONE or connection.is_behind:
            return
        if connection.phase is Phase.CLOSING:
            # Nothing it says matters any more; only its leaving does.
            try:
                if not connection.sock.recv(65_536):
                    self._drop(connection)
            except BlockingIOError:
                pass
            except OSError:
                self._drop(connection)
            return
        events = self._events
        alive = connection.receive(events)
        try:
            handle(self.broker, connection, events)
        finally:
            events.clear()
        if not alive:
            self._drop(connection)
        elif connection.is_held or connection.has_unread:
            self._note_behind(connection)

    def _dispatch(self, deadline: float) -> None:
        broker = self.broker
        ready = broker.work.ready
        again: list[Queue] = []
        clock = self._clock.seconds
        deadline = max(deadline, clock() + DISPATCH_SECONDS)
        while ready:
            queue = ready.popleft()
            queue.is_scheduled = False
            try:
                if dispatch.serve(broker, queue) and not queue.is_scheduled:
                    queue.is_scheduled = True
                    again.append(queue)
            except Exception:
                logger.exception("Queue %r could not be served; it is tried again when something changes", queue.name)
            if clock() > deadline:
                break
        ready.extend(again)
        browsing = broker.work.browsing
        for _ in range(len(browsing)):
            serve_browser(broker, browsing.popleft())
        if broker.work.draining:
            dispatch.finish_drains(broker)
        if broker.work.streaming:
            self._stream()

    def _stream(self) -> None:
        connections, self.broker.work.streaming = self.broker.work.streaming, []
        for connection in connections:
            try:
                if connection.phase is Phase.OPEN:
                    dispatch.advance_streams(self.broker, connection)
            except Exception:
                self._failed(connection)

    def _finish(self) -> None:
        """Marks, the log's block, sockets, the sync: in this order."""
        broker = self.broker
        log = broker.log
        if broker.work.delivered:
            for queue in broker.work.delivered:
                log.delivered_up_to(queue.incarnation, queue.mark)
            broker.work.delivered.clear()
        broker.sync.write()
        if broker.sync.has_synced_waiting:
            broker.sync.release()
        if log.failed is not None and broker.sync.is_awaited:
            self._abandon()
        while broker.work.dirty:
            dirty, broker.work.dirty = broker.work.dirty, []
            for connection in dirty:
                try:
                    self._flush(connection)
                except Exception:
                    self._failed(connection)
        if log.sequence != log.synced and (broker.sync.is_awaited or broker.clock.now_ms >= self._lazy_sync_ms):
            # Acks alone may wait a little: what a crash loses of them is delivered once more.
            log.request_sync()
            self._lazy_sync_ms = broker.clock.now_ms + LAZY_SYNC_MS

    def _abandon(self) -> None:
        """The log has failed: whoever waits for it would wait for ever."""
        for connection in self.broker.sync.abandon():
            if connection.phase in (Phase.OPENING, Phase.OPEN):
                open.close(self.broker, connection, self.broker.storage_refusal())

    def _idle(self) -> None:
        """Nothing is to be done: collect what cycles there may be."""
        if self.broker.clock.now_ms >= self._collect_ms:
            gc.collect()
            self._collect_ms = self.broker.clock.now_ms + COLLECT_MS

    # -- the end ----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop taking work, tell every client, and end once that is out (or their time is up)."""
        broker = self.broker
        if broker.is_stopping:
            return
        broker.is_stopping = True
        for port in self._ports:
            if port.sock is not None:
                self._lobby.unwatch(port)
                port.close()
        # What was published before is accepted before the Close.
        broker.sync.after_sync(None, self._say_goodbye)
        broker.clock.timers.at(broker.clock.now_ms + GOODBYE_MS, self._end)

    def _say_goodbye(self) -> None:
        told = AmqpError("amqp:connection:forced", "The broker is stopping; connect again.")
        for connection in list(self.broker.clients.connections.values()):
            open.close(self.broker, connection, told)
        self._check_end()

    def _check_end(self) -> None:
        broker = self.broker
        if not broker.clients.connections and broker.sync.is_idle:
            self._end()
        else:
            broker.clock.timers.at(broker.clock.now_ms + 10, self._check_end)

    def _end(self) -> None:
        self._running = False
        for connection in list(self.broker.clients.connections.values()):
            self._drop(connection)

    def close(self) -> None:
        """Give the loop's own descriptors and its thread back; nothing of it may be used afterwards."""
        self._logins.close()
        self._lobby.close()
        self._epoll.close()
