"""Finds frames that lack a mandatory field, which the engine would read as 0, or pass over without a word.

`may_lack` looks at bytes alone, for the performatives of which there are many; `checked` decodes. Must not know what a
frame does. The compiled engine has a twin of the first for dispositions (`penstock_native/input.c`). Source: AMQP 1.0
part 1, 1.4 (mandatory), 1.6.22 and 1.6.23; part 2, 2.7.
"""

from __future__ import annotations

from typing import Final

from penstock_amqp.errors import DecodeError
from penstock_amqp.frames.performatives import Disposition, Flow, Performative
from penstock_amqp.types.composites import missing_field
from penstock_amqp.types.decoder import decode
from penstock_amqp.types.values import Described, Value

__all__ = ["check_disposition", "check_flow", "check_value", "checked"]

_LIST_AT: Final = 3
"""Where the list begins in a frame body whose descriptor takes three bytes."""
_SIZES: Final = {0xC0: 1, 0xD0: 4}
"""Bytes of the size of a list, and of its count, by its format code."""
_NULL: Final = 0x40
_COUNT_AT: Final = 5
"""Where a frame body has the count of a short list; a long one has a part of its size there, which is 0."""
_FLOW_FIELDS: Final = 4
_FLOW_BYTES: Final = 26
"""So long are the beginning of a short list and four numbers behind it at most."""
_BYTES: Final = {_NULL: 1, 0x41: 1, 0x42: 1, 0x56: 2, 0x43: 1, 0x52: 2, 0x70: 5}
"""Bytes of a null, a boolean, or a number of 32 bits with its format code, by this code."""


def check_disposition(body: memoryview, at: int) -> None:
    """Check the disposition in this frame body, whose descriptor takes three bytes; `at`: its offset, for the error.
    What is cut short is not checked. Raises `DecodeError`.
    """
    if _may_lack(body, 0, 2):
        checked(Disposition, bytes(body), at)


def check_flow(data: bytes, at: int, end: int) -> None:
    """Check the flow whose frame body is `data` from `at` to `end`, and whose descriptor takes three bytes. Raises
    `DecodeError`.
    """
    has_count = end - at > _COUNT_AT and data[at + _COUNT_AT] >= _FLOW_FIELDS
    if has_count and data.find(_NULL, at, min(at + _FLOW_BYTES, end)) < 0:
        return  # as nearly all flows
    if _may_lack(memoryview(data)[at:end], 1, 3):
        checked(Flow, data[at:end], at)


def checked(kind: type[Performative], frame_body: bytes, at: int) -> list[Value]:
    """The fields of a performative. Raises `DecodeError` if a mandatory one is missing."""
    value, _ = decode(frame_body)
    check_value(kind, value, at)
    return value.value if isinstance(value, Described) and isinstance(value.value, list) else []


def check_value(kind: type[Performative], value: Value, at: int) -> None:
    """Check a decoded performative. Raises `DecodeError` if a mandatory field is missing."""
    missing = missing_field(kind, value)
    if missing is not None:
        raise DecodeError(f"{kind.NAME} lacks its mandatory field {missing}", at)


def _may_lack(body: memoryview, before: int, mandatory: int) -> bool:
    """Whether one of the `mandatory` fields behind the first `before` ones may be absent; True as well if the list is
    written in an unusual way.
    """
    try:
        size = _SIZES[body[_LIST_AT]]
        at = _LIST_AT + 1 + 2 * size
        if int.from_bytes(body[at - size : at]) < before + mandatory:
            return len(body) >= at
        for _ in range(before):
            at += _BYTES[body[at]]
        for _ in range(mandatory):
            if body[at] == _NULL:
                return True
            at += _BYTES[body[at]]
    except IndexError:
        return False  # cut short
    except KeyError:
        return True
    return False
