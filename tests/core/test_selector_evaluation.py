"""What selectors select: JMS 2.0, 3.8.1.2, by cases and, by Hypothesis, against a plain three-valued interpreter."""

from __future__ import annotations

import fractions
import math
from typing import assert_never

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_core.selector import Selector, compile_selector
from penstock_core.selector.code import compile_condition
from penstock_core.selector.like import compile_like
from penstock_core.selector.normal_form import normal_text
from penstock_core.selector.parser import read
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

VALUES: dict[str, object] = {
    "red": "red",
    "empty": "",
    "percent": "100%",
    "lines": "a\nb",
    "five": 5,
    "zero": 0,
    "one": 1,
    "min": -(2**63),
    "max": 2**63 - 1,
    "half": 0.5,
    "nan": math.nan,
    "yes": True,
    "no": False,
    "bytes": b"red",
    "list": ["red"],
}


def selects(text: str) -> bool:
    compiled = compile_selector(text)
    assert isinstance(compiled, Selector), compiled
    return compiled.selects(VALUES.get)


TRUE = [
    "TRUE",
    "yes",
    "NOT no",
    "yes = TRUE",
    "yes <> no",
    "red = 'red'",
    "'red' = red",
    "red <> 'blue'",
    "empty = ''",
    "five = 5",
    "five = 5.0",
    "5 = five",
    "five >= 5 AND five <= 5 AND five > 4 AND five < 6",
    "half < 1",
    "half = .5",
    "one = 1 AND NOT one = 2",
    "five BETWEEN 5 AND 5",
    "half BETWEEN 0 AND 0.5",
    "five NOT BETWEEN 6 AND 9",
    "five + 1 BETWEEN 6 AND 6",
    "red IN ('blue', 'red')",
    "red NOT IN ('blue')",
    "NOT (five IN ('5'))",
    "NOT five IN ('5')",
    "NOT (red BETWEEN 1 AND 9)",
    "NOT (five LIKE '5')",
    "yes = TRUE AND NOT (yes IN ('red'))",
    "half NOT BETWEEN 1 AND 9",
    "five + 5 NOT BETWEEN 1 AND 9",
    "red LIKE 'r_d'",
    "red LIKE 'red'",
    "red LIKE 'r%'",
    "red LIKE '%d'",
    "red LIKE '%e%'",
    "red LIKE '%_%_%_%'",
    "red LIKE 'r%%d'",
    "red NOT LIKE 'r_'",
    "red NOT LIKE 'R%'",
    "red NOT LIKE 'red_%'",
    "lines LIKE 'a%b'",
    "lines LIKE 'a_b'",
    "percent LIKE '100!%' ESCAPE '!'",
    "percent LIKE '%!%' ESCAPE '!'",
    "red NOT LIKE 'r.d'",
    "empty LIKE '%'",
    "empty LIKE ''",
    "missing IS NULL",
    "red IS NOT NULL",
    "bytes IS NOT NULL",
    "five + 2 * 3 = 11",
    "(five + 2) * 3 = 21",
    "five - 2 - 2 = 1",
    "7 / 2 = 3",
    "-7 / 2 = -3",
    "7 / 2.0 = 3.5",
    "-five = -5",
    "+five = 5",
    "max + 1 = min",
    "-min = min",
    "max * 2 = -2",
    "min / -1 = min",
    "half / 0 > max",
    "-half / 0.0 < min",
    "NOT zero / 0.0 = zero",
    "7 % 2 = 1",
    "-7 % 4 = -3",
    "7 % -4 = 3",
    "5.5 % 2 = 1.5",
    "-half % 2 < 0",
    "min % -1 = 0",
    "half % (1 / 0.0) = half",
    "2 * five % 4 = 2",
    "five + 7 % 4 = 8",
    "NOT half % 0 = half",
    "NOT 1 / 0.0 % 2 = half",
    "max = 9223372036854775808.0",
    "missing = 1 OR yes",
    "NOT (missing = 1 AND no)",
    "NOT (red = 5)",
    "NOT (bytes = 'red')",
    "NOT (red > five)",
    "NOT (yes = 'red')",
]
NOT_TRUE = [
    "FALSE",
    "no",
    "red",
    "NOT red",
    "five",
    "missing",
    "NOT missing",
    "missing = missing",
    "missing <> 'red'",
    "NOT (missing = 'red')",
    "NOT (missing <> 'red')",
    "missing > 1",
    "NOT (missing > 1)",
    "missing BETWEEN 1 AND 2",
    "missing NOT BETWEEN 1 AND 2",
    "five BETWEEN missing AND 9",
    "five NOT BETWEEN missing AND 9",
    "missing IN ('red')",
    "missing NOT IN ('red')",
    "five NOT IN ('5')",
    "yes NOT IN ('red')",
    "bytes NOT IN ('red')",
    "red NOT IN ('red')",
    "NOT (red NOT IN ('blue'))",
    "NOT (missing NOT IN ('red'))",
    "red NOT BETWEEN 1 AND 9",
    "yes NOT BETWEEN 1 AND 9",
    "red NOT BETWEEN half AND 9.5",
    "nan NOT BETWEEN 1 AND 9",
    "nan NOT BETWEEN half AND 9",
    "five NOT BETWEEN 5 AND 5",
    "five NOT LIKE '5'",
    "yes NOT LIKE 'red'",
    "bytes NOT LIKE '%'",
    "red NOT LIKE 'r%'",
    "missing LIKE '%'",
    "missing NOT LIKE '%'",
    "missing = 1 OR no",
    "missing = 1 AND yes",
    "missing + 1 = 1",
    "five / 0 = 0",
    "NOT (five / 0 = 0)",
    "five % 0 = 0",
    "NOT (five % 0 = 0)",
    "red % 2 = 1",
    "NOT (red % 2 = 1)",
    "red + 1 = 2",
    "NOT (red + 1 = 2)",
    "-red = 1",
    "five = '5'",
    "five <> '5'",
    "red <> 5",
    "yes = 1",
    "one = TRUE",
    "one",
    "zero = FALSE",
    "yes <> 1",
    "yes > zero",
    "nan = nan",
    "nan > 0",
    "red > five",
    "bytes = 'red'",
    "bytes <> 'red'",
    "bytes IN ('red')",
    "list IN ('red')",
    "bytes LIKE '%'",
    "list LIKE '%'",
    "red LIKE 're'",
    "red LIKE 'rr%'",
    "red LIKE 'red%d'",
    "red LIKE '%e%e%'",
    "percent LIKE '1__!%_' ESCAPE '!'",
    "red = 'RED'",
    "five BETWEEN 6 AND 4",
    "red BETWEEN 1 AND 2",
    "yes BETWEEN 0 AND 2",
]


