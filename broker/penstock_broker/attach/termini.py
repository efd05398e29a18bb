"""The source and the target with which an attach is answered: what is there, not what was asked for.

The reply gives a filter that is in place the name that the client gave it, and leaves out what is not in place.
Source: docs/decisions/007-reply-shows-the-truth.md; AMQP 1.0 part 3, 3.5.8 and 3.5.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, assert_never

from penstock_amqp.frames.performatives import Source, Target
from penstock_amqp.types.encoder import array_of
from penstock_amqp.types.values import Described, Symbol, ULong, Value
from penstock_broker.attach.binding_filters import (
    EXACT_BINDING,
    HEADERS_BINDING,
    MATCH_KEY,
    PATTERN_BINDING,
    BindingFilters,
)
from penstock_broker.attach.queue_source import BrowsePlan, ConsumePlan
from penstock_broker.attach.request import (
    LIFETIME_POLICY,
    NO_LOCAL_FILTER,
    POLICY_CODES,
    SELECTOR_FILTER,
    SUPPORTED_MODES,
    SourceRequest,
)
from penstock_broker.attach.target import ProducePlan
from penstock_broker.attach.topic_source import LookUpPlan, SubscribePlan
from penstock_broker.state.routes import Destination, ExchangeTarget, ManagementTarget, QueueTarget, RelayTarget
from penstock_broker.topology.records import Exchange, PointToPointQueue
from penstock_core.binding import Filter
from penstock_core.header_bindings import HeaderBinding
from penstock_core.reason import Refuse
from penstock_core.selector import Selector
from penstock_core.source_reply import SourceReply
from penstock_core.terms import DistributionMode, ExchangeType, ExpiryPolicy

__all__ = ["producer_target", "receiver_termini"]

OUTCOMES: Final = tuple(Symbol(f"amqp:{name}:list") for name in ("accepted", "rejected", "released", "modified"))
"""The outcomes that a receiver may give a message."""

_QUEUE_MODES: Final = (DistributionMode.MOVE, DistributionMode.COPY)
_TOPIC_MODES: Final = (DistributionMode.MOVE,)
"""Decision 011: a subscription is never browsed."""


def receiver_termini(plan: SubscribePlan | LookUpPlan | ConsumePlan | BrowsePlan) -> tuple[Source, Target]:
    """Source and target of a link on which the peer receives. The target is the client's own."""
    match plan:
        case SubscribePlan(request=request, reply=reply):
            source = _topic_source(request, reply, plan.new_node)
        case LookUpPlan(request=request, reply=SourceReply() as reply):
            source = _topic_source(request, reply, None)
        case LookUpPlan():
            raise AssertionError("a refusal has no termini")
        case ConsumePlan() | BrowsePlan():
            source = _queue_source(plan)
        case _:
            assert_never(plan)
    asked = plan.request.frame.target
    if not isinstance(asked, Target):
        return source, Target()
    return source, Target(address=asked.address, capabilities=asked.capabilities)


def _topic_source(request: SourceRequest, reply: SourceReply, new_node: Exchange | None) -> Source:
    """The source of a link that consumes from a subscription, or looks one up."""
    filters = request.binding_filters
    assert not isinstance(filters, Refuse), "refused by the decision"
    return Source(
        address=reply.address,
        durable=reply.durability.value,
        expiry_policy=Symbol(reply.expiry.value),
        timeout=0,
        dynamic=request.frame.source.dynamic if request.frame.source is not None else None,
        dynamic_node_properties=_node_properties(new_node),
        distribution_mode=Symbol(reply.distribution_mode.value),
        filter={**_filters(request, reply.filter), **_binding_filters(reply, filters)},
        default_outcome=request.default_outcome,
        outcomes=OUTCOMES,
        capabilities=tuple(Symbol(name) for name in reply.capabilities),
    )


def _queue_source(plan: ConsumePlan | BrowsePlan) -> Source:
    """The source of a link that consumes from a queue, or browses it."""
    request = plan.request
    asked = request.frame.source
    assert asked is not None, "a null source names no queue"
    mode, new_node = DistributionMode.COPY, None
    if isinstance(plan, ConsumePlan):
        mode, new_node = DistributionMode.MOVE, plan.new_node
    return Source(
        address=new_node.name if new_node is not None else asked.address,
        durable=0,
        expiry_policy=_expiry(new_node),
        timeout=0,
        dynamic=asked.dynamic,
        dynamic_node_properties=_node_properties(new_node),
        distribution_mode=Symbol(mode.value),
        filter=_filters(request, Filter(plan.selector.text if plan.selector is not None else None)),
        default_outcome=request.default_outcome,
        outcomes=OUTCOMES,
        capabilities=(Symbol("temporary-queue" if new_node is not None and _is_exclusive(new_node) else "queue"),),
    )


def _is_exclusive(node: Exchange | PointToPointQueue) -> bool:
    return node.temporary is not None and node.temporary.is_exclusive


