"""The sessions of a connection as the rules know them: each gets a number when it is first asked for."""

from __future__ import annotations

from penstock_amqp.endpoint.links import InLink, OutLink
from penstock_broker.access.connection import Connection
from penstock_core.subscription_lifetime import SessionKey

__all__ = ["session_of"]


def session_of(connection: Connection, link: InLink | OutLink) -> SessionKey:
    """The session of a link."""
    session = link.session
    if not isinstance(session.context, int):
        connection.sessions += 1
        session.context = connection.sessions
    return SessionKey(connection.number, session.context)
