"""Messages that go out in pieces: each turn a bounded part of each, so that other links of a connection get on too.

A connection is asked again when it was flushed: then its socket has taken what it got before, or it is blocked and
comes back when it takes bytes. A peer whose session window is shut comes back when it says something.
"""

from __future__ import annotations

from penstock_amqp.endpoint.events import Event
from penstock_broker.connections.connection import Connection
from penstock_broker.messages.dispatching import HELD_BACK_BYTES, TURN_BYTES
from penstock_broker.state.broker import Broker

__all__ = ["advance"]


def advance(broker: Broker, connection: Connection) -> None:
    """Hand the connection's streams their part of this turn. Raises OSError if a message can't be read."""
    if connection.is_blocked:
        return
    events: list[Event] = []
    if connection.endpoint.advance_streams(TURN_BYTES, HELD_BACK_BYTES, events):
        broker.touch(connection)
    if events:
        broker.serve_events(connection, events)
