"""What the broker keeps per link: consumers, browsers, producers, and links that look a subscription up.

They are the contexts of the endpoint's links. Plain records; whoever ends a link clears its references, because
reference cycles are not collected in the broker process.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from penstock_amqp.endpoint.buffers import Ptr
from penstock_amqp.endpoint.events import AmqpError, Entry
from penstock_amqp.endpoint.links import InLink, OutLink
from penstock_amqp.messages.message_head import Head
from penstock_broker.access.connection import Connection
from penstock_broker.queue.consumer import Link, ReceivingLink, SendingLink
from penstock_broker.queue.cursor import Examination, SelectorCursor
from penstock_broker.queue.exclusions import Exclusions
from penstock_broker.queue.message_prefix import UNKNOWN, MessagePrefix
from penstock_broker.queue.queue import Queue
from penstock_broker.queue.snapshots import LazyCopy
from penstock_broker.state.routes import Destination
from penstock_core.existing_subscription import LinkKind
from penstock_core.identity import Identity, LinkKey
from penstock_core.selector import Selector
from penstock_core.terms import Durability

__all__ = ["HELD_WINDOW", "Browser", "Consumer", "CreditHold", "Producer", "QueuePace", "SubscriptionLookup"]

HELD_WINDOW: Final = 10
"""Messages that a producer may send ahead while producers are held back, or its whole window if that is less."""


class Consumer(ReceivingLink):
    """A link that takes messages out of a queue."""

    __slots__ = ("durability", "identity", "key", "kind", "queue")

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
        super().__init__(connection, link)
        self.queue = queue
        self.identity = identity
        """The subscription it consumes from; None for a queue of its own."""
        self.kind = kind
        self.key = key
        self.durability = durability
        """The durability that the attach asked for."""

    def available(self) -> int | None:
        """Messages that wait for its credit; None if a selector chooses among them, which are counted only in passing.

        What waits for another consumer, because its group does, counts too: nobody could say it without a search.
        """
        if self.cursor is not None:
            return None
        active = self.queue.links.active
        return self.queue.waiting if active is None or active is self else 0


class SubscriptionLookup(Link):
    """A link with a null source, which looks a subscription up: it never receives a message."""

    __slots__ = ("identity", "link")

    def __init__(self, connection: Connection, link: OutLink, identity: Identity | None) -> None:
        super().__init__(connection)
        self.link = link
        self.identity = identity
        """None until a refusal is sent: there was nothing to be found."""


class Browser(ReceivingLink):
    """A link that gets copies of what waited when it attached."""

    __slots__ = ("pending", "queue")

    def __init__(
        self, connection: Connection, link: OutLink, queue: Queue, selector: Selector | None, below: int
    ) -> None:
        """`below`: the number of the next message."""
        super().__init__(connection, link)
        self.queue = queue
        self.pending: deque[Entry] | LazyCopy = queue.backlog.copy(below)
        if selector is not None:
            examination = Examination()
            examination.ask_for((selector,))
            self.cursor = SelectorCursor(selector, examination, Exclusions())

    def take_pending(self) -> deque[Entry]:
        """Hand over what is left of its copies and is in memory; it gets nothing more."""
        pending, self.pending = self.pending, deque()
        return pending if isinstance(pending, deque) else deque()


class Producer(SendingLink):
    """A link that brings messages. `destination` is where they go."""

    __slots__ = (
        "broken",
        "can_reject",
        "destination",
        "hold",
        "is_held",
        "known_prefixes",
        "message_prefix",
        "owed_credit",
        "reached",
        "stores",
        "transfers",
        "waiting",
        "waits_for",
        "window",
    )

    def __init__(
        self, connection: Connection, link: InLink, destination: Destination, window: int, hold: CreditHold
    ) -> None:
        super().__init__(connection, link)
        self.destination = destination
        self.hold = hold
        self.is_held = False
        """It is in `hold.waiting` or in `hold.paced`."""
        self.waits_for: Queue | None = None
        """A queue that its messages reached and that was behind."""
        self.reached: tuple[Queue, ...] = ()
        """All that those messages reached; empty unless it waits."""
        self.stores = False
        """Something that it sent was for the volume, so it is held back when that is nearly full."""
        self.can_reject = True
        """The link's outcomes have `rejected`; if not, a message that is not taken closes the link."""
        self.broken: AmqpError | None = None
        """Why the link has to be closed, once what came before in the batch is dealt with."""
        self.window = window
        """Messages the client may send ahead."""
        self.message_prefix = UNKNOWN
        """How the last message began."""
        self.known_prefixes: dict[Head, MessagePrefix] = {}
        """How some of those before began, by their headers."""
        self.owed_credit = 0
        """Messages accepted since the last top-up."""
        self.transfers = 0
        self.waiting: list[Ptr] = []
        """Deliveries of this turn whose accept waits for the log."""


