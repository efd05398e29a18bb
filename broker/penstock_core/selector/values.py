"""Comparing and computing with the values of messages, as Java does it and as three-valued logic wants it.

A value is a str, a bool, an int, a float, None for an absent one, or something else (binary, a list, ...) that equals
nothing. Results are True, False or None for unknown. Called by the code that ``code`` makes.
"""

from __future__ import annotations

import math
from typing import Final

__all__ = [
    "LONG_LIMIT",
    "add",
    "between",
    "divide",
    "equal",
    "greater",
    "greater_or_equal",
    "less",
    "less_or_equal",
    "multiply",
    "negate",
    "not_equal",
    "number",
    "remainder",
    "subtract",
    "wrap",
]

LONG_LIMIT: Final = 2**63

Number = int | float


def number(value: object) -> Number | None:
    """``value`` as an operand of arithmetic: anything but a number is null there."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return None


def wrap(value: int) -> int:
    """``value`` as a Java long has it after an overflow."""
    return (value + LONG_LIMIT) % (2 * LONG_LIMIT) - LONG_LIMIT


def equal(left: object, right: object) -> bool | None:
    """``=``: values of different types are not equal; null is unknown."""
    if left is None or right is None:
        return None
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, str) or isinstance(right, str):
        return isinstance(left, str) and isinstance(right, str) and str(left) == str(right)
    order = _promoted(left, right)
    return order is not None and order[0] == order[1]


def not_equal(left: object, right: object) -> bool | None:
    """``<>``: false for values of different types too ("non-like type values", JMS 2.0 section 3.8.1.2)."""
    if left is None or right is None:
        return None
    if isinstance(left, bool) and isinstance(right, bool):
        return left is not right
    if isinstance(left, str) and isinstance(right, str):
        return str(left) != str(right)
    order = _promoted(left, right)
    return order is not None and order[0] != order[1]


def less(left: object, right: object) -> bool | None:
    """``<``"""
    if left is None or right is None:
        return None
    order = _promoted(left, right)
    return order is not None and order[0] < order[1]


def less_or_equal(left: object, right: object) -> bool | None:
    """``<=``"""
    if left is None or right is None:
        return None
    order = _promoted(left, right)
    return order is not None and order[0] <= order[1]


def greater(left: object, right: object) -> bool | None:
    """``>``"""
    return less(right, left)


def greater_or_equal(left: object, right: object) -> bool | None:
    """``>=``"""
    return less_or_equal(right, left)


def between(value: object, low: object, high: object) -> bool | None:
    """``value >= low AND value <= high``."""
    above, below = less_or_equal(low, value), less_or_equal(value, high)
    if above is False or below is False:
        return False
    return None if above is None or below is None else True


def add(left: object, right: object) -> Number | None:
    """``+``"""
    pair = _promoted(left, right)
    return None if pair is None else _fit(pair[0] + pair[1])


def subtract(left: object, right: object) -> Number | None:
    """``-``"""
    pair = _promoted(left, right)
    return None if pair is None else _fit(pair[0] - pair[1])


def multiply(left: object, right: object) -> Number | None:
    """``*``"""
    pair = _promoted(left, right)
    return None if pair is None else _fit(pair[0] * pair[1])


def divide(left: object, right: object) -> Number | None:
    """``/``: exact numbers truncate towards zero, and by zero are null; approximate ones follow IEEE 754."""
    pair = _promoted(left, right)
    if pair is None:
        return None
    dividend, divisor = pair
    if isinstance(dividend, int) and isinstance(divisor, int):
        if divisor == 0:
            return None
        quotient = abs(dividend) // abs(divisor)
        return wrap(quotient if (dividend < 0) is (divisor < 0) else -quotient)
    if divisor != 0:
        return dividend / divisor
    if dividend == 0 or math.isnan(dividend):
        return math.nan
    return math.copysign(math.inf, dividend) * math.copysign(1.0, divisor)


def remainder(left: object, right: object) -> Number | None:
    """``%``: has the sign of ``left``. By zero, exact numbers are null and approximate ones NaN."""
    pair = _promoted(left, right)
    if pair is None:
        return None
    dividend, divisor = pair
    if isinstance(dividend, int) and isinstance(divisor, int):
        if divisor == 0:
            return None
        rest = abs(dividend) % abs(divisor)
        return rest if dividend > 0 else -rest
    if divisor == 0 or math.isinf(dividend):
        return math.nan
    return math.fmod(dividend, divisor)


def negate(value: object) -> Number | None:
    """Unary minus."""
    operand = number(value)
    return None if operand is None else _fit(-operand)


def _promoted(left: object, right: object) -> tuple[Number, Number] | None:
    """Java's numeric promotion: one approximate number makes both approximate."""
    first, second = number(left), number(right)
    if first is None or second is None:
        return None
    if isinstance(first, float) is isinstance(second, float):
        return first, second
    return float(first), float(second)


def _fit(value: Number) -> Number:
    return value if isinstance(value, float) else wrap(value)
