"""The topology as documents of the log: what is written when it changes, and how it is read back at start.

The format is private to the broker: JSON, one document per exchange, subscription and queue. Keys that a later release
wrote are ignored, so that an earlier release can use the volume again; keys that came after the first release have a
default. Must not know the log.
"""

from __future__ import annotations

import json
from typing import Final, Self

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from penstock_api.management import DeliveryPolicy, Owner, QueueLimits
from penstock_broker.queue.queue import Queue
from penstock_broker.topology.records import Exchange, PointToPointQueue, Subscription, new_router
from penstock_core.binding import Binding, Filter
from penstock_core.existing_subscription import OwnerMark
from penstock_core.header_bindings import HeaderMatch, header_binding, ordered_bindings
from penstock_core.identity import Identity, LinkKey, Scope
from penstock_core.terms import ClientOverrides, ExchangeType, Exclusivity, Lifetime, Persistence, Unroutable

__all__ = [
    "BROKER",
    "EXCHANGE",
    "QUEUE",
    "SUBSCRIPTION",
    "dump",
    "load_exchange",
    "load_queue",
    "load_subscription",
    "managed_of",
]

BROKER: Final = "broker"
EXCHANGE: Final = "exchange"
SUBSCRIPTION: Final = "subscription"
QUEUE: Final = "queue"


class TopologyDocument(BaseModel):
    """Base of the documents: camelCase keys, all of them written, unknown ones ignored."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)

    def dump(self) -> bytes:
        """The JSON of the log."""
        return json.dumps(self.model_dump(mode="json", by_alias=True), separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def load(cls, payload: bytes) -> Self:
        """The document in the log. Raises JSONDecodeError and ValidationError, which are ValueErrors."""
        # `extra` is said again, for the models of the management protocol inside, which refuse what they don't know.
        return cls.model_validate(json.loads(payload), extra="ignore")


class ExchangeDocument(TopologyDocument):
    """An exchange; its name is the document's key."""

    type: ExchangeType
    unroutable: Unroutable
    alternate: str | None
    made_by_name: bool = False
    persistence: Persistence | None
    owner: Owner | None
    publishers: tuple[str, ...] = ()


class HeadersDocument(TopologyDocument):
    """One binding to a Headers exchange."""

    match: HeaderMatch
    headers: dict[str, bool | int | float | str | None]


class SubscriptionDocument(TopologyDocument):
    """A durable, permanent subscription; others have no document."""

    scope: str | None
    """The container-id; null: the scope is global."""
    name: str
    exclusivity: Exclusivity
    exchange: str
    exchange_type: ExchangeType
    keys: tuple[str, ...]
    headers: tuple[HeadersDocument, ...] = ()
    selector: str | None
    no_local: bool
    owner_link: tuple[str, str] | None
    """Container-id and link name."""
    user: str | None
    persistence: Persistence | None
    limits: QueueLimits
    delivery: DeliveryPolicy | None = None
    rebind_policy: str
    client_overrides: str
    owner: Owner | None
    consumers: tuple[str, ...] = ()
    lost_at_restart: int
    unused_since: int = 0
    """Microseconds since the epoch; 0: it had a consumer when this was written."""


class QueueDocument(TopologyDocument):
    """A point-to-point queue; its name is the document's key."""

    durable: bool
    made_by_name: bool = False
    persistence: Persistence | None
    limits: QueueLimits
    delivery: DeliveryPolicy | None = None
    owner: Owner | None = None
    lost_at_restart: int = 0


def managed_of(owner: Owner | None, client_overrides: str) -> OwnerMark | None:
    """What the rules need to know of the owner mark of a managed subscription; None: it has none."""
    if owner is None:
        return None
    resource = f"{owner.namespace}/{owner.name}"
    return OwnerMark(resource, owner.uid, owner.cluster_id, ClientOverrides(client_overrides))


