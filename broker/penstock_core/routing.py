"""Which bindings of one exchange a routing key matches.

Topic: words separated by ``.``; ``*`` is one word, ``#`` zero or more; the empty key has no words. Direct: equal keys.
Fanout: all. Headers exchanges route by properties: see ``header_routing``. It must not know what a handle is, nor
selectors: those are looked at afterwards, per handle.

Written for speed. ``route`` with a memo hit is one dict lookup: 35 ns on the development machine, whatever the number
of bindings. A miss is linear in the key's words times the pattern words still alive: 5 us with a hundred bindings, 13
ms for the worst pattern and key that fit the limits. The memo is two generations of at most 1,024 keys (a cheap
stand-in for LRU: a key that is asked again within a generation stays) and is dropped whole at each change of bindings.
Equal answers are one tuple, and a generation also ends once its distinct answers hold 65,536 handles.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from penstock_core.terms import ExchangeType

__all__ = ["MEMO_KEYS", "ROUTABLE_KEY_LENGTH", "Router"]

MEMO_KEYS: Final = 1024
"""Keys in one generation of the memo."""
ROUTABLE_KEY_LENGTH: Final = 1024
"""A longer key on a Topic exchange matches ``#`` alone: a message's subject must not buy a long turn of the loop."""
_MEMO_KEY_LENGTH: Final = 256
_MEMO_HANDLES: Final = 65_536
_WILDCARDS: Final = ("*", "#")

H = TypeVar("H", bound=Hashable)


class _Node(Generic[H]):
    """One word of the Topic patterns; ``children`` may hold ``*`` and ``#``."""

    __slots__ = ("children", "handles", "stays")

    def __init__(self, stays: bool = False) -> None:
        self.stays = stays  # it was reached by `#`, which swallows any number of words
        self.children: dict[str, _Node[H]] = {}
        self.handles: set[H] = set()


class Router(Generic[H]):
    """The bindings of one exchange. Handles come out in the order in which they were bound, each once."""

    __slots__ = ("_answers", "_direct", "_keys", "_next", "_old", "_order", "_topic", "_type", "_weight", "_young")

    def __init__(self, exchange_type: ExchangeType) -> None:
        assert exchange_type is not ExchangeType.HEADERS, "those have a HeadersRouter"
        self._type = exchange_type
        self._keys: dict[H, frozenset[str]] = {}
        self._order: dict[H, int] = {}
        self._next = 0
        self._direct: dict[str, set[H]] = {}
        self._topic: _Node[H] = _Node()
        self._forget()

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
        return self._type is ExchangeType.DIRECT or any("#" not in keys for keys in self._keys.values())

    @property
    def handles(self) -> tuple[H, ...]:
        """All handles, in the order in which they were bound."""
        return tuple(self._keys)

    def bind(self, handle: H, keys: frozenset[str]) -> None:
        """Bind ``handle``; if it is bound already, these keys replace its former ones, and it keeps its turn."""
        if handle in self._keys:
            self._remove(handle)
        else:
            self._order[handle] = self._next
            self._next += 1
        self._keys[handle] = keys
        for key in keys:
            if self._type is ExchangeType.TOPIC:
                _add(self._topic, key, handle)
            else:
                self._direct.setdefault(key, set()).add(handle)
        self._forget()

    def unbind(self, handle: H) -> None:
        """Take ``handle`` out; one that isn't bound is out already."""
        if handle in self._keys:
            self._remove(handle)
            del self._keys[handle], self._order[handle]
            self._forget()

    def _remove(self, handle: H) -> None:
        for key in self._keys[handle]:
            if self._type is ExchangeType.TOPIC:
                _discard(self._topic, key, handle)
            else:
                bound = self._direct[key]
                bound.remove(handle)
                if not bound:
                    del self._direct[key]

    def _forget(self) -> None:
        self._old: dict[str, tuple[H, ...]] = {}
        self._start_generation()

    def _start_generation(self) -> None:
        self._young: dict[str, tuple[H, ...]] = {}
        self._answers: dict[tuple[H, ...], tuple[H, ...]] = {}
        self._weight = 0

    def _route_slowly(self, key: str) -> tuple[H, ...]:
        found = self._old.get(key)
        if found is None:
            found = self._match(key)
        if len(key) > _MEMO_KEY_LENGTH:
            return found
        if len(self._young) >= MEMO_KEYS or self._weight >= _MEMO_HANDLES:
            self._old = self._young
            self._start_generation()
        known = self._answers.get(found)
        if known is None:
            known = self._answers[found] = found
            self._weight += len(found)
        self._young[key] = known
        return known

    def _match(self, key: str) -> tuple[H, ...]:
        if self._type is ExchangeType.FANOUT:
            return tuple(self._keys)
        matched = self._direct.get(key, ()) if self._type is ExchangeType.DIRECT else _walk(self._topic, key)
        return tuple(sorted(matched, key=self._order.__getitem__))


def _words(key: str) -> list[str]:
    return key.split(".") if key else []


def _add(root: _Node[H], pattern: str, handle: H) -> None:
    node = root
    for word in _words(pattern):
        node = node.children.setdefault(word, _Node(word == "#"))
    node.handles.add(handle)


def _discard(root: _Node[H], pattern: str, handle: H) -> None:
    path = [root]
    words = _words(pattern)
    for word in words:
        path.append(path[-1].children[word])
    path[-1].handles.remove(handle)
    for parent, word, node in zip(reversed(path[:-1]), reversed(words), reversed(path[1:]), strict=True):
        if node.handles or node.children:
            break
        del parent.children[word]


def _walk(root: _Node[H], key: str) -> set[H]:
    """Follow all patterns at once, so that ``#`` never makes it try the same thing twice."""
    if len(key) > ROUTABLE_KEY_LENGTH:
        catch_all = root.children.get("#")
        return set() if catch_all is None else catch_all.handles
    alive = _closed({root})
    for word in _words(key):
        following = {node for node in alive if node.stays}
        for node in alive:
            # A key may hold the words `*` and `#` too; there they are no wildcards.
            for child in (node.children.get("*"), None if word in _WILDCARDS else node.children.get(word)):
                if child is not None:
                    following.add(child)
        alive = _closed(following)
    return {handle for node in alive for handle in node.handles}


def _closed(alive: set[_Node[H]]) -> set[_Node[H]]:
    """``alive`` with every node that is one or more ``#`` further on: they match zero words."""
    waiting = list(alive)
    while waiting:
        node = waiting.pop().children.get("#")
        if node is not None and node not in alive:
            alive.add(node)
            waiting.append(node)
    return alive
