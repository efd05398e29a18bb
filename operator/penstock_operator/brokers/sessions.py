"""The sessions of all Brokers: which there are, and one in place of another when address or password have changed.

Source: docs/decisions/047-management-node.md, docs/decisions/097-outages.md.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from penstock_api.management import Owner
from penstock_operator.brokers.broker_contacts import BrokerContacts
from penstock_operator.brokers.management import Connector, ManagementAccess
from penstock_operator.brokers.session import BrokerSession
from penstock_operator.brokers.session_change import SessionChange

__all__ = ["BrokerSessions"]


class BrokerSessions:
    """The sessions of all Brokers, by Broker."""

    def __init__(
        self,
        connect: Connector,
        poll_seconds: float,
        clock: Callable[[], datetime],
        spread: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`spread`: a random number from 0 to 1, by which up to half of a pause beyond half a second is taken off."""
        self._spread = spread
        self._connect = connect
        self._poll_seconds = poll_seconds
        self._sessions: dict[str, BrokerSession] = {}
        self.contacts: Final = BrokerContacts(clock)
        """Since when each of them is away."""

    def get(self, broker: str) -> BrokerSession | None:
        """The session of a Broker (`namespace/name`), None if there is none."""
        return self._sessions.get(broker)

    def is_declaring(self) -> bool:
        """Whether declarations or deletions are on the way to any broker."""
        return any(session.is_sending for session in self._sessions.values())

    async def ensure(
        self,
        broker: str,
        access: ManagementAccess,
        changed: Callable[[SessionChange], None],
        drifted: Callable[[Owner], None] = lambda _: None,
    ) -> BrokerSession:
        """The session of a Broker with this access; if address or password changed, a new session replaces the old.
        `drifted` is told the owners of entities that somebody else has changed or deleted on the broker.
        """
        session = self._sessions.get(broker)
        if session is not None and session.access == access and session.is_running:
            return session
        if session is not None:
            await session.close()
        made = BrokerSession(
            broker, access, self._connect, self._poll_seconds, self.contacts, changed, drifted, self._spread
        )
        if session is not None:
            made.take_over(session)
        self._sessions[broker] = made
        return made

    async def drop(self, broker: str) -> None:
        """End the session of a Broker, if there is one."""
        session = self._sessions.pop(broker, None)
        if session is not None:
            await session.close()

    async def forget(self, broker: str) -> None:
        """End the session of a Broker that does not exist any more."""
        await self.drop(broker)
        self.contacts.forget(broker)

    async def close(self) -> None:
        """End all sessions."""
        for broker in tuple(self._sessions):
            await self.drop(broker)
