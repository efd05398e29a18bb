"""Work in transactions: messages sent and deliveries settled under the name of one.

Nothing of it takes effect before the commit. A message that is not taken is rejected within its transaction, which is
doomed by it. Must not know how a transaction ends. Source: AMQP 1.0 part 4, 4.4.1 and 4.4.2.
"""

from __future__ import annotations

from typing import assert_never

from penstock_amqp.endpoint import transacting
from penstock_amqp.endpoint.events import AmqpError, Arrival, Enlisted, Outcome, Settled, Unstored
from penstock_amqp.endpoint.ffi import Ptr
from penstock_amqp.errors import DecodeError
from penstock_amqp.messages import message
from penstock_broker.connections.connection import Connection
from penstock_broker.errors import amqp_error
from penstock_broker.log import LargePayload
from penstock_broker.messages import origins, publishing, relaying, settling
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Consumer, Producer
from penstock_broker.state.routes import ExchangeTarget, ManagementTarget, QueueTarget, RelayTarget
from penstock_broker.state.transactions import Ledger, Settlement, Transaction, ledger_of
from penstock_broker.transactions import finishing
from penstock_core import transactions as rules
from penstock_core.reason import Reason, Refuse

__all__ = ["enlist", "forsake", "publish", "unstored"]


def publish(broker: Broker, producer: Producer, batch: list[Arrival]) -> None:
    """Take a batch in which some messages may belong to transactions."""
    accepted: dict[bytes, list[Ptr]] = {}
    outside: list[Arrival] = []
    for at, arrival in enumerate(batch):
        if not transacting.is_transactional(arrival[0]):
            outside.append(arrival)
            continue
        if outside:
            publishing.publish(broker, producer, outside)
            outside = []
        if producer.broken is not None:
            forsake(producer, batch[at:], producer.broken)
            break
        taken_by = _post(broker, producer, arrival)
        if taken_by is not None:
            accepted.setdefault(taken_by, []).append(arrival[0])
    for txn_id, deliveries in accepted.items():
        transacting.answer_accepted(deliveries, txn_id)
    if outside and producer.broken is None:
        publishing.publish(broker, producer, outside)
    publishing.top_up(producer)


def forsake(producer: Producer, arrivals: list[Arrival], told: AmqpError) -> None:
    """These messages came behind the one for which the link is closed by `told`."""
    for delivery, _, _ in arrivals:
        txn_id = transacting.named_transaction(delivery)
        finishing.doom(producer.connection, txn_id, finishing.fault_of(told))


def unstored(producer: Producer, event: Unstored) -> None:
    """A message that names a transaction could not be stored: it is rejected, and its transaction doomed."""
    assert event.txn_id is not None
    finishing.doom(producer.connection, event.txn_id, finishing.fault_of(event.error))
    if not event.is_settled and producer.can_reject:
        transacting.answer_rejected(event.delivery, event.txn_id, producer.connection.endpoint.fitting(event.error))
        producer.owed_credit += 1
        publishing.top_up(producer)
    else:
        publishing.refuse(producer, event.delivery, event.is_settled, event.error)


def _post(broker: Broker, producer: Producer, arrival: Arrival) -> bytes | None:
    """Take one message into the transaction that it names; the txn-id if it is yet to be accepted."""
    delivery, data, is_settled = arrival
    try:
        txn_id = transacting.transfer_transaction(delivery)
        assert txn_id is not None
    except DecodeError as error:
        _refuse_outside(producer, arrival, publishing.malformed(error))
        return None
    ledger = ledger_of(producer.connection)
    transaction = ledger.by_id.get(txn_id) if ledger is not None else None
    if ledger is None or transaction is None:
        _refuse_outside(producer, arrival, amqp_error(rules.UNKNOWN))
        return None
    refused = _take(broker, ledger, transaction, producer, data)
    producer.transfers += 1
    producer.owed_credit += 1
    if is_settled:
        producer.connection.endpoint.settle([delivery])
    elif refused is None:
        return txn_id
    elif producer.can_reject:
        transacting.answer_rejected(delivery, txn_id, producer.connection.endpoint.fitting(refused))
    else:
        publishing.break_link(producer, delivery, refused)
    return None


