"""Ends connections whose login does not hold any more: its token's time is over, or its key, user or password went.

Times are looked at once a second. Files are looked at on the thread of `logins`, a part of the connections each second,
and what is missing has to be missing twice, since editors remove a file before they write it again. Must not know SASL.
Source: docs/security.md, "When a login ends"; what is said to whom: `penstock_core.login_end`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from penstock_broker.access.connection import Connection, Phase
from penstock_broker.access.listeners import Listener
from penstock_broker.access.users import Proof, Signed
from penstock_broker.attach import open
from penstock_broker.errors import amqp_error
from penstock_broker.state.broker import Broker
from penstock_core.login_end import LoginEnd, refusal

__all__ = ["WATCH_MS", "LoginRevalidation"]

WATCH_MS: Final = 1000
AT_ONCE: Final = 2000
"""Connections whose files are looked at in one go."""
SPARE: Final = 1000
"""Ends of connections that are gone, before they are swept out."""


class _Login(NamedTuple):
    connection: int
    port: Listener
    user: str
    proof: Proof


Found: TypeAlias = dict[int, LoginEnd | None]
"""What was found of each connection that was looked at."""
Run: TypeAlias = Callable[[Callable[[], Callable[[], None]], Callable[[], None]], None]
"""Does the first on a thread, and on the loop what that returns; or the second on the loop if it failed."""


class LoginRevalidation:
    """The logins of one broker's connections."""

    def __init__(self, broker: Broker, run: Run) -> None:
        self._broker = broker
        self._run = run
        self._ends: list[tuple[int, int]] = []
        """A heap: when a token ends, whose connection's."""
        self._suspects: set[int] = set()
        """Connections whose login did not hold when it was looked at last."""
        self._cursor = 0
        self._is_looking = False

    def begun(self, connection: Connection) -> None:
        """A connection has logged in."""
        if isinstance(connection.proof, Signed):
            connections = self._broker.clients.connections
            if len(self._ends) > 2 * len(connections) + SPARE:
                self._ends = [each for each in self._ends if each[1] in connections]
                heapq.heapify(self._ends)
            heapq.heappush(self._ends, (connection.proof.ends_us, connection.number))

    @property
    def waiting(self) -> int:
        """Ends of tokens that are remembered."""
        return len(self._ends)

    def watch(self) -> None:
        """Look now, and once a second from now on."""
        self._broker.clock.after(WATCH_MS, self.watch)
        while self._ends and self._ends[0][0] <= self._broker.clock.now_us:
            _, number = heapq.heappop(self._ends)
            self._end(number, LoginEnd.EXPIRED)
        if not self._is_looking:
            self._look()

    def _look(self) -> None:
        connections = self._broker.clients.connections
        numbers = list(connections)[self._cursor : self._cursor + AT_ONCE]
        self._cursor = self._cursor + AT_ONCE if len(numbers) == AT_ONCE else 0
        logins = [
            _Login(number, each.port, each.user, each.proof)
            for number in numbers
            if (each := connections[number]).is_known and each.proof is not None
        ]
        if logins:
            self._is_looking = True
            self._run(lambda: partial(self._take, _found(logins)), partial(self._take, {}))

    def _take(self, found: Found) -> None:
        self._is_looking = False
        for number, end in found.items():
            if end is None:
                self._suspects.discard(number)
            elif number in self._suspects:
                self._end(number, end)
            else:
                self._suspects.add(number)
        self._suspects &= self._broker.clients.connections.keys()

    def _end(self, number: int, end: LoginEnd) -> None:
        connection = self._broker.clients.connections.get(number)
        if connection is None or connection.phase not in (Phase.OPENING, Phase.OPEN):
            return
        told = refusal(end, connection.user)
        self._broker.clients.warnings.warn(
            "Closed %s on listener %s: %s", connection.peer, connection.port.name, told.description[:300]
        )
        open.close(self._broker, connection, amqp_error(told))


def _found(logins: list[_Login]) -> Found:
    """Look at files; on a thread. Many connections of one user cost one look."""
    seen: dict[tuple[int, object], LoginEnd | None] = {}
    found: Found = {}
    for number, port, user, proof in logins:
        # A record can't be hashed; that of a user is one object for all who log in by it.
        key = (id(port), (proof.issuer, proof.key) if isinstance(proof, Signed) else (user, id(proof)))
        if key not in seen:
            seen[key] = _end_of(port, user, proof)
        found[number] = seen[key]
    return found


def _end_of(port: Listener, user: str, proof: Proof) -> LoginEnd | None:
    if isinstance(proof, Signed):
        return None if port.issuers.holds(proof.issuer, proof.key) else LoginEnd.KEY_REMOVED
    return port.users.end_of(user, proof) if port.users is not None else None