def producer_target(plan: ProducePlan) -> Target:
    """The target of a link on which the peer sends: of what the client asked for, what is in force."""
    asked, new_node = plan.request.target, plan.new_node
    assert asked is not None, "refused by the decision"
    true = _capabilities(plan.destination)
    return Target(
        address=new_node.name if new_node is not None else asked.address,
        durable=0,
        expiry_policy=_expiry(new_node),
        timeout=0,
        dynamic=asked.dynamic,
        dynamic_node_properties=_node_properties(new_node),
        capabilities=tuple(each for each in asked.capabilities or () if each in true),
    )


def _capabilities(destination: Destination) -> tuple[str, ...]:
    """What may be called of it in a target. Source: the JMS mapping."""
    match destination:
        case QueueTarget(node=node):
            return ("queue", "temporary-queue") if _is_exclusive(node) else ("queue",)
        case ExchangeTarget(exchange=exchange):
            return ("topic", "temporary-topic") if _is_exclusive(exchange) else ("topic",)
        case ManagementTarget() | RelayTarget():
            return ()
        case _:
            assert_never(destination)


def _expiry(new_node: Exchange | PointToPointQueue | None) -> Symbol:
    """How long there is a terminus at a node: as long as its link, unless that made the node, which waits for it."""
    expiry = ExpiryPolicy.LINK_DETACH
    if new_node is not None and new_node.temporary is not None:
        expiry = new_node.temporary.expiry
    if expiry is ExpiryPolicy.NEVER:  # a temporary node goes with its connection at the latest
        expiry = ExpiryPolicy.CONNECTION_CLOSE
    return Symbol(expiry.value)


def _node_properties(new_node: Exchange | PointToPointQueue | None) -> Mapping[Symbol, Value] | None:
    """The properties of a dynamic node as they are."""
    if new_node is None or new_node.temporary is None:
        return None
    modes = tuple(Symbol(mode.value) for mode in (_TOPIC_MODES if isinstance(new_node, Exchange) else _QUEUE_MODES))
    return {
        LIFETIME_POLICY: Described(ULong(POLICY_CODES[new_node.temporary.policy]), []),
        SUPPORTED_MODES: modes[0] if len(modes) == 1 else array_of(modes),
    }


def _filters(request: SourceRequest, in_place: Filter) -> Mapping[Symbol, Value]:
    """The selector and no-local as they are in place."""
    filters: dict[Symbol, Value] = {}
    if in_place.selector is not None:
        asked = Described(ULong(0x0000_468C_0000_0004), "")
        name, asked = _as_asked(request, SELECTOR_FILTER) or (Symbol("jms-selector"), asked)
        filters[name] = asked if _asks_for(request, asked, in_place) else Described(asked.descriptor, in_place.selector)
    if in_place.no_local:
        asked = Described(ULong(0x0000_468C_0000_0003), "NoLocalFilter{}")
        name, asked = _as_asked(request, NO_LOCAL_FILTER) or (Symbol("no-local"), asked)
        filters[name] = asked
    return filters


def _asks_for(request: SourceRequest, asked: Described, in_place: Filter) -> bool:
    """True if the selector of the filter is in place: the client gets its own spelling back, which it may compare."""
    selector = request.selector
    return isinstance(selector, Selector) and isinstance(asked.value, str) and selector.text == in_place.selector


def _as_asked(request: SourceRequest, descriptors: frozenset[int | str]) -> tuple[Symbol, Described] | None:
    """The filter as the client named and described it; if it did not, the defaults are those of the Qpid JMS client."""
    source = request.frame.source
    asked: Mapping[Symbol, Value] = source.filter or {} if source is not None else {}
    for name, value in asked.items():
        if isinstance(value, Described) and value.descriptor in descriptors:
            return name, value
    return None


def _binding_filters(reply: SourceReply, asked: BindingFilters) -> Mapping[Symbol, Value]:
    """The bindings in place that the address does not name: those that the client asked for under its own names."""
    filters: dict[Symbol, Value] = {}
    keys, bindings = set(reply.keys_beyond_address), set(reply.header_bindings)
    if reply.exchange_type in (ExchangeType.TOPIC, ExchangeType.DIRECT):
        for key_filter in asked.keys:
            if key_filter.keys and reply.binding_keys and set(key_filter.keys) <= set(reply.binding_keys):
                filters[key_filter.name] = key_filter.described
                keys.difference_update(key_filter.keys)
    for header_filter in asked.headers:
        if header_filter.binding in reply.header_bindings:
            filters[header_filter.name] = header_filter.described
            bindings.discard(header_filter.binding)
    code = ULong(PATTERN_BINDING[0] if reply.exchange_type is ExchangeType.TOPIC else EXACT_BINDING[0])
    for number, key in enumerate(sorted(keys)):
        filters[Symbol(f"binding-{number}")] = Described(code, key)
    for number, binding in enumerate(each for each in reply.header_bindings if each in bindings):
        filters[Symbol(f"headers-{number}")] = Described(ULong(HEADERS_BINDING[0]), _header_map(binding))
    return filters


def _header_map(binding: HeaderBinding) -> Value:
    return {MATCH_KEY: binding.match.value.lower(), **dict[Value, Value](binding.headers.items())}
