"""Ends transactions: commits all of it or nothing, or takes it all back.

A commit first asks for the route of each message, whether the queues that reject when full take it, and whether the log
takes all of it; only then anything changes. What it changes goes through the same doors as work outside a transaction
(`settle`, `publish`), within one unit of the log, so that after a crash it is there as a whole or not at all.

Source: AMQP 1.0 part 4, 4.3 and 4.4; issue 4 ("Transactions"); section 4 of the design.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Final

from penstock_amqp.endpoint.events import DATA, FLAGS, AmqpError, Held, Outcome, Settled
from penstock_amqp.endpoint.transactional_states import named_transaction
from penstock_amqp.messages import message_head
from penstock_broker.access.connection import Connection
from penstock_broker.log import NoRoom, RecordTooLarge
from penstock_broker.messages import dead_letters, publish, queue_limits, settle
from penstock_broker.queue.consumer import SendingLink
from penstock_broker.queue.queue import LOGGED, Queue
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Consumer
from penstock_broker.state.open_transactions import (
    ConnectionTransactions,
    Coordinator,
    Posting,
    Settlement,
    Transaction,
    transactions_of,
)
from penstock_broker.state.routes import ExchangeTarget, QueueTarget, Route
from penstock_core import transaction_rules as rules
from penstock_core.permissions import Action
from penstock_core.reason import REASON_KEY, Reason, Refuse

__all__ = [
    "commit",
    "connection_gone",
    "coordinator_gone",
    "doom",
    "fault_of",
    "give_back",
    "keep_settled",
    "producer_closes",
    "roll_back",
]

_LOST: Final = Refuse(
    Reason.NOT_ALLOWED, "A message of it came on a link that the broker had closed; send it again on another."
)


def commit(broker: Broker, ledger: ConnectionTransactions, transaction: Transaction) -> bool | Refuse:
    """Apply a transaction. True if the log holds part of it: its answer then waits for the sync.

    If it can't be applied as a whole it is rolled back, and what is returned says why.
    """
    settlements = [each for each in transaction.settlements if _is_there(broker, each.consumer.queue)]
    is_logged = any(each.held[1][FLAGS] & LOGGED for each in settlements)
    if is_logged and broker.log.failed is not None:
        roll_back(broker, ledger, transaction)
        return rules.failed_commit(broker.storage_refuse())
    connection = transaction.coordinator.connection
    parts = _parts(broker, connection, transaction.postings, settlements)
    refused = parts if isinstance(parts, Refuse) else _no_room(broker, parts, settlements)
    if isinstance(parts, Refuse) or refused is not None:
        assert refused is not None
        roll_back(broker, ledger, transaction)
        return rules.failed_commit(refused)
    _forget(broker, ledger, transaction)
    broker.transactions.committed += 1
    broker.log.begin_unit()
    try:
        _settle(broker, connection, settlements)
        for part in parts:
            is_logged |= publish.store_routed(broker, connection, part.destination, part.route, part.messages)
    except BaseException:
        broker.log.abandon_unit()
        raise
    broker.log.end_unit()
    return is_logged


@dataclass(frozen=True, slots=True)
class _Part:
    """Messages in a row that go the same way."""

    destination: ExchangeTarget | QueueTarget
    route: Route
    messages: list[bytes]


def _parts(
    broker: Broker, connection: Connection, postings: list[Posting], settlements: list[Settlement]
) -> list[_Part] | Refuse:
    """The messages in sending order, by where bindings lead them now, or why one of them is not taken."""
    parts: list[_Part] = []
    room = _Room(settlements)
    for destination, sent in groupby(postings, itemgetter(0)):
        messages = [data for _, data in sent]
        refused = _missing(broker, destination) or _not_permitted(broker, connection, destination)
        if refused is not None:
            return refused
        publish.prepare(broker, destination, len(messages))
        route: Route | None = None
        for data in messages:
            if route is not None and route is destination.constant and route.queues and not route.rejecting:
                parts[-1].messages.append(data)  # asked with the first of them
                continue
            found = publish.route_message(broker, destination, data, message_head.read_head(data))
            if isinstance(found, AmqpError):
                return fault_of(found)
            for queue in found.rejecting:
                if not room.takes(queue, len(data)):
                    told = f"The queue {queue.name!r} has no room for all of it and rejects."
                    return Refuse(Reason.LIMIT_EXCEEDED, told)
            if found is route:
                parts[-1].messages.append(data)
            else:
                parts.append(_Part(destination, found, [data]))
                route = found
    return parts


def _no_room(broker: Broker, parts: list[_Part], settlements: list[Settlement]) -> Refuse | None:
    """Why the log does not take all of it, with the dead letters that may come of it; None if it does."""
    log = broker.log
    puts = [(data, 0) for part in parts if part.route.logged_set for data in part.messages]
    if log.accepts_publishing():  # else those stay where they are, as stranded
        for each in settlements:
            if each.end is not None and dead_letters.makes_dead_letter(each.consumer.queue, each.end):
                puts.append((each.held[1][DATA], dead_letters.added_bytes(each.end.error)))
    acks = sum(1 for each in settlements if each.held[1][FLAGS] & LOGGED)
    try:
        log.check_unit(puts, acks)
    except NoRoom:
        return broker.storage_refuse()
    except RecordTooLarge as error:
        told = f"The transaction is too large for the broker's log ({error}); commit more often, or raise"
        return Refuse(Reason.LIMIT_EXCEEDED, f"{told} log.segmentBytes.")
    return None


class _Room:
    """Counts what a commit brings to the queues that reject when full."""

    def __init__(self, settlements: list[Settlement]) -> None:
        self._settlements = settlements
        self._brought: dict[Queue, tuple[int, int]] | None = None

    def takes(self, queue: Queue, size: int) -> bool:
        """True if the queue has room for one message more."""
        if self._brought is None:  # most commits have no such queue
            self._brought = {}
            for each in self._settlements:
                if each.end is None:
                    self._add(each.consumer.queue, -1, -len(each.held[1][DATA]))
        messages, size_brought = self._brought.get(queue, (0, 0))
        if queue_limits.is_full(queue, size, messages, size_brought):
            return False
        self._add(queue, 1, size)
        return True

    def _add(self, queue: Queue, messages: int, size: int) -> None:
        assert self._brought is not None
        before = self._brought.get(queue, (0, 0))
        self._brought[queue] = (before[0] + messages, before[1] + size)


def _missing(broker: Broker, destination: ExchangeTarget | QueueTarget) -> Refuse | None:
    topology = broker.topology
    if isinstance(destination, ExchangeTarget):
        name = destination.exchange.name
        if topology.exchanges.get(name) is not destination.exchange:
            return Refuse(Reason.EXCHANGE_NOT_FOUND, f"The exchange {name!r} was deleted; send to another.")
    elif topology.queues.get(destination.node.name) is not destination.node:
        return Refuse(Reason.QUEUE_NOT_FOUND, f"The queue {destination.node.name!r} was deleted; send to another.")
    return None


def _not_permitted(broker: Broker, connection: Connection, destination: ExchangeTarget | QueueTarget) -> Refuse | None:
    """A message is published by the commit, so that has to be allowed then; permissions may have changed since."""
    node = destination.exchange if isinstance(destination, ExchangeTarget) else destination.node
    return broker.permissions.check_node(connection, Action.PUBLISH, node)


def _settle(broker: Broker, connection: Connection, settlements: list[Settlement]) -> None:
    accepted: dict[Consumer, list[Held]] = {}
    for each in settlements:
        if each.unsettled is not None and not connection.endpoint.conclude(each.unsettled, each.held, each.end):
            continue  # the client has settled it otherwise since
        if each.end is None:
            accepted.setdefault(each.consumer, []).append(each.held)
        elif each.consumer.link.is_open:
            settle.settled(broker, each.consumer, each.end)
        else:  # "here" is nowhere any more
            settle.settled(broker, each.consumer, replace(each.end, undeliverable_here=False))
    for consumer, batch in accepted.items():
        settle.accepted(broker, consumer, batch)


def roll_back(broker: Broker, ledger: ConnectionTransactions, transaction: Transaction) -> None:
    """Undo a transaction and forget it: settled deliveries go back to their queues, each with one attempt more."""
    settlements = list(transaction.settlements)
    if not transaction.state.is_over:
        broker.transactions.rolled_back += 1
    _forget(broker, ledger, transaction)
    give_back(broker, settlements)


def give_back(broker: Broker, settlements: list[Settlement]) -> None:
    """Return deliveries to their queues. Those that the client has not settled stay with it."""
    for each in settlements:
        if each.unsettled is None and _is_there(broker, each.consumer.queue):
            settle.settled(broker, each.consumer, Settled(each.held, Outcome.MODIFIED, failed=True))


def coordinator_gone(broker: Broker, coordinator: Coordinator) -> None:
    """The link that declared them is gone: what it has not discharged is rolled back."""
    ledger = transactions_of(coordinator.connection)
    if ledger is not None:  # else the connection is gone, with all its transactions
        for transaction in list(coordinator.transactions.values()):
            roll_back(broker, ledger, transaction)


def connection_gone(broker: Broker, connection: Connection) -> None:
    """The connection is lost, and all its coordinator links with it."""
    ledger = transactions_of(connection)
    connection.transactions = None
    if ledger is not None:
        for transaction in list(ledger.by_id.values()):
            roll_back(broker, ledger, transaction)


def keep_settled(connection: Connection, consumer: Consumer, held: list[Held]) -> list[Held]:
    """A consumer's link is about to go with the deliveries `held`: those whose end is a transaction's stay with it.

    Returns the others.
    """
    ledger = transactions_of(connection)
    if ledger is None or not held:
        return held
    rest = {id(each): each for each in held}
    for transaction in ledger.by_id.values():
        for settlement in transaction.settlements:
            if settlement.consumer is consumer and settlement.unsettled is not None:
                settlement.unsettled = None
                kept = rest.pop(id(settlement.held), None)
                if kept is None:  # settled otherwise since
                    transaction.settlements = [each for each in transaction.settlements if each is not settlement]
    return list(rest.values())


def doom(connection: Connection, txn_id: bytes | None, fault: Refuse | None = None) -> None:
    """A message of a transaction was not taken: it can't be committed any more. None, or unknown: nothing happens.

    Without a `fault` it is why a link was closed on this connection last: the message came behind that.
    """
    ledger = transactions_of(connection)
    transaction = ledger.by_id.get(txn_id) if ledger is not None and txn_id is not None else None
    if ledger is not None and transaction is not None:
        ledger.move(transaction, rules.doom(transaction.state, fault or ledger.last_closed or _LOST))


def producer_closes(producer: SendingLink, error: AmqpError) -> None:
    """The broker is about to close a link for `error`: what is still coming on it is lost to its transaction."""
    ledger = transactions_of(producer.connection)
    if ledger is not None:
        ledger.last_closed = fault_of(error)
        doom(producer.connection, named_transaction(producer.link.partial.delivery))


def fault_of(error: AmqpError) -> Refuse:
    """An error of a message as the fault of its transaction."""
    try:
        reason = Reason(error.info.get(REASON_KEY))
    except ValueError:
        reason = Reason.INVALID_REQUEST
    return Refuse(reason, error.description)


def _is_there(broker: Broker, queue: Queue) -> bool:
    """False if the subscription was rebound, or ended, meanwhile: its part of the transaction is void."""
    there = broker.topology.by_incarnation.get(queue.incarnation)
    return there is not None and there.queue is queue


def _forget(broker: Broker, ledger: ConnectionTransactions, transaction: Transaction) -> None:
    broker.transactions.working.pop(transaction, None)
    ledger.remove(transaction)
