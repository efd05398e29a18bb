"""The grammar of selectors, for lark's LALR parser; and the error for a text that does not fit it.

Words and numbers become tokens here; ``parser`` makes the tree. Identifiers are those of Java, also with dots between
them. A name that isn't one can stand in double quotes, as in Broker-J.
"""

from __future__ import annotations

import re
from typing import Final, cast

import lark

__all__ = ["KEYWORDS", "MAX_LENGTH", "MAX_WORDS", "InvalidSelector", "check_words", "parse_tree"]


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

_GRAMMAR: Final = r"""
?start: or_
?or_: and_ (OR and_)*
?and_: not_ (AND not_)*
?not_: NOT not_                                        -> negation
    | predicate
?predicate: sum
    | sum COMPARE sum                                  -> comparison
    | sum BETWEEN sum AND sum                          -> between
    | sum NOT BETWEEN sum AND sum                      -> not_between
    | sum IN "(" STRING ("," STRING)* ")"              -> in_
    | sum NOT IN "(" STRING ("," STRING)* ")"          -> not_in
    | sum LIKE STRING [ESCAPE STRING]                  -> like
    | sum NOT LIKE STRING [ESCAPE STRING]              -> not_like
    | sum IS NULL                                      -> is_null
    | sum IS NOT NULL                                  -> is_not_null
?sum: product ((PLUS | MINUS) product)*
?product: unary ((TIMES | DIVIDE) unary)*
?unary: (PLUS | MINUS) unary                           -> sign
    | atom
?atom: "(" or_ ")"
    | APPROXIMATE                                      -> approximate
    | EXACT                                            -> exact
    | STRING                                           -> string
    | TRUE                                             -> true
    | FALSE                                            -> false
    | NAME                                             -> identifier
    | QUOTED                                           -> quoted

COMPARE: "<>" | "<=" | ">=" | "=" | "<" | ">"
PLUS: "+"
MINUS: "-"
TIMES: "*"
DIVIDE: "/"
STRING: /'(?:[^']|'')*'/
QUOTED: /"(?:[^"]|"")+"/
APPROXIMATE.2: /(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?|[0-9]+(?:[eE][+-]?[0-9]+[fFdD]?|[fFdD])/
EXACT.1: /0[xX][0-9a-fA-F]+[lL]?|[0-9]+[lL]?/
NAME: /(?:[^\W\d]|\$)[\w$]*(?:\.(?:[^\W\d]|\$)[\w$]*)*/

%declare AND OR NOT BETWEEN IN LIKE ESCAPE IS NULL TRUE FALSE
%ignore /[ \t\f\r\n]+/
"""

_WORDS: Final = {
    "COMPARE": "a comparison",
    "PLUS": "+",
    "MINUS": "-",
    "TIMES": "*",
    "DIVIDE": "/",
    "STRING": "a string in '...'",
    "APPROXIMATE": "a number",
    "EXACT": "a number",
    "NAME": "a name",
    "QUOTED": "a name",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": ",",
    "$END": "the end",
}


def _keyword(token: lark.Token) -> lark.Token:
    word = token.upper()
    return lark.Token.new_borrow_pos(word, token, token) if word in KEYWORDS else token


_PARSER: Final = lark.Lark(
    _GRAMMAR, parser="lalr", lexer="basic", lexer_callbacks={"NAME": _keyword}, maybe_placeholders=False
)


_WORD: Final = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|[\w$.]+|<>|<=|>=|[-+*/=<>()]""")


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


def parse_tree(text: str) -> lark.Tree[lark.Token] | lark.Token:
    """The parse tree of ``text``, at most 8,192 characters long. Raises InvalidSelector, with the position."""
    if len(text) > MAX_LENGTH:
        raise InvalidSelector(MAX_LENGTH + 1, f"the selector is longer than {MAX_LENGTH} characters")
    try:
        return _PARSER.parse(text)  # pyright: ignore[reportUnknownMemberType] # lark types its text parameter loosely
    except lark.exceptions.UnexpectedCharacters as error:
        at = cast("int", error.pos_in_stream)  # untyped in lark
        raise InvalidSelector(at + 1, _cause_of(text[at])) from None
    except lark.exceptions.UnexpectedToken as error:
        token: lark.Token = error.token  # pyright: ignore[reportUnknownMemberType] # untyped in lark
        raise _unexpected(token, error.accepts or error.expected, len(text)) from None


def _unexpected(token: lark.Token, expected: set[str], length: int) -> InvalidSelector:
    at_end = token.type == "$END"
    position = length if at_end else token.start_pos or 0
    found = "the end" if at_end else repr(str(token))
    return InvalidSelector(position + 1, f"{found} where {_expected(expected)} should be")


def _cause_of(character: str) -> str:
    if character == "'":
        return "the string has no closing '"
    return f"{character!r} can't stand here"


def _expected(terminals: set[str]) -> str:
    words = sorted({_WORDS.get(each, each) for each in terminals})
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
