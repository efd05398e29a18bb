"""Work in transactions: messages sent, acquired and settled under the name of one.

Nothing of it takes effect before the commit. A message that is refused is rejected within its transaction, which can
then only be rolled back. Must not know how a transaction is committed. Source: AMQP 1.0 part 4, 4.4.1 to 4.4.3;
docs/decisions/035-transactions.md.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import assert_never

from penstock_amqp.endpoint import transactional_states
from penstock_amqp.endpoint.events import AmqpError, Arrival, Enlisted, Outcome, Settled, Unstored
from penstock_amqp.endpoint.links import OutLink
from penstock_amqp.errors import DecodeError
from penstock_amqp.messages import message_head
from penstock_broker.access.connection import Connection
from penstock_broker.errors import amqp_error
from penstock_broker.log import LargePayload
from penstock_broker.messages import addresses, dead_letter_origin, publish_batches, settle
from penstock_broker.messages import publish as messages_publish
from penstock_broker.messages.refuse import break_link, refuse, tagged, top_up, unreadable, when_answered
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Consumer, Producer
from penstock_broker.state.open_transactions import ConnectionTransactions, Settlement, Transaction, transactions_of
from penstock_broker.state.routes import ExchangeTarget, ManagementTarget, QueueTarget, RelayTarget
from penstock_broker.transactions import acquiring_links, coordinator, lost_messages, rollback
from penstock_core import transaction_rules as rules
from penstock_core.reason import Reason, Refuse

__all__ = ["acquire", "discard", "enlist", "publish", "refuse_unstored"]


def publish(broker: Broker, producer: Producer, batch: list[Arrival]) -> None:
    """Take a batch in which some messages may belong to transactions."""
    at = 0
    for named, same in groupby(batch, _named):
        if producer.broken is not None:
            discard(producer, batch[at:], producer.broken)
            break
        run = list(same)
        at += len(run)
        if named is None:
            messages_publish.publish(broker, producer, run)
        elif isinstance(named, AmqpError):
            _refuse_outside(producer, run, named)
        else:
            _add_run(broker, producer, named, run)
    top_up(producer)


def _named(arrival: Arrival) -> bytes | AmqpError | None:
    """The transaction that a message names; None if it names none, an error if that can't be read."""
    try:
        return transactional_states.transfer_transaction(arrival[0])
    except DecodeError as error:
        return unreadable(error)


def discard(producer: Producer, arrivals: list[Arrival], error: AmqpError) -> None:
    """Drop messages that came after the one for which the link is closed with `error`.

    Their transactions can only be rolled back.
    """
    for delivery, _, _ in arrivals:
        txn_id = transactional_states.named_transaction(delivery)
        lost_messages.set_rollback_only(producer.connection, txn_id, lost_messages.refuse_of(error))


def refuse_unstored(producer: Producer, event: Unstored) -> None:
    """A message that names a transaction could not be stored: reject it; the transaction can only be rolled back."""
    assert event.txn_id is not None
    lost_messages.set_rollback_only(producer.connection, event.txn_id, lost_messages.refuse_of(event.error))
    if not event.is_settled and producer.can_reject:
        transactions = producer.connection.endpoint.transactions
        when_answered(producer, partial(transactions.reject, event.txn_id, event.delivery, event.error))
        producer.owed_credit += 1
        top_up(producer)
    else:
        refuse(producer, event.delivery, event.is_settled, event.error)


def _add_run(broker: Broker, producer: Producer, txn_id: bytes, run: list[Arrival]) -> None:
    """Add messages in a row to the transaction that they name."""
    ledger = transactions_of(producer.connection)
    transaction = ledger.by_id.get(txn_id) if ledger is not None else None
    if ledger is None or transaction is None:
        _refuse_outside(producer, run, amqp_error(rules.UNKNOWN))
        return
    producer.transfers += len(run)
    producer.owed_credit += len(run)
    producer.stores = True
    if _add_all(broker, ledger, transaction, producer, run):
        _accept(producer, txn_id, run)
        return
    for at, arrival in enumerate(run):
        delivery, data, is_settled = arrival
        refused = _add(broker, ledger, transaction, producer, data)
        if is_settled or refused is None:
            _accept(producer, txn_id, [arrival])
        elif producer.can_reject:
            if isinstance(producer.destination, RelayTarget):
                refused = tagged(producer, delivery, refused)
            transactions = producer.connection.endpoint.transactions
            when_answered(producer, partial(transactions.reject, txn_id, delivery, refused))
        else:
            break_link(producer, delivery, refused)
            discard(producer, run[at + 1 :], refused)
            return