@pytest.mark.parametrize("text", TRUE)
def test_selected(text: str) -> None:
    assert selects(text)


@pytest.mark.parametrize("text", NOT_TRUE)
def test_not_selected(text: str) -> None:
    assert not selects(text)


@pytest.mark.parametrize("text", ["five NOT BETWEEN 6 AND missing", "NOT (five BETWEEN 6 AND missing)"])
def test_between_is_two_comparisons(text: str) -> None:
    # five >= 6 is false, whatever the other end: false AND unknown is false
    assert selects(text)


@given(
    value=st.one_of(st.none(), st.booleans(), st.integers(-2, 11), st.floats(-2, 11), st.text(max_size=2), st.binary()),
    low=st.integers(-1, 10),
    high=st.one_of(st.integers(-1, 10), st.just(2**60), st.floats(-1, 10)),
)
def test_not_between_is_below_or_above(value: object, low: int, high: float) -> None:
    def says(text: str) -> bool:
        compiled = compile_selector(text)
        assert isinstance(compiled, Selector)
        return compiled.selects({"x": value}.get)

    for wrapped in ("{}", "NOT ({})"):
        both = [wrapped.format(each) for each in (f"x NOT BETWEEN {low} AND {high!r}", f"x < {low} OR x > {high!r}")]
        assert says(both[0]) == says(both[1])


def test_a_hostile_pattern_stays_linear() -> None:
    compiled = compile_selector("a LIKE '" + "%a" * 60 + "%b'")
    assert isinstance(compiled, Selector)
    assert not compiled.selects({"a": "a" * 20_000}.get)


def test_a_selector_can_not_inject_code() -> None:
    compiled = compile_selector("\"__import__('os')\" = '{0}\" or True or \"\\'")
    assert isinstance(compiled, Selector)
    nothing: dict[str, object] = {}
    assert not compiled.selects(nothing.get)


@pytest.mark.parametrize("node", [Sign(True, Identifier("a")), Arithmetic(ArithmeticOp.ADD, Literal(1), Literal(2))])
def test_no_value_is_compiled_as_a_condition(node: Node) -> None:
    with pytest.raises(AssertionError):
        compile_condition(node)


def test_no_condition_is_compiled_as_a_value() -> None:
    with pytest.raises(AssertionError):
        compile_condition(Comparison(ComparisonOp.EQUAL, Literal(1), Not(Identifier("a"))))


