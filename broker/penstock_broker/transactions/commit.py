"""Commits a transaction as a whole or not at all.

A commit first finds the route of each message, checks that the queues which reject when full have room for it, and that
the log has room for everything; only then anything changes. The changes are made by the same functions as work outside
a transaction (`settle`, `publish`), within one unit of the log: after a crash either all of it is there or nothing.

Source: AMQP 1.0 part 4, 4.3 and 4.4; docs/decisions/035-transactions.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from penstock_amqp.endpoint.events import DATA, FLAGS, AmqpError, Held
from penstock_amqp.errors import DecodeError
from penstock_amqp.messages import message_head
from penstock_broker.access.connection import Connection
from penstock_broker.access.permissions import PermissionCheck
from penstock_broker.log import NoRoom, RecordTooLarge
from penstock_broker.messages import dead_letters, publish, queue_limits, settle
from penstock_broker.messages.refuse import unreadable
from penstock_broker.queue.queue import LOGGED, Queue
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Consumer
from penstock_broker.state.open_transactions import (
    ConnectionTransactions,
    Posting,
    Settlement,
    Transaction,
    transactions_of,
)
from penstock_broker.state.routes import ExchangeTarget, QueueTarget, Route
from penstock_broker.topology.store import Topology
from penstock_broker.transactions import acquiring_links, lost_messages, rollback
from penstock_core import transaction_rules as rules
from penstock_core.permissions import Action
from penstock_core.reason import Reason, Refuse

__all__ = ["commit", "separate_settled", "withdraw_settled"]

logger = logging.getLogger(__name__)


def commit(broker: Broker, ledger: ConnectionTransactions, transaction: Transaction) -> bool | Refuse:
    """Apply a transaction. True if the log holds part of it: its answer then waits for the sync.

    If it can't be applied as a whole it is rolled back, and the refusal that is returned says why.
    """
    connection = transaction.coordinator.connection
    transaction.settlements = acquiring_links.give_back_waiting(
        broker, connection, transaction.acquisition, transaction.settlements
    )
    settlements = _without_ended(broker.topology, transaction.settlements)
    if transaction.undecided:
        settlements = _without_void(connection, settlements)
    is_logged = any(each.held[1][FLAGS] & LOGGED for each in settlements)
    if is_logged and broker.log.failed is not None:
        rollback.roll_back(broker, ledger, transaction)
        return rules.failed_commit(broker.storage_refuse())
    parts = _parts(broker, connection, transaction.postings, settlements)
    refused = parts if isinstance(parts, Refuse) else _check_log(broker, parts, settlements)
    if isinstance(parts, Refuse) or refused is not None:
        assert refused is not None
        rollback.roll_back(broker, ledger, transaction)
        return rules.failed_commit(refused)
    logger.debug("Commit on connection %d: %d messages, %d settlements", connection.number,
                 sum(len(part.messages) for part in parts), len(settlements))  # fmt: skip
    first = broker.log.next_message()
    broker.log.begin_unit()
    try:
        rollback.remove(broker, ledger, transaction)
        broker.transactions.committed += 1
        _settle(broker, connection, settlements)
        for part in parts:
            is_logged |= publish.store_routed(broker, connection, part.destination, part.route, part.messages)
    except BaseException:
        broker.log.abandon_unit()
        _interrupted(broker, settlements)
        broker.interrupted_work.undone_from = first
        raise
    broker.log.end_unit()
    if len(settlements) > rollback.AT_ONCE:
        broker.topology.disposal.add(_emptied(settlements))
    return is_logged


def _emptied(settlements: list[Settlement]) -> Iterator[object]:
    while settlements:
        yield settlements.pop()


@dataclass(frozen=True, slots=True)
class _Part:
    """Messages that have the same route."""

    destination: ExchangeTarget | QueueTarget
    route: Route
    messages: list[bytes]


def _parts(
    broker: Broker, connection: Connection, postings: list[Posting], settlements: list[Settlement]
) -> list[_Part] | Refuse:
    """The messages by their present routes, for each queue in sending order; or why one of them is refused."""
    parts: list[_Part] = []
    room = _QueueRoom(broker, settlements)
    allowed: set[ExchangeTarget | QueueTarget] = set()
    passed: set[Route] = set()
    """Routes that a destination has for all messages, and that were checked with the first of these."""
    for destination, messages in postings:
        if destination not in allowed:
            refused = _check_exists(broker.topology, destination)
            refused = refused or _check_permission(broker.permissions, connection, destination)
            if refused is not None:
                return refused
            allowed.add(destination)
        publish.prepare(broker, destination, len(messages))
        constant = destination.constant
        for at, data in enumerate(messages):
            if constant is not None and constant in passed:
                _add(parts, destination, constant, messages[at:])
                break
            try:
                found = publish.route_message(broker, destination, data, message_head.read_head(data))
            except DecodeError as error:
                found = unreadable(error)
            if isinstance(found, AmqpError):
                return lost_messages.refuse_of(found)
            for queue in found.rejecting:
                if not room.add(queue, len(data)):
                    description = f"The queue {queue.name!r} has no room for all of it and rejects."
                    return Refuse(Reason.LIMIT_EXCEEDED, description)
            if found is constant and found.queues and not found.rejecting:
                passed.add(found)
            _add(parts, destination, found, [data])
    return _merged(parts)


def _add(
    parts: list[_Part], destination: ExchangeTarget | QueueTarget, route: Route, messages: Sequence[bytes]
) -> None:
    if parts and parts[-1].destination is destination and parts[-1].route is route:
        parts[-1].messages.extend(messages)
    else:
        parts.append(_Part(destination, route, list(messages)))


def _merged(parts: list[_Part]) -> list[_Part]:
    """One part for each route, where no two routes have a queue in common: then each queue gets what it would have got
    by the parts as they are, in the same order.
    """
    by_route: dict[Route, _Part] = {}
    for part in parts:
        if by_route.setdefault(part.route, part).destination is not part.destination:
            return parts
    queues = [queue for route in by_route for queue in route.queues]
    if len(by_route) == len(parts) or len(set(queues)) < len(queues):
        return parts
    merged = {route: _Part(part.destination, route, []) for route, part in by_route.items()}
    for part in parts:
        merged[part.route].messages.extend(part.messages)
    return list(merged.values())


def _check_log(broker: Broker, parts: list[_Part], settlements: list[Settlement]) -> Refuse | None:
    """None if the log has room for the transaction, with the dead letters that may come of it; or why it has none."""
    log = broker.log
    posted = [part.messages for part in parts if part.route.logged_set]
    letters: list[tuple[bytes, int]] = []
    if log.accepts_publishing():  # else they stay in their queue, as stranded messages
        for each in settlements:
            if each.end is not None and dead_letters.makes_dead_letter(each.consumer.queue, each.end):
                letters.append((each.held[1][DATA], dead_letters.added_bytes(each.end.error)))
    acks = sum(1 for each in settlements if each.held[1][FLAGS] & LOGGED)
    route_sets = {each for part in parts for each in (part.route.logged_set, part.route.kept_set) if each}
    try:
        log.check_unit(posted, acks, route_sets, growing=letters)
    except NoRoom:
        broker.storage.refused += len(letters) + sum(map(len, posted))
        return broker.storage_refuse()
    except RecordTooLarge as error:
        cause = f"The transaction is too large for the broker's log ({error}); commit more often, or raise"
        return Refuse(Reason.LIMIT_EXCEEDED, f"{cause} log.segmentBytes.")
    return None


class _QueueRoom:
    """Counts what a commit adds to the queues that reject when full."""

    def __init__(self, broker: Broker, settlements: list[Settlement]) -> None:
        self._broker = broker
        self._settlements = settlements
        self._added: dict[Queue, tuple[int, int]] | None = None

    def add(self, queue: Queue, size: int) -> bool:
        """Count one message more for the queue. False if the queue has no room for it."""
        if self._added is None:  # most commits have no such queue
            self._added = {}
            for each in self._settlements:
                if each.end is None:
                    self._count(each.consumer.queue, -1, -len(each.held[1][DATA]))
        messages, bytes_added = self._added.get(queue, (0, 0))
        if queue_limits.refuses(self._broker, queue, size, messages, bytes_added):
            return False
        self._count(queue, 1, size)
        return True

    def _count(self, queue: Queue, messages: int, size: int) -> None:
        assert self._added is not None
        before = self._added.get(queue, (0, 0))
        self._added[queue] = (before[0] + messages, before[1] + size)


def _check_exists(topology: Topology, destination: ExchangeTarget | QueueTarget) -> Refuse | None:
    if isinstance(destination, ExchangeTarget):
        name = destination.exchange.name
        if topology.exchanges.get(name) is not destination.exchange:
            return Refuse(Reason.EXCHANGE_NOT_FOUND, f"The exchange {name!r} was deleted; send to another.")
    elif topology.queues.get(destination.node.name) is not destination.node:
        return Refuse(Reason.QUEUE_NOT_FOUND, f"The queue {destination.node.name!r} was deleted; send to another.")
    return None


def _check_permission(
    permissions: PermissionCheck, connection: Connection, destination: ExchangeTarget | QueueTarget
) -> Refuse | None:
    """The commit publishes the message, so it has to be allowed now: permissions may have changed since it came."""
    node = destination.exchange if isinstance(destination, ExchangeTarget) else destination.node
    return permissions.check_node(connection, Action.PUBLISH, node)


def _without_ended(topology: Topology, settlements: list[Settlement]) -> list[Settlement]:
    """Without the deliveries of queues that have ended since."""
    queues = {each.consumer.queue for each in settlements}
    ended = {queue for queue in queues if not rollback.has_queue(topology, queue)}
    return [each for each in settlements if each.consumer.queue not in ended] if ended else settlements.copy()


def _settle(broker: Broker, connection: Connection, settlements: list[Settlement]) -> None:
    accepted: dict[Consumer, list[Held]] = {}
    last: Consumer | None = None
    batch: list[Held] = []
    for each in settlements:  # may be very many, mostly of one consumer
        if each.unsettled is not None:
            connection.endpoint.unsettled.conclude(each.unsettled, each.held, each.end)
        if each.end is None:
            if each.consumer is not last:
                last = each.consumer
                batch = accepted.setdefault(last, [])
            batch.append(each.held)
        elif each.consumer.link.is_open:
            settle.settled(broker, each.consumer, each.end)
        else:  # no link is left for which it could be undeliverable
            settle.settled(broker, each.consumer, replace(each.end, undeliverable_here=False))
    for consumer, batch in accepted.items():
        settle.accepted(broker, consumer, batch)


def _interrupted(broker: Broker, settlements: list[Settlement]) -> None:
    """An exception came while these were settled: what is in no list goes back to its queue."""
    for each in settlements:
        broker.interrupted_work.take(each.consumer.queue, (each.held[1],))


def separate_settled(consumer: Consumer, held: list[Held]) -> list[Held]:
    """The link of a consumer is about to end with the deliveries `held`. Those that are settled in a transaction stay
    with the transaction; returns the others.
    """
    ledger = transactions_of(consumer.connection)
    if ledger is None:
        return held
    acquiring_links.forget_link(consumer.connection, consumer.link)
    _forget_unsent(ledger, consumer)
    rest = {id(each): each for each in held}
    _keep_undecided(ledger, consumer, lambda each: rest.pop(id(each.held), None) is not None)
    return list(rest.values())


def withdraw_settled(consumer: Consumer) -> None:
    """The link of a consumer is about to end, with more deliveries than are looked at in one turn. Those that are
    settled in a transaction stay with it.
    """
    ledger = transactions_of(consumer.connection)
    if ledger is None:
        return
    acquiring_links.forget_link(consumer.connection, consumer.link)
    _forget_unsent(ledger, consumer)
    endpoint = consumer.connection.endpoint
    _keep_undecided(
        ledger,
        consumer,
        lambda each: each.unsettled is not None and endpoint.unsettled.take(each.unsettled, each.held),
    )


def _forget_unsent(ledger: ConnectionTransactions, consumer: Consumer) -> None:
    """What the link still had to send settled is not acquired any more: it returns with the link."""
    if not consumer.link.presettled:
        return
    unsent = {id(held[1]) for held in consumer.connection.endpoint.unsettled.separate_unsent(consumer.link)}
    for transaction in ledger.by_id.values() if unsent else ():
        transaction.settlements = [each for each in transaction.settlements if id(each.held[1]) not in unsent]


def _keep_undecided(ledger: ConnectionTransactions, consumer: Consumer, takes: Callable[[Settlement], bool]) -> None:
    """Deliveries of a link that ends and to which the client gave an outcome in a transaction, without settling them,
    are settled in it from now on. `takes` takes one from the link; False: the client has settled it outside of the
    transaction since.
    """
    for transaction in ledger.by_id.values():
        if consumer not in transaction.undecided:
            continue  # a transaction may have very many settlements, and a connection many links
        del transaction.undecided[consumer]
        kept: list[Settlement] = []
        for each in reversed(transaction.settlements):  # of two outcomes the later holds
            if each.consumer is consumer and each.unsettled is not None:
                is_there, each.unsettled = takes(each), None
                if not is_there:
                    continue
            kept.append(each)
        transaction.settlements = kept[::-1]


def _without_void(connection: Connection, settlements: list[Settlement]) -> list[Settlement]:
    """Without what the client has settled outside the transaction since; and of two outcomes the later holds."""
    is_unsettled = connection.endpoint.unsettled.is_held
    valid = (each for each in settlements if each.unsettled is None or is_unsettled(each.unsettled, each.held))
    return list({id(each.held): each for each in valid}.values())
