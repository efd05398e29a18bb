"""What the broker keeps per link: consumers, browsers, producers. Contexts of the endpoint's links.

Plain records; whoever ends a link clears its references, because cycles are not collected in the broker process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock_amqp.endpoint.events import AmqpError, Entry
from penstock_amqp.endpoint.ffi import Ptr
from penstock_amqp.endpoint.links import InLink, OutLink
from penstock_broker.queues.beginning import UNKNOWN
from penstock_broker.queues.selection import Examination, Selection
from penstock_core.existing import LinkKind
from penstock_core.identity import Identity, LinkKey
from penstock_core.terms import Durability

if TYPE_CHECKING:
    from penstock_broker.connections.connection import Connection
    from penstock_broker.queues.queue import Queue
    from penstock_broker.state.routes import Destination
    from penstock_core.selector import Selector

__all__ = ["Browser", "Consumer", "Finder", "Producer"]


class _Link:
    """What all kinds share."""

    __slots__ = ("after_reply", "connection", "creates", "is_active")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.is_active = False
        """The attach was answered: messages and credit may flow."""
        self.after_reply: list[Callable[[], None]] = []
        """What has to wait until the attach is answered, e.g. the client's own detach."""
        self.creates: str | None = None
        """The temporary node that its attach made."""


class Consumer(_Link):
    """A link that takes messages out of a queue."""

    __slots__ = ("durability", "identity", "key", "kind", "link", "priority", "queue", "selection")

    def __init__(
        self,
        connection: Connection,
        link: OutLink,
        queue: Queue,
        *,
        identity: Identity | None,
        kind: LinkKind,
        key: LinkKey,
        durability: Durability,
    ) -> None:
        super().__init__(connection)
        self.link = link
        self.queue = queue
        self.identity = identity
        """The subscription it consumes from; None for a queue of its own."""
        self.kind = kind
        self.key = key
        self.durability = durability
        """What the attach asked."""
        self.priority = 0
        """Consumers of higher priority come first."""
        self.selection: Selection | None = None
        """What it takes of the backlog; None: everything."""


class Finder(_Link):
    """A link with a null source, which looks a subscription up: it never receives a message."""

    __slots__ = ("identity", "link")

    def __init__(self, connection: Connection, link: OutLink, identity: Identity | None) -> None:
        super().__init__(connection)
        self.link = link
        self.identity = identity
        """None until a refusal is sent: there was nothing to be found."""


class Browser(_Link):
    """A link that gets copies of what waited when it attached."""

    __slots__ = ("link", "pending", "queue", "selection")

    def __init__(self, connection: Connection, link: OutLink, queue: Queue, selector: Selector | None) -> None:
        super().__init__(connection)
        self.link = link
        self.queue = queue
        self.pending: deque[Entry] = deque(queue)
        self.selection: Selection | None = None
        """What of it is sent; None: everything."""
        if selector is not None:
            examination = Examination()
            examination.ask_for((selector,))
            self.selection = Selection(selector, examination, {})


class Producer(_Link):
    """A link that brings messages. `destination` is where they go."""

    __slots__ = (
        "begins",
        "broken",
        "can_reject",
        "destination",
        "link",
        "owed_credit",
        "transfers",
        "waiting",
        "window",
    )

    def __init__(self, connection: Connection, link: InLink, destination: Destination, window: int) -> None:
        super().__init__(connection)
        self.link = link
        self.destination = destination
        self.can_reject = True
        """The link's outcomes have `rejected`; if not, a message that is not taken closes the link."""
        self.broken: AmqpError | None = None
        """Why the link has to be closed, once what came before in the batch is dealt with."""
        self.window = window
        """Messages the client may send ahead."""
        self.begins = UNKNOWN
        """How the last message began."""
        self.owed_credit = 0
        """Messages accepted since the last top-up."""
        self.transfers = 0
        self.waiting: list[Ptr] = []
        """Deliveries of this turn whose accept waits for the log."""