def test_literals_of_different_types_differ_as_keys_too() -> None:
    assert len({Literal(1), Literal(1.0), Literal(True), Literal("1"), Literal(1, at=9)}) == 4


# A plain interpreter, for comparison


def naive(node: Node) -> bool | None:
    """The truth of a condition, None for unknown."""
    match node:
        case Literal():
            return node.value is True
        case Identifier():
            value = VALUES.get(node.name)
            return value if isinstance(value, bool) else None
        case Not():
            operand = naive(node.operand)
            return None if operand is None else not operand
        case Junction():
            truths = [naive(each) for each in node.operands]
            decisive = node.op is JunctionOp.OR
            if decisive in truths:
                return decisive
            return None if None in truths else not decisive
        case IsNull():
            return VALUES.get(node.identifier.name) is None
        case In() | Like():
            value = VALUES.get(node.identifier.name)
            if value is None:
                return None
            if not isinstance(value, str):
                return False
            taken = value in node.choices if isinstance(node, In) else naive_like(node.pattern, value)
            return taken is not node.is_negated
        case Between(is_negated=True):
            below = naive(Comparison(ComparisonOp.LESS, node.operand, node.low))
            above = naive(Comparison(ComparisonOp.GREATER, node.operand, node.high))
            if below is True or above is True:
                return True
            return None if below is None or above is None else False
        case Between():
            low = naive(Comparison(ComparisonOp.GREATER_OR_EQUAL, node.operand, node.low))
            high = naive(Comparison(ComparisonOp.LESS_OR_EQUAL, node.operand, node.high))
            if low is False or high is False:
                return False
            return None if low is None or high is None else True
        case Comparison():
            return naive_comparison(node.op, naive_value(node.left), naive_value(node.right))
        case Sign() | Arithmetic():
            raise AssertionError("no condition")
        case _:
            assert_never(node)


def naive_like(pattern: str, value: str) -> bool:
    if not pattern:
        return not value
    if pattern[0] == "%":
        return any(naive_like(pattern[1:], value[skip:]) for skip in range(len(value) + 1))
    return bool(value) and pattern[0] in ("_", value[0]) and naive_like(pattern[1:], value[1:])


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def naive_comparison(op: ComparisonOp, left: object, right: object) -> bool | None:
    if left is None or right is None:
        return None
    numbers = is_number(left) and is_number(right)
    texts = isinstance(left, str) and isinstance(right, str)
    truths = isinstance(left, bool) and isinstance(right, bool)
    if not (numbers or ((texts or truths) and not op.is_ordering)):
        return False
    if isinstance(left, int | float) and isinstance(right, int | float) and numbers:
        if isinstance(left, float) is not isinstance(right, float):
            left, right = float(left), float(right)
        return ordered(op, left, right)
    return (left == right) is (op is ComparisonOp.EQUAL)


def ordered(op: ComparisonOp, left: float, right: float) -> bool:
    return {
        ComparisonOp.EQUAL: left == right,
        ComparisonOp.NOT_EQUAL: left != right,
        ComparisonOp.LESS: left < right,
        ComparisonOp.LESS_OR_EQUAL: left <= right,
        ComparisonOp.GREATER: left > right,
        ComparisonOp.GREATER_OR_EQUAL: left >= right,
    }[op]


def naive_value(node: Node) -> object:
    match node:
        case Literal():
            return node.value
        case Identifier():
            return VALUES.get(node.name)
        case Sign():
            operand = naive_value(node.operand)
            if not is_number(operand):
                return None
            return naive_arithmetic(ArithmeticOp.SUBTRACT, 0, operand) if node.negative else operand
        case Arithmetic():
            left, right = naive_value(node.left), naive_value(node.right)
            return naive_arithmetic(node.op, left, right) if is_number(left) and is_number(right) else None
        case _:
            raise AssertionError("no value")


