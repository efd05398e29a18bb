"""LIKE without backtracking: ``%`` splits the pattern into parts that are looked for one after the other.

A regular expression of ``.*`` would let a pattern of a few characters cost seconds on a long value; this costs at most
the product of their lengths, and that only for parts with a ``_``: where it is beyond `MOST_COMPARED` the value counts
as not alike without a comparison.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["MOST_COMPARED", "check_pattern", "compile_like"]

MOST_COMPARED: Final = 1 << 22
"""Characters of a value times those of the longest part with ``_`` between two ``%``: some milliseconds."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What stands between two ``%``; it matches a fixed number of characters."""

    texts: tuple[str | None, ...]
    """Its characters; None where ``_`` stands for any."""

    @property
    def literal(self) -> str | None:
        """The part as a text, None if it has a ``_``."""
        return None if None in self.texts else "".join(each or "" for each in self.texts)

    def finder(self) -> Callable[[str, int, int], int]:
        """Where it first is in a part of a text; below 0 if nowhere."""
        literal = self.literal
        if literal is not None:
            return lambda value, start, end: value.find(literal, start, end)
        search = re.compile("".join("." if each is None else re.escape(each) for each in self.texts), re.DOTALL).search

        def find(value: str, start: int, end: int) -> int:
            found = search(value, start, end)
            return found.start() if found is not None else -1

        return find


def check_pattern(pattern: str, escape: str | None) -> bool:
    """True if every escape character stands before ``%``, ``_`` or itself."""
    characters = iter(pattern)
    return all(next(characters, "") in ("%", "_", escape) for character in characters if character == escape)


def compile_like(pattern: str, escape: str | None) -> Callable[[str], bool]:
    """What says whether a text matches a pattern that ``check_pattern`` let through."""
    parts = list(_split(pattern, escape))
    literals = [part.literal for part in parts]
    match literals:
        case [str(text)]:
            return lambda value: value == text
        case [str(first), ""]:
            return lambda value: value.startswith(first)
        case ["", str(last)]:
            return lambda value: value.endswith(last)
        case _:
            return _search(parts)


def _split(pattern: str, escape: str | None) -> Iterator[_Part]:
    texts: list[str | None] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            texts.append(next(characters))
        elif character == "%":
            yield _Part(tuple(texts))
            texts = []
        else:
            texts.append(None if character == "_" else character)
    yield _Part(tuple(texts))


def _search(parts: list[_Part]) -> Callable[[str], bool]:
    """The first part at the beginning, the last at the end, the others between, each as early as it can be."""
    finders, widths = [part.finder() for part in parts], [len(part.texts) for part in parts]
    if len(parts) == 1:
        return lambda value: len(value) == widths[0] and finders[0](value, 0, widths[0]) == 0
    middle = list(zip(finders, widths, strict=True))[1:-1]
    longest = MOST_COMPARED // max((len(part.texts) for part in parts[1:-1] if part.literal is None), default=1)

    def matches(value: str) -> bool:
        end = len(value) - widths[-1]
        if widths[0] > end or len(value) > longest:
            return False
        if finders[0](value, 0, widths[0]) != 0 or finders[-1](value, end, len(value)) != end:
            return False
        start = widths[0]
        for find, width in middle:
            at = find(value, start, end)
            if at < 0:
                return False
            start = at + width
        return True

    return matches
