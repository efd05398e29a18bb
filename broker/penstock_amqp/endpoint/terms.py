"""Termini, conditions and capabilities between their records and the engine's data objects. Cold paths of `endpoint`.

Must not know what a terminus means to the broker. Source: AMQP 1.0 part 2, 2.8.14; part 3, 3.5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from penstock_amqp import errors
from penstock_amqp.endpoint import buffers
from penstock_amqp.endpoint.buffers import Ptr
from penstock_amqp.endpoint.events import AmqpError, Held, Opened, Outcome, Settled
from penstock_amqp.frames.performatives import Coordinator, Source, Target
from penstock_amqp.types import codec
from penstock_amqp.types.values import Array, Symbol, Value

__all__ = [
    "opened",
    "outcome_code",
    "read_condition",
    "settled",
    "size_of",
    "symbol_map",
    "symbols",
    "write_condition",
    "write_source",
    "write_target",
]

_EXPIRY: Final = {
    "link-detach": buffers.EXPIRE_WITH_LINK,
    "session-end": buffers.EXPIRE_WITH_SESSION,
    "connection-close": buffers.EXPIRE_WITH_CONNECTION,
    "never": buffers.EXPIRE_NEVER,
}
_SESSION_END: Final = buffers.EXPIRE_WITH_SESSION
"""What an absent expiry policy means, and one that AMQP does not know."""
_DISTRIBUTION: Final = {"move": buffers.DIST_MODE_MOVE, "copy": buffers.DIST_MODE_COPY}


def opened(connection: Ptr) -> Opened:
    """The peer's Open. Properties that can't be read count as absent: nothing in them may keep a client out."""
    properties = _decoded(buffers.connection_remote_properties(connection))
    return Opened(
        container_id=buffers.text(buffers.connection_remote_container(connection)),
        hostname=buffers.text(buffers.connection_remote_hostname(connection)),
        desired=frozenset(_names(_decoded(buffers.connection_remote_desired(connection)))),
        properties={str(key): value for key, value in properties.items()} if isinstance(properties, dict) else {},
    )


def settled(received: Ptr, state: int, held: Held) -> Settled:
    """An outcome that is not `accepted`, read from the engine's delivery."""
    remote = buffers.delivery_remote(received)
    if state == buffers.MODIFIED:
        return Settled(
            held,
            Outcome.MODIFIED,
            failed=buffers.disposition_is_failed(remote),
            undeliverable_here=buffers.disposition_is_undeliverable(remote),
            annotations=_annotations(_decoded(buffers.disposition_annotations(remote))),
        )
    if state == buffers.REJECTED:
        return Settled(held, Outcome.REJECTED, error=read_condition(buffers.disposition_condition(remote)))
    if state == buffers.RELEASED:
        return Settled(held, Outcome.RELEASED)
    return Settled(held, Outcome.NONE if state == 0 else Outcome.UNKNOWN)


def outcome_code(delivery: Ptr, end: Settled) -> int:
    """Put an outcome into our side of a delivery; the code to update it with."""
    local = buffers.delivery_local(delivery)
    match end.outcome:
        case Outcome.REJECTED:
            if end.error is not None:
                write_condition(buffers.disposition_condition(local), end.error)
            return buffers.REJECTED
        case Outcome.MODIFIED:
            buffers.disposition_set_failed(local, end.failed)
            buffers.disposition_set_undeliverable(local, end.undeliverable_here)
            return buffers.MODIFIED
        case Outcome.RELEASED | Outcome.NONE | Outcome.UNKNOWN:
            return buffers.RELEASED


def _annotations(value: Value) -> dict[Symbol, Value]:
    return {key: each for key, each in value.items() if isinstance(key, Symbol)} if isinstance(value, dict) else {}


