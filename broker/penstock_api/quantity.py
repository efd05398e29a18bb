"""Sizes as Kubernetes writes them, such as ``10Gi``: their values, and their bounds as CEL and as a validator.

Source: Kubernetes API conventions, "Quantity".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.config import JsonDict

from penstock_api.schema import cel, validations

__all__ = [
    "IS_QUANTITY",
    "Quantity",
    "SizeBytes",
    "bounded_quantity",
    "bounds_of_quantity",
    "parse_quantity",
    "quantity_bytes",
]

_QUANTITY: Final = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]+))?")
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_MOST: Final = Decimal(2**63 - 1)
"""No quantity is larger: Kubernetes takes a text that says more, and reads it as this."""
_FURTHEST_EXPONENT: Final = 100
"""An exponent beyond it says no more: its quantity is larger than all others, or rounded up to one byte."""


def parse_quantity(text: str) -> Decimal:
    """The value of a Kubernetes quantity such as ``10Gi`` or ``250m``; of one beyond 2**63 - 1, that.

    Raises:
        ValueError: the text isn't a quantity.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity; write a number with an optional unit, such as 512Mi or 10Gi")
    number, suffix, exponent = Decimal(match[1]), match[2], match[3]
    value: Decimal
    if suffix in _BINARY:
        value = number * 2 ** _BINARY[suffix]
    else:
        shift = int(exponent) if exponent is not None else _DECIMAL.get(suffix, 0)
        value = number.scaleb(max(-_FURTHEST_EXPONENT, min(shift, _FURTHEST_EXPONENT)))
    return max(-_MOST, min(value, _MOST))


def quantity_bytes(text: str) -> int:
    """A size in bytes, rounded up.

    Raises:
        ValueError: the text isn't a quantity.
    """
    return math.ceil(parse_quantity(text))


def _as_bytes(value: object) -> object:
    return quantity_bytes(value) if isinstance(value, str) else value


SizeBytes = Annotated[int, BeforeValidator(_as_bytes)]
"""Bytes in a file of settings: a number, or a size as Kubernetes writes it, such as `16Mi`."""


def _check_quantity(text: str) -> str:
    if parse_quantity(text) <= 0:
        raise ValueError(f"{text!r} must be greater than zero")
    return text


IS_QUANTITY: Final = cel(
    "isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))",
    "must be a quantity greater than zero, such as 512Mi",
)

Quantity = Annotated[
    str, Field(max_length=32, json_schema_extra=validations(IS_QUANTITY)), AfterValidator(_check_quantity)
]
"""A size as Kubernetes writes it; a string on purpose, so that `1Gi` and `1073741824` are both legal and no float
enters.
"""


def bounded_quantity(told: str, least: str, most: str | None = None) -> Callable[[str], str]:
    """The check of a `Quantity` for `least` and `most`; `told`: the message, what it must be. `bounds_of_quantity` is
    the same check for the API server.
    """
    lowest = quantity_bytes(least)
    highest = None if most is None else quantity_bytes(most)

    def check(text: str) -> str:
        size = quantity_bytes(text)
        if size < lowest or (highest is not None and size > highest):
            raise ValueError(f"{text!r} {told}")
        return text

    return check


def bounds_of_quantity(told: str, least: str, most: str | None = None) -> JsonDict:
    """The check of `bounded_quantity` for the API server, with the rules of every `Quantity`: the rules of a field
    replace those of its type.
    """
    within = f"quantity(self).compareTo(quantity('{least}')) >= 0"
    if most is not None:
        within = f"({within} && quantity(self).compareTo(quantity('{most}')) <= 0)"
    return validations(IS_QUANTITY, cel(f"!isQuantity(self) || {within}", told))
