"""The topology as documents of the log: what is written when it changes, and how it is read back at start.

The format is private to the broker: JSON, one document per exchange, subscription and queue. Keys that a later release
wrote are passed over, so that its volume can be gone back with. Must not know the log.
"""

from __future__ import annotations

import json
from typing import Any, Final

from penstock_api import management
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


def managed_of(owner: management.Owner | None, client_overrides: str) -> OwnerMark | None:
    """What the rules need to know of the owner mark of a managed subscription; None: it has none."""
    if owner is None:
        return None
    resource = f"{owner.namespace}/{owner.name}"
    return OwnerMark(resource, owner.uid, owner.cluster_id, ClientOverrides(client_overrides))


def dump(record: Exchange | Subscription | PointToPointQueue) -> bytes:
    """The document of `record`."""
    match record:
        case Exchange():
            fields = _exchange(record)
        case Subscription():
            fields = _subscription(record)
        case PointToPointQueue():
            fields = {
                "durable": record.durable,
                "madeByName": record.made_by_name,
                "persistence": record.persistence.value if record.persistence else None,
                "limits": record.limits.to_wire(),
                "delivery": record.delivery.to_wire() if record.delivery else None,
            }
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()


def _exchange(exchange: Exchange) -> dict[str, object]:
    return {
        "type": exchange.type.value,
        "unroutable": exchange.unroutable.value,
        "alternate": exchange.alternate,
        "madeByName": exchange.made_by_name,
        "persistence": exchange.persistence.value if exchange.persistence else None,
        "owner": exchange.owner.to_wire() if exchange.owner else None,
    }


def _subscription(subscription: Subscription) -> dict[str, object]:
    binding = subscription.binding
    link = subscription.owner_link
    return {
        "scope": subscription.identity.scope.container_id,
        "name": subscription.identity.name,
        "exclusivity": subscription.exclusivity.value,
        "exchange": binding.exchange,
        "exchangeType": subscription.exchange_type.value,
        "keys": list(binding.ordered_keys),
        "headers": [{"match": each.match.value, "headers": each.headers} for each in ordered_bindings(binding.headers)],
        "selector": binding.filter.selector,
        "noLocal": binding.filter.no_local,
        "ownerLink": [link.container_id, link.link_name] if link else None,
        "user": subscription.user,
        "persistence": subscription.persistence.value if subscription.persistence else None,
        "limits": subscription.limits.to_wire(),
        "delivery": subscription.delivery.to_wire() if subscription.delivery else None,
        "rebindPolicy": subscription.rebind_policy,
        "clientOverrides": subscription.client_overrides,
        "owner": subscription.owner.to_wire() if subscription.owner else None,
        "lostAtRestart": subscription.queue.totals.lost_at_restart,
        "unusedSince": subscription.queue.links.unused_since_us,
    }


def load_exchange(name: str, payload: bytes) -> Exchange:
    """The exchange of a document."""
    fields: dict[str, Any] = json.loads(payload)
    kind = ExchangeType(fields["type"])
    return Exchange(
        name=name,
        type=kind,
        unroutable=Unroutable(fields["unroutable"]),
        alternate=fields["alternate"],
        made_by_name=fields.get("madeByName", False),
        persistence=_persistence(fields["persistence"]),
        owner=_owner(fields["owner"]),
        router=new_router(kind),
    )


def load_subscription(payload: bytes, incarnation: int, now_us: int) -> Subscription:
    """The subscription of a document, its queue still empty. Only durable, permanent ones have documents."""
    fields: dict[str, Any] = json.loads(payload)
    identity = Identity(Scope(fields["scope"]), fields["name"], True)
    owner = _owner(fields["owner"])
    binding = Binding(
        fields["exchange"],
        frozenset(fields["keys"]),
        Filter(fields["selector"], fields["noLocal"]),
        frozenset(
            header_binding(HeaderMatch(each["match"]), each["headers"])
            for each in fields.get("headers", ())  # versions before Headers exchanges wrote none
        ),
    )
    subscription = Subscription(
        identity=identity,
        exclusivity=Exclusivity(fields["exclusivity"]),
        lifetime=Lifetime.PERMANENT,
        binding=binding,
        exchange_type=ExchangeType(fields["exchangeType"]),
        queue=Queue("", incarnation, is_logged=True, now_us=now_us),
        owner_link=LinkKey(*fields["ownerLink"]) if fields["ownerLink"] else None,
        user=fields["user"],
        is_recorded=True,
        persistence=_persistence(fields["persistence"]),
        limits=management.QueueLimits.read(fields["limits"]),
        delivery=_delivery(fields.get("delivery")),
        rebind_policy=fields["rebindPolicy"],
        client_overrides=fields["clientOverrides"],
        owner=owner,
        managed=managed_of(owner, fields["clientOverrides"]),
    )
    subscription.queue.name = subscription.name
    subscription.queue.totals.lost_at_restart = fields["lostAtRestart"]
    subscription.noted_unused_us = fields.get("unusedSince", 0)
    # If it had a consumer when the broker stopped, it is unused since now. Documents of version 1 do not say it.
    subscription.queue.links.unused_since_us = subscription.noted_unused_us or now_us
    return subscription


def load_queue(name: str, payload: bytes, incarnation: int, now_us: int) -> PointToPointQueue:
    """The point-to-point queue of a document, still empty."""
    fields: dict[str, Any] = json.loads(payload)
    return PointToPointQueue(
        name=name,
        durable=fields["durable"],
        made_by_name=fields.get("madeByName", False),
        queue=Queue(name, incarnation, is_logged=fields["durable"], now_us=now_us),
        persistence=_persistence(fields["persistence"]),
        limits=management.QueueLimits.read(fields["limits"]),
        delivery=_delivery(fields.get("delivery")),
    )


def _persistence(value: str | None) -> Persistence | None:
    return None if value is None else Persistence(value)


def _delivery(value: dict[str, Any] | None) -> management.DeliveryPolicy | None:
    """Documents of the first version have none."""
    return None if value is None else management.DeliveryPolicy.read(value)


def _owner(value: dict[str, Any] | None) -> management.Owner | None:
    return None if value is None else management.Owner.read(value)
