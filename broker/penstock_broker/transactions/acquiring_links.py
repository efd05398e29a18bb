"""Links that acquire messages in transactions, and what becomes of these messages at a rollback.

A commit leaves to the client what it has not settled. After a rollback nothing of what the transaction acquired stays
with the client: each message is settled and returns to its queue. It counts as a delivery that failed if the client had
given it an outcome in the transaction, as everything does that was settled in one; otherwise nothing is counted. What
the client has settled outside the transaction has left it.

Source: AMQP 1.0 part 4, 4.4.2 to 4.4.4; docs/decisions/140-transactional-acquisition.md.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from penstock_amqp.endpoint import transactional_states
from penstock_amqp.endpoint.buffers import Ptr
from penstock_amqp.endpoint.events import Enlisted, Held, Outcome, Settled
from penstock_amqp.endpoint.links import Acquisition, OutLink
from penstock_broker.access.connection import Connection
from penstock_broker.messages import settle
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Consumer
from penstock_broker.state.open_transactions import (
    ConnectionTransactions,
    Settlement,
    Transaction,
    transactions_of,
)

__all__ = [
    "begin",
    "end",
    "forget_link",
    "give_back",
    "give_back_unsent",
    "give_back_waiting",
    "is_of_another",
    "release_links",
]


def begin(transaction: Transaction, link: OutLink, first_acquired: Callable[[], None]) -> None:
    """What is sent on the link from now on is acquired in the transaction. `first_acquired`: see `Transaction`."""
    if transaction.acquisition is None:
        state = transactional_states.acquired_in(transaction.id)
        transaction.acquisition = Acquisition(transaction.id, state)
        transaction.first_acquired = first_acquired
    link.acquisition = transaction.acquisition
    transaction.acquiring[link] = None


def end(link: OutLink) -> None:
    """What is sent on the link from now on is acquired in no transaction."""
    link.acquisition = None


def release_links(broker: Broker, transaction: Transaction) -> list[OutLink]:
    """A transaction is over: its links may get more, outside of it. Returns them."""
    released = transaction.release_links()
    for link in released:
        if isinstance(link.context, Consumer):
            broker.work.schedule_for(link.context.queue, link.context.connection)
    return released


def give_back(
    broker: Broker, connection: Connection, acquisition: Acquisition, delivery: Ptr, held: Held, *, failed: bool
) -> None:
    """A transaction is rolled back: a delivery that it acquired returns, unless the client has settled it. `failed`:
    the client had given it an outcome in the transaction.
    """
    end_of = Settled(held, Outcome.MODIFIED if failed else Outcome.RELEASED, failed=failed)
    behind = connection.endpoint.unsettled.unsent_by(held[0])
    try:
        for each in connection.endpoint.unsettled.take_back(acquisition, delivery, held, end_of):
            _return(broker, end_of if each is held else Settled(each, Outcome.RELEASED))
    except Exception:
        for each in (held, *behind):
            broker.interrupted_work.take(_consumer_of(each).queue, (each[1],))
        raise
    broker.work.touch(connection)


def give_back_unsent(
    broker: Broker,
    connection: Connection,
    acquisition: Acquisition | None,
    settlements: list[Settlement],
    closing: Container[OutLink] = (),
) -> list[Settlement]:
    """A transaction is rolled back: what it acquired on links on which everything is sent settled, and is not sent yet,
    returns, and nothing is counted; what the engine does not give back is sent outside of the transaction, and is gone.
    Returns the other `settlements`. `closing`: links that will end now.
    """
    if acquisition is None or connection.transactions is None:
        return settlements  # the connection has ended, and sends nothing more
    try:
        taken_back, sent_outside = connection.endpoint.unsettled.take_back_settled(acquisition, closing)
        for held in taken_back:
            _return(broker, Settled(held, Outcome.RELEASED))
        for held in sent_outside:
            settle.accepted(broker, _consumer_of(held), [held])
    except Exception:
        for each in settlements:
            if each.unsettled is None:
                broker.interrupted_work.take(each.consumer.queue, (each.held[1],))
        raise
    ended = {id(held[1]) for held in (*taken_back, *sent_outside)}
    return [each for each in settlements if id(each.held[1]) not in ended] if ended else settlements


def give_back_waiting(
    broker: Broker, connection: Connection, acquisition: Acquisition | None, settlements: list[Settlement]
) -> list[Settlement]:
    """A transaction is committed: what it acquired on links on which everything is sent settled, and waits behind
    another message, returns, and nothing is counted: its client has not got it. Returns the other `settlements`.
    """
    if acquisition is None:
        return settlements
    taken_back = connection.endpoint.unsettled.take_back_waiting(acquisition)
    try:
        for held in taken_back:
            _return(broker, Settled(held, Outcome.RELEASED))
    except Exception:
        for held in taken_back:
            broker.interrupted_work.take(_consumer_of(held).queue, (held[1],))
        raise
    returned = {id(held[1]) for held in taken_back}
    return [each for each in settlements if id(each.held[1]) not in returned] if returned else settlements


def _consumer_of(held: Held) -> Consumer:
    consumer = held[0].context
    assert isinstance(consumer, Consumer), "what a link acquired is forgotten with it"
    return consumer


def _return(broker: Broker, end_of: Settled) -> None:
    settle.settled(broker, _consumer_of(end_of.held), end_of)


def is_of_another(ledger: ConnectionTransactions, transaction: Transaction, event: Enlisted) -> bool:
    """Whether one of these deliveries was acquired in another transaction, which is still open."""
    others = [
        each.acquisition.unsettled
        for each in ledger.by_id.values()
        if each.acquisition is not None and each is not transaction and not each.state.is_over
    ]
    return any(other.get(delivery) is held for other in others for delivery, held in event.deliveries)


def forget_link(connection: Connection, link: OutLink) -> None:
    """The link is about to end: what is not settled on it returns with it, whatever becomes of its transaction. A
    transaction in which it acquires does not close it later.
    """
    ledger = transactions_of(connection)
    end(link)
    for transaction in ledger.by_id.values() if ledger is not None else ():
        if transaction.acquisition is not None and link in transaction.acquiring:
            unsettled = transaction.acquisition.unsettled
            for delivery in [each for each, held in unsettled.items() if held[0] is link]:
                del unsettled[delivery]
