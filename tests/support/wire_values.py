"""Hypothesis strategies for AMQP values, and an equality that also compares their wire types."""

from __future__ import annotations

import math
import struct
from typing import Any

from hypothesis import strategies as st

from penstock_amqp.types import values
from penstock_amqp.types.values import Array, Described, Symbol, Value


def _range(make: type[int], low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high).map(make)


def _as_binary32(number: float) -> values.Float32:
    return values.Float32(struct.unpack(">f", struct.pack(">f", number))[0])


ascii_text = st.text(st.characters(max_codepoint=127), max_size=300)
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
any_symbol = ascii_text.map(Symbol)
any_descriptor: st.SearchStrategy[values.ULong | Symbol] = st.one_of(
    st.integers(0, 2**64 - 1).map(values.ULong), any_symbol
)
any_scalar: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    _range(values.UByte, 0, 2**8 - 1),
    _range(values.UShort, 0, 2**16 - 1),
    _range(values.UInt, 0, 2**32 - 1),
    _range(values.ULong, 0, 2**64 - 1),
    _range(values.Byte, -(2**7), 2**7 - 1),
    _range(values.Short, -(2**15), 2**15 - 1),
    _range(values.Int, -(2**31), 2**31 - 1),
    _range(values.Long, -(2**63), 2**63 - 1),
    _range(values.Timestamp, -(2**63), 2**63 - 1),
    st.floats(width=32).map(_as_binary32),
    st.floats(),
    st.binary(min_size=4, max_size=4).map(values.Decimal32),
    st.binary(min_size=8, max_size=8).map(values.Decimal64),
    st.binary(min_size=16, max_size=16).map(values.Decimal128),
    st.characters(exclude_categories=["Cs"]).map(values.Char),
    st.uuids(),
    st.binary(max_size=300),
    any_text,
    any_symbol,
)
any_array: st.SearchStrategy[Array] = st.one_of(
    st.lists(any_symbol.filter(lambda text: len(text) < 256), max_size=5).map(lambda items: Array(0xA3, tuple(items))),
    st.lists(_range(values.UInt, 0, 2**32 - 1), max_size=5).map(lambda items: Array(0x70, tuple(items))),
    st.lists(st.booleans(), max_size=5).map(lambda items: Array(0x56, tuple(items))),
    st.builds(Array, st.just(0xB1), st.lists(any_text, max_size=3).map(tuple), any_descriptor),
)
any_key: st.SearchStrategy[Any] = st.one_of(any_symbol, any_text, st.binary(max_size=20), st.uuids())


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(any_key, inner, max_size=4),
        st.builds(Described, any_descriptor, inner),
    )


any_value: st.SearchStrategy[Any] = st.recursive(any_scalar | any_array, _nested, max_leaves=12)


def same(left: Value, right: Value) -> bool:
    """Whether both are the same value of the same wire type (NaN equals itself here)."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return same(list(left), list(right)) and same(list(left.values()), list(right.values()))
    if isinstance(left, Described) and isinstance(right, Described):
        return same(left.descriptor, right.descriptor) and same(left.value, right.value)
    if isinstance(left, Array) and isinstance(right, Array):
        heads = left.code == right.code and same(left.descriptor, right.descriptor)
        return heads and same(list(left.items), list(right.items))
    return left == right


__all__ = ["any_array", "any_descriptor", "any_key", "any_scalar", "any_symbol", "any_text", "any_value", "same"]