def read_condition(condition: Ptr) -> AmqpError | None:
    """The error in a condition, or None if it is not set."""
    if not condition or not buffers.condition_is_set(condition):
        return None
    return AmqpError(
        buffers.text(buffers.condition_get_name(condition)),
        buffers.text(buffers.condition_get_description(condition)),
    )


def write_condition(condition: Ptr, error: AmqpError) -> None:
    """Put an error into a condition."""
    buffers.condition_clear(condition)
    buffers.condition_set_name(condition, buffers.utf8(error.condition))
    if error.description:
        buffers.condition_set_description(condition, buffers.utf8(error.description))
    if error.info:
        buffers.set_data(buffers.condition_info(condition), symbol_map(error.info))


def size_of(error: AmqpError) -> int:
    """Bytes that an error takes in a frame, at most."""
    return len(error.condition) + len(error.description.encode()) + len(symbol_map(error.info))


def symbols(names: Sequence[str]) -> bytes:
    """An encoded array of symbols; nothing at all for no names, so that the field is absent."""
    return codec.encode(codec.array_of(tuple(Symbol(name) for name in names))) if names else b""


def symbol_map(entries: Mapping[str, Value]) -> bytes:
    """An encoded map with symbols as keys; nothing at all for no entries."""
    return codec.encode({Symbol(key): value for key, value in entries.items()}) if entries else b""


def write_source(terminus: Ptr, source: Source | None) -> None:
    """Describe our source to the peer; None is the null source."""
    if source is None:
        buffers.terminus_set_type(terminus, buffers.UNSPECIFIED)
        return
    buffers.terminus_set_type(terminus, buffers.SOURCE)
    if source.distribution_mode is not None:
        buffers.terminus_set_distribution(
            terminus, _DISTRIBUTION.get(source.distribution_mode, buffers.DIST_MODE_UNSPECIFIED)
        )
    if source.filter:
        buffers.set_data(buffers.terminus_filter(terminus), symbol_map(cast(Mapping[str, Value], source.filter)))
    buffers.set_data(buffers.terminus_outcomes(terminus), symbols(source.outcomes or ()))
    _write_common(terminus, source)


def write_target(terminus: Ptr, target: Target | Coordinator | None) -> None:
    """Describe our target to the peer; None is the null target."""
    if isinstance(target, Coordinator):
        buffers.terminus_set_type(terminus, buffers.COORDINATOR)
        buffers.set_data(buffers.terminus_capabilities(terminus), symbols(target.capabilities or ()))
        return
    if target is None:
        buffers.terminus_set_type(terminus, buffers.UNSPECIFIED)
        return
    buffers.terminus_set_type(terminus, buffers.TARGET)
    _write_common(terminus, target)


def _write_common(terminus: Ptr, record: Source | Target) -> None:
    if record.address is not None:
        buffers.terminus_set_address(terminus, buffers.utf8(record.address))
    buffers.terminus_set_durability(terminus, record.durable or 0)
    buffers.terminus_set_expiry(terminus, _EXPIRY.get(record.expiry_policy or "", _SESSION_END))
    buffers.terminus_set_timeout(terminus, record.timeout or 0)
    buffers.terminus_set_dynamic(terminus, bool(record.dynamic))
    if record.dynamic_node_properties:
        buffers.set_data(
            buffers.terminus_properties(terminus),
            symbol_map(cast(Mapping[str, Value], record.dynamic_node_properties)),
        )
    buffers.set_data(buffers.terminus_capabilities(terminus), symbols(record.capabilities or ()))


def _decoded(data: Ptr) -> Value:
    encoded = buffers.data_bytes(data)
    if not encoded:
        return None
    try:
        return codec.decode_one(encoded)
    except errors.WireError:
        return None


def _names(value: Value) -> tuple[str, ...]:
    """Symbols given one by one or as an array, as AMQP allows where a field is "multiple"."""
    if isinstance(value, Symbol):
        return (value,)
    if isinstance(value, Array):
        return tuple(item for item in value.items if isinstance(item, Symbol))
    return ()
