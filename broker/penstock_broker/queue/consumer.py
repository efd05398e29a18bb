"""What every link has, whatever it is for: its connection, and where it is in its life.

Plain records; whoever ends a link clears its references, because cycles are not collected in the broker process. Must
not know queues or exchanges: what a link is for stands in `state.links`.

A link that gets messages out of a queue, as far as the queue knows it.

Plain record, see `queue.consumer`. Must not know which queue, or why: that stands in `state.links`.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock_amqp.endpoint.links import InLink, OutLink
from penstock_broker.access.connection import Connection
from penstock_broker.queue.cursor import SelectorCursor

__all__ = ["Link", "ReceivingLink", "SendingLink"]


class Link:
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


class SendingLink(Link):
    """A link on which the client sends."""

    __slots__ = ("link",)

    def __init__(self, connection: Connection, link: InLink) -> None:
        super().__init__(connection)
        self.link = link


class ReceivingLink(Link):
    """A link on which the client receives."""

    __slots__ = ("link", "priority", "selection")

    def __init__(self, connection: Connection, link: OutLink) -> None:
        super().__init__(connection)
        self.link = link
        self.priority = 0
        """Those of higher priority come first."""
        self.selection: SelectorCursor | None = None
        """What it takes of the backlog; None: everything."""
