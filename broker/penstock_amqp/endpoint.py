"""One AMQP connection without its socket: bytes in, events out; verbs in, bytes out. Straight on proton's C engine.

The user hands received bytes to `receive`, works through the events, calls verbs, and sends what `output` yields. All
is done in batches, so that a compiled back end can stand beside this one. SASL and TLS are in front of it: the first
bytes it sees are the bare AMQP header.

Written for speed: `_drain`, `send` and `accept` carry every message.

Rules of the engine that hold here (0.40): an incoming delivery is advanced as soon as it is read, or the link stands
still while its accept is deferred; pointers are reused, so a pointer's entry leaves its dict before the object is
freed; `pn_event_delivery` is NULL for events of other kinds, which saves asking for the type; a refused attach is
answered with a null source or target, then closed. Must not know queues or subscriptions. Source: AMQP 1.0 part 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from penstock_amqp import echo, endpoint_ffi, endpoint_terms, errors, performatives, rewrite, tap, values
from penstock_amqp.endpoint_events import (
    AmqpError,
    Arrival,
    Attached,
    Closed,
    Detached,
    Ended,
    Entry,
    Event,
    Flowed,
    Held,
    Kind,
    TooLarge,
)
from penstock_amqp.endpoint_ffi import (
    ACCEPTED,
    INPUT,
    INPUT_VIEW,
    MESSAGE,
    MESSAGE_BYTES,
    OUTPUT,
    OUTPUT_BYTES,
    RECEIVED,
    REJECTED,
    RELEASED,
    TAG,
    TAG_VIEW,
    Ptr,
    collector_peek,
    collector_pop,
    delivery,
    delivery_aborted,
    delivery_link,
    delivery_partial,
    delivery_readable,
    delivery_remote_state,
    delivery_settle,
    delivery_settled,
    delivery_update,
    event_delivery,
    link_advance,
    link_credit,
    link_recv,
    link_send,
    transport_capacity,
    transport_peek,
    transport_pop,
    transport_push,
    unpack,
)
from penstock_amqp.endpoint_links import InLink, OutLink, Session

__all__ = ["Endpoint"]

SESSION_FRAMES: Final = 2048
"""Incoming window of a session in frames. It bounds nothing (all is read at once, link credit is the bound), so it is
wide enough never to hold a sender back."""


FRAME_OVERHEAD: Final = 128
"""More than a frame header and a transfer take."""

MAX_CHANNEL: Final = 255
"""Highest channel, which bounds the sessions of one connection."""


class Endpoint:
    """The server's end of one connection. Not thread-safe; one call at a time over all endpoints of the process, for
    they share the input and output buffers of `endpoint_ffi`.
    """

    __slots__ = (
        "_by_handle",
        "_cold",
        "_collector",
        "_connection",
        "_echoes",
        "_is_open",
        "_links",
        "_offers",
        "_one_frame",
        "_peer_closed",
        "_pushing",
        "_sessions",
        "_tag",
        "_tap",
        "_transport",
        "closed",
        "max_frame",
        "max_message_bytes",
        "unsettled",
    )

    def __init__(self, *, max_frame: int = 65_536, idle_timeout_ms: int = 60_000, max_message_bytes: int) -> None:
        """`idle_timeout_ms`: silence after which the peer is taken for dead; half of it is announced. 0 = never."""
        ffi = endpoint_ffi
        self._transport: Ptr = ffi.transport()
        ffi.transport_set_server(self._transport)
        ffi.transport_require_auth(self._transport, False)
        ffi.transport_set_max_frame(self._transport, max_frame)
        ffi.transport_set_channel_max(self._transport, MAX_CHANNEL)
        ffi.transport_set_idle_timeout(self._transport, idle_timeout_ms)
        self._connection: Ptr = ffi.connection()
        self._collector: Ptr = ffi.collector()
        ffi.connection_collect(self._connection, self._collector)
        ffi.transport_bind(self._transport, self._connection)
        self.max_frame = max_frame
        self.max_message_bytes = max_message_bytes
        self._tap = tap.InputTap(transport_capacity(self._transport))
        self._links: dict[Ptr, InLink | OutLink] = {}
        self._sessions: dict[Ptr, Session] = {}
        self._offers: dict[tuple[str, bool], tuple[InLink | OutLink, tuple[str, ...], bool]] = {}
        """By link name and role: what the engine can't say in an attach reply."""
        self._by_handle: dict[tuple[int, int], InLink | OutLink] = {}
        """Links by the peer's channel and handle."""
        self._echoes: list[tap.TappedFlow] = []
        """Flows that ask for our state, to be answered behind the engine's output."""
        self.unsettled: dict[Ptr, Held] = {}
        """Deliveries sent and not settled, by the engine's pointer."""
        self._tag = 0
        self._pushing = False
        """The events being drained are those of the chunk that the tap knows."""
        self._is_open = False
        self._one_frame = 0
        """Longest message that surely fits one frame of the peer's."""
        self._peer_closed = False
        self.closed = False
        """True once our Close is on its way or the engine gave up; nothing more is sent or received."""

    # -- bytes in, events out ---------------------------------------------------------------------------------------

    def receive(self, size: int, out: list[Event]) -> None:
        """Take the first `size` bytes of `endpoint_ffi.INPUT` and append what they mean to `out`."""
        transport = self._transport
        at = 0
        while at < size:
            capacity = transport_capacity(transport)
            if capacity <= 0:
                self._fail(out)
                return
            taken = transport_push(transport, endpoint_ffi.at(INPUT, at), min(capacity, size - at))
            if taken <= 0:
                self._drain(out)
                self._fail(out)
                return
            try:
                self._tap.pushed(INPUT_VIEW[at : at + taken], transport_capacity(transport))
                at += taken
                self._pushing = True
                self._drain(out)
                self._pushing = False
            except errors.WireError as error:
                self._break(error, out)
                return

    def receive_bytes(self, data: bytes, out: list[Event]) -> None:
        """`receive` for bytes that are not in `endpoint_ffi.INPUT` yet (TLS, what followed a SASL dialogue)."""
        for start in range(0, len(data), endpoint_ffi.INPUT_BYTES):
            piece = data[start : start + endpoint_ffi.INPUT_BYTES]
            INPUT_VIEW[: len(piece)] = piece
            self.receive(len(piece), out)

    def end_of_input(self, out: list[Event]) -> None:
        """The peer will send no more bytes."""
        endpoint_ffi.transport_close_tail(self._transport)
        self._drain(out)

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
            if last[0] is Kind.MESSAGES:
                batch_link, batch = last[1], last[2]
            elif last[0] is Kind.ACCEPTED:
                held_link, held_batch = last[1], last[2]
        while event := collector_peek(collector):
            received = event_delivery(event)
            if not received:
                self._other(event, out)
                batch_link = held_link = None
            elif held := take_unsettled(received, None):
                if delivery_remote_state(received) == ACCEPTED:
                    delivery_settle(received)
                    if held[0] is held_link:
                        held_batch.append(held)
                    else:
                        held_link, held_batch, batch_link = held[0], [held], None
                        out.append((Kind.ACCEPTED, held_link, held_batch))
                else:
                    self._settled(received, held, out)
                    batch_link = held_link = None
            elif delivery_readable(received):
                link = links.get(delivery_link(received))
                if not isinstance(link, InLink):  # detached by us; the peer does not know yet
                    delivery_settle(received)
                    collector_pop(collector)
                    continue
                if delivery_partial(received) or link.part_bytes:
                    data = self._part(received, link, out)
                    if data is None:
                        collector_pop(collector)
                        batch_link = held_link = None
                        continue
                else:
                    size = link_recv(link.ptr, MESSAGE, MESSAGE_BYTES)
                    if size >= MESSAGE_BYTES or size < 0:
                        data = self._rest(received, link, size)
                        if data is None:
                            collector_pop(collector)
                            continue
                    else:
                        data = unpack(MESSAGE, size)
                link_advance(link.ptr)
                if link is not batch_link:
                    batch_link, batch, held_link = link, [], None
                    out.append((Kind.MESSAGES, link, batch))
                batch.append((received, data, delivery_settled(received)))
            collector_pop(collector)

    def _part(self, received: Ptr, link: InLink, out: list[Event]) -> bytes | None:
        """Read what came of a message that spans frames; return it once whole."""
        if delivery_aborted(received):
            self._drop(received, link)
            return None
        while (size := link_recv(link.ptr, MESSAGE, MESSAGE_BYTES)) > 0:
            link.part_bytes += size
            if link.part_bytes <= link.max_bytes:
                link.parts.append(unpack(MESSAGE, size))
            elif link.max_bytes:
                link.parts = []
                link.max_bytes = 0  # say it once
                out.append((Kind.OTHER, None, TooLarge(link)))
        if delivery_partial(received):
            return None
        if link.part_bytes > link.max_bytes:
            self._drop(received, link)
            return None
        data = b"".join(link.parts)
        link.parts = []
        link.part_bytes = 0
        return data

    def _rest(self, received: Ptr, link: InLink, size: int) -> bytes | None:
        """A whole message that is empty, aborted, or longer than the buffer."""
        if delivery_aborted(received):
            self._drop(received, link)
            return None
        pieces = [unpack(MESSAGE, max(size, 0))]
        while size > 0 and (size := link_recv(link.ptr, MESSAGE, MESSAGE_BYTES)) > 0:
            pieces.append(unpack(MESSAGE, size))
        return b"".join(pieces)

    def _drop(self, received: Ptr, link: InLink) -> None:
        link.parts = []
        link.part_bytes = 0
        link_advance(link.ptr)
        delivery_settle(received)
        link.credit -= 1

    def _settled(self, received: Ptr, held: Held, out: list[Event]) -> None:
        """An outcome other than accepted, or none: `received` is out of the unsettled dict already."""
        state = delivery_remote_state(received)
        if state == RECEIVED or (state == 0 and not delivery_settled(received)):
            self.unsettled[received] = held
            return
        out.append((Kind.OTHER, None, endpoint_terms.settled(received, state, held)))
        delivery_settle(received)

    def _other(self, event: Ptr, out: list[Event]) -> None:
        """Sessions, links, flows, open and close. `pop` of the event is the caller's."""
        kind = endpoint_ffi.event_type(event)
        if kind == endpoint_ffi.LINK_FLOW:
            link = self._links.get(endpoint_ffi.event_link(event))
            if isinstance(link, OutLink):
                link.credit = link_credit(link.ptr)
                link.drain = endpoint_ffi.link_get_drain(link.ptr)
                out.append((Kind.OTHER, None, Flowed(link)))
            if self._pushing:
                self._echoes += self._tap.echoes()
        elif kind == endpoint_ffi.LINK_REMOTE_OPEN:
            self._attached(endpoint_ffi.event_link(event), out)
        elif kind in (endpoint_ffi.LINK_REMOTE_DETACH, endpoint_ffi.LINK_REMOTE_CLOSE):
            link = self._links.get(endpoint_ffi.event_link(event))
            if link is not None:
                error = endpoint_terms.read_condition(endpoint_ffi.link_remote_condition(link.ptr))
                closed = kind == endpoint_ffi.LINK_REMOTE_CLOSE
                out.append((Kind.OTHER, None, Detached(link, closed, error)))
        elif kind == endpoint_ffi.SESSION_REMOTE_OPEN:
            ptr = endpoint_ffi.event_session(event)
            endpoint_ffi.session_set_incoming_capacity(ptr, SESSION_FRAMES * self.max_frame)
            self._sessions[ptr] = Session(ptr)
            if self._is_open:
                endpoint_ffi.session_open(ptr)
        elif kind == endpoint_ffi.SESSION_REMOTE_CLOSE:
            self._ended(endpoint_ffi.event_session(event), out)
        elif kind == endpoint_ffi.CONNECTION_REMOTE_OPEN:
            out.append((Kind.OTHER, None, endpoint_terms.opened(self._connection)))
        elif kind == endpoint_ffi.CONNECTION_REMOTE_CLOSE:
            self._peer_closed = True
            error = endpoint_terms.read_condition(endpoint_ffi.connection_remote_condition(self._connection))
            out.append((Kind.OTHER, None, Closed(error)))
        elif kind in (endpoint_ffi.TRANSPORT_ERROR, endpoint_ffi.TRANSPORT_TAIL_CLOSED):
            self._fail(out)

    def _attached(self, ptr: Ptr, out: list[Event]) -> None:
        name = endpoint_ffi.text(endpoint_ffi.link_name(ptr))
        tapped = self._tap.take_attach(name)
        attach = tapped.attach
        session = self._sessions[endpoint_ffi.link_session(ptr)]
        kind: type[InLink] | type[OutLink] = OutLink if endpoint_ffi.link_is_sender(ptr) else InLink
        link = kind(ptr, name, session)
        session.links.append(link)
        self._links[ptr] = link
        self._by_handle[tapped.channel, attach.handle] = link
        out.append((Kind.OTHER, None, Attached(link, attach)))

    def _ended(self, ptr: Ptr, out: list[Event]) -> None:
        session = self._sessions.pop(ptr)
        links = tuple(session.links)
        held = tuple(each for each in self.unsettled.values() if each[0].session is session)
        out.append((Kind.OTHER, None, Ended(session, links, held)))
        for link in links:
            self._forget(link)
            endpoint_ffi.link_free(link.ptr)
        session.links = []
        endpoint_ffi.session_close(ptr)
        endpoint_ffi.session_free(ptr)

    def _fail(self, out: list[Event]) -> None:
        """The engine will take no more: a protocol error of the peer, or its idle time-out."""
        if not self.closed and not self._peer_closed:
            error = endpoint_terms.read_condition(endpoint_ffi.transport_condition(self._transport))
            if error is None:  # the engine gave up without a word (a performative by its symbol, for one)
                error = AmqpError("amqp:connection:framing-error", "The frame can't be understood.")
                self.close(error)
            self.closed = True
            out.append((Kind.OTHER, None, Closed(error)))

    def _break(self, error: errors.WireError, out: list[Event]) -> None:
        """The peer's frames can't be read, though the engine took them."""
        self._pushing = False
        told = AmqpError("amqp:decode-error", f"A frame can't be read: {error}")
        self.close(told)
        out.append((Kind.OTHER, None, Closed(told)))

    # -- connection verbs -------------------------------------------------------------------------------------------

    def open(self, container_id: str, offered: Sequence[str], properties: dict[str, str | bool]) -> None:
        """Answer the peer's Open."""
        connection = self._connection
        endpoint_ffi.connection_set_container(connection, endpoint_ffi.utf8(container_id))
        endpoint_ffi.set_data(endpoint_ffi.connection_offered(connection), endpoint_terms.symbols(offered))
        endpoint_ffi.set_data(endpoint_ffi.connection_properties(connection), endpoint_terms.symbol_map(properties))
        endpoint_ffi.connection_open(connection)
        self._is_open = True
        peer_max = endpoint_ffi.transport_remote_max_frame(self._transport) or self.max_frame
        self._one_frame = peer_max - FRAME_OVERHEAD
        # A Begin that came with the Open: the engine forgets to answer it if it is opened before the connection.
        for session in self._sessions:
            endpoint_ffi.session_open(session)

    def refuse_open(self, container_id: str, error: AmqpError) -> None:
        """Answer the peer's Open with one that announces failure, and Close."""
        self.open(container_id, (), {"amqp:connection-establishment-failed": True})
        self.close(error)

    def close(self, error: AmqpError | None) -> None:
        """Close the connection; `output` still has bytes to send. Repeated calls do nothing."""
        if self.closed:
            return
        self.closed = True
        if error is not None:
            endpoint_terms.write_condition(endpoint_ffi.connection_condition(self._connection), error)
        endpoint_ffi.connection_close(self._connection)

    def tick(self, now_ms: int, out: list[Event]) -> int:
        """Send heartbeats, notice a silent peer; return when to call again (same clock), 0 for never."""
        deadline = endpoint_ffi.transport_tick(self._transport, now_ms)
        self._drain(out)
        return deadline

    # -- link verbs -------------------------------------------------------------------------------------------------

    def attach_reply(
        self,
        link: InLink | OutLink,
        *,
        source: performatives.Source | None,
        target: performatives.Target | None,
        offered: tuple[str, ...] = (),
        answers_unsettled: bool = False,
        max_message_bytes: int = 0,
        sends_settled: bool = False,
    ) -> None:
        """Answer an attach with what is really there. `offered`: the link's offered capabilities; with
        `answers_unsettled` the peer's unsettled map gets an empty one back: nothing is resumed.
        """
        endpoint_terms.write_source(endpoint_ffi.link_source(link.ptr), source)
        endpoint_terms.write_target(endpoint_ffi.link_target(link.ptr), target)
        if isinstance(link, InLink):
            link.max_bytes = max_message_bytes or self.max_message_bytes
            endpoint_ffi.link_set_max_message_size(link.ptr, link.max_bytes)
        else:
            link.presettled = sends_settled
            endpoint_ffi.link_set_snd_settle_mode(link.ptr, 1 if sends_settled else 0)
        self._offers[link.name, isinstance(link, InLink)] = (link, offered, answers_unsettled)
        endpoint_ffi.link_open(link.ptr)

    def refuse_attach(self, link: InLink | OutLink, error: AmqpError) -> None:
        """Answer an attach with a null source (of a receiver) or target (of a sender), then a closing detach."""
        ptr = link.ptr
        own = endpoint_ffi.link_source(ptr) if isinstance(link, OutLink) else endpoint_ffi.link_target(ptr)
        endpoint_ffi.terminus_set_type(own, endpoint_ffi.UNSPECIFIED)
        endpoint_ffi.link_open(ptr)
        self.detach(link, closed=True, error=error)

    def detach(self, link: InLink | OutLink, *, closed: bool, error: AmqpError | None = None) -> None:
        """Detach or close a link, in answer or of our own accord. The link is gone; its unsettled ones are settled."""
        if not link.is_open:
            return
        self._forget(link)
        if link in link.session.links:
            link.session.links.remove(link)
        if error is not None:
            endpoint_terms.write_condition(endpoint_ffi.link_condition(link.ptr), error)
        if closed:
            endpoint_ffi.link_close(link.ptr)
        else:
            endpoint_ffi.link_detach(link.ptr)
        endpoint_ffi.link_free(link.ptr)

    def _forget(self, link: InLink | OutLink) -> None:
        """Drop every pointer key of a link; the engine is about to reuse the pointers."""
        link.is_open = False
        self._links.pop(link.ptr, None)
        for name in [name for name, each in self._by_handle.items() if each is link]:
            del self._by_handle[name]
        for ptr in [ptr for ptr, held in self.unsettled.items() if held[0] is link]:
            del self.unsettled[ptr]

    def held_by(self, link: OutLink) -> list[Held]:
        """The link's unsettled deliveries, oldest first."""
        return [held for held in self.unsettled.values() if held[0] is link]

    def all_links(self) -> tuple[InLink | OutLink, ...]:
        """Every link that is attached."""
        return tuple(self._links.values())

    def credit(self, link: InLink, count: int) -> None:
        """Let the peer send `count` messages more."""
        link.credit += count
        endpoint_ffi.link_flow(link.ptr, count)

    def drained(self, link: OutLink) -> None:
        """Nothing is left to send: give back the credit of a consumer that drains."""
        endpoint_ffi.link_drained(link.ptr)
        link.credit = 0
        link.drain = False

    def is_congested(self, link: OutLink, limit: int) -> bool:
        """True if the engine holds more than `limit` bytes that the peer's session window keeps back."""
        return endpoint_ffi.session_outgoing_bytes(link.session.ptr) > limit

    # -- messages ---------------------------------------------------------------------------------------------------

    def send(self, link: OutLink, entries: Iterable[Entry], now_us: int) -> None:
        """Send `entries`, at most as many as the link's credit, which is the caller's to count down."""
        ptr = link.ptr
        tag = self._tag
        unsettled = self.unsettled
        presettled = link.presettled
        most = self._one_frame
        before = tag
        for entry in entries:
            tag = (tag + 1) & 0xFFFFFFFF
            TAG_VIEW[0] = tag
            sent = delivery(ptr, TAG)
            data = entry[1]
            size = len(data)
            if size > most:
                link.session.is_inexact = True
            link_send(ptr, data, size)
            link_advance(ptr)
            if presettled:
                delivery_settle(sent)
            else:
                unsettled[sent] = (link, entry, now_us)
        self._tag = tag
        link.session.sent_frames += (tag - before) & 0xFFFFFFFF

    def send_as(self, link: OutLink, entry: Entry, data: bytes, now_us: int) -> None:
        """Send `data` in the place of the entry's own bytes (a rewritten header)."""
        link.session.sent_frames += 1
        if len(data) > self._one_frame:
            link.session.is_inexact = True
        self._tag = (self._tag + 1) & 0xFFFFFFFF
        TAG_VIEW[0] = self._tag
        sent = delivery(link.ptr, TAG)
        link_send(link.ptr, data, len(data))
        link_advance(link.ptr)
        if link.presettled:
            delivery_settle(sent)
        else:
            self.unsettled[sent] = (link, entry, now_us)

    def accept(self, deliveries: Iterable[Ptr]) -> None:
        """Accept and settle. Only deliveries of links that are open: see `InLink.is_open`."""
        for received in deliveries:
            delivery_update(received, ACCEPTED)
            delivery_settle(received)

    def settle(self, deliveries: Iterable[Ptr]) -> None:
        """Settle what the sender settled already."""
        for received in deliveries:
            delivery_settle(received)

    def reject(self, deliveries: Iterable[Ptr], error: AmqpError) -> None:
        """Reject and settle."""
        for received in deliveries:
            condition = endpoint_ffi.disposition_condition(endpoint_ffi.delivery_local(received))
            endpoint_terms.write_condition(condition, error)
            delivery_update(received, REJECTED)
            delivery_settle(received)

    def release(self, deliveries: Iterable[Ptr]) -> None:
        """Hand back and settle: the sender may try again."""
        for received in deliveries:
            delivery_update(received, RELEASED)
            delivery_settle(received)

    # -- bytes out --------------------------------------------------------------------------------------------------

    def output(self) -> int:
        """Move what is to be sent into `endpoint_ffi.OUTPUT`; return how many bytes. Call until it returns 0.

        What it returned counts as sent. Each call ends on a frame boundary unless it filled the buffer.
        """
        transport = self._transport
        filled = 0
        while filled < OUTPUT_BYTES:
            size = transport_peek(transport, endpoint_ffi.at(OUTPUT, filled), OUTPUT_BYTES - filled)
            if size <= 0:
                break
            transport_pop(transport, size)
            filled += size
        # The engine tells us of our own transfers as flows; a flow in `_drain` shall be the peer's.
        collector = self._collector
        while (event := collector_peek(collector)) and endpoint_ffi.event_type(event) != endpoint_ffi.TRANSPORT_ERROR:
            collector_pop(collector)
        return filled

    def output_with_offers(self) -> bytes:
        """All that is to be sent, with the offered capabilities of `attach_reply` written into its attach frames, which
        the engine can't. For a turn in which `has_offers`; `output` must have been drained before the attach reply.
        """
        pieces: list[bytes] = []
        while size := self.output():
            pieces.append(endpoint_ffi.OUTPUT_VIEW[:size].tobytes())
        offers, self._offers = self._offers, {}
        peer_max = endpoint_ffi.transport_remote_max_frame(self._transport) or self.max_frame

        def offer(channel: int, attach: performatives.Attach) -> performatives.Attach:
            ours = offers.get((attach.name, attach.role))
            if ours is None:
                return attach
            link, names, answers_unsettled = ours
            link.local = (channel, attach.handle)
            if not names and not answers_unsettled:
                return attach
            return replace(
                attach,
                offered_capabilities=tuple(values.Symbol(name) for name in names) or None,
                unsettled={} if answers_unsettled else None,
            )

        return rewrite.rewrite_attaches(b"".join(pieces), offer, peer_max)

    @property
    def has_echoes(self) -> bool:
        """True if the peer asked for our state: send `echoes` once `output` has nothing more."""
        return bool(self._echoes)

    def echoes(self) -> bytes:
        """The flow frames that the engine owes the peer: it does not see that they were asked for."""
        asked, self._echoes = self._echoes, []
        return b"".join(self._echo(tapped) for tapped in asked)

    def _echo(self, tapped: tap.TappedFlow) -> bytes:
        flow = tapped.flow
        link = self._by_handle.get((tapped.channel, flow.handle)) if flow.handle is not None else None
        if link is None or not link.is_open or link.local is None:
            return b""
        channel, handle = link.local
        session = link.session
        if not session.is_inexact and not endpoint_ffi.session_outgoing_bytes(session.ptr):
            # The peer's own count is behind if messages are on their way; ours is not.
            flow = replace(flow, next_incoming_id=session.sent_frames & 0xFFFFFFFF)
        state = echo.LinkState(handle, isinstance(link, OutLink), max(link.credit, 0))
        return echo.answer(flow, channel, state, SESSION_FRAMES // 2)

    @property
    def has_offers(self) -> bool:
        """True if an attach reply waits for its offered capabilities: send `output_with_offers`, not `output`."""
        return bool(self._offers)

    def free(self) -> None:
        """Give everything back. The endpoint and its links are unusable from here on."""
        ffi = endpoint_ffi
        self.closed = True
        self.unsettled.clear()
        for link in self._links.values():
            link.is_open = False
            link.context = None
        self._links.clear()
        self._by_handle.clear()
        for session in self._sessions.values():
            session.links = []
            session.context = None
        self._sessions.clear()
        ffi.transport_unbind(self._transport)
        ffi.collector_release(self._collector)
        ffi.connection_release(self._connection)
        ffi.decref(self._transport)
        ffi.decref(self._connection)
        ffi.collector_free(self._collector)
