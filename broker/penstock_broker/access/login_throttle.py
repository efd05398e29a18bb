"""Slows down who guesses passwords: after some failures the next check of that peer or user begins later.

A check of somebody who never failed begins at once, and no failure of others keeps a user out for longer than a second:
locking somebody out must not be cheaper than guessing. What is remembered is bounded; who failed last is forgotten
last. The clock is an argument. Must not know SASL or connections. Source: docs/security.md.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

__all__ = ["LoginThrottle"]

FORGET_MS: Final = 600_000
CAPACITY: Final = 10_000


class _Rule(NamedTuple):
    free: int
    """Failures that cost nothing."""
    first_ms: int
    most_ms: int


_PAIR: Final = _Rule(3, 250, 10_000)
"""A user name from one network address."""
_PEER: Final = _Rule(30, 100, 2_000)
"""A network address, whatever the names: many honest clients may stand behind one."""
_USER: Final = _Rule(100, 50, 1_000)
"""A user name, from wherever."""


class _Failures(NamedTuple):
    times: int
    last_ms: int


class LoginThrottle:
    """Failures of late."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._failures: OrderedDict[tuple[str, str], _Failures] = OrderedDict()

    def wait_ms(self, peer: str, user: str, now_ms: int) -> int:
        """How long to wait before this user's secret is looked at for this peer."""
        waits = [self._wait(key, rule, now_ms) for key, rule in _keys(peer, user)]
        return max(waits)

    def failed(self, peer: str, user: str, now_ms: int) -> None:
        """A secret was wrong."""
        for key, _ in _keys(peer, user):
            seen = self._failures.pop(key, None)
            count = seen.times if seen is not None and now_ms - seen.last_ms < FORGET_MS else 0
            self._failures[key] = _Failures(count + 1, now_ms)
        while len(self._failures) > self._capacity:
            self._failures.popitem(last=False)

    def succeeded(self, peer: str, user: str) -> None:
        """A secret was right: this user from here is no guesser."""
        self._failures.pop((peer, user), None)

    def _wait(self, key: tuple[str, str], rule: _Rule, now_ms: int) -> int:
        seen = self._failures.get(key)
        if seen is None or now_ms - seen.last_ms >= FORGET_MS or seen.times <= rule.free:
            return 0
        penalty = min(rule.first_ms << min(seen.times - rule.free - 1, 20), rule.most_ms)
        return max(0, seen.last_ms + penalty - now_ms)


def _keys(peer: str, user: str) -> tuple[tuple[tuple[str, str], _Rule], ...]:
    return ((peer, user), _PAIR), ((peer, "\0"), _PEER), (("", user), _USER)
