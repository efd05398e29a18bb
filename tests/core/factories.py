"""Requests and facts for the tests of the rules; a test names only what matters to it."""

from __future__ import annotations

from penstock_core.attach import AskedSource, AttachRequest
from penstock_core.binding import NO_FILTER, Binding, Filter
from penstock_core.existing_subscription import ExistingSubscription, LiveLink, OwnerMark, TopicLink
from penstock_core.identity import GLOBAL, Identity, LinkKey, Scope
from penstock_core.terms import ClientOverrides, Durability, ExchangeType, Exclusivity, ExpiryPolicy, Lifetime

ANN = "ann"
BOB = "bob"
CONTAINER = "client-1"


def asked(
    exchange: str = "orders",
    keys: frozenset[str] | None = None,
    filter: Filter = NO_FILTER,
    exchange_type: ExchangeType = ExchangeType.TOPIC,
    address: str | None = None,
) -> AskedSource:
    """A source; its address is written from exchange and key unless given."""
    written = exchange if keys is None else f"{exchange}/{','.join(sorted(keys))}"
    return AskedSource(
        address=written if address is None else address,
        exchange=exchange,
        exchange_type=exchange_type,
        keys=keys,
        filter=filter,
    )


def attaching(
    link_name: str = "sub",
    *,
    shared: bool = False,
    global_: bool = False,
    durability: int = 0,
    expiry: ExpiryPolicy | None = ExpiryPolicy.NEVER,
    source: AskedSource | None = None,
    null_source: bool = False,
    container_id: str = CONTAINER,
    user: str = ANN,
    may_use_others: bool = False,
    nonce: str = "n1",
) -> AttachRequest:
    """An attach; with a source of exchange `orders` unless it is null."""
    return AttachRequest(
        container_id=container_id,
        link_name=link_name,
        user=user,
        shared=shared,
        global_=global_,
        durability=Durability(durability),
        expiry=expiry,
        source=None if null_source else (source or asked()),
        may_use_others=may_use_others,
        nonce=nonce,
    )


def identity(name: str = "sub", *, container_id: str | None = None, durable: bool = True) -> Identity:
    """A subscription's identity; global without a container."""
    return Identity(GLOBAL if container_id is None else Scope(container_id), name, durable)


def there(
    what: Identity,
    *,
    exclusivity: Exclusivity = Exclusivity.SHARED,
    lifetime: Lifetime = Lifetime.PERMANENT,
    exchange: str = "orders",
    keys: frozenset[str] = frozenset({"#"}),
    filter: Filter = NO_FILTER,
    exchange_type: ExchangeType = ExchangeType.TOPIC,
    consumers: int = 0,
    owner: LinkKey | None = None,
    user: str | None = ANN,
    managed: OwnerMark | None = None,
) -> ExistingSubscription:
    """What the store holds; bound to everything of `orders` unless told."""
    return ExistingSubscription(
        identity=what,
        incarnation=7,
        exclusivity=exclusivity,
        lifetime=lifetime,
        binding=Binding(exchange, keys, filter),
        exchange_type=exchange_type,
        consumers=consumers,
        owner=owner,
        user=user,
        managed=managed,
    )


def resource(overrides: ClientOverrides = ClientOverrides.REFUSE, *, name: str = "shop/orders-eu") -> OwnerMark:
    """The mark of a resource."""
    return OwnerMark(name, uid="u1", cluster_id="c1", client_overrides=overrides)


def live(
    what: Identity | None,
    *,
    shared: bool = False,
    global_: bool = False,
    durable: bool = False,
    user: str = ANN,
) -> LiveLink:
    """A link on a topic that is attached now."""
    return LiveLink(kind=TopicLink(shared, global_, durable), identity=what, user=user)
