"""Names that match patterns: `*` stands for any characters, also none; every other character for itself."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["matches"]


def matches(name: str, patterns: Iterable[str]) -> bool:
    """True if `name` matches one of `patterns`."""
    return any(_match(name, pattern) for pattern in patterns)


def _match(name: str, pattern: str) -> bool:
    """In time linear in the name, which a client chose."""
    first, *rest = pattern.split("*")
    if not rest:
        return name == pattern
    *middle, last = rest
    if not name.startswith(first):
        return False
    at = len(first)
    for part in middle:
        found = name.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return len(name) - len(last) >= at and name.endswith(last)
