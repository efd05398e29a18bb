"""A selector ready for use, or the reason why a text is not a selector.

Compiled selectors are remembered by text, the client's and the normal one: ten thousand subscriptions with one selector
share one function, and what was compiled for an attach is not compiled again for the subscription. The memory is
bounded by characters, since a function is as long as its text.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from penstock_core.reason import Reason, Refuse
from penstock_core.selector.code import Lookup, compile_condition
from penstock_core.selector.like_types import check_types
from penstock_core.selector.normal_form import former_text, normal_text
from penstock_core.selector.syntax import Comparison, ComparisonOp, Identifier, Literal, Node
from penstock_core.selector.text import MAX_LENGTH, InvalidSelector, check_words

__all__ = ["REMEMBERED", "Lookup", "Selector", "compile_selector", "mean_the_same", "remembered", "stored_selector"]

REMEMBERED: Final = 128 * 1024
"""Characters of all texts whose selectors are remembered; a function takes about 50 bytes per character."""


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
    """The selector that ``text`` is; None if it is blank (no selector at all); or why it isn't one (decision 12)."""
    if not text.strip(" \t\f\r\n"):
        return None
    try:
        known = _remembered.get(text)
        if known is None:
            check_words(text[: MAX_LENGTH + 1])  # of a longer one `_read` says so
        return known or _compile(text)
    except InvalidSelector as error:
        return Refuse(
            Reason.INVALID_SELECTOR,
            f"The selector is not valid at character {error.position}: {error.cause}.",
            (("invalid-field", "filter"), ("position", error.position)),
        )


def stored_selector(text: str) -> Selector:
    """The selector of a normalised text that was taken once, whatever the limits were then."""
    return _remembered.get(text) or _compile(text, is_stored=True)


def mean_the_same(one: str | None, other: str | None) -> bool:
    """True if two normalised texts are the same selector, or could not be told apart by the release that stored one.

    Releases up to 0.1 stored ``NOT (a IN (...))`` as ``a NOT IN (...)``: who attaches again with it has not changed
    anything, and must not lose the backlog. So too for BETWEEN and LIKE.
    """
    if one == other or one is None or other is None:
        return one == other
    return former_text(_read(one)) == former_text(_read(other))


def _read(text: str) -> Node:
    """The condition that a text says. Raises InvalidSelector."""
    from penstock_core.selector.parser import read  # only when it is needed: see ``text``

    return read(text)


def _compile(text: str, *, is_stored: bool = False) -> Selector:
    node = _read(text)
    try:
        check_types(node)
    except InvalidSelector:
        if not is_stored:
            raise
        # Not remembered: whether a client may name it does not depend on what is stored.
        selects, names = compile_condition(node)
        return Selector(normal_text(node), names, selects, None)
    normal = normal_text(node)
    if len(normal) > MAX_LENGTH:
        # It is what is stored, and has to be read again after a restart.
        raise InvalidSelector(1, f"with a blank around each operator it is longer than {MAX_LENGTH} characters")
    selector = _remembered.get(normal)
    if selector is None:
        selects, names = compile_condition(node)
        selector = Selector(normal, names, selects, _equality(node))
        _remembered.put(normal, selector)
    _remembered.put(text, selector)
    return selector


class _Memory:
    """Selectors by text; those used longest ago are forgotten."""

    def __init__(self) -> None:
        self.size = 0
        self._by_text: OrderedDict[str, Selector] = OrderedDict()

    def get(self, text: str) -> Selector | None:
        selector = self._by_text.get(text)
        if selector is not None:
            self._by_text.move_to_end(text)
        return selector

    def put(self, text: str, selector: Selector) -> None:
        if text in self._by_text:
            return
        self._by_text[text] = selector
        self.size += len(text)
        while self.size > REMEMBERED:
            forgotten, _ = self._by_text.popitem(last=False)
            self.size -= len(forgotten)


_remembered: Final = _Memory()


def remembered() -> int:
    """Characters of all texts that are remembered, at most `REMEMBERED`."""
    return _remembered.size


def _equality(node: Node) -> tuple[str, str] | None:
    match node:
        case Comparison(ComparisonOp.EQUAL, Identifier(name), Literal(str(value))) | Comparison(
            ComparisonOp.EQUAL, Literal(str(value)), Identifier(name)
        ):
            return name, value
        case _:
            return None
