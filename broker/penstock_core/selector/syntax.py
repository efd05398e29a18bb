"""What a selector says, as a tree of values. Two texts that mean the same tree are the same selector.

``at`` is where a node begins, counted from 1; it never takes part in comparisons.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

__all__ = [
    "Arithmetic",
    "ArithmeticOp",
    "Between",
    "Comparison",
    "ComparisonOp",
    "Condition",
    "Identifier",
    "In",
    "IsNull",
    "Junction",
    "JunctionOp",
    "Like",
    "Literal",
    "Node",
    "Not",
    "Sign",
]


class ComparisonOp(enum.Enum):
    """Comparison operators."""

    EQUAL = "="
    NOT_EQUAL = "<>"
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="

    @property
    def is_ordering(self) -> bool:
        """True for those that only numbers have."""
        return self not in (ComparisonOp.EQUAL, ComparisonOp.NOT_EQUAL)


class ArithmeticOp(enum.Enum):
    """Arithmetic operators."""

    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "/"
    REMAINDER = "%"


class JunctionOp(enum.Enum):
    """What joins conditions."""

    AND = "AND"
    OR = "OR"


@dataclass(frozen=True, slots=True)
class Literal:
    """A string, a boolean, an exact number (int) or an approximate one (float)."""

    value: str | bool | int | float
    at: int = field(default=0, compare=False)

    def __eq__(self, other: object) -> bool:
        """``1``, ``1.0`` and ``TRUE`` are three literals."""
        return isinstance(other, Literal) and self.value == other.value and type(self.value) is type(other.value)

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True, slots=True)
class Identifier:
    """A header field or a property."""

    name: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Sign:
    """A unary plus or minus before anything but a number."""

    negative: bool
    operand: Node
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Two numbers."""

    op: ArithmeticOp
    left: Node
    right: Node
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two values."""

    op: ComparisonOp
    left: Node
    right: Node
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Between:
    """Low <= operand <= high."""

    operand: Node
    low: Node
    high: Node
    at: int = field(default=0, compare=False)
    is_negated: bool = False
    """`NOT BETWEEN`: below low or above high. Not the same as `Not`: false for a value of another type."""


@dataclass(frozen=True, slots=True)
class In:
    """One of some strings."""

    identifier: Identifier
    choices: frozenset[str]
    at: int = field(default=0, compare=False)
    is_negated: bool = False
    """`NOT IN`: a string, but none of these."""


@dataclass(frozen=True, slots=True)
class Like:
    """A pattern of ``%`` and ``_``."""

    identifier: Identifier
    pattern: str
    escape: str | None
    at: int = field(default=0, compare=False)
    is_negated: bool = False
    """`NOT LIKE`: a string, but none of the pattern."""


@dataclass(frozen=True, slots=True)
class IsNull:
    """No such value."""

    identifier: Identifier
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    """The other truth value; unknown stays unknown. ``a IS NOT NULL`` is this too; ``a NOT IN (...)`` is not."""

    operand: Node
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Junction:
    """Two or more conditions joined by one word; a junction of the same word is never among them."""

    op: JunctionOp
    operands: tuple[Node, ...]
    at: int = field(default=0, compare=False)


Condition = Comparison | Between | In | Like | IsNull | Not | Junction
Node = Literal | Identifier | Sign | Arithmetic | Condition
