"""What the reply to an attach says about its source: the truth (decisions 2, 7, 8, 14).

Asked and existing may differ in lifetime, durability, binding or filter; the attach succeeds and the reply tells what
is there. Source: the attach table ("the source fields in the reply should be modified accordingly"), decisions 2, 7, 8,
11, 14 and 17.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from penstock_core.attach import AskedSource, AttachRequest, Create, FoundSubscription, Join, Rebind
from penstock_core.attach_table import SHARED_SUBS, TABLE, AttachKey
from penstock_core.binding import Binding, Filter, default_keys
from penstock_core.header_bindings import HeaderBinding, ordered_bindings
from penstock_core.identity import Identity
from penstock_core.terms import (
    DistributionMode,
    Durability,
    ExchangeType,
    Exclusivity,
    ExpiryPolicy,
    Lifetime,
    expiry_of,
)

__all__ = ["SourceReply", "binding_address", "source_reply"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReply:
    """The source fields of an attach reply, and the capabilities that the link is offered."""

    address: str
    durability: Durability
    """None or Configuration: unsettled state can't be resumed (decision 2)."""
    expiry: ExpiryPolicy
    distribution_mode: DistributionMode
    capabilities: tuple[str, ...]
    filter: Filter
    """What is in place, whatever was asked."""
    binding_keys: tuple[str, ...]
    """What is bound; an address can tell only one key."""
    keys_beyond_address: tuple[str, ...]
    """Those of the binding keys that neither the address nor a filter of the client's own tells."""
    header_bindings: tuple[HeaderBinding, ...]
    exchange_type: ExchangeType
    offered_capabilities: tuple[str, ...] = (SHARED_SUBS,)


def source_reply(request: AttachRequest, decision: Create | Join | Rebind | FoundSubscription) -> SourceReply:
    """The reply to ``request`` once ``decision`` is applied."""
    match decision:
        case Create():
            identity, lifetime, binding = decision.identity, decision.lifetime, decision.binding
            exclusivity, exchange_type = decision.exclusivity, _asked(request).exchange_type
        case Rebind():
            identity, lifetime, binding = decision.existing.identity, decision.existing.lifetime, decision.binding
            exclusivity, exchange_type = decision.existing.exclusivity, _asked(request).exchange_type
        case Join() | FoundSubscription():
            there = decision.existing
            identity, lifetime, binding = there.identity, there.lifetime, there.binding
            exclusivity, exchange_type = there.exclusivity, there.exchange_type
        case _:
            assert_never(decision)
    return _reply(request.source, identity, lifetime, binding, exclusivity, exchange_type)


def binding_address(binding: Binding, exchange_type: ExchangeType) -> str:
    """The address that means this binding; the exchange alone if its default, or more than one key, is bound."""
    if len(binding.keys) != 1 or binding.keys == default_keys(exchange_type):
        return binding.exchange
    (key,) = binding.keys
    return f"{binding.exchange}/{key}"


def _reply(
    asked: AskedSource | None,
    identity: Identity,
    lifetime: Lifetime,
    binding: Binding,
    exclusivity: Exclusivity,
    exchange_type: ExchangeType,
) -> SourceReply:
    spelling = _own_spelling(asked, binding)
    told = spelling is not None or len(binding.keys) == 1
    return SourceReply(
        address=spelling or binding_address(binding, exchange_type),
        durability=Durability.CONFIGURATION if identity.durable else Durability.NONE,
        expiry=expiry_of(lifetime),
        distribution_mode=DistributionMode.MOVE,
        capabilities=TABLE[_key(identity, exclusivity)].capabilities,
        filter=binding.filter,
        binding_keys=binding.ordered_keys,
        keys_beyond_address=() if told else binding.ordered_keys,
        header_bindings=ordered_bindings(binding.headers),
        exchange_type=exchange_type,
    )


def _key(identity: Identity, exclusivity: Exclusivity) -> AttachKey:
    return AttachKey(exclusivity is Exclusivity.SHARED, identity.scope.is_global, identity.durable)


def _own_spelling(asked: AskedSource | None, binding: Binding) -> str | None:
    """The client's own spelling of the address, if what it asks for is what is bound, so that it recognises it."""
    if asked is None or asked.exchange != binding.exchange:
        return None
    asked_keys = default_keys(asked.exchange_type) if asked.keys is None else asked.keys
    return asked.address if asked_keys == binding.keys else None


def _asked(request: AttachRequest) -> AskedSource:
    assert request.source is not None, "only a source creates or rebinds"
    return request.source
