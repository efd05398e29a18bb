"""The messages of one connection in batches of compiled C: one call where `ProtonEngine` makes some for each message.

What is not plain is done as `ProtonEngine` does it. Source: docs/decisions/092-compiled-engine.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Final, cast

from penstock_amqp.endpoint.buffers import INPUT, INPUT_VIEW, OUTPUT, OUTPUT_BYTES, Ptr
from penstock_amqp.endpoint.engine import ENGINE, Engine, Line, Notice, NoticeKind, Pushed, SocketEngine, Unsent
from penstock_amqp.endpoint.events import Entry, Event, EventKind, Held
from penstock_amqp.endpoint.links import OutLink
from penstock_amqp.endpoint.proton import ffi
from penstock_amqp.endpoint.proton.connection import ProtonConnection
from penstock_amqp.endpoint.proton.engine import NOTICES, ProtonEngine
from penstock_amqp.frames.input_tap import InputTap

__all__ = ["CompiledEngine", "engine_of"]

_PLAIN_TYPES: Final = 64
"""The types of proton's events that `drain` may stop at are below this."""

# What `drain` returns instead of a type: see penstock_native/proton.pyi.
_MESSAGE: Final = -1
_ENDED: Final = -2
_ASIDE: Final = -4
_ASTRAY: Final = -5
_CONTINUED: Final = -6

# The fields of the list of bodies, and the numbers that are tags: see penstock_native/output.c.
_FIRST_TAG: Final = 0
_REST_OF_FRAME: Final = 1
_FIRST_BODY: Final = 2
_TAGS: Final = 0xFFFF_FFFF

MOST_EVENTS: Final = 16
"""After so many runs of messages or accepts, those that came are weighed before more is read."""

if ffi.compiled is not None:
    assert all(0 <= each < _PLAIN_TYPES for each in NOTICES)
    ffi.compiled.use(EventKind.MESSAGES, EventKind.ACCEPTED, sum(1 << each for each in NOTICES), ffi.TRANSPORT_ERROR)
    _Sent: Any = ffi.compiled.Sent
    _drain: Any = ffi.compiled.drain
    _push_plain: Any = ffi.compiled.push_plain
    _read_plain: Any = ffi.compiled.read_plain
    _read_together: Any = ffi.compiled.read_together
    _send: Any = ffi.compiled.send
    _settle: Any = ffi.compiled.settle
    _output: Any = ffi.compiled.output
    _send_output: Any = ffi.compiled.send_output
    _send_outputs: Any = ffi.compiled.send_outputs


