"""Rolls transactions back: what was settled or acquired in them returns to its queues.

Few deliveries return at once, very many in slices over the next turns. Meanwhile they count as in flight, and their
queues send nothing. What a client has settled returns whatever becomes of its connection; what it has acquired and not
settled returns with its link if that ends first. Source: AMQP 1.0 part 4, 4.3 and 4.4;
docs/decisions/149-rollbacks-in-slices.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from penstock_amqp.endpoint.events import Outcome, Settled
from penstock_amqp.endpoint.links import Acquisition
from penstock_broker.access.connection import Connection
from penstock_broker.messages import settle
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Consumer
from penstock_broker.state.open_transactions import (
    ConnectionTransactions,
    Coordinator,
    Settlement,
    Transaction,
    transactions_of,
)
from penstock_broker.state.rollbacks import Rollback
from penstock_broker.topology.store import Topology
from penstock_broker.transactions import acquiring_links

__all__ = [
    "AT_ONCE",
    "begin",
    "finish",
    "has_queue",
    "remove",
    "return_deliveries",
    "roll_back",
    "roll_back_connection",
    "roll_back_coordinator",
    "take_back",
    "take_off",
    "when_over",
]

logger = logging.getLogger(__name__)

AT_ONCE: Final = 500
"""Deliveries of a transaction that return in the turn in which it is rolled back, and in each turn of a longer one: two
or three milliseconds.
"""

LOOKED_AT: Final = 100
"""So many of them return before the time is looked at: behind a slow one the slice ends."""


def roll_back(broker: Broker, ledger: ConnectionTransactions, transaction: Transaction) -> None:
    """Roll a transaction back: deliveries that were settled or acquired in it return to their queues; those that were
    settled, or given an outcome, have one delivery attempt more. `when_over` says when all are back.
    """
    connection, acquired = transaction.coordinator.connection, transaction.acquisition
    posted = sum(len(messages) for _, messages in transaction.postings)
    settlements, transaction.settlements = transaction.settlements, []
    if not transaction.state.is_over:
        broker.transactions.rolled_back += 1
        logger.debug("Rollback on connection %d: %d messages, %d settlements", connection.number, posted,
                     len(settlements))  # fmt: skip
    queues = tuple(transaction.queues)
    try:
        remove(broker, ledger, transaction)
        settlements = acquiring_links.give_back_unsent(broker, connection, acquired, settlements)
        begin(broker, connection, settlements, acquired, queues)
    except Exception:
        take_back(broker, settlements)
        raise


def roll_back_coordinator(broker: Broker, coordinator: Coordinator) -> None:
    """A coordinator link has ended: roll back the transactions declared on it and not discharged."""
    ledger = transactions_of(coordinator.connection)
    if ledger is not None:  # else the connection has ended, and all its transactions are rolled back
        for transaction in list(coordinator.transactions.values()):
            roll_back(broker, ledger, transaction)


def roll_back_connection(broker: Broker, connection: Connection) -> None:
    """A connection has ended: roll back all its transactions."""
    ledger = transactions_of(connection)
    connection.transactions = None
    if ledger is not None:
        for transaction in list(ledger.by_id.values()):
            roll_back(broker, ledger, transaction)


def remove(broker: Broker, ledger: ConnectionTransactions, transaction: Transaction) -> None:
    """A transaction ends: nothing leads to it any more. What it posted is freed."""
    broker.transactions.working.pop(transaction, None)
    acquiring_links.release_links(broker, transaction)
    ledger.remove(transaction)


def begin(
    broker: Broker,
    connection: Connection,
    settlements: list[Settlement],
    acquisition: Acquisition | None,
    queues: Iterable[Queue],
) -> None:
    """Return what was settled in a transaction, and what it acquired: at once, or from the next turn on. `settlements`
    loses what is returned; if there is an exception, the caller takes the rest back. `queues`: of all these deliveries.
    """
    settlements.reverse()
    acquired = {} if acquisition is None else acquisition.unsettled
    count = len(settlements) + (0 if connection.transactions is None else len(acquired))
    rollback = Rollback(connection, settlements, acquisition, iter(acquired.items()), tuple(queues))
    if broker.is_stopping or count <= AT_ONCE:
        while _step(broker, rollback, AT_ONCE):
            pass
        return
    for queue in rollback.queues:
        queue.links.returning += 1
        queue.rank()
    broker.work.rollbacks.append(rollback)
    _go_on_later(broker, rollback)


def return_deliveries(broker: Broker, settlements: list[Settlement]) -> None:
    """Return the deliveries that the client has settled to their queues, at once. The others stay with the client."""
    rest = settlements[::-1]
    try:
        while rest:
            _return_last(broker, rest)
    except Exception:
        take_back(broker, rest)
        raise


def when_over(broker: Broker, connection: Connection, action: Callable[[], None]) -> None:
    """Do something once all rollbacks of a connection are over: at once if none is under way."""
    rollback = next((each for each in reversed(broker.work.rollbacks) if each.connection is connection), None)
    if rollback is None:
        action()
    else:
        rollback.after.append(action)


def finish(broker: Broker) -> None:
    """Go on with all rollbacks until nothing is left, however long it takes: for those who need to find every message
    in its place.
    """
    while broker.work.rollbacks:
        _go_on(broker, broker.work.rollbacks[0])


def take_off(broker: Broker, connection: Connection) -> None:
    """A connection is taken apart: its rollbacks end as they are, and what they have to return is interrupted work."""
    for rollback in [each for each in broker.work.rollbacks if each.connection is connection]:
        _abandon(broker, rollback)


def take_back(broker: Broker, settlements: list[Settlement]) -> None:
    """An exception came while these were settled or returned: what is in no list goes back to its queue. The client has
    those still that it has not settled, or has settled them outside the transaction.
    """
    for each in settlements:
        if each.unsettled is None:
            broker.interrupted_work.take(each.consumer.queue, (each.held[1],))


def has_queue(topology: Topology, queue: Queue) -> bool:
    """False if the subscription was rebound, or has ended, since: its part of a transaction is void."""
    record = topology.by_incarnation.get(queue.incarnation)
    return record is not None and record.queue is queue


def _go_on_later(broker: Broker, rollback: Rollback) -> None:
    broker.clock.after(0, partial(_go_on, broker, rollback), failed=lambda: broker.fail_connection(rollback.connection))


def _go_on(broker: Broker, rollback: Rollback) -> None:
    """Do the slice of this turn."""
    if rollback not in broker.work.rollbacks:
        return  # it was finished, or taken off
    is_over, left = broker.clock.stint(), AT_ONCE
    try:
        while is_left := _step(broker, rollback, min(left, LOOKED_AT)):
            left -= LOOKED_AT
            if left <= 0 or is_over():
                break
    except Exception:
        _abandon(broker, rollback)
        broker.fail_connection(rollback.connection)
        return
    if is_left:
        _go_on_later(broker, rollback)
    else:
        _end(broker, rollback)


def _step(broker: Broker, rollback: Rollback, most: int) -> bool:
    """Return the next deliveries, `most` at a time; False if nothing is left."""
    settlements, connection = rollback.settlements, rollback.connection
    while settlements and most > 0:
        each = settlements[-1]
        if each.unsettled is not None:
            rollback.has_outcome.add(id(each.held))
        _return_last(broker, settlements)
        most -= 1
    acquisition = rollback.acquisition
    if settlements or acquisition is None:
        return bool(settlements)
    while most > 0:
        # What the client of a connection that has ended did not settle returns with its links.
        found = None if connection.transactions is None else next(rollback.acquired, None)
        if found is None:
            unsettled, acquisition.unsettled = acquisition.unsettled, {}
            broker.topology.disposal.add(unsettled)
            return False
        delivery, held = found
        if isinstance(held[0].context, Consumer):  # else its link has ended since, and has given it back
            failed = id(held) in rollback.has_outcome
            acquiring_links.give_back(broker, connection, acquisition, delivery, held, failed=failed)
        most -= 1
    return True


def _return_last(broker: Broker, settlements: list[Settlement]) -> None:
    """Return the last of these, if the client has settled it, and take it off the list."""
    each = settlements[-1]
    if each.unsettled is None and has_queue(broker.topology, each.consumer.queue):
        settle.settled(broker, each.consumer, Settled(each.held, Outcome.MODIFIED, failed=True))
    settlements.pop()


def _end(broker: Broker, rollback: Rollback) -> None:
    _let_send(broker, rollback)
    for action in rollback.after:
        action()


def _abandon(broker: Broker, rollback: Rollback) -> None:
    take_back(broker, rollback.settlements)
    _let_send(broker, rollback)


def _let_send(broker: Broker, rollback: Rollback) -> None:
    broker.work.rollbacks.remove(rollback)
    for queue in rollback.queues:
        queue.links.returning -= 1
        queue.rank()
        if queue.links.consumers:
            broker.work.schedule(queue)
