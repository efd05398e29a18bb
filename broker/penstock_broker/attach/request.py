"""What an attach asks for: its frame read into the words of the rules.

Must not know what exists. Source: seed 001 (capabilities, filters), design section 3, decisions 2, 3 and 12; the
filters are those of the Qpid JMS client and of the AMQP filter registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock_amqp.frames.performatives import Accepted, Attach, Modified, Rejected, Released, Source
from penstock_amqp.types.composites import Composite
from penstock_amqp.types.encoder import array_of
from penstock_amqp.types.values import Array, Described, Symbol, ULong, Value
from penstock_core.attach import AskedSource, AttachRequest
from penstock_core.binding import NO_FILTER, Filter
from penstock_core.reason import Reason, Refuse
from penstock_core.selector import Selector, compile_selector
from penstock_core.temporary_nodes import LifetimePolicy
from penstock_core.terms import DistributionMode, Durability, ExpiryPolicy, NodeKind

__all__ = [
    "attach_request",
    "can_reject",
    "capabilities",
    "check_node_properties",
    "default_outcome",
    "distribution_mode",
    "durability",
    "filter_of",
    "filter_to_wire",
    "lifetime_policy",
    "node_properties",
    "selector_of",
]

_SELECTOR: Final[frozenset[int | str]] = frozenset((0x0000_468C_0000_0004, "apache.org:selector-filter:string"))
_NO_LOCAL: Final[frozenset[int | str]] = frozenset((0x0000_468C_0000_0003, "apache.org:no-local-filter:list"))
_LIFETIME_POLICY: Final = Symbol("lifetime-policy")
_SUPPORTED_MODES: Final = Symbol("supported-dist-modes")
_POLICIES: Final = {
    LifetimePolicy.DELETE_ON_CLOSE: 0x2B,
    LifetimePolicy.DELETE_ON_NO_LINKS: 0x2C,
    LifetimePolicy.DELETE_ON_NO_MESSAGES: 0x2D,
    LifetimePolicy.DELETE_ON_NO_LINKS_OR_MESSAGES: 0x2E,
}
_MODES: Final = {
    NodeKind.QUEUE: (DistributionMode.MOVE, DistributionMode.COPY),
    NodeKind.TOPIC: (DistributionMode.MOVE,),  # decision 11: a subscription is never browsed
}


def capabilities(attach: Attach) -> frozenset[str]:
    """The source's capabilities; those the link desires if the source is null (decision 3)."""
    if attach.source is None:
        return frozenset(attach.desired_capabilities or ())
    return frozenset(attach.source.capabilities or ())


def can_reject(attach: Attach) -> bool:
    """True if a message that the peer sends may be rejected: its source names no outcomes, or this one among them."""
    outcomes = attach.source.outcomes if attach.source is not None else None
    return not outcomes or "amqp:rejected:list" in outcomes


def default_outcome(attach: Attach) -> Composite | None:
    """What becomes of deliveries that the receiver settles without an outcome; None if it names none that we know."""
    asked = attach.source.default_outcome if attach.source is not None else None
    return asked if isinstance(asked, Accepted | Rejected | Released | Modified) else None


def distribution_mode(source: Source) -> DistributionMode | None:
    """The distribution mode asked; an unknown one counts as absent."""
    try:
        return None if source.distribution_mode is None else DistributionMode(source.distribution_mode)
    except ValueError:
        return None


def filter_of(source: Source) -> Filter | Refuse:
    """The filters that we know; others are left out of the reply, which says so (AMQP 3.5.8)."""
    selector = selector_of(source)
    if isinstance(selector, Refuse):
        return selector
    no_local = any(
        isinstance(value, Described) and value.descriptor in _NO_LOCAL for value in (source.filter or {}).values()
    )
    return Filter(selector.text if selector is not None else None, no_local) if selector or no_local else NO_FILTER


def selector_of(source: Source) -> Selector | Refuse | None:
    """The JMS selector among the filters; None if there is none, or it is blank. Two different ones are refused."""
    texts = {
        value.value
        for value in (source.filter or {}).values()
        if isinstance(value, Described) and value.descriptor in _SELECTOR and isinstance(value.value, str)
    }
    if len(texts) > 1:
        told = f"The source has {len(texts)} selectors; join them with AND into one."
        return Refuse(Reason.INVALID_SELECTOR, told, (("invalid-field", "filter"),))
    return compile_selector(texts.pop()) if texts else None


