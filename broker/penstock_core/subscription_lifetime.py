"""When a subscription ends by itself, and whether it outlives the broker's process.

"Session-end" and "connection-close" of a shared subscription mean the last session or connection that attached to it,
not that of its creator (decision 9); ``AttachedSessions`` remembers them. Links of a null source use nothing and are
never added. Source: the attach table "Assumptions"; docs/decisions/002-durability-and-lifetime.md,
docs/decisions/009-closing-detach.md, docs/decisions/036-what-is-durable.md; decision 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from penstock_core.terms import Lifetime

__all__ = ["AttachedSessions", "SessionKey", "has_ended", "outlives_process"]


@dataclass(frozen=True, slots=True)
class SessionKey:
    """One session; numbers are the caller's, never reused while a subscription may remember them."""

    connection: int
    session: int


@dataclass(frozen=True, slots=True)
class AttachedSessions:
    """Who has attached to a subscription and is still open; a link that detaches leaves its session here."""

    sessions: frozenset[SessionKey] = frozenset()
    connections: frozenset[int] = frozenset()

    def attached(self, session: SessionKey) -> AttachedSessions:
        """The users once a link of ``session`` has attached."""
        return AttachedSessions(self.sessions | {session}, self.connections | {session.connection})

    def session_ended(self, session: SessionKey) -> AttachedSessions:
        """The users once ``session`` has ended; its connection stays one."""
        return AttachedSessions(self.sessions - {session}, self.connections)

    def connection_closed(self, connection: int) -> AttachedSessions:
        """The users once ``connection`` has closed, and its sessions with it."""
        return AttachedSessions(
            frozenset(each for each in self.sessions if each.connection != connection),
            self.connections - {connection},
        )


def has_ended(lifetime: Lifetime, consumers: int, users: AttachedSessions, *, managed: bool) -> bool:
    """True if a subscription with this lifetime ends now, with these consuming links and users left.

    Never while a link consumes, and never if a resource declares it: clients don't end that by leaving (decision 14).
    """
    if consumers or managed:
        return False
    match lifetime:
        case Lifetime.PERMANENT:
            return False
        case Lifetime.NO_OUTBOUND_LINK:
            return True
        case Lifetime.SESSION_END:
            return not users.sessions
        case Lifetime.CONNECTION_CLOSE:
            return not users.connections
        case _:
            assert_never(lifetime)


def outlives_process(durable: bool, lifetime: Lifetime) -> bool:
    """True if the subscription is in the log: durable and permanent. All others end with the process."""
    return durable and lifetime is Lifetime.PERMANENT
