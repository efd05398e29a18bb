"""Which links could take the first message that waits in a queue: what the broker says when someone asks why it waits.

Credit alone does not say that. A standby of an exclusive consumer, a link whose selector does not match, one that does
not own the group of the message: they give credit, and the broker is right not to use it. So each condition of
`dispatch` is asked here for one message, without changing anything. Nothing here runs for a message that flows.

Only the first message is looked at, so what is said is certain for that one. Selectors are evaluated for at most
`MOST_SELECTORS` selectors; the links that have others are not counted. Links of a lower priority count, because they
get what those of a higher one have no credit for.

Source: docs/reference/management.md; docs/decisions/031-queue-order.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Final

from penstock_amqp.endpoint.events import DATA, FLAGS, Entry
from penstock_broker.messages.dispatch import HELD_BACK_BYTES, header_room
from penstock_broker.queue.consumer import ReceivingLink
from penstock_broker.queue.cursor import SelectorCursor
from penstock_broker.queue.flags import GROUPED
from penstock_broker.queue.queue import Queue

__all__ = ["MOST_SELECTORS", "for_first_message"]

MOST_SELECTORS: Final = 16
"""Different selectors that are evaluated for one queue: some 5 us each."""


def for_first_message(queue: Queue) -> tuple[int, int]:
    """How many links could take the first message that waits if they gave credit, and the credit (messages) of those
    that could take it now; (0, 0) if none waits.

    The credit of a link whose connection takes no bytes now is not counted, nor while one of its messages is still on
    its way in parts.
    """
    first = queue.backlog.first()
    if first is None:
        return 0, 0
    usable = _usable_consumers(queue, *first)
    return len(usable), sum(each.link.credit for each in usable if each.link.credit > 0 and not _is_held_up(each))


def _is_held_up(consumer: ReceivingLink) -> bool:
    connection = consumer.connection
    return connection.is_blocked or connection.endpoint.is_congested(consumer.link, HELD_BACK_BYTES)


def _usable_consumers(queue: Queue, entry: Entry, reserved_for: object) -> list[ReceivingLink]:
    tiers = queue.links.tiers
    ranked: Iterable[ReceivingLink] = queue.links.consumers if tiers is None else chain.from_iterable(tiers)
    size = len(entry[DATA]) + header_room(queue)
    fitting = [each for each in ranked if each.is_active and not 0 < each.link.max_bytes < size]
    backlog = queue.backlog
    if backlog.is_plain:
        return fitting
    if reserved_for is not None:
        return [each for each in fitting if each is reserved_for]
    counted = backlog.examination.total
    selection = _Selection(entry)
    if entry[FLAGS] & GROUPED and backlog.groups is not None:
        group = backlog.groups.owner(entry)
        if group is not None and selection.is_for(group.consumer.cursor):
            fitting = [each for each in fitting if each is group.consumer]
    usable = [each for each in fitting if selection.is_for(each.cursor)]
    backlog.examination.total = counted  # it counts what the flow of messages costs
    return usable


class _Selection:
    """Which cursors take one message; each is asked once."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._known: dict[SelectorCursor, bool] = {}

    def is_for(self, cursor: SelectorCursor | None) -> bool:
        """True if consumers with this cursor may get the message; False also if too many others were asked before."""
        if cursor is None:
            return True
        if cursor not in self._known:
            if len(self._known) == MOST_SELECTORS:
                return False
            self._known[cursor] = cursor.wants(self._entry)
        return self._known[cursor]
