"""What can be said of a selector's text without parsing it: its limits, its words, and the error for what is none.

Apart from ``grammar``, whose parser takes a tenth of a broker's start to build and is not needed before the first
selector comes.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["KEYWORDS", "MAX_LENGTH", "MAX_WORDS", "InvalidSelector", "check_words"]


class InvalidSelector(ValueError):
    """A text that is no selector; ``position`` counts characters from 1."""

    def __init__(self, position: int, cause: str) -> None:
        super().__init__(f"at character {position}: {cause}")
        self.position = position
        self.cause = cause


MAX_LENGTH: Final = 8192
"""Largest number of characters in a selector."""

MAX_WORDS: Final = 1024
"""Largest number of names, operators, brackets and wildcards in a selector; compiling each takes about 20 us."""

KEYWORDS: Final = frozenset({"AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"})

_WORD: Final = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|[\w$.]+|<>|<=|>=|[-+*/%=<>()]""")


def check_words(text: str) -> None:
    """Raise InvalidSelector for a text that would take too long to compile, before it is compiled.

    The position of the error is that of the first word beyond `MAX_WORDS`. Names, operators, brackets and the wildcards
    of a LIKE count as words; other strings, numbers and commas don't.
    """
    left = MAX_WORDS
    is_pattern = False
    for match in _WORD.finditer(text):
        word = match[0]
        if word[0] == "'":
            left -= word.count("%") + word.count("_") if is_pattern else 0
        elif not word[0].isdigit():
            left -= 1
        if left < 0:
            raise InvalidSelector(match.start() + 1, f"more than {MAX_WORDS} names, operators, brackets and wildcards")
        is_pattern = word.upper() == "LIKE"
