"""The forwarding half of an endpoint: bytes in, batches of messages and outcomes out; messages in, bytes out.

Written for speed: `_drain` here, `accept` in `endpoint.settling` and `send` in `endpoint.sending` carry every message.
Everything that is not a message goes to `_other`, which `endpoint.Endpoint` has.

Rules of the engine that hold here (0.40): an incoming delivery is advanced as soon as it is read, or the link stands
still while its accept is deferred; pointers are reused, so a pointer's entry leaves its dict before the object is
freed; `pn_event_delivery` is NULL for events of other kinds, which saves asking for the type; the engine raises flows
for our own transfers. Must not know queues or subscriptions. Source: AMQP 1.0 part 2.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

from penstock_amqp import errors
from penstock_amqp.endpoint import buffers, incoming_messages
from penstock_amqp.endpoint.buffers import (
    ACCEPTED,
    INPUT,
    INPUT_VIEW,
    MESSAGE,
    OUTPUT,
    OUTPUT_BYTES,
    Buffer,
    Ptr,
    collector_peek,
    collector_pop,
    delivery_link,
    delivery_partial,
    delivery_readable,
    delivery_remote_state,
    delivery_settle,
    delivery_settled,
    event_delivery,
    link_advance,
    link_recv,
    transport_capacity,
    transport_peek,
    transport_pop,
    transport_push,
    unpack,
)
from penstock_amqp.endpoint.events import Accepted, AmqpError, Arrival, Event, EventKind, Held, effort, weight
from penstock_amqp.endpoint.links import Gathering, InLink, OutLink, Session
from penstock_amqp.endpoint.output_changes import AttachAdditions
from penstock_amqp.endpoint.settling import Settler
from penstock_amqp.frames import input_tap, protocol_checks
from penstock_amqp.frames.frames import SASL_HEADER
from penstock_amqp.frames.input_gate import InputGate

__all__ = ["MessageEngine"]

MAX_CHANNEL: Final = 255
"""Highest channel, which bounds the sessions of one connection."""

_SASL_BEGINNING: Final = SASL_HEADER[:5]
_NO_PROTOCOL: Final = 0xFF
"""A protocol-id that the engine answers by its own header and the end of the connection."""


UNBOUNDED: Final = 1 << 62

PIECE_BYTES: Final = 8192
"""Bytes handed to the engine at a time: what it takes by itself at first. After each it is seen what they weighed."""
SMALL_PIECE_BYTES: Final = 512
"""The same after a piece that weighed much (`HEAVY_PIECE`); it doubles with each that weighs little."""
HEAVY_PIECE: Final = 16
LIGHT_PIECE: Final = 3


class MessageEngine(Settler):
    """What `endpoint.Endpoint` builds on. One call at a time over all endpoints of the process: they share the buffers
    of `endpoint.buffers`.
    """

    __slots__ = (
        "_begun",
        "_by_handle",
        "_collector",
        "_connection",
        "_echoes",
        "_gate",
        "_gathering",
        "_has_begun",
        "_is_open",
        "_last_words",
        "_links",
        "_offers",
        "_parts",
        "_peer_closed",
        "_peer_opened",
        "_piece",
        "_pushing",
        "_sessions",
        "_tap",
        "_transport",
        "_unwritten",
        "broken",
        "closed",
        "left",
        "max_frame",
        "max_message_bytes",
    )

    def __init__(
        self,
        *,
        max_frame: int = 65_536,
        idle_timeout_ms: int = 60_000,
        max_message_bytes: int,
        max_sessions: int = 256,
    ) -> None:
        """`idle_timeout_ms`: silence after which the peer is taken for dead; half of it is announced. 0 = never."""
        super().__init__()
        self._transport: Ptr = buffers.transport()
        buffers.transport_set_server(self._transport)
        buffers.transport_require_auth(self._transport, False)
        buffers.transport_set_max_frame(self._transport, max_frame)
        buffers.transport_set_channel_max(self._transport, min(max_sessions - 1, MAX_CHANNEL))
        buffers.transport_set_idle_timeout(self._transport, idle_timeout_ms)
        self._connection: Ptr = buffers.connection()
        self._collector: Ptr = buffers.collector()
        buffers.connection_collect(self._connection, self._collector)
        buffers.transport_bind(self._transport, self._connection)
        self.max_frame = max_frame
        self.max_message_bytes = max_message_bytes
        self._gate = InputGate(max_frame)
        self._tap = input_tap.InputTap(transport_capacity(self._transport))
        self._links: dict[Ptr, InLink | OutLink] = {}
        self._sessions: dict[Ptr, Session] = {}
        self._offers: list[AttachAdditions] = []
        """What the engine can't say in replies to attaches."""
        self._begun: list[Session] = []
        """Sessions whose Begin is still in the engine."""
        self._last_words: tuple[AmqpError, int | None] | None = None
        """What our Close says instead of what the engine would, and our channel of the session that it ends first."""
        self._by_handle: dict[tuple[int, int], InLink | OutLink] = {}
        """Links by the peer's channel and handle."""
        self._echoes: list[input_tap.TappedFlow] = []
        """Flows that ask for our state, to be answered behind the engine's output."""
        self._pushing = False
        """The events being drained are those of the chunk that the tap knows."""
        self._has_begun = False
        self._unwritten = 0
        """Sessions that began since the engine last wrote: it has a channel for so many only, and no window before."""
        self._is_open = False
        self._peer_opened = False
        self._peer_closed = False
        self._piece = SMALL_PIECE_BYTES
        self._gathering = Gathering()
        self._parts = 0
        """Parts of messages since they were last weighed."""
        self.closed = False
        """True once our Close is on its way or the engine gave up; nothing more is sent or received."""
        self.left = 0
        """What the last `receive` left of its budget; below 0 if it went beyond: a frame can't be cut."""
        self.broken = False
        """The engine writes no more, though nobody closed: only dropping the socket is left."""

    def receive(self, size: int, out: list[Event], budget: int = UNBOUNDED) -> int:
        """Take the first `size` bytes of `ffi.INPUT` and append what they mean to `out`; return how many were taken.

        Less than `size` once the events weigh more than `budget`: small frames that cost much (attaches, requests)
        shall not keep others waiting. Messages in a row weigh as one. `left` says what is left.
        """
        self.left = budget
        if not self._has_begun:
            self._has_begun = True
            # The engine would begin a dialogue of its own, in which nobody is asked who they are.
            if INPUT_VIEW[:5].tobytes() == _SASL_BEGINNING:
                INPUT_VIEW[4] = _NO_PROTOCOL
        at = 0
        tapped = self._tap
        while at < size and budget > 0 and not self.is_awaited:
            piece = max(self._piece, tapped.missing)  # the rest of one frame weighs no more than any frame
            dealt, instead = self._gate.next(INPUT_VIEW[at:size], tapped.held, tapped.missing, piece)
            last = max(len(out) - 1, 0)  # a batch goes on from piece to piece
            weighed = -len(self._echoes) - sum(map(weight, out[last:]))
            try:
                if instead is None:
                    dealt = self._give(buffers.at(INPUT, at), INPUT_VIEW[at : at + min(dealt, piece)], out)
                elif not self._give_all(instead, out):
                    return size
            except errors.WireError as error:
                self._break(error, out)
                return size
            if dealt == 0:
                return size
            at += dealt
            weighed += self._weigh(out[last:])
            budget -= weighed
            if weighed > HEAVY_PIECE:
                self._piece = SMALL_PIECE_BYTES
            elif weighed <= LIGHT_PIECE and self._piece < PIECE_BYTES:
                self._piece *= 2
        self.left = budget
        return at

    def _weigh(self, events: Sequence[Event]) -> int:
        """What came, and what it took to read it."""
        parts, self._parts = self._parts, 0
        looked, self._gate.looked = self._gate.looked, 0
        small = effort(self._tap.take_decoded(), parts, looked)
        return sum(map(weight, events)) + len(self._echoes) + small

    @property
    def is_awaited(self) -> bool:
        """The peer's Open waits for an answer: what it sent behind that is not taken before."""
        return self._peer_opened and not self._is_open and not self.closed

    def _give(self, buffer: Buffer | bytes, chunk: memoryview, out: list[Event]) -> int:
        """Give the engine what it takes of `chunk`, which `buffer` holds; how many bytes: 0 if it takes no more."""
        transport = self._transport
        capacity = transport_capacity(transport)
        if capacity <= 0:
            self._fail(out)
            return 0
        taken = transport_push(transport, buffer, min(capacity, len(chunk)))
        if taken <= 0:
            self._drain(out)
            self._fail(out)
            return 0
        self._tap.pushed(chunk[:taken], transport_capacity(transport))
        self._pushing = True
        self._drain(out)
        self._pushing = False
        if taken <= input_tap.SHORT:
            self._echoes += self._tap.echoes_of_sessions()
        if self._unwritten:
            self._write()
        return taken

    def _give_all(self, data: bytes, out: list[Event]) -> bool:
        """Give the engine all of `data`; False if it takes no more."""
        while data:
            taken = self._give(data, memoryview(data), out)
            if not taken:
                return False
            data = data[taken:]
        return True

    def _write(self) -> None:
        """Have the engine write: it takes transfers for a session that it has begun, and handles are free again."""
        transport_peek(self._transport, OUTPUT, 0)
        self._unwritten = 0
        self._pass_over_own()

    def _pass_over_own(self) -> None:
        """The engine tells us of our own transfers as flows; a flow in `_drain` shall be the peer's."""
        collector = self._collector
        while (event := collector_peek(collector)) and buffers.event_type(event) != buffers.TRANSPORT_ERROR:
            collector_pop(collector)

    def receive_bytes(self, data: bytes, out: list[Event], budget: int = UNBOUNDED) -> int:
        """`receive` for bytes that are not in `ffi.INPUT` yet (TLS, what followed a SASL dialogue)."""
        for start in range(0, len(data), buffers.INPUT_BYTES):
            piece = data[start : start + buffers.INPUT_BYTES]
            INPUT_VIEW[: len(piece)] = piece
            taken = self.receive(len(piece), out, budget)
            budget = self.left
            if taken < len(piece):
                return start + taken
        return len(data)

    def tick(self, now_ms: int, out: list[Event]) -> int:
        """Send heartbeats, notice a silent peer; return when to call again (same clock), 0 for never."""
        deadline = buffers.transport_tick(self._transport, now_ms)
        self._drain(out)
        return deadline

    def _drain(self, out: list[Event]) -> None:
        collector = self._collector
        links = self._links
        take_unsettled = self.unsettled.pop
        batch_link: InLink | None = None
        batch: list[Arrival] = []
        held_link: OutLink | None = None
        held_batch: list[Held] = []
        if out:
            last = out[-1]  # go on with the batch of the push before, if nothing came between
            if last[0] is EventKind.MESSAGES and not last[1].unproven:
                batch_link, batch = last[1], last[2]
            elif last[0] is EventKind.ACCEPTED:
                held_link, held_batch = last[1], last[2]
        while event := collector_peek(collector):
            received = event_delivery(event)
            if not received:
                self._other(event, out)
                batch_link = held_link = None
            elif held := take_unsettled(received, None):
                if delivery_remote_state(received) == ACCEPTED:
                    if held[0] is held_link:
                        delivery_settle(received)
                        held_batch.append(held)
                    elif held[0].settles_second and not delivery_settled(received):
                        out.append((EventKind.OTHER, None, Accepted(held, received)))
                        batch_link = held_link = None
                    else:
                        delivery_settle(received)
                        held_link, held_batch, batch_link = held[0], [held], None
                        out.append((EventKind.ACCEPTED, held_link, held_batch))
                else:
                    self._settled(received, held, out)
                    batch_link = held_link = None
            elif delivery_readable(received):
                link = links.get(delivery_link(received))
                if not isinstance(link, InLink):  # detached by us; the peer does not know yet
                    incoming_messages.missed(received, out)
                    batch_link = held_link = None
                    delivery_settle(received)
                    collector_pop(collector)
                    continue
                if link.unproven:
                    self._scrutinise()
                    if link.resumed and incoming_messages.passed_over(received, link, out):
                        collector_pop(collector)
                        batch_link = held_link = None
                        continue
                if delivery_partial(received) or link.part_bytes:
                    whole = incoming_messages.receive(received, link, out)
                    if whole is None:
                        self._parts += 1
                        collector_pop(collector)
                        batch_link = held_link = None
                        continue
                    data = whole
                else:
                    size = link_recv(link.ptr, MESSAGE, link.read_bytes)
                    if size >= link.read_bytes or size < 0:
                        whole = incoming_messages.receive(received, link, out, max(size, 0))
                        if whole is None:
                            collector_pop(collector)
                            batch_link = held_link = None
                            continue
                        data = whole
                    else:
                        data = unpack(MESSAGE, size)
                link_advance(link.ptr)
                if link is not batch_link:
                    if link.unproven:
                        unsound = incoming_messages.proven(received, link, data)
                        if unsound is not None:
                            out.append((EventKind.OTHER, None, unsound))
                            collector_pop(collector)
                            batch_link = held_link = None
                            continue
                    batch_link, batch, held_link = None if link.unproven else link, [], None
                    out.append((EventKind.MESSAGES, link, batch))
                batch.append((received, data, delivery_settled(received)))
            elif self._unconfirmed:
                self._confirmed(received)
            collector_pop(collector)

    def _scrutinise(self) -> None:
        """Judge the transfers of new links in the chunk at hand. Raises `WireError`."""
        if not self._pushing:
            return
        for channel, transfer in self._tap.take_transfers():
            link = self._by_handle.get((channel, transfer.handle))
            if isinstance(link, InLink) and link.unproven:
                if transfer.resume and transfer.delivery_tag is not None:
                    link.resumed = {transfer.delivery_tag, *(link.resumed or ())}
                link.first_transfer = protocol_checks.check_transfer(
                    link.first_transfer, transfer, settles_second=link.settles_second
                )

    def output(self) -> int:
        """Move what is to be sent into `ffi.OUTPUT`; return how many bytes. Call until it returns 0.

        What it returned counts as sent. Each call ends on a frame boundary unless it filled the buffer.
        """
        transport = self._transport
        filled = 0
        while filled < OUTPUT_BYTES:
            size = transport_peek(transport, buffers.at(OUTPUT, filled), OUTPUT_BYTES - filled)
            if size <= 0:
                self.broken = size < 0 and not self.closed and not self._peer_closed
                break
            transport_pop(transport, size)
            filled += size
        self._unwritten = 0
        self._pass_over_own()
        return filled

    @abstractmethod
    def _other(self, event: Ptr, out: list[Event]) -> None:
        """An event that is no delivery. `pop` of the event is the caller's."""

    @abstractmethod
    def _fail(self, out: list[Event]) -> None:
        """The engine will take no more: a protocol error of the peer, or its idle time-out."""

    @abstractmethod
    def _break(self, error: errors.WireError, out: list[Event]) -> None:
        """The peer's frames can't be read, though the engine took them."""
