"""Which bindings of a Headers exchange the properties of a message match.

Bindings are indexed by one of their equal values (the rarest of those that all must hold; each of those of which any
may), so that a message meets only bindings of which at least one test holds. It must not know what a handle is, nor how
properties are read: the caller reads those that ``names`` lists, once per message.

Written for speed. ``route`` with a memo hit costs one dict lookup and a pair per name; a miss goes through the bindings
that the index finds. The memo holds at most 1,024 combinations and is dropped at each change of bindings.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Final, Generic, TypeAlias, TypeVar

from penstock_core.header_bindings import HeaderBinding, HeaderMatch, HeaderTest, HeaderValue, ValueKind, tagged

__all__ = ["MEMO_COMBINATIONS", "HeadersRouter"]

MEMO_COMBINATIONS: Final = 1024
_MEMO_TEXT_LENGTH: Final = 256
"""A combination with a longer text is not remembered: messages must not buy memory."""

H = TypeVar("H", bound=Hashable)

_Value: TypeAlias = tuple[ValueKind, HeaderValue]
_NOTHING: Final = HeaderBinding(HeaderMatch.ALL, frozenset())


class HeadersRouter(Generic[H]):
    """The bindings of one Headers exchange. Handles come out in the order in which they were bound, each once."""

    __slots__ = ("_always", "_bindings", "_by_test", "_memo", "_names")

    def __init__(self) -> None:
        self._bindings: dict[H, frozenset[HeaderBinding]] = {}
        self._forget()

    def route(self, values: Mapping[str, object]) -> tuple[H, ...]:
        """The handles whose bindings match; ``values`` are a message's properties, at least those of ``names``."""
        combination = tuple(tagged(values[name]) if name in values else None for name in self.names)
        found = self._memo.get(combination)
        if found is None:
            found = self._match(dict(zip(self.names, combination, strict=True)))
            if all(map(_is_short, combination)):
                if len(self._memo) >= MEMO_COMBINATIONS:
                    self._memo.clear()
                self._memo[combination] = found
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The properties that any binding asks for, in order; empty if every message reaches every handle."""
        if self._names is None:
            self._build_index()
        assert self._names is not None
        return self._names

    @property
    def handles(self) -> tuple[H, ...]:
        """All handles, in the order in which they were bound."""
        return tuple(self._bindings)

    def bind(self, handle: H, bindings: frozenset[HeaderBinding]) -> None:
        """Bind ``handle``; if it is bound already, these bindings replace its former ones, and it keeps its turn."""
        self._bindings[handle] = bindings
        self._forget()

    def unbind(self, handle: H) -> None:
        """Take ``handle`` out; one that isn't bound is out already."""
        if self._bindings.pop(handle, None) is not None:
            self._forget()

    def _forget(self) -> None:
        """The index is built again when the next message comes: bindings often change in rows."""
        self._memo: dict[tuple[_Value | None, ...], tuple[H, ...]] = {}
        self._names: tuple[str, ...] | None = None
        self._always: set[H] = set()
        self._by_test: dict[HeaderTest, list[tuple[H, tuple[HeaderTest, ...]]]] = {}

    def _build_index(self) -> None:
        names: set[str] = set()
        for handle, bindings in self._bindings.items():
            for binding in bindings or (_NOTHING,):
                names.update(test.name for test in binding.tests)
                self._add(handle, binding)
        self._names = tuple(sorted(names))

    def _add(self, handle: H, binding: HeaderBinding) -> None:
        """Under each test that can be the one that brings a message here: the tests that then have to hold too."""
        if not binding.tests:
            self._always.add(handle)
        elif binding.match is HeaderMatch.ANY:
            for test in binding.tests:
                self._by_test.setdefault(test, []).append((handle, ()))
        else:
            first = min(binding.tests, key=self._crowd)
            others = tuple(test for test in binding.tests if test != first)
            self._by_test.setdefault(first, []).append((handle, others))

    def _crowd(self, test: HeaderTest) -> tuple[bool, int, str]:
        """How many bindings a message may meet by way of this test: presence last, then by the crowd there now."""
        return test.kind is ValueKind.OTHER, len(self._by_test.get(test, ())), test.name

    def _match(self, values: Mapping[str, _Value | None]) -> tuple[H, ...]:
        found = set(self._always)
        for test in _tests_that_hold(values):
            for handle, others in self._by_test.get(test, ()):
                if handle not in found and all(_holds(other, values) for other in others):
                    found.add(handle)
        return tuple(handle for handle in self._bindings if handle in found)


def _is_short(value: _Value | None) -> bool:
    return value is None or not isinstance(value[1], str) or len(value[1]) <= _MEMO_TEXT_LENGTH


def _tests_that_hold(values: Mapping[str, _Value | None]) -> Iterable[HeaderTest]:
    for name, value in values.items():
        if value is not None:
            yield HeaderTest(name, ValueKind.OTHER, None)
            if value[0] is not ValueKind.OTHER:
                yield HeaderTest(name, *value)


def _holds(test: HeaderTest, values: Mapping[str, _Value | None]) -> bool:
    value = values[test.name]
    return value is not None and (test.kind is ValueKind.OTHER or value == (test.kind, test.value))