def naive_arithmetic(op: ArithmeticOp, left: object, right: object) -> object:
    assert isinstance(left, int | float)
    assert isinstance(right, int | float)
    if op is ArithmeticOp.DIVIDE:
        if right == 0:
            exact = isinstance(left, int) and isinstance(right, int)
            if exact:
                return None
            return math.nan if left == 0 or left != left else math.copysign(math.inf, left) * math.copysign(1, right)
        if isinstance(left, int) and isinstance(right, int):
            return java_long(int(math.copysign(1, left) * math.copysign(1, right)) * (abs(left) // abs(right)))
        return float(left) / float(right)
    if op is ArithmeticOp.REMAINDER:
        return naive_remainder(left, right)
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
    result = {ArithmeticOp.ADD: left + right, ArithmeticOp.SUBTRACT: left - right, ArithmeticOp.MULTIPLY: left * right}[
        op
    ]
    return result if isinstance(result, float) else java_long(result)


def naive_remainder(left: float, right: float) -> object:
    """Of Java: what is left of the dividend after the whole quotient, rounded towards zero, was taken away."""
    if isinstance(left, int) and isinstance(right, int):
        quotient = naive_arithmetic(ArithmeticOp.DIVIDE, left, right)
        return None if quotient is None else java_long(left - int(str(quotient)) * right)
    if right == 0 or math.isinf(left) or math.isnan(left) or math.isnan(right):
        return math.nan
    if math.isinf(right):
        return float(left)
    whole = fractions.Fraction(left) / fractions.Fraction(right)
    return float(fractions.Fraction(left) - math.trunc(whole) * fractions.Fraction(right))


def java_long(value: int) -> int:
    return int.from_bytes((value % 2**64).to_bytes(8, "big"), "big", signed=True)


NAMES = st.builds(Identifier, st.sampled_from([*VALUES, "missing", "my-name", "NOT"]))
NUMBERS = st.builds(Literal, st.integers(-3, 9) | st.sampled_from([2**63 - 1, -(2**63), 0.5, 2.0, 1e300]))
TEXTS = st.sampled_from(["red", "", "it's", "100%", "r%", "_e%", "%", "a\nb"])
TERMS = st.recursive(
    NAMES | NUMBERS,
    lambda terms: (
        st.builds(Arithmetic, st.sampled_from(ArithmeticOp), terms, terms)
        | st.builds(Sign, st.booleans(), terms.filter(lambda node: not isinstance(node, Literal)))
    ),
    max_leaves=4,
)
STRINGS = NAMES | st.builds(Literal, TEXTS)
BOOLEANS = NAMES | st.builds(Literal, st.booleans())
EQUALITIES = st.sampled_from([ComparisonOp.EQUAL, ComparisonOp.NOT_EQUAL])
PREDICATES = (
    NAMES
    | st.builds(Literal, st.booleans())
    | st.builds(Comparison, st.sampled_from(ComparisonOp), TERMS, TERMS)
    | st.builds(Comparison, EQUALITIES, TERMS | STRINGS, STRINGS)
    | st.builds(Comparison, EQUALITIES, BOOLEANS, BOOLEANS)
    | st.builds(Between, TERMS, TERMS, TERMS, is_negated=st.booleans())
    | st.builds(In, NAMES, st.frozensets(TEXTS, min_size=1), is_negated=st.booleans())
    | st.builds(Like, NAMES, TEXTS, st.none(), is_negated=st.booleans())
    | st.builds(IsNull, NAMES)
)


def joined(op: JunctionOp, operands: list[Node]) -> Node:
    flat: list[Node] = []
    for each in operands:
        flat += each.operands if isinstance(each, Junction) and each.op is op else (each,)
    return Junction(op, tuple(flat))


CONDITIONS = st.recursive(
    PREDICATES,
    lambda conditions: (
        st.builds(Not, conditions)
        | st.builds(joined, st.sampled_from(JunctionOp), st.lists(conditions, min_size=2, max_size=3))
    ),
    max_leaves=6,
)


@settings(max_examples=500)
@given(CONDITIONS)
def test_the_compiled_function_equals_the_interpreter(node: Node) -> None:
    text = normal_text(node)
    compiled = compile_selector(text)
    assert isinstance(compiled, Selector), text
    assert compiled.selects(VALUES.get) is (naive(node) is True)
    opposite = compile_selector(normal_text(Not(node)))
    assert isinstance(opposite, Selector)
    assert opposite.selects(VALUES.get) is (naive(node) is False)


@settings(max_examples=500)
@given(CONDITIONS)
def test_the_normal_text_says_the_same(node: Node) -> None:
    assert read(normal_text(node)) == node


def test_a_pattern_and_a_text_that_are_both_very_long_are_not_alike() -> None:
    """A part with `_` may have to be compared at each place of a text: 2**22 characters in all, 5 x 838,860."""
    alike = compile_like("%____x%", None)
    assert alike("y" * 838_859 + "x")
    assert not alike("y" * 838_860 + "x")
    assert compile_like("%yx%", None)("y" * 2_000_000 + "x")
    assert compile_like("y%_x", None)("y" * 2_000_000 + "x")
