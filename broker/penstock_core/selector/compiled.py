"""A selector ready for use, or why the text is none.

Compiled selectors are cached by text: ten thousand subscriptions with one selector share one function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from penstock_core.reason import Reason, Refuse
from penstock_core.selector.code import Lookup, compile_condition
from penstock_core.selector.errors import InvalidSelector
from penstock_core.selector.grammar import MAX_LENGTH
from penstock_core.selector.normal import normal_text
from penstock_core.selector.reading import read
from penstock_core.selector.syntax import Comparison, ComparisonOp, Identifier, Literal, Node

__all__ = ["Lookup", "Selector", "compile_selector"]

_CACHED: Final = 1024


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled selector; two are equal if they say the same."""

    text: str
    """The normalised text, as ``Filter.selector`` keeps it."""
    names: tuple[str, ...] = field(compare=False)
    """The identifiers that it asks for; nothing else of a message has to be decoded."""
    selects: Callable[[Lookup], bool] = field(compare=False)
    """True if the message whose values ``lookup`` gives is selected: false and unknown are both no."""
    equality: tuple[str, str] | None = field(compare=False)
    """The identifier and the text that it must equal, if that is all that the selector says; such can be indexed."""


def compile_selector(text: str) -> Selector | Refuse | None:
    """The selector that ``text`` says, None if it is blank (no selector at all), or why it is none (decision 12)."""
    if not text.strip(" \t\f\r\n"):
        return None
    try:
        return _compile(text)
    except InvalidSelector as error:
        return Refuse(
            Reason.INVALID_SELECTOR,
            f"The selector is not valid at character {error.position}: {error.cause}.",
            (("invalid-field", "filter"), ("position", error.position)),
        )


@lru_cache(_CACHED)
def _compile(text: str) -> Selector:
    node = read(text)
    normal = normal_text(node)
    if len(normal) > MAX_LENGTH:
        # It is what is stored, and has to be read again after a restart.
        raise InvalidSelector(1, f"with a blank around each operator it is longer than {MAX_LENGTH} characters")
    selects, names = compile_condition(node)
    return Selector(normal, names, selects, _equality(node))


def _equality(node: Node) -> tuple[str, str] | None:
    match node:
        case Comparison(ComparisonOp.EQUAL, Identifier(name), Literal(str(value))) | Comparison(
            ComparisonOp.EQUAL, Literal(str(value)), Identifier(name)
        ):
            return name, value
        case _:
            return None
