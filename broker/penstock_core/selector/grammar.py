"""The grammar of selectors, for lark's LALR parser; and what is wrong with a text that does not fit it.

Words and numbers become tokens here; ``parser`` makes the tree. Identifiers are those of Java, also with dots between
them. A name that isn't one can stand in double quotes, and ``%`` is the remainder, as in Broker-J.
"""

from __future__ import annotations

from typing import Final, cast

import lark

from penstock_core.selector.text import KEYWORDS, MAX_LENGTH, InvalidSelector

__all__ = ["parse_tree"]

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
?product: unary ((TIMES | DIVIDE | REMAINDER) unary)*
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
REMAINDER: "%"
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
    "REMAINDER": "%",
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
