"""Which bindings of one exchange a routing key matches.

Topic: words separated by ``.``; ``*`` is one word, ``#`` zero or more; the empty key has no words. Direct: equal keys.
Fanout: all. It must not know what a handle is, nor selectors: those are looked at afterwards, per handle.

Written for speed. ``route`` with a memo hit is one dict lookup: 62 ns on the development machine, whatever the number
of bindings; a miss is linear in words times the patterns still alive. The memo is two generations of at most 1,024 keys
(a cheap stand-in for LRU: a key that is asked again within a generation stays) and is dropped whole at each change of
bindings.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from penstock_core.terms import ExchangeType

__all__ = ["MEMO_KEYS", "ROUTABLE_KEY_LENGTH", "Router", "UnsupportedExchangeType"]

MEMO_KEYS: Final = 1024
"""Keys in one generation of the memo."""
ROUTABLE_KEY_LENGTH: Final = 1024
"""A longer key on a Topic exchange matches ``#`` alone: a message's subject must not buy a long turn of the loop."""
_MEMO_KEY_LENGTH: Final = 256

H = TypeVar("H", bound=Hashable)


class UnsupportedExchangeType(ValueError):
    """No routing for this type yet; ``exchanges.check_exchange_type`` refuses it before."""


@dataclass(slots=True)
class _Node(Generic[H]):
    """One word of the Topic patterns; ``children`` may hold ``*`` and ``#``."""

    children: dict[str, _Node[H]] = field(default_factory=dict)
    handles: dict[H, None] = field(default_factory=dict)


class Router(Generic[H]):
    """The bindings of one exchange. Handles come out in the order in which they were bound, each once."""

    __slots__ = ("_all", "_direct", "_number", "_old", "_topic", "_type", "_young")

    def __init__(self, exchange_type: ExchangeType) -> None:
        if exchange_type is ExchangeType.HEADERS:
            raise UnsupportedExchangeType("Headers exchanges can't route yet")
        self._type = exchange_type
        self._all: dict[H, frozenset[str]] = {}
        self._number: dict[H, int] = {}
        self._direct: dict[str, dict[H, None]] = {}
        self._topic: _Node[H] = _Node()
        self._young: dict[str, tuple[H, ...]] = {}
        self._old: dict[str, tuple[H, ...]] = {}

    def route(self, key: str) -> tuple[H, ...]:
        """The handles whose binding matches ``key``."""
        try:
            return self._young[key]
        except KeyError:
            return self._route_slowly(key)

    @property
    def needs_key(self) -> bool:
        """False if every key leads to every handle, so that nobody has to look for a message's key."""
        if self._type is ExchangeType.FANOUT:
            return False
        return self._type is ExchangeType.DIRECT or any("#" not in keys for keys in self._all.values())

    @property
    def handles(self) -> tuple[H, ...]:
        """All handles, in the order in which they were bound."""
        return tuple(self._all)

    def bind(self, handle: H, keys: frozenset[str]) -> None:
        """Bind ``handle``; if it is bound already, these keys take the place of its former ones, and it keeps its turn."""
        number = self._number.get(handle)
        if handle in self._all:
            self._remove(handle)
        self._number[handle] = next(reversed(self._number.values()), -1) + 1 if number is None else number
        self._all[handle] = keys
        for key in keys:
            if self._type is ExchangeType.TOPIC:
                _add(self._topic, key, handle)
            else:
                self._direct.setdefault(key, {})[handle] = None
        self._forget()

    def unbind(self, handle: H) -> None:
        """Take ``handle`` out; one that isn't bound is out already."""
        if handle in self._all:
            self._remove(handle)
            del self._all[handle], self._number[handle]
            self._forget()

    def _remove(self, handle: H) -> None:
        for key in self._all[handle]:
            if self._type is ExchangeType.TOPIC:
                _discard(self._topic, key, handle)
            else:
                bound = self._direct[key]
                del bound[handle]
                if not bound:
                    del self._direct[key]

    def _forget(self) -> None:
        self._young = {}
        self._old = {}

    def _route_slowly(self, key: str) -> tuple[H, ...]:
        found = self._old.get(key)
        if found is None:
            found = self._match(key)
        if len(key) <= _MEMO_KEY_LENGTH:
            if len(self._young) >= MEMO_KEYS:
                self._old, self._young = self._young, {}
            self._young[key] = found
        return found

    def _match(self, key: str) -> tuple[H, ...]:
        if self._type is ExchangeType.FANOUT:
            return tuple(self._all)
        if self._type is ExchangeType.DIRECT:
            matched = self._direct.get(key, {})
        else:
            matched = _walk(self._topic, key)
        return tuple(sorted(matched, key=self._number.__getitem__))


def _words(key: str) -> list[str]:
    return key.split(".") if key else []


def _add(root: _Node[H], pattern: str, handle: H) -> None:
    node = root
    for word in _words(pattern):
        node = node.children.setdefault(word, _Node())
    node.handles[handle] = None


def _discard(root: _Node[H], pattern: str, handle: H) -> None:
    path = [root]
    words = _words(pattern)
    for word in words:
        path.append(path[-1].children[word])
    del path[-1].handles[handle]
    for parent, word, node in zip(reversed(path[:-1]), reversed(words), reversed(path[1:]), strict=True):
        if node.handles or node.children:
            break
        del parent.children[word]


def _walk(root: _Node[H], key: str) -> dict[H, None]:
    """Follow all patterns at once, so that ``#`` never makes it try the same thing twice."""
    if len(key) > ROUTABLE_KEY_LENGTH:
        catch_all = root.children.get("#")
        return {} if catch_all is None else catch_all.handles
    # Each node waits for the next word; True marks one reached through `#`, which swallows words and stays.
    alive = _closed({id(root): (root, False)})
    for word in _words(key):
        following: dict[int, tuple[_Node[H], bool]] = {}
        for node, stays in alive.values():
            if stays:
                following[id(node)] = (node, True)
            for step in (node.children.get("*"), node.children.get(word) if word not in ("*", "#") else None):
                if step is not None:
                    following.setdefault(id(step), (step, False))
        alive = _closed(following)
    matched: dict[H, None] = {}
    for node, _ in alive.values():
        matched.update(node.handles)
    return matched


def _closed(alive: dict[int, tuple[_Node[H], bool]]) -> dict[int, tuple[_Node[H], bool]]:
    """``alive`` with every node that is one or more ``#`` further on: they match zero words."""
    waiting = [node for node, _ in alive.values()]
    while waiting:
        node = waiting.pop().children.get("#")
        if node is not None and id(node) not in alive:
            alive[id(node)] = (node, True)
            waiting.append(node)
    return alive
