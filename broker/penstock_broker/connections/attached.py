"""What every link has, whatever it is for: its connection, and where it is in its life.

Plain records; whoever ends a link clears its references, because cycles are not collected in the broker process. Must
not know queues or exchanges: what a link is for stands in `state.links`.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock_amqp.endpoint.links import InLink
from penstock_broker.connections.connection import Connection

__all__ = ["Attached", "Sender"]


class Attached:
    """A link that a client attached."""

    __slots__ = ("after_reply", "connection", "creates", "is_active")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.is_active = False
        """The attach was answered: messages and credit may flow."""
        self.after_reply: list[Callable[[], None]] = []
        """What has to wait until the attach is answered, e.g. the client's own detach."""
        self.creates: str | None = None
        """The temporary node that its attach made."""


class Sender(Attached):
    """A link on which the client sends."""

    __slots__ = ("link",)

    def __init__(self, connection: Connection, link: InLink) -> None:
        super().__init__(connection)
        self.link = link
