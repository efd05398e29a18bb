"""A connection of proton's: how it is made, opened, closed and freed, and what the peer said in its Open and Close.

This module must not know messages. Source: AMQP 1.0 part 2, 2.4 and 2.7.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from penstock_amqp.endpoint.buffers import FREED, Ptr
from penstock_amqp.endpoint.events import AmqpError, Opened
from penstock_amqp.endpoint.proton import data_objects, ffi
from penstock_amqp.types.values import Array, Symbol, Value

__all__ = ["ProtonConnection"]

MAX_CHANNEL: Final = 255
"""Highest channel, which bounds the sessions of one connection."""


class ProtonConnection:
    """The server's end of one connection: proton's transport, connection and collector of events. `let_go` ends it."""

    __slots__ = ("_connection", "collector", "transport")

    def __init__(self, *, max_frame: int, idle_timeout_ms: int, max_sessions: int) -> None:
        """`max_frame`: longest frame that we accept, in bytes. `idle_timeout_ms`: silence after which the peer is taken
        for dead; half of it is announced; 0: never.
        """
        self.transport: Ptr = ffi.transport()
        ffi.transport_set_server(self.transport)
        ffi.transport_require_auth(self.transport, False)
        ffi.transport_set_max_frame(self.transport, max_frame)
        ffi.transport_set_channel_max(self.transport, min(max_sessions - 1, MAX_CHANNEL))
        ffi.transport_set_idle_timeout(self.transport, idle_timeout_ms)
        self._connection: Ptr = ffi.connection()
        self.collector: Ptr = ffi.collector()
        ffi.connection_collect(self._connection, self.collector)
        ffi.transport_bind(self.transport, self._connection)

    @property
    def peer_max_frame(self) -> int:
        """The longest frame that the peer accepts, in bytes; 0 if its Open has none."""
        return ffi.transport_remote_max_frame(self.transport)

    def opened(self) -> Opened:
        """The peer's Open. Properties that can't be read count as absent: nothing in them may keep a client out."""
        properties = data_objects.decoded(ffi.connection_remote_properties(self._connection))
        return Opened(
            container_id=ffi.text(ffi.connection_remote_container(self._connection)),
            hostname=ffi.text(ffi.connection_remote_hostname(self._connection)),
            desired=frozenset(_names(data_objects.decoded(ffi.connection_remote_desired(self._connection)))),
            properties={str(key): value for key, value in properties.items()} if isinstance(properties, dict) else {},
        )

    def closed_with(self) -> AmqpError | None:
        """The error of the peer's Close."""
        return data_objects.read_condition(ffi.connection_remote_condition(self._connection))

    def failure(self) -> AmqpError | None:
        """Why the engine has given up, in its own words."""
        return data_objects.read_condition(ffi.transport_condition(self.transport))

    def open(self, container_id: str, offered: Sequence[str], properties: Mapping[str, Value]) -> None:
        """Answer the peer's Open."""
        ffi.connection_set_container(self._connection, ffi.utf8(container_id))
        ffi.set_data(ffi.connection_offered(self._connection), data_objects.symbols(offered))
        ffi.set_data(ffi.connection_properties(self._connection), data_objects.symbol_map(properties))
        ffi.connection_open(self._connection)

    def close(self, error: AmqpError | None = None) -> None:
        """Send Close."""
        if error is not None:
            data_objects.write_condition(ffi.connection_condition(self._connection), error)
        ffi.connection_close(self._connection)

    def tick(self, now_ms: int) -> int:
        """Send heartbeats, notice a silent peer; return when to call again (same clock), 0 for never."""
        return ffi.transport_tick(self.transport, now_ms)

    def let_go(self) -> Callable[[], None]:
        """Nothing can be called on the connection afterwards. What is returned frees it with its sessions, links and
        deliveries, in whatever thread it is called.
        """
        if self.transport is FREED:
            return _nothing
        release = partial(_release, self.transport, self._connection, self.collector)
        self.transport = self._connection = self.collector = FREED
        return release


def _nothing() -> None:
    pass


def _release(transport: Ptr, connection: Ptr, collector: Ptr) -> None:
    ffi.transport_unbind(transport)
    ffi.collector_release(collector)
    ffi.connection_release(connection)
    ffi.decref(transport)
    ffi.decref(connection)
    ffi.collector_free(collector)


def _names(value: Value) -> tuple[str, ...]:
    """Symbols given one by one or as an array, as AMQP allows where a field is "multiple"."""
    if isinstance(value, Symbol):
        return (value,)
    if isinstance(value, Array):
        return tuple(item for item in value.items if isinstance(item, Symbol))
    return ()
