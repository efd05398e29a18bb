"""Reads the binding filters of existing clients: binding keys and header bindings in the filter set of a source.

An address names one binding key at most; these filters name any number. Each is a described value under a name that the
client chooses. A filter that the type of the exchange has no use for is left out of the reply (AMQP 1.0 part 3, 3.5.8).

Source: the AMQP filter registry (``apache.org:legacy-amqp-...-binding``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock_amqp.frames.performatives import Source
from penstock_amqp.types.values import Array, Described, Symbol, Value, wire_name
from penstock_core.header_bindings import HeaderBinding, HeaderMatch, header_binding
from penstock_core.reason import Reason, Refuse

__all__ = [
    "EXACT_BINDING",
    "HEADERS_BINDING",
    "MATCH_KEY",
    "PATTERN_BINDING",
    "BindingFilters",
    "HeaderFilter",
    "KeyFilter",
    "read_binding_filters",
]

EXACT_BINDING: Final = (0x0000_468C_0000_0000, "apache.org:legacy-amqp-direct-binding:string")
PATTERN_BINDING: Final = (0x0000_468C_0000_0001, "apache.org:legacy-amqp-topic-binding:string")
HEADERS_BINDING: Final = (0x0000_468C_0000_0002, "apache.org:legacy-amqp-headers-binding:map")
"""The descriptors of the three filters: code and name."""

MATCH_KEY: Final = "x-match"
_HEADERS: Final = "headers binding"
_MATCHES: Final = {"all": HeaderMatch.ALL, "any": HeaderMatch.ANY}


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """A filter that names binding keys."""

    name: Symbol
    described: Described
    """The filter as the client wrote it, for the reply."""
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HeaderFilter:
    """A filter that names one header binding."""

    name: Symbol
    described: Described
    """The filter as the client wrote it, for the reply."""
    binding: HeaderBinding


@dataclass(frozen=True, slots=True)
class BindingFilters:
    """The binding filters of a source, whatever the type of its exchange."""

    keys: tuple[KeyFilter, ...] = ()
    """The filters for direct bindings, then those for topic bindings."""
    headers: tuple[HeaderFilter, ...] = ()
    exact_keys: frozenset[str] = frozenset()
    """The keys of all direct bindings."""
    pattern_keys: frozenset[str] = frozenset()
    """The patterns of all topic bindings."""
    header_bindings: frozenset[HeaderBinding] | None = None
    """The header bindings; None if no filter names any."""


def read_binding_filters(source: Source) -> BindingFilters | Refuse:
    """The binding filters of a source, or why one of them can't be read."""
    headers: list[HeaderFilter] = []
    for name, value in _described(source, HEADERS_BINDING):
        binding = _header_binding(name, value)
        if isinstance(binding, Refuse):
            return binding
        headers.append(HeaderFilter(name, value, binding))
    exact = _key_filters(source, EXACT_BINDING)
    patterns = _key_filters(source, PATTERN_BINDING)
    if isinstance(exact, Refuse):
        return exact
    if isinstance(patterns, Refuse):
        return patterns
    return BindingFilters(
        keys=(*exact, *patterns),
        headers=tuple(headers),
        exact_keys=frozenset(key for each in exact for key in each.keys),
        pattern_keys=frozenset(key for each in patterns for key in each.keys),
        header_bindings=frozenset(each.binding for each in headers) or None,
    )


def _described(source: Source, descriptors: tuple[int, str]) -> list[tuple[Symbol, Described]]:
    return [
        (name, value)
        for name, value in (source.filter or {}).items()
        if isinstance(value, Described) and value.descriptor in descriptors
    ]


def _key_filters(source: Source, descriptors: tuple[int, str]) -> tuple[KeyFilter, ...] | Refuse:
    found: list[KeyFilter] = []
    for name, value in _described(source, descriptors):
        keys = _keys(name, value)
        if isinstance(keys, Refuse):
            return keys
        found.append(KeyFilter(name, value, keys))
    return tuple(found)


def _keys(name: Symbol, described: Described) -> tuple[str, ...] | Refuse:
    """The keys of one filter; none if it is null. The registry knows a string only; a list or an array of strings is
    accepted as well. Anything else is refused: without the filter, the link would get what its client does not want.
    """
    items: Sequence[Value]
    match described.value:
        case None:
            items = ()
        case list() as several:
            items = several
        case Array(items=several):
            items = several
        case single:
            items = (single,)
    keys = tuple(item for item in items if isinstance(item, str))
    if len(keys) != len(items):
        other = next(item for item in items if not isinstance(item, str))
        return _refuse(name, "binding key", f"holds a key of type {wire_name(type(other))}; write it as a string")
    return keys


def _header_binding(name: Symbol, described: Described) -> HeaderBinding | Refuse:
    """One map. Names that begin with ``x-`` are reserved there, as in AMQP 0-9-1, and don't name a header."""
    if not isinstance(described.value, dict):
        return _refuse(name, _HEADERS, "holds no map")
    match = described.value.get(MATCH_KEY, "all")
    if not isinstance(match, str) or match not in _MATCHES:
        return _refuse(name, _HEADERS, f"has the x-match {match!r}; use all or any")
    headers: dict[str, str | int | float | bool | None] = {}
    for key, value in described.value.items():
        if not isinstance(key, str) or not isinstance(value, str | int | float | bool | None):
            return _refuse(name, _HEADERS, f"has a header {key!r} that is neither text, number, boolean nor null")
        if not key.lower().startswith("x-"):
            headers[key] = value
    return header_binding(_MATCHES[match], headers)


def _refuse(name: Symbol, kind: str, why: str) -> Refuse:
    cause = f"The filter {name!r} ({kind}) {why}."
    return Refuse(Reason.INVALID_BINDING_KEY, cause, (("invalid-field", "filter"),))
