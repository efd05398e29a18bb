"""Takes a connection apart after an exception, when its orderly end can't be trusted any more.

Nothing here builds on what the interrupted code has done or left: it looks at what is there. Every list of the broker
is searched for links of the connection, what they had in their hands goes back to its queues, and the counters of these
queues are counted anew. So it may be called after any step, and more than once. It costs a look at every queue, and at
every message of the queues concerned: that is the price of a mistake in the code, and never paid without one. Each step
is guarded: if one fails too, that is logged and the others are done.

Afterwards no queue, exchange, timer or list leads to the connection, so that its engine can be freed. Source:
docs/decisions/077-internal-errors.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial

from penstock_amqp.endpoint.events import DATA, FLAGS, NUMBER, Held
from penstock_broker.access.connection import Connection, Phase
from penstock_broker.attach import close, temporary_nodes
from penstock_broker.log import EndReason, bytes_in_log
from penstock_broker.messages import delivery_returns, due_times, store
from penstock_broker.queue.queue import LOGGED, Queue
from penstock_broker.state.broker import Broker
from penstock_broker.state.interrupted_work import NOTHING
from penstock_broker.state.leaving_links import LeavingLink, consumed_queue
from penstock_broker.state.links import Browser, Consumer
from penstock_broker.state.open_transactions import transactions_of
from penstock_broker.topology.records import Exchange, PointToPointQueue
from penstock_broker.transactions import rollback

__all__ = ["leave_container", "remove"]

logger = logging.getLogger(__name__)


def remove(broker: Broker, connection: Connection) -> None:
    """Remove every trace of a connection; its links, messages and transactions are given back. Raises nothing."""
    number = connection.number
    concerned: dict[Queue, None] = {}
    delivery_return = delivery_returns.take_off(broker, connection)
    rollback.take_off(broker, connection)
    for what, step in (
        ("messages on their way into many queues", partial(store.finish_fan_outs, broker)),
        ("deliveries of others on their way back", partial(delivery_returns.finish, broker)),
        ("rollbacks of others", partial(rollback.finish, broker)),
        ("its counting", partial(broker.clients.counts.leave, connection)),
        ("its transactions", partial(_drop_transactions, broker, connection)),
        ("its deliveries", partial(_collect_deliveries, broker, connection)),
        ("its consumers", partial(_drop_receivers, broker, connection, concerned)),
        ("its producers", partial(_drop_producers, broker, connection)),
        ("its pending work", partial(_drop_work, broker, connection)),
        ("its management links", partial(broker.management.connection_removed, connection)),
        ("its place in its container", partial(leave_container, broker, connection)),
    ):
        _guarded(number, what, step)
    for link in connection.endpoint.all_links():
        link.context = None
    interrupted = broker.interrupted_work
    concerned.update(interrupted.doubtful)
    for incarnation in broker.log.put_this_turn():
        record = broker.topology.by_incarnation.get(incarnation)
        if record is not None:
            concerned[record.queue] = None
    _guarded(number, "an interrupted commit", partial(_undo_commit, broker, concerned))
    in_flight = _deliveries_in_flight(broker, connection)
    for queue in concerned:
        _guarded(number, f"the queue {queue.name!r}", partial(_set_right, broker, queue, in_flight.get(queue, {})))
    interrupted.clear()
    _guarded(number, "its subscriptions", partial(_end_subscriptions, broker, connection))
    _guarded(number, "its temporary nodes", partial(temporary_nodes.connection_ended, broker, connection))
    _guarded(number, "temporary nodes that nobody uses", partial(temporary_nodes.links_ended, broker, ()))
    if delivery_return is not None and connection.phase is Phase.GONE:  # else whoever called this frees it
        for action in delivery_return.after:
            _guarded(number, "its engine", action)


def _guarded(number: int, what: str, step: Callable[[], object]) -> None:
    try:
        step()
    except Exception:
        logger.exception("Connection %d is taken apart, but %s could not be removed", number, what)


# -- who leads to the connection --------------------------------------------------------------------------------------


def _queues(broker: Broker) -> Iterator[Queue]:
    return (record.queue for record in list(broker.topology.by_incarnation.values()))


def _drop_transactions(broker: Broker, connection: Connection) -> None:
    """Roll its transactions back: what it settled in them goes back, unless the engine still has it."""
    ledger, connection.transactions = transactions_of(connection), None
    if ledger is None:
        return
    for transaction in list(ledger.by_id.values()):
        for each in transaction.settlements:
            if each.unsettled is None:
                broker.interrupted_work.take(each.consumer.queue, (each.held[1],))
        broker.transactions.rolled_back += not transaction.state.is_over
        broker.transactions.working.pop(transaction, None)
        ledger.remove(transaction)


def _collect_deliveries(broker: Broker, connection: Connection) -> None:
    """What it has not settled goes back."""
    for link, entry, _ in connection.endpoint.unsettled.all_held():
        queue = consumed_queue(link.context)
        if queue is not None:
            broker.interrupted_work.take(queue, (entry,))


def _drop_receivers(broker: Broker, connection: Connection, concerned: dict[Queue, None]) -> None:
    """Its consumers and browsers leave every queue. `concerned`: where the queues are entered that had some."""
    for queue in _queues(broker):
        links = queue.links
        leaving = [each for each in links.consumers if each.connection is connection]
        if leaving:
            concerned[queue] = None
            links.consumers[:] = [each for each in links.consumers if each.connection is not connection]
            links.turn = 0
            for each in leaving:
                _guarded(connection.number, f"what {queue.name!r} reserved", partial(queue.backlog.left, each))
            if not links.consumers:
                links.unused_since_us = broker.clock.now_us
            queue.rank()
            queue.note_change()
        for each in [each for each in links.browsers if each.connection is connection]:
            links.browsers.remove(each)
            if isinstance(each, Browser):
                broker.topology.disposal.add(each.take_pending())
    for link in connection.endpoint.all_links():
        context = link.context
        if isinstance(context, Consumer):
            concerned[context.queue] = None  # also one that has ended, or that its consumer has left
        elif isinstance(context, LeavingLink) and context.queue is not None:
            concerned[context.queue] = None
            context.queue.backlog.left(context.consumer)
        if isinstance(context, Consumer | Browser):
            context.is_active = False
            context.after_reply = []
    live_links = broker.clients.live_links
    for key in [key for key, consumer in live_links.items() if consumer.connection is connection]:
        del live_links[key]


def _drop_producers(broker: Broker, connection: Connection) -> None:
    nodes: list[Exchange | PointToPointQueue] = [*broker.topology.exchanges.values(), *broker.topology.queues.values()]
    for node in nodes:
        for producer in [each for each in node.producers if each.connection is connection]:
            node.producers.discard(producer)
            producer.is_active = False
            producer.after_reply = []


def _drop_work(broker: Broker, connection: Connection) -> None:
    work = broker.work
    browsing = [each for each in work.browsing if each.connection is not connection]
    work.browsing.clear()
    work.browsing.extend(browsing)
    work.draining[:] = [each for each in work.draining if each.connection is not connection]
    work.streaming.pop(connection, None)
    work.held = [each for each in work.held if each is not connection]


def leave_container(broker: Broker, connection: Connection) -> None:
    """Its container-id is free for others, if it had one."""
    containers, name = broker.clients.containers, connection.client.container_id
    rest = [each for each in containers.get(name, ()) if each is not connection]
    if rest:
        containers[name] = rest
    else:
        containers.pop(name, None)


def _end_subscriptions(broker: Broker, connection: Connection) -> None:
    """It uses no subscription any more; those whose lifetime is over end."""
    for identity in list(connection.subscriptions):
        subscription = broker.topology.subscriptions.get(identity)
        if subscription is not None:
            subscription.users = subscription.users.connection_closed(connection.number)
            close.end_if_over(broker, identity)
    connection.subscriptions.clear()


# -- what was in its hands --------------------------------------------------------------------------------------------


def _undo_commit(broker: Broker, concerned: dict[Queue, None]) -> None:
    """Take out what an interrupted commit has put into queues: the log has nothing of it."""
    first = broker.interrupted_work.undone_from
    if first == NOTHING:
        return
    for queue in _queues(broker):
        late = {entry[NUMBER]: entry for entry in queue.everything_in_memory() if entry[NUMBER] >= first}
        if late:
            concerned[queue] = None
            queue.take_out(late, {entry[NUMBER] for entry in queue.everything_in_memory()})
            for each in late:
                queue.forget(each)


def _deliveries_in_flight(broker: Broker, failed: Connection) -> dict[Queue, dict[int, Held]]:
    """What the other connections have not settled, and what is settled in their transactions, by number."""
    found: dict[Queue, dict[int, Held]] = {}
    for connection in broker.clients.connections.values():
        if connection is failed:
            continue
        for held in connection.endpoint.unsettled.all_held():
            queue = consumed_queue(held[0].context)
            if queue is not None:
                found.setdefault(queue, {})[held[1][NUMBER]] = held
        ledger = transactions_of(connection)
        if ledger is not None:
            for each in ledger.settlements():
                found.setdefault(each.consumer.queue, {})[each.held[1][NUMBER]] = each.held
    return found


def _set_right(broker: Broker, queue: Queue, in_flight: dict[int, Held]) -> None:
    """Give back to a queue what was lost between two lists, and count what it holds."""
    interrupted = broker.interrupted_work
    record = broker.topology.by_incarnation.get(queue.incarnation)
    if record is None or record.queue is not queue:
        return  # it has ended, with all its messages
    acked = broker.log.acked_this_turn().get(queue.incarnation, set())
    left = {entry[NUMBER]: entry for each, entry in interrupted.left if each is queue}
    # What is in no memory was written and paged by earlier turns: nothing of this turn can be among it.
    present = {entry[NUMBER]: entry for entry in (*queue.everything_in_memory(), *queue.expiry.expired)}
    # A message that was put into the log and reached no queue: its sender was not told that it is accepted.
    gone = broker.log.put_this_turn().get(queue.incarnation, set()) - present.keys() - in_flight.keys()
    for number, entry in left.items():
        queue.forget(number)
        if entry[FLAGS] & LOGGED:
            gone.add(number)
    lost = {entry[NUMBER]: entry for each, entry in interrupted.taken if each is queue}
    for number, entry in sorted(lost.items()):
        if number in present or number in in_flight or number in left or number in acked:
            continue
        gone.discard(number)
        queue.redelivery.seen.note(number)
        present[number] = entry
        due_times.put_in_place(broker, queue, entry)
    if gone - acked:
        broker.log.ack_many(queue.incarnation, sorted(gone - acked), EndReason.ACCEPTED)
    queue.in_flight = len(in_flight)
    held_here = [entry[DATA] for entry in (*present.values(), *(held[1] for held in in_flight.values()))]
    queue.depth_bytes = sum(map(len, held_here)) + queue.in_log_only[1]
    queue.staged_bytes = bytes_in_log(held_here)
    queue.note_change()
    if queue.links.consumers:
        broker.work.schedule(queue)
