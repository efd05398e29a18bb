"""Writes figures in the units that the dashboards name, and chooses the ticks of an axis in them."""

from __future__ import annotations

import math
from typing import Final

__all__ = ["Tick", "ticks", "written"]

Tick = tuple[float, str]

THOUSANDS: Final = ((1.0, ""), (1e3, " K"), (1e6, " Mil"), (1e9, " Bil"))
COUNTS: Final = ((1.0, ""), (1e3, "K"), (1e6, "M"), (1e9, "B"))
BYTES: Final = ((1.0, " B"), (2.0**10, " KiB"), (2.0**20, " MiB"), (2.0**30, " GiB"), (2.0**40, " TiB"))
SECONDS: Final = ((1e-6, " µs"), (1e-3, " ms"), (1.0, " s"), (60.0, " min"), (3600.0, " h"), (86400.0, " d"))
SCALES: Final = {
    "short": THOUSANDS,
    "bytes": BYTES,
    "s": SECONDS,
    "percentunit": ((0.01, "%"),),
    "mps": tuple((size, f" {name}mps") for size, name in COUNTS),
    "cps": tuple((size, f" {name}c/s") for size, name in COUNTS),
    "ops": tuple((size, f" {name}ops/s") for size, name in COUNTS),
}
STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
BASE: Final = {"s": 1.0}
"""The unit in which zero is written, if it is not the smallest one."""


def written(value: float, unit: str) -> str:
    """The value with three digits that count, in the largest part of the unit that is not larger than it."""
    size, suffix = _scale(value, unit)
    return _digits(value / size) + suffix


def ticks(low: float, high: float, unit: str, most: int = 5) -> list[Tick]:
    """Round values that enclose all from low to high, at most `most` steps; all are written in one unit."""
    if high <= low:
        high = low + (1.0 if low == 0 else abs(low))
    size, suffix = _scale(max(abs(low), abs(high)), unit)
    first, last = low / size, high / size
    rough = (last - first) / most
    power = 10.0 ** math.floor(math.log10(rough))
    for times in STEPS:
        step = times * power
        begin, end = math.floor(first / step + 1e-9), math.ceil(last / step - 1e-9)
        if end - begin <= most:
            return [(number * step * size, _digits(number * step) + suffix) for number in range(begin, end + 1)]
    begin, end, step = math.floor(first / (20 * power)), math.ceil(last / (20 * power)), 20 * power
    return [(number * step * size, _digits(number * step) + suffix) for number in range(begin, end + 1)]


def _scale(value: float, unit: str) -> tuple[float, str]:
    if unit not in SCALES:
        raise ValueError(f"the unit {unit!r} is not known; add it to hack/drawing/units.py")
    scale = SCALES[unit]
    if value == 0:
        return next((part for part in scale if part[0] == BASE.get(unit)), scale[0])
    return next((part for part in reversed(scale) if abs(value) >= part[0] * (1 - 1e-9)), scale[0])


def _digits(value: float) -> str:
    """Three digits that count, but never an exponent, and no zeros at the end."""
    if value == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{min(decimals, 6)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
