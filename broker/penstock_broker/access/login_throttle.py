"""Slows down the guessing of passwords: after some failures the next check for that peer or user begins later.

A check for a user and peer without failures begins at once, and the failures of others delay a user by a second at
most: it must not be cheaper to lock a user out than to guess the password. What is remembered is bounded; the latest
failures are kept. The clock is an argument. Must not know SASL or connections. Source: docs/reference/security.md.
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
"""A network address with any user names: many honest clients may share one."""
_USER: Final = _Rule(100, 50, 1_000)
"""A user name from any network address."""


class _Failures(NamedTuple):
    times: int
    last_ms: int


class LoginThrottle:
    """The failed logins of the last ten minutes."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._failures: OrderedDict[tuple[str, str], _Failures] = OrderedDict()

    def wait_ms(self, peer: str, user: str, now_ms: int) -> int:
        """Milliseconds to wait before this user's secret is checked for this peer."""
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
        """A secret was right: forget the failures of this user from this peer."""
        self._failures.pop((peer, user), None)

    def _wait(self, key: tuple[str, str], rule: _Rule, now_ms: int) -> int:
        seen = self._failures.get(key)
        if seen is None or now_ms - seen.last_ms >= FORGET_MS or seen.times <= rule.free:
            return 0
        penalty = min(rule.first_ms << min(seen.times - rule.free - 1, 20), rule.most_ms)
        return max(0, seen.last_ms + penalty - now_ms)


def _keys(peer: str, user: str) -> tuple[tuple[tuple[str, str], _Rule], ...]:
    return ((peer, user), _PAIR), ((peer, "\0"), _PEER), (("", user), _USER)
