"""What an attach of a consuming link asks for, and which subscriptions it may mean.

It must not know what exists: ``attach`` decides that. Source: the attach table, decisions 1, 2, 3 and 17
(docs/decisions).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from penstock_core.attach_table import NULL_SOURCE, TABLE, AttachKey, NameScope, Naming, NullSourceKey, Row
from penstock_core.binding import NO_FILTER, NO_HEADERS, Binding, Filter, default_keys
from penstock_core.existing_subscription import TopicLink
from penstock_core.header_bindings import HeaderBinding
from penstock_core.identity import GLOBAL, Identity, LinkKey, Scope, private_name, subscription_name, suffix_of
from penstock_core.terms import Durability, ExchangeType, ExpiryPolicy

__all__ = ["AskedSource", "AttachRequest", "binding_asked", "identities_to_look_up"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedSource:
    """A topic source as asked, its address already parsed (``address.parse_source``)."""

    address: str
    """The address as the client wrote it."""
    exchange: str
    exchange_type: ExchangeType
    keys: frozenset[str] | None
    """The binding keys; None if the address names the exchange alone."""
    filter: Filter = NO_FILTER
    headers: frozenset[HeaderBinding] | None = None
    """The header bindings, of a Headers exchange; None if no filter names any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachRequest:
    """What one attach of a consuming link asks for."""

    container_id: str
    link_name: str
    user: str
    shared: bool
    """From the source's capabilities, or from the link's desired ones if the source is null (decision 3)."""
    global_: bool
    durability: Durability = Durability.NONE
    expiry: ExpiryPolicy | None = None
    source: AskedSource | None
    """None: the source is null."""
    may_use_others: bool = False
    """The user may use what other users made (decision 16)."""
    nonce: str
    """A unique text for the queue's random name, should the row need one."""

    @property
    def link(self) -> LinkKey:
        """The link as AMQP identifies it."""
        return LinkKey(self.container_id, self.link_name)

    @property
    def kind(self) -> TopicLink:
        """The three words of the link (decision 5)."""
        return TopicLink(self.shared, self.global_, self.durability.is_durable)

    @property
    def row(self) -> Row:
        """The row of the table."""
        return TABLE[AttachKey(self.shared, self.global_, self.durability.is_durable)]


def identities_to_look_up(request: AttachRequest) -> tuple[Identity, ...]:
    """The subscriptions that the attach may mean, the row's own first; with a source it is exactly one."""
    if request.source is not None:
        return (_identity(request, request.row.naming, request.row.scope, request.durability.is_durable),)
    lookup = NULL_SOURCE[NullSourceKey(request.shared, request.global_)]
    own = _identity(request, lookup.naming, lookup.scope, True)
    if request.shared or request.global_:
        return (own,)
    # Decision 3: no capability came. Clients that can't send any name a global subscription by the suffix alone.
    scope = GLOBAL if suffix_of(request.link_name).startswith("global") else Scope(request.container_id)
    other = Identity(scope, subscription_name(request.link_name), True)
    return (own,) if other == own else (own, other)


def binding_asked(request: AttachRequest, source: AskedSource) -> Binding:
    """The binding that ``source``, the request's own, asks for, as far as it can be put in place."""
    keys = default_keys(source.exchange_type) if source.keys is None else source.keys
    # Decision 17: on a shared source no-local is not put in place.
    return Binding(
        source.exchange,
        keys,
        replace(source.filter, no_local=source.filter.no_local and not request.shared),
        source.headers or NO_HEADERS,
    )


def _identity(request: AttachRequest, naming: Naming, scope: NameScope, durable: bool) -> Identity:
    return Identity(_scope(request, scope), _name(request, naming), durable)


def _scope(request: AttachRequest, kind: NameScope) -> Scope:
    match kind:
        case NameScope.GLOBAL:
            return GLOBAL
        case NameScope.CONTAINER:
            return Scope(request.container_id)
        case _:
            assert_never(kind)


def _name(request: AttachRequest, naming: Naming) -> str:
    match naming:
        case Naming.RANDOM:
            return private_name(request.nonce)
        case Naming.LINK:
            return request.link_name
        case Naming.PREFIX:
            return subscription_name(request.link_name)
        case _:
            assert_never(naming)
