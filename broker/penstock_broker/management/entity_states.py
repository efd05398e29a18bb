"""The state documents of each kind of entity, which READ and QUERY return: maps with the keys of
`penstock_api.management`.

The maps are built without the models, which would cost a broker with a thousand subscriptions 30 ms per poll; a test
compares them with the models. Times are milliseconds since the epoch. Source: docs/reference/management.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias, cast

from penstock_amqp.endpoint.links import InLink, OutLink
from penstock_amqp.types.values import Value
from penstock_api import release_terms
from penstock_broker.access.connection import Connection
from penstock_broker.management.consumer_totals import consumer_totals
from penstock_broker.management.in_flight import InFlight
from penstock_broker.management.repeated_messages import repeated_messages
from penstock_broker.messages import due_times, usable_credit
from penstock_broker.queue.queue import Queue
from penstock_broker.queue.totals import Histogram
from penstock_broker.settings.settings import BrokerSettings
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Browser, Consumer, Producer
from penstock_broker.state.open_transactions import ConnectionTransactions, transactions_of
from penstock_broker.state.routes import ExchangeTarget, QueueTarget
from penstock_broker.topology.records import Exchange, PointToPointQueue, Subscription
from penstock_broker.version import VERSION
from penstock_core.header_bindings import HeaderBinding, ordered_bindings

__all__ = [
    "DECLARED",
    "DECLARED_OF_QUEUE",
    "StateDocument",
    "broker_state",
    "connection_state",
    "counters",
    "declared",
    "declared_queue",
    "exchange_state",
    "is_told",
    "link_id",
    "link_state",
    "queue_name_of",
    "queue_state",
    "queue_state_as_of_a_subscription",
    "subscription_state",
]

StateDocument: TypeAlias = dict[Value, Value]
"""One state document."""

MAX_CONTAINERS: Final = 20
"""Container-ids that a document lists; the others are left out."""

_VOCABULARY: Final[list[Value]] = [*release_terms.vocabulary(), *release_terms.settings_vocabulary(BrokerSettings)]


def subscription_state(subscription: Subscription, held: InFlight) -> StateDocument:
    """A `penstock.subscription`."""
    return {**declared(subscription), **counters(subscription.queue, held, _histogram)}


def declared(subscription: Subscription) -> StateDocument:
    """The part of a `penstock.subscription` that changes only by a declaration or a rebind."""
    identity, binding = subscription.identity, subscription.binding
    return {
        "queueName": subscription.name,
        "subscriptionName": identity.name,
        "scope": "Global" if identity.scope.is_global else "Container",
        "clientId": identity.scope.container_id,
        "sharing": subscription.exclusivity.value,
        "durable": identity.durable,
        "expiryPolicy": subscription.lifetime.value,
        "exchange": binding.exchange,
        "bindingKeys": list(binding.ordered_keys),
        "headerBindings": [_header_binding(each) for each in ordered_bindings(binding.headers)],
        "selector": binding.filter.selector,
        "noLocal": binding.filter.no_local,
        "deadLetter": subscription.queue.policy.dead_letter,
        "owner": cast(Value, subscription.owner.to_wire()) if subscription.owner is not None else None,
        "user": subscription.user,
        "incarnation": subscription.queue.incarnation,
        "revision": subscription.revision,
    }


DECLARED: Final = frozenset(
    {
        "queueName",
        "subscriptionName",
        "scope",
        "clientId",
        "sharing",
        "durable",
        "expiryPolicy",
        "exchange",
        "bindingKeys",
        "headerBindings",
        "selector",
        "noLocal",
        "deadLetter",
        "owner",
        "user",
        "incarnation",
        "revision",
    }
)
"""The keys of `declared`: whoever asks for no others needs no look at messages and deliveries."""
DECLARED_OF_QUEUE: Final = frozenset({"name", "durable", "owner", "incarnation", "revision"})
"""Those of `declared_queue`."""


def _header_binding(binding: HeaderBinding) -> Value:
    return {"match": binding.match.value, "headers": dict[Value, Value](binding.headers.items())}


def declared_queue(node: PointToPointQueue) -> StateDocument:
    """The part of a `penstock.queue` that changes only by a declaration."""
    return {
        "name": node.name,
        "durable": node.durable,
        "owner": cast(Value, node.owner.to_wire()) if node.owner is not None else None,
        "incarnation": node.queue.incarnation,
        "revision": node.revision,
    }


def queue_state(node: PointToPointQueue, held: InFlight) -> StateDocument:
    """A `penstock.queue`: the counters of a subscription, without its binding."""
    return {
        **declared_queue(node),
        "examined": node.queue.backlog.examination.total,
        **counters(node.queue, held, _histogram),
    }


def queue_state_as_of_a_subscription(node: PointToPointQueue, held: InFlight) -> StateDocument:
    """The same with the keys of a `penstock.subscription`, without an exchange: so whoever judges the lag of
    subscriptions judges that of a queue. Source: docs/decisions/109-queues.md.
    """
    state: StateDocument = {
        "queueName": node.name,
        "subscriptionName": node.name,
        "scope": "Global",
        "clientId": None,
        "sharing": "Shared",
        "durable": node.durable,
        "expiryPolicy": "Never",
        "exchange": "",
        "bindingKeys": [],
        "headerBindings": [],
        "selector": None,
        "noLocal": False,
        "deadLetter": node.queue.policy.dead_letter,
        "owner": cast(Value, node.owner.to_wire()) if node.owner is not None else None,
        "user": None,
        "incarnation": node.queue.incarnation,
        "revision": node.revision,
    }
    return {**state, **counters(node.queue, held, _histogram)}


def counters(queue: Queue, held: InFlight, histogram: Callable[[Histogram], Value]) -> StateDocument:
    """How a queue stands, and what it has counted; `histogram` makes the values of its histograms."""
    oldest_us, hold_us = _oldest(queue, held)
    consumers = queue.links.consumers
    containers: list[Value] = list(dict.fromkeys(each.connection.client.container_id for each in consumers))
    ready, kept_back = queue.waiting, queue.kept_back
    usable_consumers, usable = usable_credit.for_first_message(queue) if ready and consumers else (0, 0)
    first_us, last_us = due_times.expiry_of_ends(queue)
    return {
        "depth": ready + queue.in_flight + kept_back,
        "depthBytes": queue.depth_bytes,
        "ready": ready,
        "inFlight": queue.in_flight,
        "scheduled": kept_back,
        "stranded": len(queue.stranded),
        "oldestAvailableMs": oldest_us // 1000 if oldest_us else None,
        "oldestHoldMs": hold_us // 1000 if hold_us else None,
        "firstExpiresMs": first_us // 1000 if first_us else None,
        "lastExpiresMs": last_us // 1000 if last_us else None,
        "consumers": len(consumers),
        "credit": sum(max(each.link.credit, 0) for each in consumers),
        "usableConsumers": usable_consumers,
        "usableCredit": usable,
        "containers": containers[:MAX_CONTAINERS],
        "consumerTotals": consumer_totals(consumers),
        "unusedSinceMs": None if consumers else queue.links.unused_since_us // 1000,
        "enqueued": queue.totals.enqueued,
        "enqueuedBytes": queue.totals.enqueued_bytes,
        "recovered": queue.totals.recovered,
        "recoveredBytes": queue.totals.recovered_bytes,
        "delivered": queue.totals.delivered,
        "redelivered": queue.totals.redelivered,
        "acked": queue.totals.acked,
        "returned": queue.totals.returned,
        "expired": queue.totals.expired,
        "deadLettered": queue.totals.dead_lettered,
        "moved": queue.totals.moved,
        "dropped": queue.totals.dropped,
        "purged": queue.totals.purged,
        "lostAtRestart": queue.totals.lost_at_restart,
        "maxDeliveryCount": queue.totals.max_delivery_count,
        "sojourn": histogram(queue.totals.sojourn),
        "wait": histogram(queue.totals.wait),
        "hold": histogram(queue.totals.hold),
        "repeated": repeated_messages(queue),
    }


def _oldest(queue: Queue, held: InFlight) -> tuple[int, int]:
    # What was in flight when `held` was made may have been settled since.
    available_us, hold_us = held.get(queue, (0, 0)) if queue.in_flight else (0, 0)
    heads = [since for since in (queue.oldest_available_us(), available_us) if since]
    return min(heads, default=0), hold_us


def _histogram(histogram: Histogram) -> Value:
    document = histogram.snapshot()
    return {"indexes": list(document.indexes), "counts": list(document.counts), "sumMs": document.sum_ms}


def exchange_state(exchange: Exchange) -> StateDocument:
    """A `penstock.exchange`."""
    return {
        "name": exchange.name,
        "exchangeType": exchange.type.value,
        "durable": exchange.durable,
        "unroutable": exchange.unroutable.value,
        "owner": cast(Value, exchange.owner.to_wire()) if exchange.owner is not None else None,
        "revision": exchange.revision,
        "boundSubscriptions": len(exchange.router.handles),
        "received": exchange.received,
        "receivedBytes": exchange.received_bytes,
        "unroutableMessages": exchange.unroutable_messages,
        "unselectedMessages": exchange.unselected_messages,
    }


def broker_state(broker: Broker) -> StateDocument:
    """The `penstock.broker`."""
    topology, log = broker.topology, broker.log
    is_taken = log.accepts_publishing() or log.makes_room()
    durable_work = "Failed" if log.failed is not None else "Ok" if is_taken else "Full"
    return {
        "instanceId": broker.instance.id,
        "epoch": log.epoch,
        "version": VERSION,
        "startedMs": broker.instance.started_us // 1000,
        "nowMs": broker.clock.now_us // 1000,
        "connections": len(broker.clients.connections),
        "subscriptions": len(topology.subscriptions),
        "clientSubscriptions": len(topology.client_subscriptions),
        "exchanges": len(topology.exchanges),
        "queues": len(topology.queues),
        "topologyRevision": topology.revision,
        "durableWork": durable_work,
        "storageLevel": broker.storage.level.value,
        "volumeBytes": broker.storage.total_bytes,
        "volumeUsedBytes": broker.storage.used_bytes,
        "storageRefused": broker.storage.refused,
        "memoryLevel": broker.memory.level.value,
        "memoryBytes": broker.memory.budget,
        "memoryUsedBytes": broker.memory.used,
        "memoryRefused": broker.memory.refused,
        "largestQueues": [
            {
                "queueName": each.name,
                "isSubscription": each.is_subscription,
                "depthBytes": each.depth_bytes,
                "consumers": each.consumers,
            }
            for each in broker.storage.largest
        ],
        "logBytes": log.segments * broker.settings.log.segment_bytes,
        "logSegments": log.segments,
        "logSyncs": broker.sync.syncs,
        "turns": broker.clock.turns,
        "contestedContainers": [
            {"containerId": each.container_id, "takeovers": each.takeovers, "lastMs": each.last_us // 1000}
            for each in broker.clients.contests.now(broker.clock.now_ms)
        ],
        "transactionsCommitted": broker.transactions.committed,
        "transactionsRolledBack": broker.transactions.rolled_back,
        "refusals": dict[Value, Value](broker.clients.rejections.totals().items()),
        "audits": [name for name, audit in broker.audits.items() if not audit.is_fetched],
        "understands": _VOCABULARY,
        **_open_transactions(transactions_of(each) for each in broker.clients.connections.values()),
    }


def connection_state(connection: Connection) -> StateDocument:
    """A `penstock.connection`."""
    return {
        "id": str(connection.number),
        "containerId": connection.client.container_id,
        "user": connection.login.user,
        "peer": connection.transport.peer,
        "listener": connection.listener.name,
        "openedMs": connection.opened_us // 1000,
        "links": len(connection.endpoint.all_links()),
        "properties": dict[Value, Value](connection.client.properties.items()),
        **_open_transactions((transactions_of(connection),)),
    }


def _open_transactions(ledgers: Iterable[ConnectionTransactions | None]) -> StateDocument:
    count, since_us = 0, 0
    for ledger in ledgers:
        if ledger is not None:
            count += len(ledger.by_id)
            begun = ledger.oldest_work_us
            since_us = min(since_us, begun) if since_us and begun else since_us or begun
    return {"openTransactions": count, "oldestTransactionMs": since_us // 1000 if since_us else None}


def _selector(receiver: Consumer | Browser) -> str | None:
    selector = receiver.cursor.selector if receiver.cursor is not None else None
    return selector.text if selector is not None else None


def link_id(connection: Connection, number: int) -> str:
    """The id of a link: the connection's, and its place among the links of that connection."""
    return f"{connection.number}-{number}"