class QueuePace:
    """A queue that is behind, or was: its consumers would take more than the broker gives them."""

    __slots__ = ("credit", "delivered", "is_awaited", "is_behind", "wanted_us")

    def __init__(self, delivered: int, now_us: int) -> None:
        self.credit = 0
        """What those who wait for the queue may send together."""
        self.delivered = delivered
        """Of the queue's totals, at the last look."""
        self.is_behind = True
        self.is_awaited = False
        """A producer waited for it at the last look."""
        self.wanted_us = now_us
        """When a consumer was seen last that would have taken more, in microseconds of the broker's clock."""


class CreditHold:
    """The producers that wait for credit because the volume is nearly full, or memory is short, or a queue is behind.
    One per broker.
    """

    __slots__ = ("behind", "is_on", "of_all", "of_volume", "paced", "waiting")

    def __init__(self) -> None:
        self.is_on = False
        """Producers are held back."""
        self.of_volume = False
        """Those that send durable messages are, because the volume is nearly full."""
        self.of_all = False
        """All are, because memory is short."""
        self.waiting: deque[Producer] = deque()
        """In the order in which they get credit. Some may be gone: whoever takes one looks whether its link is open."""
        self.behind: dict[Queue, QueuePace] = {}
        """The queues that pace the producers whose messages reach them, see `messages.pacing`."""
        self.paced: deque[Producer] = deque()
        """Producers that wait for a queue that is behind; as `waiting`."""

    def set(self, *, of_volume: bool, of_all: bool) -> None:
        """Who is held back from now on."""
        self.of_volume, self.of_all = of_volume, of_all
        self.is_on = of_volume or of_all

    def holds(self, producer: Producer) -> bool:
        """Whether it is held back for want of room."""
        return self.is_on and (producer.stores or self.of_all)

    def first_credit(self, producer: Producer) -> int:
        """What a new producer gets: its window, or a small part of it while producers are held back."""
        credit = min(producer.window, HELD_WINDOW) if self.is_on else producer.window
        producer.owed_credit = producer.window - credit
        return credit

    def keep(self, producer: Producer) -> None:
        """Have a producer wait, unless it does already or may still send what it may send ahead."""
        if not producer.is_held and producer.owed_credit >= producer.window - min(producer.window, HELD_WINDOW):
            producer.is_held = True
            self.waiting.append(producer)

    def note(self, producer: Producer, queues: tuple[Queue, ...]) -> None:
        """Its messages are on their way into `queues`: it waits for its next credit if one of these is behind. For the
        first one, so that all producers of an exchange wait for the same queue and share what it earns.
        """
        producer.waits_for = next((queue for queue in queues if queue in self.behind), None)
        producer.reached = queues if producer.waits_for is not None else ()

    def waits(self, producer: Producer) -> bool:
        """Whether a queue that its messages reached is still behind."""
        if producer.waits_for not in self.behind:
            self.note(producer, producer.reached)
        return producer.waits_for is not None

    def pace(self, producer: Producer) -> None:
        """Have a producer wait for the queue that is behind, unless it waits already."""
        if not producer.is_held:
            producer.is_held = True
            self.paced.append(producer)
