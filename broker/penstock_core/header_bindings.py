"""Bindings of a Headers exchange: which application properties a message must have, in a form that compares by meaning.

A value of None asks for presence alone. Numbers equal numbers, whatever their AMQP type; nothing else equals across
types. No binding at all, or one without headers, takes every message. It must not know messages: ``header_routing``
matches them. Source: the x-match of Qpid's and AMQP 0-9-1's headers exchange; docs/reference/addresses.md.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from penstock_core.reason import Reason, Refuse

__all__ = [
    "MAX_HEADERS",
    "MAX_HEADER_BINDINGS",
    "HeaderBinding",
    "HeaderMatch",
    "HeaderTest",
    "HeaderValue",
    "ValueKind",
    "check_headers",
    "header_binding",
    "ordered_bindings",
    "tagged",
]

MAX_HEADER_BINDINGS: Final = 256
MAX_HEADERS: Final = 64
"""Headers of one binding."""
MAX_NAME_LENGTH: Final = 255
MAX_TEXT_LENGTH: Final = 1024

HeaderValue = str | int | float | bool | None


class HeaderMatch(enum.Enum):
    """How the headers of one binding go together; values are the spellings of the resources."""

    ALL = "All"
    ANY = "Any"


class ValueKind(enum.Enum):
    """What a value is, as far as values are compared."""

    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "boolean"
    OTHER = "other"
    """Of a test: presence alone. Of a message's property: of a type that no test can name."""


@dataclass(frozen=True, slots=True)
class HeaderTest:
    """One property that is there, and equals ``value`` unless the kind is OTHER."""

    name: str
    kind: ValueKind
    value: HeaderValue


@dataclass(frozen=True, slots=True)
class HeaderBinding:
    """Tests that all, or of which any, must hold. Make it by ``header_binding``, which knows that one is like all."""

    match: HeaderMatch
    tests: frozenset[HeaderTest]

    @property
    def headers(self) -> dict[str, HeaderValue]:
        """The headers by name, in order of the names, for whoever writes them down."""
        return {test.name: test.value for test in sorted(self.tests, key=lambda each: each.name)}


def header_binding(match: HeaderMatch, headers: Mapping[str, HeaderValue]) -> HeaderBinding:
    """The binding that these headers ask for."""
    tests = frozenset(HeaderTest(name, *tagged(value)) for name, value in headers.items())
    return HeaderBinding(match if len(tests) > 1 else HeaderMatch.ALL, tests)


def tagged(value: object) -> tuple[ValueKind, HeaderValue]:
    """A value with its kind: what it equals has the same pair."""
    match value:
        case bool():
            return ValueKind.BOOLEAN, value
        case int() | float():
            return ValueKind.NUMBER, value
        case str():
            return ValueKind.TEXT, value
        case _:
            return ValueKind.OTHER, None


def ordered_bindings(bindings: Collection[HeaderBinding]) -> tuple[HeaderBinding, ...]:
    """The bindings in a stable order, for whoever writes them down."""
    return tuple(sorted(bindings, key=lambda each: (each.match.value, repr(each.headers))))


def check_headers(bindings: Collection[HeaderBinding]) -> Refuse | None:
    """None if the bindings can be bound, else why not."""
    if len(bindings) > MAX_HEADER_BINDINGS:
        return _refuse(f"{len(bindings)} header bindings were given; name at most {MAX_HEADER_BINDINGS}.")
    for binding in ordered_bindings(bindings):
        if len(binding.tests) > MAX_HEADERS:
            return _refuse(f"A header binding has {len(binding.tests)} headers; use at most {MAX_HEADERS}.")
        for name, value in binding.headers.items():
            if not 0 < len(name) <= MAX_NAME_LENGTH:
                return _refuse(f"The header {name[:40]!r} has {len(name)} characters; use 1 to {MAX_NAME_LENGTH}.")
            if isinstance(value, str) and len(value) > MAX_TEXT_LENGTH:
                return _refuse(f"The value of header {name!r} is longer than {MAX_TEXT_LENGTH} characters.")
    return None


def _refuse(why: str) -> Refuse:
    return Refuse(Reason.INVALID_BINDING_KEY, why)
