"""LIKE without backtracking: ``%`` splits the pattern into parts that are looked for one after the other.

A regular expression of ``.*`` would let a pattern of a few characters cost seconds on a long value; this costs at most
the product of their lengths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["check_pattern", "compile_like"]


@dataclass(frozen=True, slots=True)
class _Part:
    """What stands between two ``%``; it matches a fixed number of characters."""

    texts: tuple[str | None, ...]
    """Its characters; None where ``_`` stands for any."""

    @property
    def literal(self) -> str | None:
        """The part as a text, None if it has a ``_``."""
        return None if None in self.texts else "".join(each or "" for each in self.texts)

    @property
    def regex(self) -> re.Pattern[str]:
        """The part as a regular expression."""
        return re.compile("".join("." if each is None else re.escape(each) for each in self.texts), re.DOTALL)


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
            return _search([part.regex for part in parts], [len(part.texts) for part in parts])


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


def _search(parts: list[re.Pattern[str]], widths: list[int]) -> Callable[[str], bool]:
    """The first part at the beginning, the last at the end, the others between, each as early as it can be."""
    if len(parts) == 1:
        return lambda value: parts[0].fullmatch(value) is not None

    def matches(value: str) -> bool:
        end = len(value) - widths[-1]
        if widths[0] > end or not parts[0].match(value) or not parts[-1].match(value, end):
            return False
        start = widths[0]
        for part in parts[1:-1]:
            found = part.search(value, start, end)
            if found is None:
                return False
            start = found.end()
        return True

    return matches
