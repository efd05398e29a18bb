"""Gives the deliveries of links that have ended back to their queues: few of them at once, very many in slices.

What becomes of each stands in `settle`. Of what the peer says of these deliveries after its link has ended, nothing
counts, as for any link that has ended: they go back. Source: docs/decisions/087-departures.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from penstock_amqp.endpoint.events import NUMBER, Held
from penstock_amqp.endpoint.links import InLink, OutLink
from penstock_broker.access.connection import Connection
from penstock_broker.messages import settle
from penstock_broker.queue.consumer import ReceivingLink
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker
from penstock_broker.state.leaving_links import DeliveryReturn, LeavingLink

__all__ = [
    "AT_ONCE",
    "advance",
    "begin",
    "finish",
    "give_back",
    "give_back_late",
    "holds_many",
    "is_under_way",
    "take_off",
    "when_back",
    "when_over",
]

AT_ONCE: Final = 1000
"""Deliveries of a connection that go back in the turn in which their link ends, and in each turn of a delivery return:
about a millisecond and a half."""

LOOKED_AT: Final = 250
"""So many of them go back before the time is looked at: behind a slow one a turn of a delivery return ends."""


def holds_many(connection: Connection) -> bool:
    """True if the deliveries of the connection are too many for one turn."""
    return connection.endpoint.unsettled.count > AT_ONCE


def begin(
    broker: Broker,
    consumer: ReceivingLink,
    link: OutLink,
    queue: Queue | None,
    *,
    counts: bool,
    withdraws: bool,
    reserves: bool,
) -> None:
    """The link has ended, and what it held goes back in the next turns. `queue`: to which; None: nothing goes back.

    `withdraws`: its deliveries, of which one has failed if it `counts`; `reserves`: what the queue reserved for it.
    """
    connection = consumer.connection
    delivery_return = _of(broker, connection)
    if delivery_return is None:
        delivery_return = DeliveryReturn(connection)
        broker.work.delivery_returns.append(delivery_return)
    leaving = LeavingLink(consumer, link, queue, counts, is_withdrawn=not withdraws)
    delivery_return.leaving[link] = leaving
    link.context = leaving
    if queue is not None:
        queue.links.returning += 1
        queue.rank()
    if reserves:
        delivery_return.reserving.append(leaving)
    if withdraws:
        give_back(broker, leaving, connection.endpoint.unsettled.withdraw(link))


def when_back(links: Iterable[InLink | OutLink], action: Callable[[], None]) -> None:
    """Do something once the deliveries of all these links are back: at once if they are."""
    rest = list(links)
    for link in rest:
        if isinstance(link.context, LeavingLink):
            link.context.after.append(lambda: when_back(rest, action))
            return
    action()


def is_under_way(broker: Broker, connection: Connection) -> bool:
    """True if a link of the connection is leaving."""
    return bool(broker.work.delivery_returns) and _of(broker, connection) is not None


def when_over(broker: Broker, connection: Connection, action: Callable[[], None]) -> None:
    """Do something once all leaving links of a connection have left: there are some."""
    delivery_return = _of(broker, connection)
    assert delivery_return is not None
    delivery_return.after.append(action)


def advance(broker: Broker) -> None:
    """Do the next slice of the delivery return whose turn it is."""
    delivery_returns = broker.work.delivery_returns
    delivery_return = delivery_returns[0]
    delivery_returns.rotate(-1)
    is_over, left = broker.clock.stint(), AT_ONCE
    try:
        while delivery_return.leaving and left > 0:
            most = min(left, LOOKED_AT)
            _step(broker, delivery_return, most)
            left -= most
            if is_over():
                break
    except Exception:
        broker.fail_connection(delivery_return.connection)


def finish(broker: Broker) -> None:
    """The same until nothing is left, however long it takes: for those who need to find every message in its place."""
    while broker.work.delivery_returns:
        advance(broker)


def take_off(broker: Broker, connection: Connection) -> DeliveryReturn | None:
    """A connection is taken apart: its delivery return ends as it is. Its queues send again, and what it holds is the
    caller's. None if there is none.
    """
    delivery_return = _of(broker, connection)
    if delivery_return is not None:
        broker.work.delivery_returns.remove(delivery_return)
        for leaving in delivery_return.leaving.values():
            if leaving.oldest is not None and leaving.queue is not None:
                broker.interrupted_work.take(leaving.queue, (leaving.oldest[1],))
            _let_send(broker, leaving)
    return delivery_return


def give_back(broker: Broker, leaving: LeavingLink, batch: list[Held]) -> None:
    """These deliveries of a leaving link go back to its queue, if that is still there."""
    queue = leaving.queue
    if queue is None or not batch or not _is_there(broker, queue):
        return
    if leaving.counts:
        found = [*batch, leaving.oldest] if leaving.oldest is not None else batch
        leaving.oldest = min(found, key=lambda held: (held[2], held[1][NUMBER]))
        batch = [held for held in found if held is not leaving.oldest]
    settle.lost(broker, queue, batch, counts=False)


def give_back_late(broker: Broker, batch: list[Held]) -> None:
    """These deliveries of a link go back that the peer settled behind the link's end, within the same bytes."""
    queue = batch[0][0].ended if batch else None
    if isinstance(queue, Queue) and _is_there(broker, queue):
        settle.lost(broker, queue, batch, counts=False)


