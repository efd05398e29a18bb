"""Reads the frame of an attach into one request: the first of the four steps of an attach.

A request says in the words of the rules what the client asks for. What can't be read is a refusal in its field, because
the steps that follow refuse in a fixed order: an unknown address comes before an invalid selector. Must not know what
exists on the broker.

Source: seed 001 (capabilities, filters), docs/decisions/002-durability-and-lifetime.md,
docs/decisions/003-shared-and-global.md, docs/decisions/012-every-attach-is-answered.md. The filters are those of the
Qpid JMS client and of the AMQP filter registry.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock_amqp.frames.performatives import Accepted, Attach, Modified, Rejected, Released, Source, Target
from penstock_amqp.types.composites import Composite
from penstock_amqp.types.values import Array, Described, Symbol, Value
from penstock_broker.attach.binding_filters import BindingFilters, read_binding_filters
from penstock_core.address import kinds_of
from penstock_core.handing_out import PRIORITY_PROPERTY, consumer_priority, split_priority
from penstock_core.reason import Reason, Refuse
from penstock_core.selector import Selector, compile_selector
from penstock_core.temporary import LifetimePolicy
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
    source = frame.source
    capabilities = frame.desired_capabilities if source is None else source.capabilities
    return SourceRequest(
        frame=frame,
        link_name=frame.name,
        is_null=source is None,
        address=source.address if source is not None else None,
        address_option=_address_option(frame, source),
        capabilities=frozenset(capabilities or ()),
        durability=_durability(source),
        expiry=_expiry(source),
        distribution_mode=_distribution_mode(source),
        selector=read_selector(source) if source is not None else None,
        no_local=source is not None and _has_no_local(source),
        binding_filters=read_binding_filters(source) if source is not None else BindingFilters(),
        dynamic=_dynamic_node(source) if source is not None and source.dynamic else None,
        priority=consumer_priority((frame.properties or {}).items()),
        default_outcome=_default_outcome(source),
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


def _default_outcome(source: Source | None) -> Composite | None:
    outcome = source.default_outcome if source is not None else None
    return outcome if isinstance(outcome, Accepted | Rejected | Released | Modified) else None


def _address_option(frame: Attach, source: Source | None) -> AddressOption | None:
    split = split_priority(source.address or "") if source is not None else None
    if split is None:
        return None
    name, priority = split
    properties: Mapping[Symbol, Value] = {Symbol(PRIORITY_PROPERTY): priority, **(frame.properties or {})}
    return AddressOption(name, consumer_priority(properties.items()))


def _durability(source: Source | None) -> Durability:
    """The terminus durability asked for; an unknown one counts as the highest."""
    try:
        return Durability(source.durable or 0) if source is not None else Durability.NONE
    except ValueError:
        return Durability.UNSETTLED_STATE


def _expiry(source: Source | None) -> ExpiryPolicy | None:
    try:
        return None if source is None or source.expiry_policy is None else ExpiryPolicy(source.expiry_policy)
    except ValueError:
        return None


def _distribution_mode(source: Source | None) -> DistributionMode | None:
    try:
        return (
            None if source is None or source.distribution_mode is None else DistributionMode(source.distribution_mode)
        )
    except ValueError:
        return None


def _filters(source: Source, descriptors: Collection[int | str]) -> Iterable[Described]:
    for value in (source.filter or {}).values():
        if isinstance(value, Described) and value.descriptor in descriptors:
            yield value


def read_selector(source: Source) -> Selector | Refuse | None:
    """The JMS selector among the filters; None if there is none, or it is blank. Two different ones are refused."""
    texts = {each.value for each in _filters(source, SELECTOR_FILTER) if isinstance(each.value, str)}
    if len(texts) > 1:
        cause = f"The source has {len(texts)} selectors; join them with AND into one."
        return Refuse(Reason.INVALID_SELECTOR, cause, (("invalid-field", "filter"),))
    return compile_selector(texts.pop()) if texts else None


def _has_no_local(source: Source) -> bool:
    return any(True for _ in _filters(source, NO_LOCAL_FILTER))


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
    return DynamicNode(terminus.address, kinds_of(frozenset(terminus.capabilities or ())), policy)


def _lifetime_policy(properties: Mapping[Symbol, Value]) -> LifetimePolicy | None:
    """The lifetime policy that the properties name; None if they name none, or one that AMQP does not have."""
    value = properties.get(LIFETIME_POLICY)
    descriptor = value.descriptor if isinstance(value, Described) else None
    for policy, code in POLICY_CODES.items():
        if descriptor in (code, f"amqp:{policy.value}:list"):
            return policy
    return None
