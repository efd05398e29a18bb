"""Termini, conditions, capabilities and properties between their records and proton's data objects.

This module must not know what a terminus means to the broker. Source: AMQP 1.0 part 2, 2.8.14; part 3, 3.5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from penstock_amqp import errors
from penstock_amqp.endpoint.buffers import Ptr
from penstock_amqp.endpoint.conditions import AmqpError
from penstock_amqp.endpoint.proton import ffi
from penstock_amqp.frames.performatives import Coordinator, Source, Target
from penstock_amqp.types.composites import OtherAddress
from penstock_amqp.types.decoder import decode_one
from penstock_amqp.types.encoder import array_of, encode
from penstock_amqp.types.values import Symbol, Value

__all__ = [
    "decoded",
    "read_condition",
    "symbol_map",
    "symbols",
    "write_condition",
    "write_source",
    "write_target",
]

_EXPIRY: Final = {
    "link-detach": ffi.EXPIRE_WITH_LINK,
    "session-end": ffi.EXPIRE_WITH_SESSION,
    "connection-close": ffi.EXPIRE_WITH_CONNECTION,
    "never": ffi.EXPIRE_NEVER,
}
_SESSION_END: Final = ffi.EXPIRE_WITH_SESSION
"""What an absent expiry policy means, and one that AMQP does not know."""
_DURABILITIES: Final = (0, 1, 2)
"""Those of AMQP (3.5.5). In the place of any other number, which the engine may not even take, 0 is written."""
_DISTRIBUTION: Final = {"move": ffi.DIST_MODE_MOVE, "copy": ffi.DIST_MODE_COPY}


def read_condition(condition: Ptr) -> AmqpError | None:
    """The error in a condition, or None if it is not set."""
    if not condition or not ffi.condition_is_set(condition):
        return None
    return AmqpError(
        ffi.text(ffi.condition_get_name(condition)),
        ffi.text(ffi.condition_get_description(condition)),
    )


def write_condition(condition: Ptr, error: AmqpError) -> None:
    """Put an error into a condition."""
    ffi.condition_clear(condition)
    ffi.condition_set_name(condition, ffi.utf8(error.condition))
    if error.description:
        ffi.condition_set_description(condition, ffi.utf8(error.description))
    if error.info:
        ffi.set_data(ffi.condition_info(condition), symbol_map(error.info))


def symbols(names: Sequence[str]) -> bytes:
    """An encoded array of symbols; nothing at all for no names, so that the field is absent."""
    return encode(array_of(tuple(Symbol(name) for name in names))) if names else b""


def symbol_map(entries: Mapping[str, Value]) -> bytes:
    """An encoded map with symbols as keys; nothing at all for no entries."""
    return encode({Symbol(key): value for key, value in entries.items()}) if entries else b""


def write_source(terminus: Ptr, source: Source | None) -> None:
    """Describe our source to the peer; None is the null source."""
    if source is None:
        ffi.terminus_set_type(terminus, ffi.UNSPECIFIED)
        return
    ffi.terminus_set_type(terminus, ffi.SOURCE)
    if source.distribution_mode is not None:
        ffi.terminus_set_distribution(terminus, _DISTRIBUTION.get(source.distribution_mode, ffi.DIST_MODE_UNSPECIFIED))
    if source.filter:
        ffi.set_data(ffi.terminus_filter(terminus), symbol_map(cast(Mapping[str, Value], source.filter)))
    ffi.set_data(ffi.terminus_outcomes(terminus), symbols(source.outcomes or ()))
    _write_common(terminus, source)


def write_target(terminus: Ptr, target: Target | Coordinator | None) -> None:
    """Describe our target to the peer; None is the null target."""
    if isinstance(target, Coordinator):
        ffi.terminus_set_type(terminus, ffi.COORDINATOR)
        ffi.set_data(ffi.terminus_capabilities(terminus), symbols(target.capabilities or ()))
        return
    if target is None:
        ffi.terminus_set_type(terminus, ffi.UNSPECIFIED)
        return
    ffi.terminus_set_type(terminus, ffi.TARGET)
    _write_common(terminus, target)


def _write_common(terminus: Ptr, record: Source | Target) -> None:
    if record.address is not None and not isinstance(record.address, OtherAddress):
        ffi.terminus_set_address(terminus, ffi.utf8(record.address))
    ffi.terminus_set_durability(terminus, record.durable if record.durable in _DURABILITIES else 0)
    ffi.terminus_set_expiry(terminus, _EXPIRY.get(record.expiry_policy or "", _SESSION_END))
    ffi.terminus_set_timeout(terminus, record.timeout or 0)
    ffi.terminus_set_dynamic(terminus, bool(record.dynamic))
    if record.dynamic_node_properties:
        ffi.set_data(
            ffi.terminus_properties(terminus),
            symbol_map(cast(Mapping[str, Value], record.dynamic_node_properties)),
        )
    ffi.set_data(ffi.terminus_capabilities(terminus), symbols(record.capabilities or ()))


def decoded(data: Ptr) -> Value:
    """The value in a `pn_data_t`; None if there is none, or it can't be read."""
    encoded = ffi.data_bytes(data)
    if not encoded:
        return None
    try:
        return decode_one(encoded)
    except errors.WireError:
        return None
