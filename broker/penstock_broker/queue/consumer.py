"""The links that clients attached, as far as a queue knows them, and the order in which its consumers get messages.

Plain records; whoever ends a link clears its references, because reference cycles are not collected in the broker
process. Must not know which queue or exchange a link uses, or what for: that stands in `state.links`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from penstock_amqp.endpoint.links import InLink, OutLink
from penstock_broker.access.connection import Connection
from penstock_broker.queue.cursor import SelectorCursor
from penstock_core.dispatch_order import tiers

__all__ = ["Link", "QueueLinks", "ReceivingLink", "SendingLink"]


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

    __slots__ = ("cursor", "link", "priority")

    def __init__(self, connection: Connection, link: OutLink) -> None:
        super().__init__(connection)
        self.link = link
        self.priority = 0
        """Those of higher priority come first."""
        self.cursor: SelectorCursor | None = None
        """What it takes of the backlog; None: everything."""


MANY: Final = 8
"""Consumers of one queue, beyond which those with credit are noted."""


class QueueLinks:
    """The links that get messages out of one queue."""

    __slots__ = (
        "active",
        "browsers",
        "consumers",
        "is_many",
        "returning",
        "tiers",
        "turn",
        "unused_since_us",
        "with_credit",
    )

    def __init__(self, now_us: int) -> None:
        self.consumers: list[ReceivingLink] = []
        self.browsers: list[ReceivingLink] = []
        self.turn = 0
        """Whose turn it is among the consumers: an index."""
        self.tiers: tuple[list[ReceivingLink], ...] | None = None
        """The consumers that may get something, those before whom others come last; None: all, in turn."""
        self.is_many = False
        """There are more than `MANY` consumers, and no tiers of them."""
        self.with_credit: OrderedDict[ReceivingLink, None] | None = None
        """Of many consumers without tiers those that may have credit, and whose turn comes next: to ask thousands that
        are busy takes longer than to send a message. None: all are to be asked."""
        self.returning = 0
        """Links that have ended and whose deliveries are not all back yet. While there are any, nobody gets anything.
        """
        self.active: ReceivingLink | None = None
        """The one consumer that gets messages, if only one may."""
        self.unused_since_us = now_us
        """Since when it has no consumer, microseconds since the epoch; 0: it has one."""

    def rank(self, *, exclusive: bool) -> None:
        """Compute the order of the consumers, after consumers or the policy changed. `exclusive`: only one gets
        messages."""
        self.with_credit = None
        consumers = self.consumers
        ranked = tiers([consumer.priority for consumer in consumers])
        if exclusive:
            if self.active not in consumers:
                self.active = consumers[ranked[0][0]] if ranked else None
            self.tiers = ([self.active],) if self.active is not None else ()
        else:
            self.active = None
            self.tiers = tuple([consumers[at] for at in tier] for tier in ranked) if len(ranked) > 1 else None
        if self.returning:
            self.tiers = ([],)
        self._count()

    def add(self, consumer: ReceivingLink, *, exclusive: bool) -> None:
        """A consumer more. The others are looked at only if it ranks otherwise than they do."""
        consumers = self.consumers
        is_like_others = self.tiers is None and (not consumers or consumers[0].priority == consumer.priority)
        consumers.append(consumer)
        if exclusive or not is_like_others:
            self.rank(exclusive=exclusive)
        else:
            self._count()

    def remove(self, consumer: ReceivingLink, *, exclusive: bool) -> None:
        """A consumer less; as `add`."""
        self.consumers.remove(consumer)
        if self.with_credit is not None:
            self.with_credit.pop(consumer, None)
        if exclusive or self.tiers is not None:
            self.rank(exclusive=exclusive)
        else:
            self._count()

    def _count(self) -> None:
        self.is_many = self.tiers is None and len(self.consumers) > MANY

    def note_credit(self, consumer: ReceivingLink) -> None:
        """A consumer was given credit, or may use it from now on."""
        if self.with_credit is not None:
            self.with_credit.setdefault(consumer)  # one that has some keeps its turn

    def find_with_credit(self) -> OrderedDict[ReceivingLink, None]:
        """`with_credit` of very many consumers, looked for if they are not known."""
        if self.with_credit is None:
            consumers = self.consumers
            turn = self.turn if self.turn < len(consumers) else 0
            in_turn = (*consumers[turn:], *consumers[:turn])
            self.with_credit = OrderedDict((each, None) for each in in_turn if each.is_active and each.link.credit > 0)
        return self.with_credit
