"""From a parse tree to ``syntax``: literals get their values, and what JMS forbids is refused with its position.

Java's literal syntax is meant: 017 is octal, 0x1F hexadecimal, 7., .5, 7E3 and 5d are approximate. Ordering, arithmetic
and BETWEEN take numbers, LIKE and IN an identifier, AND, OR, NOT and the selector itself conditions; names may be of
any type, which only the message knows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import lark

from penstock_core.selector.grammar import parse_tree
from penstock_core.selector.like import check_pattern
from penstock_core.selector.syntax import (
    Arithmetic,
    ArithmeticOp,
    Between,
    Comparison,
    ComparisonOp,
    Identifier,
    In,
    IsNull,
    Junction,
    JunctionOp,
    Like,
    Literal,
    Node,
    Not,
    Sign,
)
from penstock_core.selector.text import InvalidSelector
from penstock_core.selector.values import LONG_LIMIT, wrap

__all__ = ["MAX_DEPTH", "read"]

MAX_DEPTH: Final = 64
"""Levels of a selector's tree; no program writes more, and deeper ones would cost the broker its stack."""

_Tree = lark.Tree[lark.Token]
_Child = _Tree | lark.Token


def read(text: str) -> Node:
    """The condition that ``text`` says. Raises InvalidSelector."""
    return _condition(_node(parse_tree(text), 0), "a selector")


def _node(child: _Child, depth: int) -> Node:
    assert isinstance(child, lark.Tree), "every rule of the grammar that can be a node is a tree"
    at = _position(child)
    if depth > MAX_DEPTH:
        raise InvalidSelector(at, f"more than {MAX_DEPTH} levels deep")
    return _READERS[child.data](child, depth + 1, at)


def _position(child: _Child) -> int:
    while isinstance(child, lark.Tree):
        child = child.children[0]
    return (child.start_pos or 0) + 1


def _junction(tree: _Tree, depth: int, at: int) -> Node:
    word = JunctionOp.AND if tree.data == "and_" else JunctionOp.OR
    operands: list[Node] = []
    for child in tree.children[::2]:
        operand = _condition(_node(child, depth), word.value)
        operands += operand.operands if isinstance(operand, Junction) and operand.op is word else (operand,)
    return Junction(word, tuple(operands), at)


def _negation(tree: _Tree, depth: int, at: int) -> Node:
    return Not(_condition(_node(tree.children[1], depth), "NOT"), at)


def _comparison(tree: _Tree, depth: int, at: int) -> Node:
    op = ComparisonOp(str(tree.children[1]))
    check = _number if op.is_ordering else _value
    left, right = (_checked(check(_node(child, depth), op.value)) for child in tree.children[::2])
    return Comparison(op, left, right, at)


def _between(tree: _Tree, depth: int, at: int) -> Between:
    operand, low, high = (
        _checked(_number(_node(child, depth), "BETWEEN")) for child in tree.children if isinstance(child, lark.Tree)
    )
    return Between(operand, low, high, at)


def _in(tree: _Tree, depth: int, at: int) -> In:
    choices = frozenset(_text(child) for child in tree.children if _is_string(child))
    return In(_named(_node(tree.children[0], depth), "IN"), choices, at)


def _like(tree: _Tree, depth: int, at: int) -> Like:
    strings = [child for child in tree.children if _is_string(child)]
    pattern = _text(strings[0])
    escape = _text(strings[1]) if len(strings) > 1 else None
    if escape is not None and len(escape) != 1:
        raise InvalidSelector(_position(strings[1]), "ESCAPE takes one character")
    if not check_pattern(pattern, escape):
        raise InvalidSelector(_position(strings[0]), "the escape character must stand before %, _ or itself")
    return Like(_named(_node(tree.children[0], depth), "LIKE"), pattern, escape, at)


def _is_null(tree: _Tree, depth: int, at: int) -> Node:
    return IsNull(_named(_node(tree.children[0], depth), "IS NULL"), at)


def _arithmetic(tree: _Tree, depth: int, at: int) -> Node:
    operators = [str(child) for child in tree.children[1::2]]
    depth += len(operators)  # the tree leans to the left
    left = _number(_node(tree.children[0], depth), operators[0])
    for operator, child in zip(operators, tree.children[2::2], strict=True):
        right = _number(_node(child, depth), operator)
        left = Arithmetic(ArithmeticOp(operator), _checked(left), _checked(right), at)
    return left


