"""The topology of the broker: finds, makes, changes and ends exchanges, subscriptions and queues.

It writes what lasts to the log. It applies decisions of `penstock_core` and takes none. The order that durability needs
can be seen in each method: first the record, then the state; the reply is the caller's and waits for the sync. Must not
know links' engines or sockets. Source: docs/decisions/036-what-is-durable.md and 037-answer-after-sync.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock_broker.log import Log
from penstock_broker.queue.disposal import Disposal
from penstock_broker.queue.queue import Queue
from penstock_broker.topology import documents
from penstock_broker.topology.client_subscriptions import ClientSubscriptions
from penstock_broker.topology.entity_list import EntityList
from penstock_broker.topology.queue_policies import QueueDefaults
from penstock_broker.topology.records import Exchange, PointToPointQueue, Subscription, Temporary, new_router
from penstock_broker.topology.state_changes import StateChanges
from penstock_core.address import PREDEFINED
from penstock_core.attach import Create, Join, Rebind
from penstock_core.binding import Binding
from penstock_core.existing_subscription import ExistingSubscription
from penstock_core.header_routing import HeadersRouter
from penstock_core.identity import Identity, LinkKey, parse_queue_name
from penstock_core.routing import Router
from penstock_core.subscription_lifetime import outlives_process
from penstock_core.terms import ExchangeType, NodeKind

__all__ = ["Topology"]


DEFAULT_EXCHANGES: Final = tuple(PREDEFINED.items())


class Topology:
    """All that exists on this broker. Names are looked up here (`penstock_core.address.Directory`)."""

    def __init__(self, log: Log, defaults: QueueDefaults | None = None) -> None:
        self._log = log
        self._defaults = defaults or QueueDefaults()
        self.exchanges: dict[str, Exchange] = {}
        self.subscriptions: dict[Identity, Subscription] = {}
        self.queues: dict[str, PointToPointQueue] = {}
        self.by_incarnation: dict[int, Subscription | PointToPointQueue] = {}
        self.made_by_name: dict[NodeKind, set[str]] = {kind: set() for kind in NodeKind}
        """What auto-creation made."""
        self.client_subscriptions = ClientSubscriptions()
        """How many clients have made."""
        self.disposal = Disposal()
        """What ended queues held, to be freed in slices."""
        self.state_changes = StateChanges()
        """Of the subscriptions, and of the queues that a resource has declared, for those who poll."""
        self.has_unsynced = False
        """A record of this turn's block describes the topology; cleared when the block is written."""
        self.revision = 1
        """Grows with each change of a declaration."""
        self.exchange_list = EntityList[Exchange]()
        self.subscription_list = EntityList[Subscription]()
        self.queue_list = EntityList[PointToPointQueue]()
        for name, kind in DEFAULT_EXCHANGES:
            exchange = self.exchanges[name] = Exchange(name=name, type=kind, router=new_router(kind))
            self.exchange_list.revise(name, exchange, 0)

    # -- looking up -------------------------------------------------------------------------------------------------

    def has_queue(self, name: str) -> bool:
        """True if there is a point-to-point queue of this name."""
        return name in self.queues

    def subscription_of_queue(self, name: str) -> Subscription | None:
        """The subscription whose queue has this name; None if it is none, or not there."""
        identity = parse_queue_name(name)
        return None if identity is None else self.subscriptions.get(identity)

    def watched(self, queue_name: str) -> Subscription | PointToPointQueue | None:
        """The subscription or the queue of a resource whose changes `state_changes` has under this name."""
        node = self.queues.get(queue_name)
        if node is not None:
            return node if node.owner is not None else None
        return self.subscription_of_queue(queue_name)

    def exchange_type(self, name: str) -> ExchangeType | None:
        """The type of the exchange of this name; None if there is none."""
        exchange = self.exchanges.get(name)
        return None if exchange is None else exchange.type

    def existing(self, identity: Identity) -> ExistingSubscription | None:
        """What the rules need to know of a subscription; None if it is not there."""
        subscription = self.subscriptions.get(identity)
        return None if subscription is None else subscription.existing()

    def bound(self, exchange: str) -> list[Subscription]:
        """The subscriptions bound to an exchange."""
        return [each for each in self.subscriptions.values() if each.binding.exchange == exchange]

    def next_incarnation(self) -> int:
        """The number of a new life of a queue."""
        return self._log.next_incarnation()

    # -- exchanges --------------------------------------------------------------------------------------------------

    def put_exchange(self, exchange: Exchange) -> None:
        """Make an exchange, or write down that one changed."""
        if exchange.temporary is None:
            self._record(documents.EXCHANGE, exchange.name, documents.dump(exchange))
        self.exchange_list.revise(exchange.name, exchange, self.next_revision())
        exchange.version += 1
        self.exchanges[exchange.name] = exchange
        self._note_made_by_name(NodeKind.TOPIC, exchange.name, exchange.made_by_name)
        if exchange.temporary is not None:
            return  # its name is new: nothing can be bound to it
        for subscription in self.bound(exchange.name):
            self._apply_policies(subscription)
            self._bind(subscription)

    def restore_exchange(self, exchange: Exchange) -> None:
        """Put an exchange in its place that the log knows already; subscriptions come after."""
        self.exchange_list.revise(exchange.name, exchange, self.next_revision())
        self.exchanges[exchange.name] = exchange
        self._note_made_by_name(NodeKind.TOPIC, exchange.name, exchange.made_by_name)

    def delete_exchange(self, name: str) -> None:
        """Take an exchange away; subscriptions that are bound to it stay and get nothing more."""
        exchange = self.exchanges.pop(name)
        self._note_made_by_name(NodeKind.TOPIC, name, False)
        if exchange.temporary is None:
            self._erase(documents.EXCHANGE, name)
        exchange.router = new_router(exchange.type)
        exchange.version += 1
        self.exchange_list.remove(name, self.next_revision())

    # -- subscriptions ----------------------------------------------------------------------------------------------

    def create(self, decision: Create, now_us: int) -> Subscription:
        """Make and bind the subscription that a client's attach asks for."""
        subscription = self._asked(decision, self._log.next_incarnation(), now_us)
        self.add(subscription)
        return subscription

    def draft(self, decision: Create | Join | Rebind, now_us: int) -> Subscription:
        """The subscription as it would be; nothing is made or changed."""
        match decision:
            case Create():
                draft = self._asked(decision, 0, now_us)
                draft.queue.name = draft.name
                return draft
            case Join():
                draft = replace(self.subscriptions[decision.existing.identity])
            case Rebind():
                draft = replace(self.subscriptions[decision.existing.identity], binding=decision.binding)
        if decision.claims is not None:
            draft.owner_link = decision.claims
        return draft

    def _asked(self, decision: Create, incarnation: int, now_us: int) -> Subscription:
        exchange = self.exchanges[decision.binding.exchange]
        logged = outlives_process(decision.identity.durable, decision.lifetime)
        return Subscription(
            identity=decision.identity,
            exclusivity=decision.exclusivity,
            lifetime=decision.lifetime,
            binding=decision.binding,
            exchange_type=exchange.type,
            queue=Queue("", incarnation, is_logged=logged, now_us=now_us),
            owner_link=decision.owner,
            user=decision.user,
        )

    def add(self, subscription: Subscription) -> None:
        """Write down and bind a new subscription."""
        subscription.queue.name = subscription.name
        self.write(subscription)
        self.restore(subscription)

    def restore(self, subscription: Subscription) -> None:
        """Put a subscription in its place that the log knows already."""
        self.subscriptions[subscription.identity] = subscription
        self.client_subscriptions.note(subscription)
        self.state_changes.watch(subscription.queue)
        self.by_incarnation[subscription.queue.incarnation] = subscription
        self._apply_policies(subscription)
        self._bind(subscription)

    def rebind(self, decision: Rebind, now_us: int) -> Subscription:
        """Drop the backlog and start a new incarnation with another binding."""
        subscription = self.subscriptions[decision.existing.identity]
        self.drop_and_rebind(subscription, decision.binding, now_us)
        return subscription

    def drop_and_rebind(self, subscription: Subscription, binding: Binding, now_us: int) -> None:
        """A new incarnation with `binding`; the messages of the old one are gone in one record."""
        self._unbind(subscription)
        del self.by_incarnation[subscription.queue.incarnation]
        old = subscription.queue
        subscription.queue = Queue(
            subscription.name, self._log.next_incarnation(), is_logged=subscription.is_logged, now_us=now_us
        )
        subscription.binding = binding
        subscription.exchange_type = self.exchanges[binding.exchange].type
        self.write(subscription)
        self._dispose_of(old)
        self.restore(subscription)

    def rebind_in_place(self, subscription: Subscription, binding: Binding) -> None:
        """From one record on the new binding holds; backlog and consumers stay."""
        self._unbind(subscription)
        subscription.binding = binding
        subscription.exchange_type = self.exchanges[binding.exchange].type
        self.client_subscriptions.note(subscription)
        self.write(subscription)
        self._apply_policies(subscription)
        self._bind(subscription)

    def claim(self, subscription: Subscription, owner: LinkKey) -> None:
        """Record the link that owns a not-shared subscription from now on."""
        subscription.owner_link = owner
        self.changed(subscription)  # no-local may go by the owner

    def changed(self, subscription: Subscription) -> None:
        """Write down that the owner mark, limits or policies of a subscription have changed."""
        self.client_subscriptions.note(subscription)
        self.write(subscription)
        self._apply_policies(subscription)
        self._policies_changed(subscription.binding.exchange)

    def end(self, subscription: Subscription) -> None:
        """The subscription is gone, and its backlog with it. Its consumers are the caller's."""
        if subscription.is_logged:
            self._erase(documents.SUBSCRIPTION, subscription.name)
        self._unbind(subscription)
        del self.subscriptions[subscription.identity]
        self.client_subscriptions.forget(subscription)
        self.state_changes.end(subscription.name)
        del self.by_incarnation[subscription.queue.incarnation]
        self._dispose_of(subscription.queue)
        self.subscription_list.remove(subscription.name, self.next_revision())

    def revise(self, subscription: Subscription) -> None:
        """Give it the next revision: it is new here, or its declaration changed."""
        self.subscription_list.revise(subscription.queue.name, subscription, self.next_revision())

    def write(self, subscription: Subscription) -> None:
        """Write the document of a subscription that lasts."""
        subscription.queue.note_change()
        if subscription.is_logged:
            payload = documents.dump(subscription)
            subscription.noted_unused_us = subscription.queue.links.unused_since_us
            self._record(documents.SUBSCRIPTION, subscription.name, payload, subscription.queue.incarnation)
        elif subscription.is_recorded:
            self._erase(documents.SUBSCRIPTION, subscription.name)  # its lifetime was a permanent one
        subscription.is_recorded = subscription.is_logged
        self.revise(subscription)

    def note(self, subscription: Subscription) -> None:
        """Record since when a lasting subscription is unused. The caller does not wait for the sync, as no promise
        depends on it."""
        subscription.noted_unused_us = subscription.queue.links.unused_since_us
        payload = documents.dump(subscription)
        self._log.topology(documents.SUBSCRIPTION, subscription.name, payload, subscription.queue.incarnation)

    # -- point-to-point queues --------------------------------------------------------------------------------------

    def make_queue(
        self,
        name: str,
        *,
        durable: bool,
        now_us: int,
        temporary: Temporary | None = None,
        made_by_name: bool = False,
    ) -> PointToPointQueue:
        """Make a queue of its own, with default policies."""
        queue = Queue(name, self._log.next_incarnation(), is_logged=durable, now_us=now_us)
        node = PointToPointQueue(
            name=name, durable=durable, queue=queue, temporary=temporary, made_by_name=made_by_name
        )
        self.put_queue(node)
        return node

    def put_queue(self, node: PointToPointQueue) -> None:
        """Put a queue in its place, or write down that its policies changed."""
        if node.durable:
            self._record(documents.QUEUE, node.name, documents.dump(node), node.queue.incarnation)
        self.restore_queue(node)

    def restore_queue(self, node: PointToPointQueue) -> None:
        """Put a queue in its place that the log knows already."""
        self.queue_list.revise(node.name, node, self.next_revision())
        if node.owner is not None:
            self.state_changes.watch(node.queue)
        self._defaults.apply_to_queue(node)
        self.queues[node.name] = node
        self._note_made_by_name(NodeKind.QUEUE, node.name, node.made_by_name)
        self.by_incarnation[node.queue.incarnation] = node

    def delete_queue(self, name: str) -> PointToPointQueue:
        """Take a queue away with its messages. Its consumers are the caller's."""
        node = self.queues.pop(name)
        self._note_made_by_name(NodeKind.QUEUE, name, False)
        if node.owner is not None:
            self.state_changes.end(name)
        if node.durable:
            self._erase(documents.QUEUE, name)
        del self.by_incarnation[node.queue.incarnation]
        self._dispose_of(node.queue)
        self.queue_list.remove(name, self.next_revision())
        return node

    # -- inside -----------------------------------------------------------------------------------------------------

    def is_current(self, queue: Queue) -> bool:
        """False if the queue's life has ended."""
        record = self.by_incarnation.get(queue.incarnation)
        return record is not None and record.queue is queue

    def next_revision(self) -> int:
        """One revision further."""
        self.revision += 1
        return self.revision

    def _dispose_of(self, queue: Queue) -> None:
        """A record of the log has ended the queue's life: what it held is freed in slices."""
        self.state_changes.unwatch(queue)
        self._log.end_volatile(queue.incarnation)
        self.disposal.add(*queue.end())
        queue.admits = None  # it may refer to the queue

    def _note_made_by_name(self, kind: NodeKind, name: str, made_by_name: bool) -> None:
        names = self.made_by_name[kind]
        (names.add if made_by_name else names.discard)(name)

    def _record(self, kind: str, key: str, payload: bytes, incarnation: int = 0) -> None:
        self._log.topology(kind, key, payload, incarnation)
        self.has_unsynced = True

    def _erase(self, kind: str, key: str) -> None:
        self._log.delete(kind, key)
        self.has_unsynced = True

    def _bind(self, subscription: Subscription) -> None:
        exchange = self.exchanges.get(subscription.binding.exchange)
        if exchange is not None:
            match exchange.router:
                case HeadersRouter():
                    exchange.router.bind(subscription.queue, subscription.binding.headers)
                case Router():
                    exchange.router.bind(subscription.queue, subscription.binding.keys)
            exchange.version += 1

    def _unbind(self, subscription: Subscription) -> None:
        exchange = self.exchanges.get(subscription.binding.exchange)
        if exchange is not None:
            exchange.router.unbind(subscription.queue)
            exchange.version += 1

    def _policies_changed(self, name: str) -> None:
        """Make producers look at the queues' policies again."""
        exchange = self.exchanges.get(name)
        if exchange is not None:
            exchange.version += 1

    def _apply_policies(self, subscription: Subscription) -> None:
        exchange = self.exchanges.get(subscription.binding.exchange)
        self._defaults.apply_to_subscription(subscription, exchange)
