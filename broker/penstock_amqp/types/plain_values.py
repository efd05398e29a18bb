"""Between AMQP values and plain Python: what management bodies hold.

Plain means `None`, `bool`, `int`, `float`, `str`, `bytes`, `list` and `dict` with `str` keys, as JSON knows them (and
bytes). Must not know what the values mean.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import cast

from penstock_amqp.errors import EncodeError
from penstock_amqp.types.values import Array, Described, Value
from penstock_api.management import ManagementDocument

__all__ = ["to_plain", "to_wire"]


def to_plain(value: Value) -> object:
    """Turn what was decoded into plain Python; a described value into what it describes."""
    match value:
        case None | bool():
            return value
        case int():
            return int(value)
        case float():
            return float(value)
        case str() | uuid.UUID():
            return str(value)
        case bytes():
            return bytes(value)
        case Described():
            return to_plain(value.value)
        case Array():
            return [to_plain(item) for item in value.items]
        case list():
            return [to_plain(item) for item in value]
        case dict():
            return {str(to_plain(key)): to_plain(item) for key, item in value.items()}


def to_wire(value: object) -> Value:
    """Turn a document or plain Python into what can be encoded: `str`, also of an enum, to string, `int` to long.

    Raises `EncodeError` for anything else.
    """
    match value:
        case ManagementDocument():
            return to_wire(value.to_wire())
        case None | bool():
            return value
        case int():
            return int(value)
        case float():
            return float(value)
        case str():
            return str(value)
        case bytes():
            return bytes(value)
        case list() | tuple():
            return [to_wire(item) for item in cast(list[object] | tuple[object, ...], value)]
        case Mapping():
            return {str(key): to_wire(item) for key, item in cast(Mapping[object, object], value).items()}
        case _:
            raise EncodeError(f"a management message cannot carry {type(value).__name__}")
