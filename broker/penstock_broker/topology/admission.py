"""Which messages a subscription takes: selector and no-local, asked at publish, so that nothing else enters its queue.

A message whose fields can't be read is not selected. Source: JMS 2.0, 3.8.1; decision 17 of the design (no-local).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, assert_never

from penstock_amqp.errors import DecodeError
from penstock_amqp.message import Head
from penstock_amqp.selected_fields import SelectedFields
from penstock_broker.topology.records import Subscription
from penstock_core.binding import ByConnection, ByContainer
from penstock_core.selector import Selector, compile_selector

if TYPE_CHECKING:
    from penstock_broker.connection import Connection

__all__ = ["Admission", "admission"]

Admission: TypeAlias = "Callable[[bytes, Head, Connection | None], bool]"
"""Whether a message published on a connection is taken; None: the broker itself puts it there."""


def admission(subscription: Subscription) -> Admission | None:
    """The question to ask about each message; None if every message is taken."""
    text = subscription.binding.filter.selector
    selector = compile_selector(text) if text is not None else None
    assert selector is None or isinstance(selector, Selector), "what is stored was parsed before"
    is_foreign = _no_local(subscription)
    if selector is None:
        return is_foreign
    selects = _selecting(selector)
    if is_foreign is None:
        return selects
    return lambda data, head, connection: is_foreign(data, head, connection) and selects(data, head, connection)


def _selecting(selector: Selector) -> Admission:
    fields = SelectedFields(selector.names)
    selects = selector.selects

    def admits(data: bytes, head: Head, _: Connection | None) -> bool:
        try:
            return selects(fields.read(data, head).get)
        except DecodeError:
            return False

    return admits


def _no_local(subscription: Subscription) -> Admission | None:
    match subscription.no_local:
        case None:
            return None
        case ByContainer(container_id):
            return lambda _data, _head, connection: connection is None or connection.container_id != container_id
        case ByConnection():
            queue = subscription.queue
            return lambda _data, _head, connection: all(each.connection is not connection for each in queue.consumers)
        case _:
            assert_never(subscription.no_local)