def _take(
    broker: Broker, ledger: Ledger, transaction: Transaction, producer: Producer, data: bytes
) -> AmqpError | None:
    """Keep one message for the commit, or say why not: then the transaction is doomed."""
    try:
        data = origins.without_claim(data)
        data = message.forwarded(data, message.inspect(data))
        found = _destination(broker, producer, data)
    except DecodeError as error:
        found = publishing.malformed(error)
    if isinstance(found, AmqpError):
        ledger.move(transaction, rules.doom(transaction.state, finishing.fault_of(found)))
        return found
    in_memory = len(data.head) if isinstance(data, LargePayload) else len(data)
    decision = rules.decide_post(
        transaction.state,
        ledger.usage,
        len(data),
        broker.transactions.limits,
        broker.now_ms,
        in_memory=in_memory,
    )
    ledger.move(transaction, decision.state)
    _watch(broker, transaction)
    match decision:
        case rules.Taken():
            transaction.postings.append((found, data))
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
            return relaying.target_of(broker, producer.connection, destination, data)
        case ManagementTarget():
            told = "Requests to $management can't be part of a transaction; send them outside."
            return amqp_error(Refuse(Reason.NOT_ALLOWED, told))
        case _:
            assert_never(destination)


def _refuse_outside(producer: Producer, arrival: Arrival, error: AmqpError) -> None:
    """The transaction is not known. Of a message that its sender settled, only the link's end can tell."""
    delivery, _, is_settled = arrival
    if is_settled or not producer.can_reject:
        publishing.break_link(producer, delivery, error)
    else:
        producer.connection.endpoint.reject([delivery], error)
        producer.owed_credit += 1


def enlist(broker: Broker, connection: Connection, consumer: Consumer, event: Enlisted) -> Refuse | None:
    """A consumer wants a delivery to end with a transaction. None, or why the link has to be closed."""
    settlement = Settlement(consumer, event.held, event.end, None if event.is_settled else event.delivery)
    ledger = ledger_of(connection)
    transaction = ledger.by_id.get(event.txn_id) if ledger is not None else None
    if ledger is None or transaction is None:
        if event.is_settled:
            settling.settled(broker, consumer, Settled(event.held, Outcome.RELEASED))
        return rules.UNKNOWN
    if transaction.state.is_over:
        finishing.give_back(broker, [settlement])
    elif event.is_settled or event.end is None or event.end.outcome is not Outcome.NONE:
        ledger.move(transaction, rules.decide_settle(transaction.state, broker.transactions.limits, broker.now_ms))
        transaction.settlements.append(settlement)
        _watch(broker, transaction)
    return None


def _watch(broker: Broker, transaction: Transaction) -> None:
    """Count the transaction's age from now on, if it does not yet."""
    every = broker.transactions
    transaction.since_us = transaction.since_us or broker.now_us
    if rules.age_deadline_ms(transaction.state, every.limits) is not None:
        every.working.setdefault(transaction)
        if not every.is_watched:
            every.is_watched = True
            broker.after(every.limits.age_ms, lambda: _expire(broker))


def _expire(broker: Broker) -> None:
    """Roll back what has become too old. One timer serves all: the age is the same for all, and the oldest is first."""
    every = broker.transactions
    every.is_watched = False
    for transaction in list(every.working):
        deadline_ms = rules.age_deadline_ms(transaction.state, every.limits)
        assert deadline_ms is not None
        if deadline_ms > broker.now_ms:
            every.is_watched = True
            broker.timers.at(deadline_ms, lambda: _expire(broker))
            return
        _time_out(broker, transaction)


def _time_out(broker: Broker, transaction: Transaction) -> None:
    ledger = ledger_of(transaction.coordinator.connection)
    assert ledger is not None
    settlements, transaction.settlements = transaction.settlements, []
    ledger.move(transaction, rules.time_out(transaction.state, broker.transactions.limits))
    del broker.transactions.working[transaction]
    broker.transactions.rolled_back += 1
    finishing.give_back(broker, settlements)
