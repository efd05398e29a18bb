"""The AMQP 1.0 type system: bytes to values and back. The door to `decoder` and `encoder`."""

from __future__ import annotations

from penstock_amqp.types.decoder import MAX_DEPTH, MAX_EMPTY_ITEMS, decode, decode_one
from penstock_amqp.types.encoder import array_of, encode

__all__ = ["MAX_DEPTH", "MAX_EMPTY_ITEMS", "array_of", "decode", "decode_one", "encode"]
