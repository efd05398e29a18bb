"""Ends connections whose login no longer holds: its token has expired, or its key, user or password was taken away.

Times are looked at once a second. Files are looked at on the thread of `login_thread`, for a part of the connections
each second; what is missing has to be missing twice, since editors remove a file before they write it again. Must not
know SASL. Source: docs/reference/security.md, "When a login ends"; what the client is told: `penstock_core.login_end`.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from penstock_broker.access.connection import Connection, Phase
from penstock_broker.access.listeners import Listener
from penstock_broker.access.login_thread import LoginThread
from penstock_broker.access.users import Proof, SignedToken
from penstock_broker.clock import TurnClock
from penstock_broker.warning_throttle import WarningThrottle
from penstock_core.login_end import LoginEnd, refusal
from penstock_core.reason import Refuse

__all__ = ["CHECK_MS", "LoginRevalidation"]

logger = logging.getLogger(__name__)

CHECK_MS: Final = 1000
BATCH: Final = 2000
"""Connections whose files are looked at in one piece of work of the thread."""
SPARE: Final = 1000
"""Expiry times that may belong to connections that are gone, before they are removed."""


class _Login(NamedTuple):
    connection: int
    listener: Listener
    user: str
    proof: Proof


Ends: TypeAlias = dict[int, LoginEnd | None]
"""By number of each connection that was looked at: why its login has ended; None: it holds."""


class LoginRevalidation:
    """The logins of one broker's connections, after they have succeeded."""

    def __init__(
        self,
        clock: TurnClock,
        connections: Mapping[int, Connection],
        thread: LoginThread,
        warnings: WarningThrottle,
        close: Callable[[Connection, Refuse], None],
    ) -> None:
        """`connections`: by number. `close` closes a connection and tells its client why."""
        self._clock = clock
        self._connections = connections
        self._thread = thread
        self._warnings = warnings
        self._close = close
        self._expiries: list[tuple[int, int]] = []
        """A heap: when a token expires (microseconds since the epoch), and the number of its connection."""
        self._suspects: set[int] = set()
        """Connections whose login did not hold when it was looked at last."""
        self._cursor = 0
        self._is_checking = False
        """The thread looks at files."""
        self._ended: deque[tuple[int, LoginEnd]] = deque()
        """Connections that are to be closed, and why."""
        self._is_ending = False
        """The next turn goes on with that."""

    def logged_in(self, connection: Connection) -> None:
        """Remember when the login of a connection expires."""
        proof = connection.login.proof
        if isinstance(proof, SignedToken):
            if len(self._expiries) > 2 * len(self._connections) + SPARE:
                self._expiries = [each for each in self._expiries if each[1] in self._connections]
                heapq.heapify(self._expiries)
            heapq.heappush(self._expiries, (proof.ends_us, connection.number))

    @property
    def waiting(self) -> int:
        """How many expiry times are remembered."""
        return len(self._expiries)

    def check(self) -> None:
        """Check now, and every `CHECK_MS` from now on."""
        self._clock.after(CHECK_MS, self.check)
        self._end_some()
        if not self._is_checking:
            self._check_files()

    def _end_some(self) -> None:
        """Close connections whose login has ended: if they are very many, the others in the next turns."""
        if self._is_ending:
            return
        is_over = self._clock.stint()
        while (ended := self._next_ended()) is not None:
            self._end(*ended)
            if is_over():
                self._is_ending = True
                self._clock.after(0, self._end_more)
                return

    def _end_more(self) -> None:
        self._is_ending = False
        self._end_some()

    def _next_ended(self) -> tuple[int, LoginEnd] | None:
        if self._ended:
            return self._ended.popleft()
        if self._expiries and self._expiries[0][0] <= self._clock.now_us:
            return heapq.heappop(self._expiries)[1], LoginEnd.EXPIRED
        return None

    def _check_files(self) -> None:
        numbers = list(self._connections)[self._cursor : self._cursor + BATCH]
        self._cursor = self._cursor + BATCH if len(numbers) == BATCH else 0
        logins = [
            _Login(number, each.listener, each.login.user, each.login.proof)
            for number in numbers
            if (each := self._connections[number]).login.is_authenticated and each.login.proof is not None
        ]
        if logins:
            self._is_checking = True
            self._thread.submit(lambda: partial(self._take, _ends(logins)))

    def _take(self, ends: Ends) -> None:
        self._is_checking = False
        for number, end in ends.items():
            if end is None:
                self._suspects.discard(number)
            elif number in self._suspects:
                self._ended.append((number, end))
            else:
                self._suspects.add(number)
        self._suspects &= self._connections.keys()
        self._end_some()

    def _end(self, number: int, end: LoginEnd) -> None:
        connection = self._connections.get(number)
        if connection is None or connection.phase not in (Phase.OPENING, Phase.OPEN):
            return
        told = refusal(end, connection.login.user)
        peer, listener = connection.transport.peer, connection.listener.name
        self._warnings.warn("Closed %s on listener %s: %s", peer, listener, told.description[:300])
        self._close(connection, told)


# -- on the thread ----------------------------------------------------------------------------------------------------


def _ends(logins: list[_Login]) -> Ends:
    """By connection, why its login has ended (None: it has not); empty if that can't be found out."""
    try:
        return _look_at_files(logins)
    except Exception:
        logger.exception("The files of logins could not be looked at")
        return {}


def _look_at_files(logins: list[_Login]) -> Ends:
    """Many connections of one user cost one look."""
    seen: dict[tuple[int, object], LoginEnd | None] = {}
    ends: Ends = {}
    for number, listener, user, proof in logins:
        # A record can't be hashed; that of a user is one object for all who log in by it.
        key = (id(listener), (proof.issuer, proof.key) if isinstance(proof, SignedToken) else (user, id(proof)))
        if key not in seen:
            seen[key] = _end_of(listener, user, proof)
        ends[number] = seen[key]
    return ends


def _end_of(listener: Listener, user: str, proof: Proof) -> LoginEnd | None:
    if isinstance(proof, SignedToken):
        is_held = listener.issuers is not None and listener.issuers.holds(proof.issuer, proof.key)
        return None if is_held else LoginEnd.KEY_REMOVED
    return listener.users.end_of(user, proof) if listener.users is not None else None