def _accept(producer: Producer, txn_id: bytes, run: list[Arrival]) -> None:
    """Accept messages in their transaction. Those that their sender has settled get no answer."""
    endpoint = producer.connection.endpoint
    accepted = [delivery for delivery, _, is_settled in run if not is_settled]
    if producer.link.is_answered:
        endpoint.transactions.accept(txn_id, accepted)
    else:
        when_answered(producer, partial(endpoint.transactions.accept, txn_id, accepted))
    endpoint.settle(delivery for delivery, _, is_settled in run if is_settled)


def _add_all(
    broker: Broker, ledger: ConnectionTransactions, transaction: Transaction, producer: Producer, run: list[Arrival]
) -> bool:
    """Keep messages for the commit if none needs a check of its own, and there is room for all; else do nothing."""
    destination = producer.destination
    if broker.memory.is_full or not isinstance(destination, ExchangeTarget | QueueTarget):
        return False
    messages: list[bytes] = []
    for _, data, _ in run:
        if isinstance(data, LargePayload):
            return False
        try:
            messages.append(
                data
                if data.startswith(producer.message_prefix.prefix)
                else publish_batches.learn_prefix(producer, data)
            )
        except DecodeError:
            return False
    limits = broker.transactions.limits
    size = sum(map(len, messages))
    decision = rules.decide_post(
        transaction.state, ledger.usage, size, limits, broker.clock.now_ms, messages=len(messages)
    )
    if isinstance(decision, rules.Fail):
        return False
    ledger.move(transaction, decision.state)
    _watch(broker, transaction)
    transaction.post(destination, messages)
    if producer.hold.behind and destination.constant is not None:
        producer.hold.note(producer, destination.constant.queues)
    broker.memory.came += size
    return True


def _add(
    broker: Broker, ledger: ConnectionTransactions, transaction: Transaction, producer: Producer, data: bytes
) -> AmqpError | None:
    """Keep one message for the commit, or return why not: then the transaction can only be rolled back."""
    try:
        data = dead_letter_origin.without_origin(data)
        data = message_head.forwarded(data, message_head.read_head(data))
        found = broker.memory.refuse(1) if broker.memory.is_full else _destination(broker, producer, data)
    except DecodeError as error:
        found = unreadable(error)
    if isinstance(found, AmqpError):
        ledger.move(transaction, rules.with_fault(transaction.state, lost_messages.refuse_of(found)))
        return found
    in_memory = len(data.head) if isinstance(data, LargePayload) else len(data)
    decision = rules.decide_post(
        transaction.state,
        ledger.usage,
        len(data),
        broker.transactions.limits,
        broker.clock.now_ms,
        in_memory=in_memory,
    )
    ledger.move(transaction, decision.state)
    _watch(broker, transaction)
    match decision:
        case rules.Taken():
            transaction.post(found, [data])
            broker.memory.came += in_memory
            return None
        case rules.Fail():
            return amqp_error(decision.refuse)
        case _:
            assert_never(decision)


def _destination(broker: Broker, producer: Producer, data: bytes) -> ExchangeTarget | QueueTarget | AmqpError:
    destination = producer.destination
    match destination:
        case ExchangeTarget() | QueueTarget():
            return destination
        case RelayTarget():
            return addresses.destination_of(broker, producer.connection, destination, data)
        case ManagementTarget():
            description = "Requests to $management can't be part of a transaction; send them outside."
            return amqp_error(Refuse(Reason.NOT_ALLOWED, description))
        case _:
            assert_never(destination)


def _refuse_outside(producer: Producer, run: list[Arrival], error: AmqpError) -> None:
    """Refuse messages whose transaction is not known. If the sender has settled one, the link is closed instead."""
    for delivery, _, is_settled in run:
        if is_settled or not producer.can_reject:
            break_link(producer, delivery, error)
            return
        when_answered(producer, partial(producer.connection.endpoint.reject, [delivery], error))
        producer.owed_credit += 1