def filter_to_wire(put_in_place: Filter, source: Source | None) -> Mapping[Symbol, Value]:
    """The filters in place, under the names the client gave them."""
    filters: dict[Symbol, Value] = {}
    if put_in_place.selector is not None:
        asked = Described(ULong(0x0000_468C_0000_0004), "")
        name, asked = _as_asked(source, _SELECTOR) or (Symbol("jms-selector"), asked)
        filters[name] = Described(asked.descriptor, put_in_place.selector)
    if put_in_place.no_local:
        asked = Described(ULong(0x0000_468C_0000_0003), "NoLocalFilter{}")
        name, asked = _as_asked(source, _NO_LOCAL) or (Symbol("no-local"), asked)
        filters[name] = asked
    return filters


def _as_asked(source: Source | None, descriptors: frozenset[int | str]) -> tuple[Symbol, Described] | None:
    """The filter as the client named and described it; if it did not, the defaults are those of the Qpid JMS client."""
    asked: Mapping[Symbol, Value] = source.filter or {} if source is not None else {}
    for name, value in asked.items():
        if isinstance(value, Described) and value.descriptor in descriptors:
            return name, value
    return None


def lifetime_policy(properties: Mapping[Symbol, Value] | None) -> LifetimePolicy | None:
    """The lifetime policy that a dynamic terminus asks for; None if it names none, or one that AMQP does not have."""
    asked = (properties or {}).get(_LIFETIME_POLICY)
    descriptor = asked.descriptor if isinstance(asked, Described) else None
    for policy, code in _POLICIES.items():
        if descriptor in (code, f"amqp:{policy.value}:list"):
            return policy
    return None


def check_node_properties(properties: Mapping[Symbol, Value] | None) -> Refuse | None:
    """Why properties of a dynamic node can't be: a lifetime policy or distribution modes that are no such thing."""
    asked = (properties or {}).get(_LIFETIME_POLICY)
    if asked is not None and lifetime_policy(properties) is None:
        return Refuse(Reason.INVALID_REQUEST, "lifetime-policy is none of those of AMQP; use delete-on-close.")
    modes = (properties or {}).get(_SUPPORTED_MODES)
    items = modes.items if isinstance(modes, Array) else () if modes is None else (modes,)
    if not all(isinstance(item, Symbol) for item in items):
        return Refuse(Reason.INVALID_REQUEST, "supported-dist-modes holds something else than symbols; leave it out.")
    return None


def node_properties(policy: LifetimePolicy, kind: NodeKind) -> Mapping[Symbol, Value]:
    """The properties of a dynamic node as they are, for the reply (AMQP 3.5.9)."""
    modes = tuple(Symbol(mode.value) for mode in _MODES[kind])
    return {
        _LIFETIME_POLICY: Described(ULong(_POLICIES[policy]), []),
        _SUPPORTED_MODES: modes[0] if len(modes) == 1 else array_of(modes),
    }


def attach_request(
    attach: Attach, *, container_id: str, user: str, source: AskedSource | None, nonce: str
) -> AttachRequest:
    """The request of a consuming link."""
    asked = capabilities(attach)
    wire = attach.source
    return AttachRequest(
        container_id=container_id,
        link_name=attach.name,
        user=user,
        shared="shared" in asked,
        global_="global" in asked,
        durability=durability(wire),
        expiry=_expiry(wire),
        source=source,
        nonce=nonce,
    )


def durability(source: Source | None) -> Durability:
    """The terminus durability asked; an unknown one counts as the highest."""
    try:
        return Durability(source.durable or 0) if source is not None else Durability.NONE
    except ValueError:
        return Durability.UNSETTLED_STATE


def _expiry(source: Source | None) -> ExpiryPolicy | None:
    try:
        return None if source is None or source.expiry_policy is None else ExpiryPolicy(source.expiry_policy)
    except ValueError:
        return None
