"""The input of one connection: given to the engine piece by piece; what the engine leaves to us goes to the parts.

Small frames may cost much (attaches, requests): what a piece brought is weighed before the next one is given.
This module must not know queues or subscriptions. Source: AMQP 1.0 part 2, 2.2 and 2.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock_amqp import errors
from penstock_amqp.endpoint.attachments import Attachments
from penstock_amqp.endpoint.buffers import INPUT, INPUT_BYTES, INPUT_VIEW, Buffer, at
from penstock_amqp.endpoint.connection_lifecycle import ConnectionLifecycle
from penstock_amqp.endpoint.engine import Engine, Notice, NoticeKind, Pushed
from penstock_amqp.endpoint.events import Event, input_weight, weight
from penstock_amqp.endpoint.flow_answers import FlowAnswers
from penstock_amqp.endpoint.incoming_messages import IncomingMessages
from penstock_amqp.endpoint.settlement import DeliverySettlement
from penstock_amqp.frames.frames import SASL_HEADER
from penstock_amqp.frames.input_gate import InputGate
from penstock_amqp.frames.input_tap import InputTap

__all__ = ["UNBOUNDED", "Input"]

UNBOUNDED: Final = 1 << 62
"""A budget that is never used up."""

PIECE_BYTES: Final = 8192
"""Bytes handed to the engine at a time: as many as its buffer takes at first. After each piece its events
are weighed.
"""
SMALL_PIECE_BYTES: Final = 512
"""The same after a piece that weighed much (`HEAVY_PIECE`); it doubles with each that weighs little (`LIGHT_PIECE`)."""
HEAVY_PIECE: Final = 16
LIGHT_PIECE: Final = 3

QUIET_OUTCOME: Final = 2
"""An outcome without an event of its own costs as much as so many inspected frames."""

_SASL_BEGINNING: Final = SASL_HEADER[:5]
_NO_PROTOCOL: Final = 0xFF
"""A protocol-id that the engine answers by its own header and the end of the connection."""

# Names of the module cost less than members of an enum, which are looked up in its class each time.
_ARRIVAL: Final = NoticeKind.ARRIVAL
_FLOW: Final = NoticeKind.FLOW
_OUTCOME: Final = NoticeKind.OUTCOME


class Input:
    """Reads the bytes of one connection, and hands what they bring to the other parts."""

    __slots__ = (
        "_attachments",
        "_engine",
        "_flows",
        "_gate",
        "_has_begun",
        "_incoming",
        "_piece",
        "_settlement",
        "_sockets",
        "_state",
        "awaits_outcomes",
        "is_quiet",
        "left",
        "parts_ends",
        "taken",
        "tap",
    )

    def __init__(
        self,
        engine: Engine,
        gate: InputGate,
        tap: InputTap,
        *,
        state: ConnectionLifecycle,
        attachments: Attachments,
        flows: FlowAnswers,
        incoming: IncomingMessages,
        settlement: DeliverySettlement,
    ) -> None:
        self._engine = engine
        self._sockets = engine.sockets()
        self._gate = gate
        self.tap = tap
        self._state = state
        self._attachments = attachments
        self._flows = flows
        self._incoming = incoming
        self._settlement = settlement
        self._has_begun = False
        self._piece = SMALL_PIECE_BYTES
        """Size of the next piece for the engine, in bytes."""
        self.left = 0
        """What the last `receive` or `go_on` left of its budget; below 0 if it went beyond: a frame can't be cut."""
        self.parts_ends = False
        """An End is read by itself, once what came before it is handled."""
        self.awaits_outcomes = False
        """And not before this is False again: the user has to say something of deliveries, which the engine can't do
        once it has got the End of their session."""
        self.taken = 0
        """How many bytes of what was read the last `go_on` dealt with."""
        self.is_quiet = False
        """The connection is open, all that came was taken, nothing of a frame is held back, and what came last weighed
        little, within its budget: `SocketEngine.read_plain` may be called."""

    @property
    def awaits_end(self) -> bool:
        """A Begin of the peer's waits until the end of another session is answered, or an End until outcomes are sent,
        and what came behind it as well.
        """
        return self._gate.is_stopped and (self._gate.holds_begins or self.awaits_outcomes)

    def go_on(self, read: int | tuple[int, object], out: list[Event], budget: int) -> int:
        """Deal with what `SocketEngine.read_plain` returned for this connection. That may be called only while
        `is_quiet`.

        How many bytes came; 0: the peer has ended; below 0: -errno. `taken` and `left` say how many were dealt with,
        and what is left of the budget.
        """
        if isinstance(read, int):
            self.taken, self.left = read, budget
            return read
        size, told = read
        self.taken = self.receive(size, out, budget, told)
        return size

    def receive(self, size: int, out: list[Event], budget: int = UNBOUNDED, told: object = None) -> int:
        """Read the first `size` bytes of `buffers.INPUT`, append their events to `out`, and return how many bytes were
        read.

        It stops before `size` once the events weigh more than `budget`, so that small frames that cost much (attaches,
        requests) do not keep other connections waiting. A batch of messages weighs as much as one. `left` is the rest
        of the budget. `told`: what `SocketEngine.read_plain` said of the first of these bytes.
        """
        self.left = budget
        self.is_quiet = False
        if not self._has_begun:
            self._has_begun = True
            # The engine would begin a SASL dialogue of its own, in which clients need not authenticate.
            if INPUT_VIEW[:5].tobytes() == _SASL_BEGINNING:
                INPUT_VIEW[4] = _NO_PROTOCOL
        start = 0
        tap, state, gate, sockets = self.tap, self._state, self._gate, self._sockets
        if self.awaits_end:
            return 0
        while start < size and budget > 0 and (state.is_open or not state.is_awaited):
            weighed, last = -len(self._flows.owed), 0
            if out:  # a batch goes on from piece to piece
                last = len(out) - 1
                weighed -= weight(out[last])
            try:
                dealt = 0
                if tap.held and (disposition := tap.completed_disposition(INPUT_VIEW[start:size])) is not None:
                    gate.goes_alone(disposition, behind=0)
                if told is not None and sockets is not None:
                    pushed, told = sockets.pushed(told, start, tap, out), None
                    dealt = self._take(pushed, out)
                elif self._piece == PIECE_BYTES and not gate.is_unusual and not gate.kept:
                    dealt = self._give_plain(start, size, out)
                if not dealt:
                    if self.parts_ends:
                        gate.holds_ends = self.awaits_outcomes or bool(out)
                        self._engine.write()  # what was said before
                    piece = max(self._piece, tap.missing)  # the rest of one frame weighs no more than any frame
                    dealt, instead = gate.next(INPUT_VIEW[start:size], tap.held, tap.missing, piece)
                    if gate.is_stopped:
                        self.left = budget
                        return start
                    if instead is None:
                        dealt = self._give(at(INPUT, start), INPUT_VIEW[start : start + min(dealt, piece)], out)
                    elif not self._give_all(instead, out):
                        return size
            except errors.WireError as error:
                self._state.break_off(error, out)
                return size
            if dealt == 0:
                return size
            start += dealt
            weighed += self._weigh(out[last:] if last else out)
            budget -= weighed
            if weighed > HEAVY_PIECE:
                self._piece = SMALL_PIECE_BYTES
            elif weighed <= LIGHT_PIECE and self._piece < PIECE_BYTES:
                self._piece *= 2
        self.left = budget
        self.is_quiet = (
            sockets is not None
            and self._piece == PIECE_BYTES
            and start == size
            and budget >= 0
            and not (tap.held or tap.missing or gate.is_unusual or gate.kept)
            and state.is_open
            and not state.closed
        )
        return start

    def receive_bytes(self, data: bytes, out: list[Event], budget: int = UNBOUNDED) -> int:
        """`receive` for bytes that are not in `buffers.INPUT` yet (TLS, what followed a SASL dialogue)."""
        sockets = self._sockets
        if self.is_quiet and sockets is not None and 0 < len(data) <= INPUT_BYTES:
            INPUT_VIEW[: len(data)] = data
            self.go_on(sockets.read_plain(None, len(data), self.tap, out), out, budget)
            return self.taken
        for start in range(0, len(data), INPUT_BYTES):
            piece = data[start : start + INPUT_BYTES]
            INPUT_VIEW[: len(piece)] = piece
            taken = self.receive(len(piece), out, budget)
            budget = self.left
            if taken < len(piece):
                return start + taken
        return len(data)

    def _weigh(self, events: Sequence[Event]) -> int:
        """The weight of the events, and of the work to read the input."""
        total = len(self._flows.owed)
        for event in events:
            total += weight(event)
        incoming, gate, tap = self._incoming, self._gate, self.tap
        if tap.decoded or incoming.parts or gate.looked:
            total += input_weight(tap.decoded, incoming.parts, gate.looked)
            tap.decoded = incoming.parts = gate.looked = 0
        return total

    def _give_plain(self, start: int, size: int, out: list[Event]) -> int:
        """Give the engine what is plain of `buffers.INPUT` from `start` to `size`; return how many bytes. Not while the
        gate has to look at every frame.
        """
        pushed = self._engine.push_plain(start, size, self.tap, out)
        return 0 if pushed is None else self._take(pushed, out)

    def _take(self, pushed: Pushed, out: list[Event]) -> int:
        """Handle what the engine said of input that it took; return how many bytes that was."""
        taken, may_ask, notice = pushed
        if notice is not None:
            before = len(out)
            try:
                self._engine.told = None
                self._handle(notice, out)
            except Exception:
                self._unheard(notice, before, out)
                raise
            self.drain(out)
        self._given(may_ask=may_ask)
        return taken

    def _give(self, data: Buffer | bytes, chunk: memoryview, out: list[Event]) -> int:
        """Give the engine what it takes of `chunk`, which `data` holds; return how many bytes, 0 if it accepts no more
        input.
        """
        engine = self._engine
        room = engine.room()
        if room <= 0:
            self._state.fail(out)
            return 0
        taken = engine.push(data, min(room, len(chunk)))
        if taken <= 0:
            self.drain(out)
            self._state.fail(out)
            return 0
        self.tap.pushed(chunk[:taken], engine.room())
        self.drain(out)
        self._given(may_ask=True)
        return taken

    def _given(self, *, may_ask: bool) -> None:
        """All events of a piece are handled; a flow of a session may be in it if it `may_ask`."""
        self.tap.is_current = False
        if may_ask:
            self._flows.note_echoes_of_sessions()
        if self._engine.unwritten_sessions:
            self._engine.write()

    def _give_all(self, data: bytes, out: list[Event]) -> bool:
        """Give the engine all of `data`; False if it accepts no more input."""
        while data:
            taken = self._give(data, memoryview(data), out)
            if not taken:
                return False
            data = data[taken:]
        return True

    def drain(self, out: list[Event]) -> None:
        """Handle everything that the engine reports. Raises `WireError`."""
        drain = self._engine.drain
        while (notice := drain(out)) is not None:
            if notice[0] is _ARRIVAL:  # here, because a long message has hundreds of them
                self._incoming.arrived(notice[1], notice[2], out)
                continue
            before = len(out)
            try:
                self._handle(notice, out)
            except Exception:
                self._unheard(notice, before, out)
                raise

    def _unheard(self, notice: Notice, before: int, out: list[Event]) -> None:
        """Keep a delivery whose outcome could not be handled with those that are unsettled, to be given back with the
        connection. `before`: how many events there were.
        """
        if notice[0] is _OUTCOME and len(out) == before:
            self._engine.unsettled.setdefault(notice[1], notice[2])

    def _handle(self, notice: Notice, out: list[Event]) -> None:
        """Do what the engine leaves to us; the most frequent first. Raises `WireError`."""
        if notice[0] is _ARRIVAL:
            self._incoming.arrived(notice[1], notice[2], out)
        elif notice[0] is _FLOW:
            self._flows.flowed(notice[1], out)
        elif notice[0] is _OUTCOME:
            before = len(out)
            self._settlement.ended(notice[1], notice[2], out)
            if len(out) == before:  # what has no event has no weight; one disposition may name very many of them
                self._gate.looked += QUIET_OUTCOME
        elif notice[0] is NoticeKind.STATE:
            self._settlement.confirmed(notice[1])
        elif notice[0] is NoticeKind.ASTRAY:
            self._incoming.check_astray(notice[1])
        elif notice[0] is NoticeKind.CONTINUED:
            self._incoming.continued(notice[1], out)
        elif notice[0] is NoticeKind.LINK_OPENED:
            self._attachments.attach(notice[1], self._state.peer_max_frame, out)
        elif notice[0] is NoticeKind.LINK_DETACHED or notice[0] is NoticeKind.LINK_CLOSED:
            self._attachments.detach(notice[1], closed=notice[0] is NoticeKind.LINK_CLOSED, out=out)
        elif notice[0] is NoticeKind.SESSION_OPENED:
            self._attachments.begin(notice[1], is_open=self._state.peer_opened)
        elif notice[0] is NoticeKind.SESSION_CLOSED:
            self._attachments.end(notice[1], out)
        elif notice[0] is NoticeKind.CONNECTION_OPENED:
            self._state.open_came(out)
        elif notice[0] is NoticeKind.CONNECTION_CLOSED:
            self._state.close_came(out)
        else:
            self._state.fail(out)