def _of(broker: Broker, connection: Connection) -> DeliveryReturn | None:
    return next((each for each in broker.work.delivery_returns if each.connection is connection), None)


def _step(broker: Broker, delivery_return: DeliveryReturn, most: int) -> None:
    connection = delivery_return.connection
    if delivery_return.reserving:
        leaving = delivery_return.reserving[0]
        if leaving.queue is None or not leaving.queue.backlog.give_back(leaving.consumer, most):
            delivery_return.reserving.popleft()
            _end_if_over(broker, delivery_return, leaving)
    else:
        withdrawn = connection.endpoint.unsettled.withdrawn(most)
        if withdrawn.emptied:
            broker.topology.disposal.add(withdrawn.emptied)
        by_link: dict[OutLink, list[Held]] = {}
        for held in withdrawn.held:
            by_link.setdefault(held[0], []).append(held)
        try:
            for link, batch in by_link.items():
                give_back(broker, delivery_return.leaving[link], batch)
        except Exception:
            _rescue(broker, delivery_return, withdrawn.held)
            raise
        for link in withdrawn.links:
            delivery_return.leaving[link].is_withdrawn = True
            _end_if_over(broker, delivery_return, delivery_return.leaving[link])
        broker.work.touch(connection)
    if not delivery_return.leaving:
        broker.work.delivery_returns.remove(delivery_return)
        for action in delivery_return.after:
            action()


def _rescue(broker: Broker, delivery_return: DeliveryReturn, batch: list[Held]) -> None:
    """An exception came while these were on their way: what is in no list goes back to its queue."""
    for held in batch:
        queue = delivery_return.leaving[held[0]].queue
        if queue is not None:
            broker.interrupted_work.take(queue, (held[1],))


def _end_if_over(broker: Broker, delivery_return: DeliveryReturn, leaving: LeavingLink) -> None:
    if not leaving.is_withdrawn or leaving in delivery_return.reserving:
        return
    oldest, leaving.oldest = leaving.oldest, None
    if oldest is not None and leaving.queue is not None and _is_there(broker, leaving.queue):
        try:
            settle.lost(broker, leaving.queue, [oldest], counts=True)
        except Exception:
            broker.interrupted_work.take(leaving.queue, (oldest[1],))
            raise
    del delivery_return.leaving[leaving.link]
    leaving.link.context = None
    _let_send(broker, leaving)
    for action in leaving.after:
        action()


def _let_send(broker: Broker, leaving: LeavingLink) -> None:
    queue = leaving.queue
    if queue is None:
        return
    queue.links.returning -= 1
    queue.rank()
    if queue.links.consumers:
        broker.work.schedule(queue)


def _is_there(broker: Broker, queue: Queue) -> bool:
    """False if the queue's life has ended since."""
    record = broker.topology.by_incarnation.get(queue.incarnation)
    return record is not None and record.queue is queue