class CompiledEngine(ProtonEngine):
    """`Engine` on proton's library by compiled batches. One thread at a time, as all engines of the process."""

    __slots__ = ("_bodies", "_keeps_bodies", "_sent")

    if ffi.compiled is not None:
        accept = staticmethod(ffi.compiled.accept)  # called for each producer that waits: no method in between

    def __init__(self, connection: ProtonConnection) -> None:
        self._sent = _Sent()
        """What was sent and is not settled; nothing of it is in a dict until somebody looks: see
        penstock_native/sent.c."""
        super().__init__(connection)
        self._bodies: list[Any] = []
        """Bodies of messages of which proton has no byte: see penstock_native/output.c."""
        self._keeps_bodies = True
        """All that proton had to send was taken. While a session's window holds messages back, others go to proton as a
        whole, so that it knows how much it holds."""

    @property
    def unsettled(self) -> dict[Ptr, Held]:
        """See `Engine.unsettled`. The dict is whole until the engine reads or sends again."""
        found: dict[Ptr, Held] = self._sent.all
        return found

    @unsettled.setter
    def unsettled(self, table: dict[Ptr, Held]) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._sent.all = table

    def _hold(self, delivery: Ptr, held: Held) -> None:
        self._sent.add(delivery, held)

    def free(self) -> None:
        """The connection is about to be freed: forget every pointer."""
        super().free()
        self.told = None
        self._bodies.clear()

    def line(self, fd: int) -> Line:
        """See `SocketEngine.line`."""
        reading = self.receivers, self._sent, self.aside, self.unconfirmed
        return fd, self._transport, self._collector, self._bodies, *reading, self

    def sockets(self) -> SocketEngine:
        """See `Engine.sockets`."""
        return self

    def drain(self, out: list[Event]) -> Notice | None:
        """See `Engine.drain`."""
        collector = self._collector
        if self._has_notice:
            self._has_notice = False
            ffi.pop_event(collector)
        while True:
            found = _drain(collector, self.receivers, self._sent, self.aside, self.unconfirmed, out)
            if found is None:
                return None
            if found[0] != _ASIDE:
                try:
                    return self._notice(found, out)
                except Exception:
                    self._unheard(found)
                    raise
            self.recall(found[1])  # it is in `unsettled` then

    def _unheard(self, found: tuple[int, Ptr, Any] | None) -> None:
        """Nobody will hear of `found`: a delivery that is ended stays with those that are unsettled."""
        if found is not None and found[0] == _ENDED:
            self.unsettled.setdefault(found[1], found[2])

    def keep_told(self) -> None:
        """See `Engine.keep_told`."""
        told, self.told = self.told, None
        if told is not None:
            self._unheard(told[-1])

    def _notice(self, found: tuple[int, Ptr, Any], out: list[Event]) -> Notice | None:
        """What `found` says, which the compiled code has left to us."""
        kind, pointer, detail = found
        if kind == _ASIDE:
            self.recall(pointer)
            return self.drain(out)
        self._has_notice = True
        if kind >= 0:
            notice = NOTICES[kind]
            return notice[0], notice[1](pointer), None
        if kind == _MESSAGE:
            return NoticeKind.ARRIVAL, pointer, 0
        if kind == _ENDED:
            return NoticeKind.OUTCOME, pointer, detail
        if kind == _CONTINUED:
            return NoticeKind.CONTINUED, pointer, None
        return NoticeKind.ASTRAY if kind == _ASTRAY else NoticeKind.STATE, pointer, None

    def push_plain(self, start: int, size: int, tap: InputTap, out: list[Event]) -> Pushed | None:
        """See `Engine.push_plain`."""
        told = _push_plain(
            self._transport,
            INPUT,
            start,
            size,
            tap.held,
            tap.missing,
            tap.buffer_bytes,
            MOST_EVENTS,
            self._collector,
            self.receivers,
            self._sent,
            self.aside,
            self.unconfirmed,
            out,
        )
        self.told = told
        return None if told is None else self.pushed(told, start, tap, out)

    def read_plain(self, fd: int | None, most: int, tap: InputTap, out: list[Event]) -> int | tuple[int, Any]:
        """See `SocketEngine.read_plain`."""
        read: int | tuple[int, Any] = _read_plain(
            fd,
            most,
            self._transport,
            INPUT,
            tap.buffer_bytes,
            MOST_EVENTS,
            self._collector,
            self.receivers,
            self._sent,
            self.aside,
            self.unconfirmed,
            out,
        )
        if isinstance(read, tuple):
            self.told = read[1]
        return read

    @staticmethod
    def read_together(lines: list[Line], most: int, bulk: int, out: list[list[Event]]) -> int | tuple[int, Any] | None:
        """See `SocketEngine.read_together`."""
        read: int | tuple[int, Any] | None = _read_together(lines, most, INPUT, MOST_EVENTS, bulk, out)
        if isinstance(read, tuple):
            lines[len(out) - 1][ENGINE].told = read[1]
        return read

    def pushed(self, told: Any, start: int, tap: InputTap, out: list[Event]) -> Pushed:
        """See `SocketEngine.pushed`."""
        taken, last, has_flow, held_before, held, missing, found = told
        try:
            tap.pushed_pieces(INPUT_VIEW[start : start + taken], last, held_before, held, missing)
            may_ask = has_flow or (held_before > 0 and tap.may_have_begun_with_flow)
            return taken, may_ask, None if found is None else self._notice(found, out)
        except Exception:
            self._unheard(found)
            raise

    def send(self, link: OutLink, entries: Iterable[Entry], now_us: int) -> Unsent | None:
        """See `Engine.send`."""
        listed = entries if entries.__class__ is list else list(entries)
        unsettled = None if link.presettled else self._sent
        bodies = self._bodies if self._keeps_bodies else None
        sent: int | tuple[int, int, Ptr] = _send(
            link, link.ptr, listed, now_us, unsettled, self._tag, self.frame_bytes, bodies
        )
        if isinstance(sent, int):
            self._tag = sent
            return None
        self._tag, position, delivery = sent
        waiting = cast("list[Entry]", listed)
        return delivery, waiting[position], waiting[position + 1 :]

    def settle(self, deliveries: Iterable[Ptr]) -> None:
        """See `Engine.settle`."""
        _settle(deliveries)

    def drop(self, deliveries: Iterable[Ptr]) -> None:
        """See `Engine.drop`."""
        ended = list(deliveries)
        bodies = self._bodies
        if bodies:  # see penstock_native/output.c
            for sent in ended:
                tag = int.from_bytes(ffi.delivery_tag(sent), sys.byteorder)
                place = (tag - bodies[_FIRST_TAG] & _TAGS) + _FIRST_BODY
                if place < len(bodies):
                    bodies[place] = None
            if not bodies[_REST_OF_FRAME] and not any(bodies[_FIRST_BODY:]):
                bodies.clear()
        super().drop(ended)

    def output(self) -> int:
        """See `Engine.output`."""
        filled: int = _output(self._transport, self._collector, OUTPUT, self._bodies)
        self._keeps_bodies = not self._bodies and filled < OUTPUT_BYTES
        self.unwritten_sessions = 0
        self._has_notice = False
        self.has_failed = filled < 0
        return filled if filled >= 0 else -1 - filled

    def send_output(self, fd: int) -> tuple[int, int] | None:
        """See `SocketEngine.send_output`."""
        left: tuple[int, int] | None = _send_output(self._transport, self._collector, OUTPUT, self._bodies, fd)
        if left is None:
            self.unwritten_sessions = 0
            self._has_notice = self.has_failed = False
            self._keeps_bodies = not self._bodies
            return None
        return self._left(left)

    @staticmethod
    def send_outputs(lines: list[Line]) -> tuple[int, tuple[int, int]] | None:
        """See `SocketEngine.send_outputs`."""
        found: tuple[int, tuple[int, int]] | None = _send_outputs(lines, OUTPUT)
        for line in lines if found is None else lines[: found[0]]:
            engine: Any = line[ENGINE]  # one of us; a `cast` is a call
            engine.unwritten_sessions = 0
            engine._has_notice = engine.has_failed = False
            engine._keeps_bodies = not engine._bodies
        if found is None:
            return None
        at, left = found
        return at, cast("CompiledEngine", lines[at][ENGINE])._left(left)

    def _left(self, left: tuple[int, int]) -> tuple[int, int]:
        """Note that not all of the output was sent."""
        filled, sent = left
        self.unwritten_sessions = 0
        self._has_notice = False
        self._keeps_bodies = not self._bodies and filled < OUTPUT_BYTES
        self.has_failed = filled < 0
        return filled if filled >= 0 else -1 - filled, sent


def engine_of(connection: ProtonConnection) -> Engine:
    """The engine of a connection: compiled, if it was built."""
    return ProtonEngine(connection) if ffi.compiled is None else CompiledEngine(connection)
