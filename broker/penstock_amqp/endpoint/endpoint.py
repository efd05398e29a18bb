"""One AMQP connection without its socket: bytes in, events out; verbs in, bytes out.

The user hands received bytes to `receive`, works through the events, calls verbs, and sends what `output` yields. SASL
and TLS are in front of it: the first bytes it sees are the bare AMQP header.

`Endpoint` is put together from parts, each with a concern of its own:

- `engine.Engine` carries messages in batches, and stops where something else has to be done;
- `Attachments` knows the sessions and links, `AttachReplies` answers attaches;
- `IncomingMessages` reads messages that come in parts or over new links, `OutgoingStreams` sends long ones in pieces;
- `Settlement` settles what is not simply accepted, `FlowAnswers` answers what flows ask for;
- `PendingChanges` is what the next output has to say that the engine can't: it is rewritten into the engine's frames.

A part knows those that it was made with, never the endpoint, so that no references go round in a circle. Must not know
queues or subscriptions. Source: AMQP 1.0 part 2.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from penstock_amqp import errors
from penstock_amqp.endpoint import conditions
from penstock_amqp.endpoint.attach_replies import AttachReplies
from penstock_amqp.endpoint.attachments import Attachments
from penstock_amqp.endpoint.buffers import INPUT, INPUT_BYTES, INPUT_VIEW, OUTPUT_VIEW, Buffer, Ptr, at
from penstock_amqp.endpoint.engine import Engine, Notice, NoticeKind
from penstock_amqp.endpoint.events import (
    Accepted,
    AmqpError,
    Closed,
    Entry,
    Event,
    EventKind,
    Held,
    Settled,
    effort,
    weight,
)
from penstock_amqp.endpoint.flow_answers import FlowAnswers
from penstock_amqp.endpoint.incoming_messages import IncomingMessages, drop_partial
from penstock_amqp.endpoint.links import InLink, OutLink, Session
from penstock_amqp.endpoint.outgoing_streams import OutgoingStreams
from penstock_amqp.endpoint.output_changes import AttachAdditions, PendingChanges
from penstock_amqp.endpoint.proton import deliveries, links
from penstock_amqp.endpoint.proton.connection import ProtonConnection
from penstock_amqp.endpoint.proton.engine import ProtonEngine
from penstock_amqp.endpoint.settlement import Settlement
from penstock_amqp.frames import frame_sizes, input_tap, performatives, protocol_checks
from penstock_amqp.frames.frames import SASL_HEADER
from penstock_amqp.frames.input_gate import InputGate
from penstock_amqp.frames.input_tap import InputTap
from penstock_amqp.types import values
from penstock_amqp.types.values import Symbol

__all__ = ["Endpoint"]

LARGEST_FRAME: Final = 65_536
"""Messages that take a frame of this size are looked at more closely, whatever the peer takes: they may be streamed."""

OPEN_BYTES: Final = 32
"""What the engine says in an Open beside container-id, capabilities and properties, at most."""

FRAME_OVERHEAD: Final = 128
"""More than a frame header and a transfer take."""

PIECE_BYTES: Final = 8192
"""Bytes handed to the engine at a time: what it takes by itself at first. After each it is seen what they weighed."""
SMALL_PIECE_BYTES: Final = 512
"""The same after a piece that weighed much (`HEAVY_PIECE`); it doubles with each that weighs little (`LIGHT_PIECE`)."""
HEAVY_PIECE: Final = 16
LIGHT_PIECE: Final = 3

UNBOUNDED: Final = 1 << 62

_SASL_BEGINNING: Final = SASL_HEADER[:5]
_NO_PROTOCOL: Final = 0xFF
"""A protocol-id that the engine answers by its own header and the end of the connection."""


class Endpoint:
    """The server's end of one connection. Not thread-safe; all endpoints of the process share the buffers."""

    __slots__ = (
        "_attachments",
        "_changes",
        "_connection",
        "_engine",
        "_flows",
        "_gate",
        "_has_begun",
        "_incoming",
        "_is_open",
        "_max_frame",
        "_max_message_bytes",
        "_peer_closed",
        "_peer_opened",
        "_piece",
        "_replies",
        "_settlement",
        "_tap",
        "closed",
        "left",
        "streams",
    )

    def __init__(
        self,
        *,
        max_frame: int = 65_536,
        idle_timeout_ms: int = 60_000,
        max_message_bytes: int,
        max_sessions: int = 256,
        make_engine: Callable[[ProtonConnection], Engine] = ProtonEngine,
    ) -> None:
        """`max_frame`, `max_message_bytes`: longest frame and message that we take, in bytes. `idle_timeout_ms`:
        silence after which the peer is taken for dead; half of it is announced; 0: never.
        """
        self._connection = ProtonConnection(
            max_frame=max_frame, idle_timeout_ms=idle_timeout_ms, max_sessions=max_sessions
        )
        engine = self._engine = make_engine(self._connection)
        tap = self._tap = InputTap(engine.room())
        self._gate = InputGate(max_frame)
        self._attachments = Attachments(
            engine, tap, self._gate, max_frame=max_frame, max_message_bytes=max_message_bytes
        )
        self._changes = PendingChanges(self._attachments.begun)
        self._settlement = Settlement(engine)
        self._replies = AttachReplies(engine, self._changes, self._settlement)
        self._incoming = IncomingMessages(engine, tap, self._attachments)
        self.streams = OutgoingStreams(engine)
        """Messages that links are sending in pieces: call `advance_streams` while it is true."""
        self._flows = FlowAnswers(engine, tap, self._attachments, self.streams)
        self._max_frame = max_frame
        self._max_message_bytes = max_message_bytes
        self._has_begun = False
        self._is_open = False
        self._peer_opened = False
        self._peer_closed = False
        self._piece = SMALL_PIECE_BYTES
        """Bytes that the engine gets next."""
        self.closed = False
        """True once our Close is on its way or the engine gave up; nothing more is sent or received."""
        self.left = 0
        """What the last `receive` left of its budget; below 0 if it went beyond: a frame can't be cut."""

    # Input

    def receive(self, size: int, out: list[Event], budget: int = UNBOUNDED) -> int:
        """Take the first `size` bytes of `buffers.INPUT`, append what they mean to `out`; return how many were taken.

        Less than `size` once the events weigh more than `budget`: small frames that cost much (attaches, requests)
        shall not keep others waiting. Messages in a row weigh as one. `left` says what is left.
        """
        self.left = budget
        if not self._has_begun:
            self._has_begun = True
            # The engine would begin a dialogue of its own, in which nobody is asked who they are.
            if INPUT_VIEW[:5].tobytes() == _SASL_BEGINNING:
                INPUT_VIEW[4] = _NO_PROTOCOL
        start = 0
        tap = self._tap
        while start < size and budget > 0 and not self.is_awaited:
            piece = max(self._piece, tap.missing)  # the rest of one frame weighs no more than any frame
            dealt, instead = self._gate.next(INPUT_VIEW[start:size], tap.held, tap.missing, piece)
            last = max(len(out) - 1, 0)  # a batch goes on from piece to piece
            weighed = -len(self._flows) - sum(map(weight, out[last:]))
            try:
                if instead is None:
                    dealt = self._give(at(INPUT, start), INPUT_VIEW[start : start + min(dealt, piece)], out)
                elif not self._give_all(instead, out):
                    return size
            except errors.WireError as error:
                self._break(error, out)
                return size
            if dealt == 0:
                return size
            start += dealt
            weighed += self._weigh(out[last:])
            budget -= weighed
            if weighed > HEAVY_PIECE:
                self._piece = SMALL_PIECE_BYTES
            elif weighed <= LIGHT_PIECE and self._piece < PIECE_BYTES:
                self._piece *= 2
        self.left = budget
        return start

    def receive_bytes(self, data: bytes, out: list[Event], budget: int = UNBOUNDED) -> int:
        """`receive` for bytes that are not in `buffers.INPUT` yet (TLS, what followed a SASL dialogue)."""
        for start in range(0, len(data), INPUT_BYTES):
            piece = data[start : start + INPUT_BYTES]
            INPUT_VIEW[: len(piece)] = piece
            taken = self.receive(len(piece), out, budget)
            budget = self.left
            if taken < len(piece):
                return start + taken
        return len(data)

    def _weigh(self, events: Sequence[Event]) -> int:
        """What came, and what it took to read it."""
        parts, self._incoming.parts = self._incoming.parts, 0
        looked, self._gate.looked = self._gate.looked, 0
        small = effort(self._tap.take_decoded(), parts, looked)
        return sum(map(weight, events)) + len(self._flows) + small

    @property
    def is_awaited(self) -> bool:
        """The peer's Open waits for an answer: what it sent behind that is not taken before."""
        return self._peer_opened and not self._is_open and not self.closed

    def _give(self, data: Buffer | bytes, chunk: memoryview, out: list[Event]) -> int:
        """Give the engine what it takes of `chunk`, which `data` holds; how many bytes: 0 if it takes no more."""
        engine = self._engine
        room = engine.room()
        if room <= 0:
            self._fail(out)
            return 0
        taken = engine.push(data, min(room, len(chunk)))
        if taken <= 0:
            self._drain(out)
            self._fail(out)
            return 0
        self._tap.pushed(chunk[:taken], engine.room())
        self._drain(out)
        self._tap.is_current = False
        if taken <= input_tap.SHORT:
            self._flows.note_echoes_of_sessions()
        if engine.unwritten_sessions:
            engine.write()
        return taken

    def _give_all(self, data: bytes, out: list[Event]) -> bool:
        """Give the engine all of `data`; False if it takes no more."""
        while data:
            taken = self._give(data, memoryview(data), out)
            if not taken:
                return False
            data = data[taken:]
        return True

    def tick(self, now_ms: int, out: list[Event]) -> int:
        """Send heartbeats, notice a silent peer; return when to call again (same clock), 0 for never."""
        deadline = self._connection.tick(now_ms)
        self._drain(out)
        return deadline

    def _drain(self, out: list[Event]) -> None:
        drain = self._engine.drain
        while (notice := drain(out)) is not None:
            self._handle(notice, out)

    def _handle(self, notice: Notice, out: list[Event]) -> None:
        """Do what the engine leaves to us; the most frequent first. Raises `WireError`."""
        if notice[0] is NoticeKind.FLOW:
            self._flows.flowed(notice[1], out)
        elif notice[0] is NoticeKind.OUTCOME:
            self._settlement.ended(notice[1], notice[2], out)
        elif notice[0] is NoticeKind.ARRIVAL:
            self._incoming.arrived(notice[1], notice[2], out)
        elif notice[0] is NoticeKind.STATE:
            self._settlement.confirmed(notice[1])
        elif notice[0] is NoticeKind.LINK_OPENED:
            self._attachments.attach(notice[1], self._peer_max_frame, out)
        elif notice[0] is NoticeKind.LINK_DETACHED or notice[0] is NoticeKind.LINK_CLOSED:
            self._attachments.detach(notice[1], closed=notice[0] is NoticeKind.LINK_CLOSED, out=out)
        elif notice[0] is NoticeKind.SESSION_OPENED:
            self._attachments.begin(notice[1], is_open=self._peer_opened)
        elif notice[0] is NoticeKind.SESSION_CLOSED:
            self._attachments.end(notice[1], out)
        elif notice[0] is NoticeKind.CONNECTION_OPENED:
            self._peer_opened = True
            protocol_checks.check_open(self._tap.open_channel())
            out.append((EventKind.OTHER, None, self._connection.opened()))
        elif notice[0] is NoticeKind.CONNECTION_CLOSED:
            self._peer_closed = True
            out.append((EventKind.OTHER, None, Closed(self._connection.closed_with())))
        else:
            self._fail(out)

    def _fail(self, out: list[Event]) -> None:
        """The engine will take no more: a protocol error of the peer, or its idle time-out."""
        if not self.closed and not self._peer_closed:
            error = self._connection.failure()
            if error is None:  # the engine gave up without a word (a performative by its symbol, for one)
                error = AmqpError("amqp:connection:framing-error", "The frame can't be understood.")
                self._changes.last_words = (error, None)
                self.close(error)
            else:
                fault = conditions.fault_of(error)
                error = fault.error
                self._changes.last_words = (error, self._session_of_fault(fault))
            self.closed = True
            out.append((EventKind.OTHER, None, Closed(error)))

    def _break(self, error: errors.WireError, out: list[Event]) -> None:
        """The peer's frames can't be read, though the engine took them."""
        self._tap.is_current = False
        if isinstance(error, errors.ProtocolError):
            told = AmqpError(error.condition, str(error))
            self._changes.last_words = (told, self._attachments.local_channel(error.session_channel))
        else:
            told = AmqpError("amqp:decode-error", f"A frame can't be read: {error}")
            self._changes.last_words = (told, None)
        self.close(told)
        out.append((EventKind.OTHER, None, Closed(told)))

    def _session_of_fault(self, fault: conditions.Fault) -> int | None:
        """Our channel of the session that the engine's last chunk broke, if that is certain."""
        if not fault.codes or not self._tap.is_current:
            return None
        channels: set[int] = set()
        with contextlib.suppress(errors.WireError):  # what lies behind the faulty frame may be anything
            channels.update(channel for channel, _ in self._tap.performatives(fault.codes))
        return self._attachments.local_channel(channels.pop()) if len(channels) == 1 else None

    # Connection

    def open(self, container_id: str, offered: Sequence[str], properties: Mapping[str, values.Value]) -> None:
        """Answer the peer's Open."""
        most = self._peer_max_frame - OPEN_BYTES
        told = {Symbol(key): value for key, value in properties.items()}
        whole = performatives.Open(
            container_id=container_id, offered_capabilities=tuple(Symbol(name) for name in offered), properties=told
        )
        fits = frame_sizes.fitted(whole, 0, most)
        if not isinstance(fits, performatives.Open):
            fits = performatives.Open(container_id=container_id)
        self._connection.open(container_id, fits.offered_capabilities or (), properties if fits.properties else {})
        self._is_open = True
        self._engine.frame_bytes = min(self._peer_max_frame, LARGEST_FRAME) - FRAME_OVERHEAD
        if self.closed:  # the engine gave up meanwhile
            self._connection.close()

    @property
    def _peer_max_frame(self) -> int:
        """The longest frame that the peer takes."""
        return self._connection.peer_max_frame or self._max_frame

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

    def free(self) -> None:
        """Give everything back. The endpoint and its links are unusable from here on."""
        self.closed = True
        for link in self._attachments.all_links():
            if isinstance(link, InLink):
                drop_partial(link)
                link.spool = None
        self.streams.clear()
        self._settlement.clear()
        self._attachments.clear()
        self._connection.free()

    # Links and sessions

    def attach_reply(
        self,
        link: InLink | OutLink,
        *,
        source: performatives.Source | None,
        target: performatives.Target | performatives.Coordinator | None,
        offered: tuple[str, ...] = (),
        answers_unsettled: bool = False,
        max_message_bytes: int = 0,
        sends_settled: bool = False,
        settles_second: bool = False,
        peer_settles: int | None = None,
    ) -> None:
        """Answer an attach with what is really there. `offered`: the link's offered capabilities; with
        `answers_unsettled` the peer's unsettled map gets an empty one back: nothing is resumed.

        To a receiver, `sends_settled` leaves nothing to settle; with `settles_second` the peer settles what it accepted
        once we have settled it (`confirm`). `peer_settles`: the settle mode that a sender announced, which is its
        choice. From a sender, with `settles_second` we settle what we answered once it has; else an answer is our last
        word.
        """
        if isinstance(link, InLink):
            self._replies.accept_producer(
                link,
                source,
                target,
                max_message_bytes=max_message_bytes or self._max_message_bytes,
                peer_settles=peer_settles,
                settles_second=settles_second,
            )
        else:
            self._replies.accept_consumer(
                link, source, target, sends_settled=sends_settled, settles_second=settles_second
            )
        default_outcome = link.default_outcome if isinstance(link, OutLink) else None
        self._replies.open(AttachAdditions(link, offered, answers_unsettled, default_outcome))

    def refuse_attach(self, link: InLink | OutLink, error: AmqpError) -> None:
        """Answer an attach with a null source (of a receiver) or target (of a sender), then a closing detach."""
        self.detach(link, closed=True, error=error)

    def detach(self, link: InLink | OutLink, *, closed: bool, error: AmqpError | None = None) -> None:
        """Detach or close a link, in answer or of our own accord. The link is gone; its unsettled ones are settled.

        An attach that has no answer yet is refused by that.
        """
        if not link.is_open:
            return
        self._forget(link)
        if link in link.session.links:
            link.session.links.remove(link)
        self._replies.end(link, closed=closed, error=error)

    def end(self, session: Session) -> None:
        """Answer the peer's End. The session is gone with its links; their unsettled deliveries are settled."""
        for link in session.links:
            self._forget(link)
            links.free_link(link.ptr)
        session.links = []
        links.close_session(session.ptr)

    def _forget(self, link: InLink | OutLink) -> None:
        """Drop every pointer to a link; the engine is about to use its addresses again."""
        self._attachments.forget(link)
        if isinstance(link, InLink):
            drop_partial(link)
            link.spool = None
            self._settlement.forget(link)
        else:
            self.streams.forget(link)

    def all_links(self) -> tuple[InLink | OutLink, ...]:
        """Every link that is attached."""
        return self._attachments.all_links()

    # Messages to the peer

    def send(self, link: OutLink, entries: Iterable[Entry], now_us: int) -> None:
        """Send `entries`, at most as many as the link's credit, which is the caller's to count down."""
        if self.streams and link in self.streams:
            self.streams.append(link, entries, now_us)
            return
        unsent = self._engine.send(link, entries, now_us)
        if unsent is not None:
            self.streams.begin(link, unsent, now_us)

    def send_as(self, link: OutLink, entry: Entry, data: bytes, now_us: int) -> None:
        """Send `data` in the place of the entry's own bytes (a rewritten header)."""
        self.streams.send_as(link, entry, data, now_us)

    def advance_streams(self, most: int, held_back: int, out: list[Event]) -> bool:
        """Send about `most` bytes more of the messages that go out in pieces; False if none could get on.

        A session for which the engine holds more than `held_back` bytes is passed over. Raises OSError if a message
        can't be read: the connection is of no use then.
        """
        return self.streams.advance(most, held_back, out, self._flows.drained)

    def is_congested(self, link: OutLink, limit: int) -> bool:
        """True if nothing should be handed over for this link now: the engine holds more than `limit` bytes that the
        peer's session window keeps back, or a message is being sent in pieces.
        """
        if self.streams and link in self.streams:
            return True
        return links.outgoing_bytes(link.session.ptr) > limit

    def drained(self, link: OutLink) -> None:
        """Nothing is left to send: give back the credit of a consumer that drains, once all is out."""
        self._flows.drained(link)

    @property
    def unsettled(self) -> Mapping[Ptr, Held]:
        """Deliveries sent and not settled, by the engine's pointer."""
        return self._engine.unsettled

    def all_held(self) -> Iterator[Held]:
        """All that was sent, or is being sent, and is not settled; per link the oldest first."""
        yield from self._engine.unsettled.values()
        yield from self.streams.all_held()

    def held_by(self, link: OutLink) -> list[Held]:
        """The link's unsettled deliveries, oldest first."""
        if not links.has_unsettled(link.ptr) and link not in self.streams:
            return []  # others of the connection may have very many
        return [held for held in self.all_held() if held[0] is link]

    def conclude(self, delivery: Ptr, held: Held, end: Settled | None) -> bool:
        """Settle what the peer left unsettled as `end` says (None: accept it); False if it is unsettled no more."""
        return self._settlement.conclude(delivery, held, end)

    def confirm(self, ended: Accepted | Settled) -> None:
        """Settle, as the peer did, what it settles after us; if its link is gone there is nothing to do."""
        self._settlement.confirm(ended)

    # Messages from the peer

    def accept(self, received: Iterable[Ptr]) -> None:
        """Accept and settle. Only deliveries of links that are open: see `InLink.is_open`.

        As with `reject` and `release`, what came over a link that settles second is settled once the peer did.
        """
        self._settlement.accept(received)

    def settle(self, received: Iterable[Ptr]) -> None:
        """Settle what the sender settled already."""
        self._engine.settle(received)

    def reject(self, received: Iterable[Ptr], error: AmqpError) -> None:
        """Reject and settle."""
        self._settlement.reject(received, error)

    def release(self, received: Iterable[Ptr]) -> None:
        """Hand back and settle: the sender may try again."""
        self._settlement.release(received)

    def credit(self, link: InLink, count: int) -> None:
        """Let the peer send `count` messages more; for those that it has not settled yet, once it settles them."""
        self._settlement.credit(link, count)

    def tag_of(self, received: Ptr) -> bytes:
        """The delivery-tag of a delivery that is not settled yet."""
        return deliveries.tag_of(received)

    # Output

    def output(self) -> int:
        """Move what is to be sent into `buffers.OUTPUT`; return how many bytes. Call until it returns 0.

        What it returned counts as sent. Each call ends on a frame boundary unless it filled the buffer.
        """
        return self._engine.output()

    @property
    def needs_rewriting(self) -> bool:
        """True if the engine's output says too little: send `rewritten_output`, not `output`."""
        return bool(self._changes)

    def rewritten_output(self) -> bytes:
        """All that is to be sent, with what the engine can't say written into its frames (`output_changes`).

        For a turn in which `needs_rewriting`; `output` must have been drained before the attach reply.
        """
        pieces: list[bytes] = []
        while size := self._engine.output():
            pieces.append(OUTPUT_VIEW[:size].tobytes())
        return self._changes.apply(b"".join(pieces), self._peer_max_frame)

    @property
    def broken(self) -> bool:
        """The engine writes no more, though nobody closed: only dropping the socket is left."""
        return self._engine.has_failed and not self.closed and not self._peer_closed

    @property
    def has_echoes(self) -> bool:
        """True if the peer asked for our state: send `echoes` once `output` has nothing more."""
        return bool(self._flows)

    def echoes(self) -> bytes:
        """The flow frames that we owe the peer: the engine does not see that they were asked for."""
        if self.closed:
            self._flows.clear()
        return self._flows.take()