def dump(record: Exchange | Subscription | PointToPointQueue) -> bytes:
    """The document of `record`."""
    match record:
        case Exchange():
            return ExchangeDocument(
                type=record.type,
                unroutable=record.unroutable,
                alternate=record.alternate,
                made_by_name=record.made_by_name,
                persistence=record.persistence,
                owner=record.owner,
                publishers=record.publishers,
            ).dump()
        case Subscription():
            return subscription_document(record).dump()
        case PointToPointQueue():
            return QueueDocument(
                durable=record.durable,
                made_by_name=record.made_by_name,
                persistence=record.persistence,
                limits=record.limits,
                delivery=record.delivery,
                owner=record.owner,
                lost_at_restart=record.queue.totals.lost_at_restart,
            ).dump()


def subscription_document(subscription: Subscription) -> SubscriptionDocument:
    """What is written of a subscription."""
    binding = subscription.binding
    link = subscription.owner_link
    return SubscriptionDocument(
        scope=subscription.identity.scope.container_id,
        name=subscription.identity.name,
        exclusivity=subscription.exclusivity,
        exchange=binding.exchange,
        exchange_type=subscription.exchange_type,
        keys=tuple(binding.ordered_keys),
        headers=tuple(
            HeadersDocument(match=each.match, headers=dict(each.headers)) for each in ordered_bindings(binding.headers)
        ),
        selector=binding.filter.selector,
        no_local=binding.filter.no_local,
        owner_link=(link.container_id, link.link_name) if link else None,
        user=subscription.user,
        persistence=subscription.persistence,
        limits=subscription.limits,
        delivery=subscription.delivery,
        rebind_policy=subscription.rebind_policy,
        client_overrides=subscription.client_overrides,
        owner=subscription.owner,
        consumers=subscription.declared_consumers,
        lost_at_restart=subscription.queue.totals.lost_at_restart,
        unused_since=subscription.queue.links.unused_since_us,
    )


def load_exchange(name: str, payload: bytes) -> Exchange:
    """The exchange of a document."""
    document = ExchangeDocument.load(payload)
    return Exchange(
        name=name,
        type=document.type,
        unroutable=document.unroutable,
        alternate=document.alternate,
        made_by_name=document.made_by_name,
        persistence=document.persistence,
        owner=document.owner,
        publishers=document.publishers,
        router=new_router(document.type),
    )


def load_subscription(payload: bytes, incarnation: int, now_us: int) -> Subscription:
    """The subscription of a document, its queue still empty."""
    document = SubscriptionDocument.load(payload)
    binding = Binding(
        document.exchange,
        frozenset(document.keys),
        Filter(document.selector, document.no_local),
        frozenset(header_binding(each.match, each.headers) for each in document.headers),
    )
    subscription = Subscription(
        identity=Identity(Scope(document.scope), document.name, True),
        exclusivity=document.exclusivity,
        lifetime=Lifetime.PERMANENT,
        binding=binding,
        exchange_type=document.exchange_type,
        queue=Queue("", incarnation, is_logged=True, now_us=now_us),
        owner_link=LinkKey(*document.owner_link) if document.owner_link else None,
        user=document.user,
        is_recorded=True,
        persistence=document.persistence,
        limits=document.limits,
        delivery=document.delivery,
        rebind_policy=document.rebind_policy,
        client_overrides=document.client_overrides,
        owner=document.owner,
        managed=managed_of(document.owner, document.client_overrides),
        declared_consumers=document.consumers,
    )
    subscription.queue.name = subscription.name
    subscription.queue.totals.lost_at_restart = document.lost_at_restart
    subscription.noted_unused_us = document.unused_since
    # If it had a consumer when the broker stopped, it is unused since now.
    subscription.queue.links.unused_since_us = document.unused_since or now_us
    return subscription


def load_queue(name: str, payload: bytes, incarnation: int, now_us: int) -> PointToPointQueue:
    """The point-to-point queue of a document, still empty."""
    document = QueueDocument.load(payload)
    node = PointToPointQueue(
        name=name,
        durable=document.durable,
        made_by_name=document.made_by_name,
        queue=Queue(name, incarnation, is_logged=document.durable, now_us=now_us),
        persistence=document.persistence,
        limits=document.limits,
        delivery=document.delivery,
        owner=document.owner,
    )
    node.queue.totals.lost_at_restart = document.lost_at_restart
    return node
