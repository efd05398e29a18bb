"""One spelling for all selectors that are the same: keywords in capitals, single blanks, no needless parentheses.

Reading it gives the same tree again. It is what bindings compare, what is stored and what a reply shows.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final, assert_never

from penstock_core.selector.syntax import (
    Arithmetic,
    ArithmeticOp,
    Between,
    Comparison,
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
from penstock_core.selector.text import KEYWORDS

__all__ = ["former_text", "normal_text"]

_NAME: Final = re.compile(r"(?:[^\W\d]|\$)[\w$]*(?:\.(?:[^\W\d]|\$)[\w$]*)*")
_SUM: Final = (ArithmeticOp.ADD, ArithmeticOp.SUBTRACT)
_PRODUCT: Final = (ArithmeticOp.MULTIPLY, ArithmeticOp.DIVIDE, ArithmeticOp.REMAINDER)


def normal_text(node: Node) -> str:
    """The text of ``node``."""
    match node:
        case Literal():
            return _literal(node.value)
        case Identifier():
            return _name(node.name)
        case Sign():
            return f"{'-' if node.negative else '+'}{_operand(node.operand, ())}"
        case Arithmetic():
            return _arithmetic(node)
        case Comparison():
            return f"{normal_text(node.left)} {node.op.value} {normal_text(node.right)}"
        case Between() | In() | Like() | IsNull():
            return _predicate(node, "NOT " if not isinstance(node, IsNull) and node.is_negated else "")
        case Not():
            return _negation(node)
        case Junction():
            return f" {node.op.value} ".join(_joined(each, node.op) for each in node.operands)
        case _:
            assert_never(node)


def former_text(node: Node) -> str:
    """The text as releases up to 0.1 wrote it, for which ``NOT (a IN (...))`` and ``a NOT IN (...)`` were the same."""
    return normal_text(_former(node))


def _former(node: Node) -> Node:
    match node:
        case Not(Between() | In() | Like() as operand):
            return replace(operand, is_negated=not operand.is_negated)
        case Not():
            return replace(node, operand=_former(node.operand))
        case Junction():
            return replace(node, operands=tuple(_former(each) for each in node.operands))
        case _:
            return node


def _negation(node: Not) -> str:
    operand = node.operand
    if isinstance(operand, IsNull):
        return _predicate(operand, "NOT ")
    return f"NOT ({normal_text(operand)})" if isinstance(operand, Junction) else f"NOT {normal_text(operand)}"


def _predicate(node: Between | In | Like | IsNull, not_: str) -> str:
    match node:
        case Between():
            return f"{normal_text(node.operand)} {not_}BETWEEN {normal_text(node.low)} AND {normal_text(node.high)}"
        case In():
            choices = ", ".join(map(_literal, sorted(node.choices)))
            return f"{_name(node.identifier.name)} {not_}IN ({choices})"
        case Like():
            escape = "" if node.escape is None else f" ESCAPE {_literal(node.escape)}"
            return f"{_name(node.identifier.name)} {not_}LIKE {_literal(node.pattern)}{escape}"
        case IsNull():
            return f"{_name(node.identifier.name)} IS {not_}NULL"
        case _:
            assert_never(node)


def _joined(node: Node, op: JunctionOp) -> str:
    text = normal_text(node)
    return f"({text})" if isinstance(node, Junction) and op is JunctionOp.AND else text


def _arithmetic(node: Arithmetic) -> str:
    sums = node.op in _SUM
    left = _operand(node.left, tuple(ArithmeticOp) if sums else _PRODUCT)
    right = _operand(node.right, _PRODUCT if sums else ())
    return f"{left} {node.op.value} {right}"


def _operand(node: Node, without_parentheses: tuple[ArithmeticOp, ...]) -> str:
    text = normal_text(node)
    return f"({text})" if isinstance(node, Arithmetic) and node.op not in without_parentheses else text


def _literal(value: str | bool | int | float) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return repr(value)


def _name(name: str) -> str:
    if _NAME.fullmatch(name) and name.upper() not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'
