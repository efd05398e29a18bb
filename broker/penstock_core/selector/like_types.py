"""Comparisons of a boolean literal with a literal of another type: nothing can make them true, so they are mistakes.

JMS 2.0, section 3.8.1, lets a provider check more than the syntax when a selector is presented. Qpid JMS and ActiveMQ
refuse ``TRUE = 0`` themselves; other clients send it. A name may be of any type, and ``'5' = 5`` is false, as JMS says.
"""

from __future__ import annotations

from penstock_core.selector.syntax import Arithmetic, Comparison, Junction, Literal, Node, Not, Sign
from penstock_core.selector.text import InvalidSelector

__all__ = ["check_types"]


def check_types(node: Node) -> None:
    """Raises InvalidSelector, with the position of the boolean literal, if the condition holds such a comparison."""
    match node:
        case Not():
            check_types(node.operand)
        case Junction():
            for operand in node.operands:
                check_types(operand)
        case Comparison():
            _check_comparison(node)
        case _:
            pass


def _check_comparison(comparison: Comparison) -> None:
    for one, other in ((comparison.left, comparison.right), (comparison.right, comparison.left)):
        if _is_boolean(one) and isinstance(other, Literal | Sign | Arithmetic) and not _is_boolean(other):
            raise InvalidSelector(one.at, "TRUE and FALSE are compared with a number or a string")


def _is_boolean(node: Node) -> bool:
    return isinstance(node, Literal) and isinstance(node.value, bool)