def _sign(tree: _Tree, depth: int, at: int) -> Node:
    sign = str(tree.children[0])
    operand = _number(_node(tree.children[1], depth), sign)
    if not isinstance(operand, Literal):
        return Sign(sign == "-", operand, at)
    if sign == "+":
        return Literal(operand.value, at)
    value = operand.value
    assert not isinstance(value, str), "a number was checked for"
    return Literal(wrap(-value) if isinstance(value, int) else -value, at)


def _exact(tree: _Tree, _: int, at: int) -> Node:
    digits = str(tree.children[0]).rstrip("lL")
    is_hexadecimal = digits[:2] in ("0x", "0X")
    try:
        value = int(digits, 16 if is_hexadecimal else 8 if digits.startswith("0") else 10)
    except ValueError:
        raise InvalidSelector(at, f"{digits[:24]} is no octal number") from None
    # Hexadecimal digits spell all 64 bits; -2**63 is written as minus 2**63, which _sign lets through.
    if value >= 2 * LONG_LIMIT or (value > LONG_LIMIT and not is_hexadecimal):
        raise InvalidSelector(at, f"{digits[:24]} is out of the range of a long")
    return Literal(wrap(value) if is_hexadecimal else value, at)


def _approximate(tree: _Tree, _: int, at: int) -> Node:
    value = float(str(tree.children[0]).rstrip("fFdD"))
    if math.isinf(value):
        raise InvalidSelector(at, "the number is out of the range of a double")
    return Literal(value, at)


def _string(tree: _Tree, _: int, at: int) -> Node:
    return Literal(_text(tree.children[0]), at)


def _true(_tree: _Tree, _: int, at: int) -> Node:
    return Literal(True, at)


def _false(_tree: _Tree, _: int, at: int) -> Node:
    return Literal(False, at)


def _identifier(tree: _Tree, _: int, at: int) -> Node:
    return Identifier(str(tree.children[0]), at)


def _quoted(tree: _Tree, _: int, at: int) -> Node:
    return Identifier(str(tree.children[0])[1:-1].replace('""', '"'), at)


def _negated(
    reader: Callable[[_Tree, int, int], Between | In | Like],
) -> Callable[[_Tree, int, int], Between | In | Like]:
    return lambda tree, depth, at: replace(reader(tree, depth, at), is_negated=True)


def _is_not_null(tree: _Tree, depth: int, at: int) -> Not:
    return Not(_is_null(tree, depth, at), at)


_READERS: Final[dict[str, Callable[[_Tree, int, int], Node]]] = {
    "or_": _junction,
    "and_": _junction,
    "negation": _negation,
    "comparison": _comparison,
    "between": _between,
    "not_between": _negated(_between),
    "in_": _in,
    "not_in": _negated(_in),
    "like": _like,
    "not_like": _negated(_like),
    "is_null": _is_null,
    "is_not_null": _is_not_null,
    "sum": _arithmetic,
    "product": _arithmetic,
    "sign": _sign,
    "exact": _exact,
    "approximate": _approximate,
    "string": _string,
    "true": _true,
    "false": _false,
    "identifier": _identifier,
    "quoted": _quoted,
}


def _is_string(child: _Child) -> bool:
    return isinstance(child, lark.Token) and child.type == "STRING"


def _text(child: _Child) -> str:
    return str(child)[1:-1].replace("''", "'")


def _condition(node: Node, for_what: str) -> Node:
    if isinstance(node, Sign | Arithmetic) or (isinstance(node, Literal) and not isinstance(node.value, bool)):
        raise InvalidSelector(node.at, f"{for_what} takes a condition, and this is a value")
    return node


def _value(node: Node, for_what: str) -> Node:
    if isinstance(node, Literal | Identifier | Sign | Arithmetic):
        return node
    raise InvalidSelector(node.at, f"{for_what} takes values, and this is a condition")


def _number(node: Node, for_what: str) -> Node:
    if isinstance(node, Literal) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return node
    if isinstance(node, Identifier | Sign | Arithmetic):
        return node
    raise InvalidSelector(node.at, f"{for_what} takes numbers")


def _named(node: Node, for_what: str) -> Identifier:
    if isinstance(node, Identifier):
        return node
    raise InvalidSelector(node.at, f"{for_what} takes a name on its left")


def _checked(node: Node) -> Node:
    if isinstance(node, Literal) and isinstance(node.value, int) and node.value >= LONG_LIMIT:
        raise InvalidSelector(node.at, f"{node.value} is out of the range of a long")
    return node
