"""Reads the frame of an attach into one request: the first of the four steps of an attach.

A request says in the words of the rules what the client asks for. What can't be read is a refusal in its field, because
the steps that follow refuse in a fixed order: an unknown address comes before an invalid selector. Must not know what
exists on the broker.

Source: QPIDJMS-220 (capabilities, filters), docs/decisions/002-durability-and-lifetime.md,
docs/decisions/003-shared-and-global.md, docs/decisions/012-every-attach-is-answered.md. The filters are those of the
Qpid JMS client and of the AMQP filter registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeGuard, TypeVar

from penstock_amqp.frames.performatives import Accepted, Attach, Modified, Rejected, Released, Source, Target
from penstock_amqp.types.composites import Composite
from penstock_amqp.types.values import Array, Described, Symbol, Value, wire_name
from penstock_broker.attach.binding_filters import BindingFilters, read_binding_filters
from penstock_core.address import kinds_of
from penstock_core.dispatch_order import PRIORITY_PROPERTY, consumer_priority, split_priority
from penstock_core.reason import Reason, Refuse
from penstock_core.selector import Selector, compile_selector
from penstock_core.temporary_nodes import LifetimePolicy, is_exclusive
from penstock_core.terms import DistributionMode, Durability, ExpiryPolicy, NodeKind

__all__ = [
    "LIFETIME_POLICY",
    "NO_LOCAL_FILTER",
    "POLICY_CODES",
    "SELECTOR_FILTER",
    "SUPPORTED_MODES",
    "AddressOption",
    "DynamicNode",
    "SourceRequest",
    "TargetRequest",
    "read_selector",
    "read_source_request",
    "read_target_request",
]

E = TypeVar("E", bound=Enum)

SELECTOR_FILTER: Final = frozenset[int | str]((0x0000_468C_0000_0004, "apache.org:selector-filter:string"))
NO_LOCAL_FILTER: Final = frozenset[int | str]((0x0000_468C_0000_0003, "apache.org:no-local-filter:list"))
"""The descriptors of the two filters: code and name."""

LIFETIME_POLICY: Final = Symbol("lifetime-policy")
SUPPORTED_MODES: Final = Symbol("supported-dist-modes")
"""The properties of a dynamic node that AMQP defines (part 3, 3.5.9)."""

POLICY_CODES: Final = {
    LifetimePolicy.DELETE_ON_CLOSE: 0x2B,
    LifetimePolicy.DELETE_ON_NO_LINKS: 0x2C,
    LifetimePolicy.DELETE_ON_NO_MESSAGES: 0x2D,
    LifetimePolicy.DELETE_ON_NO_LINKS_OR_MESSAGES: 0x2E,
}
"""The descriptors of the lifetime policies."""


@dataclass(frozen=True, slots=True)
class DynamicNode:
    """A temporary queue or topic that the client asks the broker to make."""

    address: str | None
    """The address that the client gave, although it must not give any."""
    kinds: frozenset[NodeKind]
    """The kinds that the capabilities of the terminus name."""
    policy: LifetimePolicy | None
    """None if the client names none."""
    is_exclusive: bool
    """Only the connection that makes it may consume."""
    expiry: ExpiryPolicy
    """Of the terminus: how long the link exists that makes it."""


@dataclass(frozen=True, slots=True)
class AddressOption:
    """An address that ends with the option for a consumer priority."""

    address: str
    """The address without the option."""
    priority: int
    """The consumer's priority if the option counts; properties of the attach come before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRequest:
    """What the attach of a receiving link asks for."""

    frame: Attach
    """The frame, parts of which the reply repeats."""
    link_name: str
    is_null: bool
    """The source is null: the link looks a subscription up."""
    address: str | None
    """The address as the client wrote it."""
    address_option: AddressOption | None
    """The same address, if it can be read as one with a consumer priority behind it."""
    capabilities: frozenset[str]
    """The source's; those that the link desires if the source is null (decision 003)."""
    durability: Durability
    """An unknown one counts as the highest."""
    expiry: ExpiryPolicy | None
    distribution_mode: DistributionMode | None
    """An unknown one counts as absent."""
    selector: Selector | Refuse | None
    no_local: bool
    binding_filters: BindingFilters | Refuse
    dynamic: DynamicNode | Refuse | None
    """None if the source names a node that is there."""
    priority: int
    """The consumer's priority, by the properties of the attach."""
    default_outcome: Composite | None
    """What becomes of deliveries that the receiver settles without an outcome; None if it names none that we know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRequest:
    """What the attach of a sending link asks for, unless its target is a coordinator."""

    frame: Attach
    """The frame, parts of which the reply repeats."""
    target: Target | None
    """None: the client left it out, which is refused."""
    address: str | None
    capabilities: frozenset[str]
    dynamic: DynamicNode | Refuse | None
    """None if the target names a node that is there."""
    can_reject: bool
    """A message may be rejected: the source names no outcomes, or this one among them."""


def read_source_request(frame: Attach) -> SourceRequest:
    """Read the attach of a link on which the peer receives."""
    wire = frame.source or Source()
    outcome = wire.default_outcome
    durability = _member(Durability, wire.durable or 0)
    capabilities = frame.desired_capabilities if frame.source is None else wire.capabilities
    return SourceRequest(
        frame=frame,
        link_name=frame.name,
        is_null=frame.source is None,
        address=wire.address,
        address_option=_address_option(frame, wire.address or ""),
        capabilities=frozenset(capabilities or ()),
        durability=Durability.UNSETTLED_STATE if durability is None else durability,
        expiry=_member(ExpiryPolicy, wire.expiry_policy),
        distribution_mode=_member(DistributionMode, wire.distribution_mode),
        selector=read_selector(wire),
        no_local=any(_is_filter(value, NO_LOCAL_FILTER) for value in (wire.filter or {}).values()),
        binding_filters=read_binding_filters(wire),
        dynamic=_dynamic_node(wire) if wire.dynamic else None,
        priority=consumer_priority((frame.properties or {}).items()),
        default_outcome=outcome if isinstance(outcome, Accepted | Rejected | Released | Modified) else None,
    )


def read_target_request(frame: Attach, target: Target | None) -> TargetRequest:
    """Read the attach of a link on which the peer sends."""
    outcomes = frame.source.outcomes if frame.source is not None else None
    return TargetRequest(
        frame=frame,
        target=target,
        address=target.address if target is not None else None,
        capabilities=frozenset((target.capabilities if target is not None else None) or ()),
        dynamic=_dynamic_node(target) if target is not None and target.dynamic else None,
        can_reject=not outcomes or "amqp:rejected:list" in outcomes,
    )


def read_selector(source: Source) -> Selector | Refuse | None:
    """The JMS selector among the filters; None if there is none, or it is blank. Two different ones are refused, and
    one that is no text: without it, the link would get what its client does not want.
    """
    values = [value.value for value in (source.filter or {}).values() if _is_filter(value, SELECTOR_FILTER)]
    other = next((value for value in values if not isinstance(value, str | None)), None)
    if other is not None:
        cause = f"The selector is of type {wire_name(type(other))}; write it as a string."
        return Refuse(Reason.INVALID_SELECTOR, cause, (("invalid-field", "filter"),))
    texts = {value for value in values if isinstance(value, str)}
    if len(texts) > 1:
        cause = f"The source has {len(texts)} selectors; join them with AND into one."
        return Refuse(Reason.INVALID_SELECTOR, cause, (("invalid-field", "filter"),))
    return compile_selector(texts.pop()) if texts else None


def _is_filter(value: Value, descriptors: frozenset[int | str]) -> TypeGuard[Described]:
    return isinstance(value, Described) and value.descriptor in descriptors


def _member(kind: type[E], value: object) -> E | None:
    """The member of an enum that a field of the frame names; None if it names none, or one that we don't know."""
    return next((each for each in kind if each.value == value), None)