def is_told(link: InLink | OutLink) -> bool:
    """True of links that publish, consume or browse; the others have no state document."""
    return isinstance(link.context, Consumer | Browser | Producer)


def queue_name_of(link: InLink | OutLink) -> str | None:
    """The queue from which a link receives; None if it does not."""
    return link.context.queue.name if isinstance(link.context, Consumer | Browser) else None


def link_state(connection: Connection, number: int, link: InLink | OutLink) -> StateDocument | None:
    """A `penstock.link`; None if it has ended. `number`: its place among the links of its connection."""
    context = link.context
    state: StateDocument = {
        "id": link_id(connection, number),
        "connection": str(connection.number),
        "name": link.name,
    }
    match context:
        case Consumer() | Browser():
            return state | {
                "role": "Receiver",
                "address": context.queue.name,
                "queueName": context.queue.name,
                "credit": max(context.link.credit, 0),
                "unsettled": connection.endpoint.unsettled.count_on(context.link),
                "transfers": context.link.transfers,
                "selector": _selector(context),
                "priority": context.priority if isinstance(context, Consumer) else 0,
            }
        case Producer():
            return state | {
                "role": "Sender",
                "address": _target(context),
                "queueName": None,
                "credit": context.window - context.owed_credit,
                "unsettled": 0,
                "transfers": context.transfers,
                "selector": None,
                "priority": 0,
            }
        case _:
            return None


def _target(producer: Producer) -> str:
    match producer.destination:
        case ExchangeTarget(exchange=exchange, key=key):
            return exchange.name if key is None else f"{exchange.name}/{key}"
        case QueueTarget(node=node):
            return node.name
        case _:
            return ""
