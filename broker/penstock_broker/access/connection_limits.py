"""The limits of open connections: in all, per user and per network address.

Only connections of client listeners count: the operator and the observer get in whatever clients do. Source:
docs/reference/security.md.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from penstock_api.settings.client_limits import ConnectionLimits
from penstock_broker.access.connection import Connection
from penstock_broker.settings.settings import Role
from penstock_core.reason import Reason, Refuse

__all__ = ["ConnectionCounts"]

ADVICE: Final = "close some, or ask those who run this broker to raise"


class ConnectionCounts:
    """The open connections of clients."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._open: set[int] = set()
        """Numbers of the connections that are counted."""
        self._users: Counter[str] = Counter()
        self._peers: Counter[str] = Counter()

    def check(self, connection: Connection) -> Refuse | None:
        """None if the connection may open."""
        limits = self._limits
        if connection.listener.role is not Role.CLIENT:
            return None
        if len(self._open) >= limits.connections:
            return _refuse(f"The broker has {len(self._open)} connections open", "limits.connections")
        per_user, per_peer = limits.connections_per_user, limits.connections_per_peer
        user, host = connection.login.user, connection.transport.peer_host
        if per_user is not None and self._users[user] >= per_user:
            return _refuse(f"User {user!r} has {per_user} connections open", "limits.connectionsPerUser")
        if per_peer is not None and self._peers[host] >= per_peer:
            return _refuse(f"Address {host} has {per_peer} connections open", "limits.connectionsPerPeer")
        return None

    def enter(self, connection: Connection) -> None:
        """The connection is open now."""
        if connection.listener.role is Role.CLIENT and connection.number not in self._open:
            self._open.add(connection.number)
            self._count(connection, 1)

    def leave(self, connection: Connection) -> None:
        """The connection is closed or lost; may be called more than once."""
        if connection.number in self._open:
            self._open.discard(connection.number)
            self._count(connection, -1)

    def _count(self, connection: Connection, change: int) -> None:
        for counter, key in ((self._users, connection.login.user), (self._peers, connection.transport.peer_host)):
            counter[key] += change
            if not counter[key]:
                del counter[key]


def _refuse(cause: str, setting: str) -> Refuse:
    return Refuse(Reason.LIMIT_EXCEEDED, f"{cause}, which is the limit: {ADVICE} {setting}.")
