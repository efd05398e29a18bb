"""The binding filters of existing clients: binding keys and header bindings named by a source's filter set.

An address tells one binding key at most; these tell as many as there are filters. Each is a described value under a
name of the client's choice. What the exchange's type has no use for is left out of the reply (AMQP 3.5.8).

Source: the AMQP filter registry (``apache.org:legacy-amqp-...-binding``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock_amqp.frames.performatives import Source
from penstock_amqp.types.values import Array, Described, Symbol, ULong, Value
from penstock_core.header_bindings import HeaderBinding, HeaderMatch, header_binding
from penstock_core.reason import Reason, Refuse
from penstock_core.source_reply import SourceReply
from penstock_core.terms import ExchangeType

__all__ = ["NamedBindings", "named_bindings", "to_wire"]

_EXACT: Final = (0x0000_468C_0000_0000, "apache.org:legacy-amqp-direct-binding:string")
_PATTERN: Final = (0x0000_468C_0000_0001, "apache.org:legacy-amqp-topic-binding:string")
_HEADERS: Final = (0x0000_468C_0000_0002, "apache.org:legacy-amqp-headers-binding:map")

_MATCH: Final = "x-match"
_MATCHES: Final = {"all": HeaderMatch.ALL, "any": HeaderMatch.ANY}


@dataclass(frozen=True, slots=True)
class NamedBindings:
    """What the filters of a source name, whatever the type of its exchange."""

    exact: frozenset[str]
    patterns: frozenset[str]
    headers: frozenset[HeaderBinding] | None
    """None if no filter names any."""


def named_bindings(source: Source) -> NamedBindings | Refuse:
    """The bindings that a source's filters name."""
    headers: list[HeaderBinding] = []
    for name, value in _described(source, _HEADERS):
        binding = _header_binding(name, value)
        if isinstance(binding, Refuse):
            return binding
        headers.append(binding)
    return NamedBindings(
        frozenset(key for _, value in _described(source, _EXACT) for key in _keys(value)),
        frozenset(key for _, value in _described(source, _PATTERN) for key in _keys(value)),
        frozenset(headers) or None,
    )


def to_wire(reply: SourceReply, asked: Source | None) -> Mapping[Symbol, Value]:
    """The bindings in place that the address doesn't tell: under the client's names what it asked for."""
    filters: dict[Symbol, Value] = {}
    keys, bindings = set(reply.keys_beyond_address), set(reply.header_bindings)
    for name, value in _echoed(reply, asked):
        filters[name] = value
        keys.difference_update(_keys(value))
        bindings.discard(_binding_of(value))
    code = ULong(_PATTERN[0] if reply.exchange_type is ExchangeType.TOPIC else _EXACT[0])
    for number, key in enumerate(sorted(keys)):
        filters[Symbol(f"binding-{number}")] = Described(code, key)
    for number, binding in enumerate(each for each in reply.header_bindings if each in bindings):
        filters[Symbol(f"headers-{number}")] = Described(ULong(_HEADERS[0]), _header_map(binding))
    return filters


def _echoed(reply: SourceReply, asked: Source | None) -> Iterable[tuple[Symbol, Described]]:
    """The binding filters of the client that are in place."""
    if asked is None:
        return
    if reply.exchange_type in (ExchangeType.TOPIC, ExchangeType.DIRECT):
        for name, value in (*_described(asked, _EXACT), *_described(asked, _PATTERN)):
            keys = _keys(value)
            if keys and reply.binding_keys and set(keys) <= set(reply.binding_keys):
                yield name, value
    for name, value in _described(asked, _HEADERS):
        if _binding_of(value) in reply.header_bindings:
            yield name, value


def _described(source: Source, descriptors: tuple[int, str]) -> list[tuple[Symbol, Described]]:
    return [
        (name, value)
        for name, value in (source.filter or {}).items()
        if isinstance(value, Described) and value.descriptor in descriptors
    ]


def _keys(described: Described) -> tuple[str, ...]:
    """The keys of one filter; besides a string, which the registry knows, a list or an array of strings is taken."""
    match described.value:
        case str() as key:
            return (key,)
        case list() as items:
            return tuple(item for item in items if isinstance(item, str))
        case Array(items=items):
            return tuple(item for item in items if isinstance(item, str))
        case _:
            return ()


def _binding_of(described: Described) -> HeaderBinding | None:
    binding = _header_binding(Symbol(""), described)
    return None if isinstance(binding, Refuse) else binding


def _header_binding(name: Symbol, described: Described) -> HeaderBinding | Refuse:
    """One map; names that begin with ``x-`` are reserved there, as in AMQP 0-9-1, and say nothing."""
    if not isinstance(described.value, dict):
        return _refuse(name, "holds no map")
    match = described.value.get(_MATCH, "all")
    if not isinstance(match, str) or match not in _MATCHES:
        return _refuse(name, f"has the x-match {match!r}; use all or any")
    headers: dict[str, str | int | float | bool | None] = {}
    for key, value in described.value.items():
        if not isinstance(key, str) or not isinstance(value, str | int | float | bool | None):
            return _refuse(name, f"has a header {key!r} that is neither text, number, boolean nor null")
        if not key.lower().startswith("x-"):
            headers[key] = value
    return header_binding(_MATCHES[match], headers)


def _refuse(name: Symbol, why: str) -> Refuse:
    cause = f"The filter {name!r} (headers binding) {why}."
    return Refuse(Reason.INVALID_BINDING_KEY, cause, (("invalid-field", "filter"),))


def _header_map(binding: HeaderBinding) -> Value:
    return {_MATCH: binding.match.value.lower(), **dict[Value, Value](binding.headers.items())}
