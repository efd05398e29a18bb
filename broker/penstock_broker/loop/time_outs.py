"""Time-outs of connections: heartbeats, silent peers, logins that take too long, peers that do not take our Close, and
sockets that are half closed.

A look at each connection is cheaper than a timer for each, and a connection that is gone leaves nothing behind. Only a
peer that wants to hear from us more often than we look has a timer. If the process stood still (it was stopped, or its
node), nobody was read meanwhile: then no peer counts as silent until its socket could be read. Source:
docs/decisions/027-timers.md.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import Final

from penstock_amqp.endpoint.events import Event
from penstock_broker.access.connection import Connection, Phase
from penstock_broker.access.rejections import RejectionReason
from penstock_broker.access.unauthenticated_connections import UnauthenticatedConnections
from penstock_broker.loop.connections import DONE, IDLE_MS, Connections
from penstock_broker.loop.events import serve
from penstock_broker.state.broker import Broker

__all__ = ["STOOD_STILL_MS", "SWEEP_MS", "TimeOuts"]

logger = logging.getLogger(__name__)

SWEEP_MS: Final = 250
STOOD_STILL_MS: Final = 2000
"""If no sweep came for so long, nobody can say of a peer that it was silent."""
SOON_MS: Final = 2 * SWEEP_MS
"""Who is to be looked at before this has a timer: a sweep may come `SWEEP_MS` too late."""
CLOSE_MS: Final = 30_000
"""How long a peer gets to take our Close, and what it has not read before: one that reads nothing would never do so."""
DUE_PER_TURN: Final = 100
"""Connections that are looked at in one turn: one to two milliseconds."""


class TimeOuts:
    """Those of one broker."""

    def __init__(self, broker: Broker, connections: Connections, unauthenticated: UnauthenticatedConnections) -> None:
        self._broker = broker
        self._connections = connections
        self._unauthenticated = unauthenticated
        self._due: deque[Connection] = deque()
        """Connections that are to be looked at."""
        self._swept_ms = 0
        """When the last sweep was; 0: none was yet."""
        self._spared_until_ms = 0
        """Until then nobody's silence counts, and no login is late."""

    def sweep(self) -> None:
        """Look at all whose time has come now, and every `SWEEP_MS` from now on."""
        broker = self._broker
        broker.clock.after(SWEEP_MS, self.sweep)
        now_ms = broker.clock.now_ms
        self._look_for_standstill(now_ms)
        self._swept_ms = now_ms
        broker.warnings.flush()
        broker.clients.login_lines.flush()
        self._unauthenticated.resume(now_ms)
        self._connections.half_closed.look(now_ms)
        if not self._due:
            self._due.extend(each for each in broker.clients.connections.values() if each.due_ms <= now_ms)
            self._look_at_due()

    def _look_for_standstill(self, now_ms: int) -> None:
        """Spare everybody for a while if no sweep has come for long. Whoever looks at a connection asks it first."""
        still_ms = now_ms - self._swept_ms if self._swept_ms else 0
        if still_ms >= STOOD_STILL_MS:
            self._swept_ms = now_ms
            self._spared_until_ms = now_ms + IDLE_MS
            logger.warning("The process stood still for %d s: clients that were not read meanwhile are not taken for "
                           "silent", still_ms // 1000)  # fmt: skip

    def _look_at_due(self) -> None:
        """Look at the next connections whose time has come; the others are looked at in the next turns."""
        now_ms = self._broker.clock.now_ms
        for _ in range(min(DUE_PER_TURN, len(self._due))):
            connection = self._due.popleft()
            if connection.phase in DONE:
                continue
            try:
                if connection.phase in (Phase.SASL, Phase.OPENING) and connection.login.deadline_ms <= now_ms:
                    if now_ms < self._spared_until_ms:
                        connection.due_ms = self._spared_until_ms
                    else:
                        self._reject_slow(connection)
                elif connection.phase is Phase.CLOSING:
                    self._await_close(connection)
                else:
                    self._tick(connection)
            except Exception:
                self._connections.fail(connection)
        if self._due:
            self._broker.clock.after(0, self._look_at_due)

    def _reject_slow(self, connection: Connection) -> None:
        self._broker.clients.rejections.warn(
            RejectionReason.LOGIN_TIMED_OUT,
            "Dropped %s on listener %s: it has not opened within %d s",
            connection.transport.peer,
            connection.listener.name,
            self._broker.settings.limits.login_seconds,
        )
        self._connections.drop(connection)

    def _await_close(self, connection: Connection) -> None:
        now_ms = self._broker.clock.now_ms
        if connection.dropped_ms == 0:
            connection.dropped_ms = connection.due_ms = now_ms + CLOSE_MS
        elif connection.dropped_ms <= now_ms:
            self._connections.drop(connection)

    def _tick(self, connection: Connection) -> None:
        broker = self._broker
        now_ms, is_first, reading = broker.clock.now_ms, connection.due_ms == 0, connection.reading
        self._look_for_standstill(now_ms)
        if reading.is_held or now_ms < max(reading.spared_until_ms, self._spared_until_ms):
            # We do not read from it, or did not until just now, so we can't say that it is silent; it has to hear
            # from us.
            connection.send_heartbeat()
            broker.work.touch(connection)
            self._look_within(connection, IDLE_MS)
            return
        events: list[Event] = []
        due_ms = connection.endpoint.tick(now_ms, events)
        if events:
            serve(broker, connection, events)
        broker.work.touch(connection)
        # 0: no time-out is known yet.
        wait_ms = self._look_within(
            connection, due_ms - now_ms if due_ms > 0 and connection.phase is Phase.OPEN else IDLE_MS
        )
        if is_first and 1 < wait_ms < SOON_MS:
            connection.send_heartbeat()  # our Open may have left up to `SWEEP_MS` ago

    def _look_within(self, connection: Connection, most_ms: int) -> int:
        """Look at it again after so long, or earlier if its peer wants to hear from us; return after how long.

        What was sent may have left just behind one look; the next one lets half of the peer's time-out pass from then
        on. So there is one in each quarter, and by a timer if a sweep may be too late.
        """
        clock, idle_ms = self._broker.clock, connection.endpoint.peer_idle_time_out_ms
        wait_ms = min(most_ms, idle_ms // 4) if idle_ms else most_ms
        connection.due_ms = clock.now_ms + wait_ms
        if 1 < wait_ms < SOON_MS:  # 1: it is to be looked at in each sweep
            clock.after(wait_ms, partial(self._look_again, connection), partial(self._connections.fail, connection))
        return wait_ms

    def _look_again(self, connection: Connection) -> None:
        if connection.phase is Phase.OPEN and connection.due_ms <= self._broker.clock.now_ms:  # no sweep was before
            self._tick(connection)
