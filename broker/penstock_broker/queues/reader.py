"""A link that gets messages out of a queue, as far as the queue knows it.

Plain record, see `connections.attached`. Must not know which queue, or why: that stands in `state.links`.
"""

from __future__ import annotations

from penstock_amqp.endpoint.links import OutLink
from penstock_broker.connections.attached import Attached
from penstock_broker.connections.connection import Connection
from penstock_broker.queues.selection import Selection

__all__ = ["Reader"]


class Reader(Attached):
    """A link on which the client receives."""

    __slots__ = ("link", "priority", "selection")

    def __init__(self, connection: Connection, link: OutLink) -> None:
        super().__init__(connection)
        self.link = link
        self.priority = 0
        """Those of higher priority come first."""
        self.selection: Selection | None = None
        """What it takes of the backlog; None: everything."""