def _address_option(frame: Attach, address: str) -> AddressOption | None:
    split = split_priority(address)
    if split is None:
        return None
    name, priority = split
    properties: Mapping[Symbol, Value] = {Symbol(PRIORITY_PROPERTY): priority, **(frame.properties or {})}
    return AddressOption(name, consumer_priority(properties.items()))


def _dynamic_node(terminus: Source | Target) -> DynamicNode | Refuse:
    """The node that a dynamic terminus asks for; refused if a property of it is not what AMQP says it is."""
    properties = terminus.dynamic_node_properties or {}
    policy = _lifetime_policy(properties)
    if properties.get(LIFETIME_POLICY) is not None and policy is None:
        return Refuse(Reason.INVALID_REQUEST, "lifetime-policy is none of those of AMQP; use delete-on-close.")
    modes = properties.get(SUPPORTED_MODES)
    items = modes.items if isinstance(modes, Array) else () if modes is None else (modes,)
    if not all(isinstance(item, Symbol) for item in items):
        return Refuse(Reason.INVALID_REQUEST, "supported-dist-modes holds something else than symbols; leave it out.")
    capabilities = frozenset(terminus.capabilities or ())
    expiry = _member(ExpiryPolicy, terminus.expiry_policy) or ExpiryPolicy.SESSION_END
    return DynamicNode(terminus.address, kinds_of(capabilities), policy, is_exclusive(capabilities), expiry)


def _lifetime_policy(properties: Mapping[Symbol, Value]) -> LifetimePolicy | None:
    """The lifetime policy that the properties name; None if they name none, or one that AMQP does not have."""
    value = properties.get(LIFETIME_POLICY)
    descriptor = value.descriptor if isinstance(value, Described) else None
    for policy, code in POLICY_CODES.items():
        if descriptor in (code, f"amqp:{policy.value}:list"):
            return policy
    return None