def enlist(broker: Broker, connection: Connection, consumer: Consumer, event: Enlisted) -> Refuse | None:
    """A consumer settles deliveries within a transaction. None, or why the link has to be closed."""
    settlements = [
        Settlement(consumer, held, event.end, None if event.is_settled else delivery)
        for delivery, held in event.deliveries
    ]
    ledger = transactions_of(connection)
    transaction = ledger.by_id.get(event.txn_id) if ledger is not None else None
    if ledger is None or transaction is None:
        if event.is_settled:
            for each in settlements:
                settle.settled(broker, consumer, Settled(each.held, Outcome.RELEASED))
        return rules.UNKNOWN
    if acquiring_links.is_of_another(ledger, transaction, event):
        coordinator.close(broker, transaction.coordinator, amqp_error(rules.OTHER_TRANSACTION))
        rollback.return_deliveries(broker, settlements)
    elif transaction.state.is_over:
        rollback.return_deliveries(broker, settlements)
    elif event.is_settled or event.end is None or event.end.outcome is not Outcome.NONE:
        limits, now_ms = broker.transactions.limits, broker.clock.now_ms
        ledger.move(transaction, rules.decide_settle(transaction.state, limits, now_ms, len(settlements)))
        if event.is_settled or transaction.state.is_sound:  # else they stay with the client, which may repeat them
            transaction.settlements += settlements
            transaction.queues[consumer.queue] = None
            if not event.is_settled:
                transaction.undecided[consumer] = None
        _watch(broker, transaction)
    return None


def acquire(broker: Broker, consumer: Consumer, txn_id: bytes | None) -> Refuse | None:
    """A consumer's flow names the transaction in which its link is to acquire; None: in none. None, or why the link has
    to be closed.
    """
    if txn_id is None:
        acquiring_links.end(consumer.link)
        return None
    ledger = transactions_of(consumer.connection)
    transaction = ledger.by_id.get(txn_id) if ledger is not None else None
    refused = rules.decide_acquisition(transaction.state if transaction is not None else None)
    if refused is None:
        assert transaction is not None
        acquiring_links.begin(transaction, consumer.link, partial(_watch, broker, transaction))
    return refused


def _watch(broker: Broker, transaction: Transaction) -> None:
    """Measure the age of the transaction from now on, if it is not measured yet."""
    transactions = broker.transactions
    transaction.since_us = transaction.since_us or broker.clock.now_us
    if rules.age_deadline_ms(transaction.state, transactions.limits) is not None:
        transactions.working.setdefault(transaction)
        if not transactions.is_watched:
            transactions.is_watched = True
            broker.clock.after(transactions.limits.age_ms, lambda: _expire(broker))


def _expire(broker: Broker) -> None:
    """Roll back transactions that are too old. One timer serves all: the limit is the same, and the oldest is first."""
    transactions = broker.transactions
    transactions.is_watched = False
    for transaction in list(transactions.working):
        deadline_ms = rules.age_deadline_ms(transaction.state, transactions.limits)
        assert deadline_ms is not None
        if deadline_ms > broker.clock.now_ms:
            transactions.is_watched = True
            broker.clock.timers.at(deadline_ms, lambda: _expire(broker))
            return
        try:
            _time_out(broker, transaction)
        except Exception:
            broker.fail_connection(transaction.coordinator.connection)


def _time_out(broker: Broker, transaction: Transaction) -> None:
    ledger = transactions_of(transaction.coordinator.connection)
    assert ledger is not None
    ledger.move(transaction, rules.time_out(transaction.state, broker.transactions.limits))
    settlements, transaction.settlements = transaction.settlements, []
    broker.transactions.working.pop(transaction, None)
    broker.transactions.rolled_back += 1
    connection, told = transaction.coordinator.connection, transaction.state.fault
    closing = acquiring_links.release_links(broker, transaction)
    acquired, transaction.acquisition = transaction.acquisition, None
    try:
        settlements = acquiring_links.give_back_unsent(broker, connection, acquired, settlements, closing)
        rollback.begin(broker, connection, settlements, acquired, transaction.queues)
    except Exception:
        rollback.take_back(broker, settlements)
        raise
    assert told is not None, "the state of a transaction that has timed out says so"
    rollback.when_over(broker, connection, partial(_close, broker, connection, closing, amqp_error(told)))


def _close(broker: Broker, connection: Connection, links: list[OutLink], error: AmqpError) -> None:
    """Close links that acquired in a transaction which was too old: they may wait for a message, and ask for nothing
    more.
    """
    for link in links:
        if link.is_open and isinstance(link.context, Consumer):
            broker.close_link(connection, link, error)
