"""Finds dispositions that name very many deliveries: of these, a few bytes cost as much as a turn of the loop may take.

The numbers of deliveries are serial numbers: a range may go on from the highest one to 0. Must not know which
deliveries exist. The compiled engine has a twin of this (`penstock_native/input.c`). Source: AMQP 1.0 part 2, 2.7.6 and
2.8.9; RFC 1982.
"""

from __future__ import annotations

from typing import Final

__all__ = ["WIDE", "width"]

WIDE: Final = 256
"""Deliveries; a disposition that names fewer costs no more than other frames."""

_SERIAL: Final = 0xFFFF_FFFF
_NUMBER_BYTES: Final = {0x43: 0, 0x52: 1, 0x70: 4}
"""Bytes of a number of 32 bits behind its format code, by this code."""
_HEAD_BYTES: Final = {0xC0: 3, 0xD0: 9}
"""Bytes of a list before its first item, by its format code."""
_LIST_AT: Final = 3


def width(body: memoryview) -> int:
    """How many deliveries the disposition in this frame body names beside the first. Its descriptor takes three bytes.
    0 as well if it is cut short or malformed.
    """
    try:
        at = _LIST_AT + _HEAD_BYTES[body[_LIST_AT]]
        at += 2 if body[at] == 0x56 else 1  # the role
        numbers: list[int] = []
        for _ in range(2):
            end = at + 1 + _NUMBER_BYTES[body[at]]
            if end > len(body):
                return 0
            numbers.append(int.from_bytes(body[at + 1 : end]))
            at = end
    except (IndexError, KeyError):
        return 0
    first, last = numbers
    return (last - first) & _SERIAL
