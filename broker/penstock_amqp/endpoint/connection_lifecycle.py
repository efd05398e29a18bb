"""The Open and the Close of one connection, ours and the peer's, and the end of a connection that has failed.

This module must not know messages. Source: AMQP 1.0 part 2, 2.4 and 2.7.1.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

from penstock_amqp import errors
from penstock_amqp.endpoint import conditions
from penstock_amqp.endpoint.attachments import Attachments
from penstock_amqp.endpoint.engine import Engine
from penstock_amqp.endpoint.events import AmqpError, ConnectionClosed, Event, EventKind
from penstock_amqp.endpoint.output_changes import PendingChanges
from penstock_amqp.endpoint.proton.connection import ProtonConnection
from penstock_amqp.frames import frame_sizes, performatives, protocol_checks
from penstock_amqp.frames.input_tap import InputTap
from penstock_amqp.types.values import Symbol, Value

__all__ = ["ConnectionLifecycle"]

LARGEST_FRAME: Final = 65_536
"""A message that does not fit a frame of this size may be streamed, even if the peer accepts longer frames."""

OPEN_BYTES: Final = 32
"""Upper bound of what the engine writes into an Open besides container-id, capabilities and properties, in bytes."""

FRAME_OVERHEAD: Final = 128
"""Upper bound of the size of a frame header and a transfer, in bytes."""


class ConnectionLifecycle:
    """Whether a connection is open, and how it is opened and closed."""

    __slots__ = (
        "_attachments",
        "_changes",
        "_connection",
        "_engine",
        "_max_frame",
        "_peer_closed",
        "_tap",
        "closed",
        "is_open",
        "peer_idle_time_out_ms",
        "peer_opened",
    )

    def __init__(
        self,
        connection: ProtonConnection,
        engine: Engine,
        tap: InputTap,
        *,
        attachments: Attachments,
        changes: PendingChanges,
        max_frame: int,
    ) -> None:
        """`max_frame`: the longest frame that we accept, in bytes."""
        self._connection = connection
        self._engine = engine
        self._tap = tap
        self._attachments = attachments
        self._changes = changes
        self._max_frame = max_frame
        self.is_open = False
        self._peer_closed = False
        self.peer_opened = False
        """The peer's Open came."""
        self.peer_idle_time_out_ms = 0
        """The silence of ours that the peer does not bear; 0: it bears any, or has not opened yet."""
        self.closed = False
        """True once our Close is on its way or the engine gave up; nothing more is sent or received."""

    @property
    def is_awaited(self) -> bool:
        """The peer's Open waits for our answer. What the peer sent after its Open is not read before that."""
        return self.peer_opened and not self.is_open and not self.closed

    @property
    def is_broken(self) -> bool:
        """The engine writes nothing any more although neither side sent a Close. All that can be done is to drop the
        socket.
        """
        return self._engine.has_failed and not self.closed and not self._peer_closed

    @property
    def peer_max_frame(self) -> int:
        """The longest frame that the peer accepts, in bytes."""
        return self._connection.peer_max_frame or self._max_frame

    def open_came(self, out: list[Event]) -> None:
        """The peer's Open came. Raises `ProtocolError` if it came on a wrong channel, or allows too little."""
        self.peer_opened = True
        protocol_checks.check_open(self._tap.open_channel())
        with contextlib.suppress(errors.DecodeError):  # what nobody needs in an Open may be anything
            for _, opened in self._tap.performatives((performatives.Open.CODE,)):
                assert isinstance(opened, performatives.Open)
                protocol_checks.check_frame_size(opened.max_frame_size)
                protocol_checks.check_idle_time_out(opened.idle_time_out)
                self.peer_idle_time_out_ms = opened.idle_time_out or 0
                if opened.channel_max is not None:
                    self._attachments.channels = min(self._attachments.channels, opened.channel_max + 1)
        out.append((EventKind.OTHER, None, self._connection.opened()))

    def close_came(self, out: list[Event]) -> None:
        """The peer's Close came."""
        self._peer_closed = True
        out.append((EventKind.OTHER, None, ConnectionClosed(self._connection.closed_with())))

    def open(self, container_id: str, offered: Sequence[str], properties: Mapping[str, Value]) -> None:
        """Answer the peer's Open."""
        most = self.peer_max_frame - OPEN_BYTES
        told = {Symbol(key): value for key, value in properties.items()}
        whole = performatives.Open(
            container_id=container_id, offered_capabilities=tuple(Symbol(name) for name in offered), properties=told
        )
        fits = frame_sizes.fitted(whole, 0, most)
        if not isinstance(fits, performatives.Open):
            fits = performatives.Open(container_id=container_id)
        self._connection.open(container_id, fits.offered_capabilities or (), properties if fits.properties else {})
        self.is_open = True
        self._engine.frame_bytes = min(self.peer_max_frame, LARGEST_FRAME) - FRAME_OVERHEAD
        if self.closed:  # the engine gave up meanwhile
            self._connection.close()

    def refuse_open(self, container_id: str, error: AmqpError) -> None:
        """Answer the peer's Open with one that announces failure, and Close."""
        self.open(container_id, (), {"amqp:connection-establishment-failed": True})
        self.close(error)

    def close(self, error: AmqpError | None) -> None:
        """Close the connection; `output` still has bytes to send. Repeated calls do nothing."""
        if self.closed:
            return
        self.closed = True
        self._connection.close(None if error is None else self.fitting(error))

    def fitting(self, error: AmqpError) -> AmqpError:
        """`error` with as much of its description as fits a frame of the peer's, and its info if that fits."""
        return conditions.fitted(error, self._engine.frame_bytes)

    def fail(self, out: list[Event]) -> None:
        """The engine accepts no more input: the peer broke the protocol, or was silent for too long."""
        if not self.closed and not self._peer_closed:
            error = self._connection.failure()
            if error is None:  # without an error the engine stops at a symbolic descriptor, for example
                error = AmqpError("amqp:connection:framing-error", "The frame can't be understood.")
                self._changes.say_last(error, None)
                self.close(error)
            else:
                fault = conditions.fault_of(error)
                error = fault.error
                self._changes.say_last(error, self._session_of_fault(fault))
            self.closed = True
            out.append((EventKind.OTHER, None, ConnectionClosed(error)))

    def break_off(self, error: errors.WireError, out: list[Event]) -> None:
        """The peer's frames can't be read, although the engine accepted them."""
        self._tap.is_current = False
        if isinstance(error, errors.ProtocolError):
            told = AmqpError(error.condition, str(error))
            self._changes.say_last(told, self._attachments.local_channel(error.session_channel))
        else:
            told = AmqpError("amqp:decode-error", f"A frame can't be read: {error}")
            self._changes.say_last(told, None)
        self.close(told)
        out.append((EventKind.OTHER, None, ConnectionClosed(told)))

    def _session_of_fault(self, fault: conditions.Fault) -> int | None:
        """Our channel of the session that caused the error in the last chunk of input, if that is certain."""
        if not fault.codes or not self._tap.is_current:
            return None
        channels: set[int] = set()
        with contextlib.suppress(errors.WireError):  # the bytes after the faulty frame may be anything
            channels.update(channel for channel, _ in self._tap.performatives(fault.codes))
        return self._attachments.local_channel(channels.pop()) if len(channels) == 1 else None
