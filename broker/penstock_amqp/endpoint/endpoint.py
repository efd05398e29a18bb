"""One AMQP connection without its socket: bytes in, events out; verbs in, bytes out. Straight on proton's C engine.

The user hands received bytes to `receive`, works through the events, calls verbs, and sends what `output` yields. All
is done in batches, so that a compiled back end can stand beside this one. SASL and TLS are in front of it: the first
bytes it sees are the bare AMQP header. Here are connection, sessions and links; messages are in `endpoint.forwarding`.

A refused attach is answered with a null source or target, then closed; what the engine can't say in an attach is
rewritten in its output; what it swallows of a flow (echo) is answered behind it. Must not know queues or subscriptions.
Source: AMQP 1.0 part 2.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

from penstock_amqp import errors
from penstock_amqp.endpoint import arrivals, engine_faults, ffi, output_changes, terms
from penstock_amqp.endpoint.events import Acquires, AmqpError, Attached, Closed, Detached, Ended, Event, Flowed, Kind
from penstock_amqp.endpoint.ffi import Ptr, link_credit
from penstock_amqp.endpoint.forwarding import MessageEngine
from penstock_amqp.endpoint.links import InLink, OutLink, Session
from penstock_amqp.endpoint.output_changes import Offer
from penstock_amqp.frames import echo, performatives, scrutiny, tap
from penstock_amqp.frames.frames import read_body, walk
from penstock_amqp.frames.performatives import Flow
from penstock_amqp.types import values

__all__ = ["Endpoint"]

SESSION_FRAMES: Final = 32_768
"""Incoming window of a session in frames. It bounds nothing (all is read at once, link credit is the bound), so it is
wide enough never to hold a sender back. It must stay above the credit of all links of a session: at a window of 0 the
engine names detached links in its flows."""


SESSIONS_AT_ONCE: Final = 16
"""Sessions that begin before the engine writes. With no channel left it would fall silent for good."""

LARGEST_FRAME: Final = 65_536
"""Messages that take a frame of this size are looked at more closely, whatever the peer takes: they may be streamed."""

FRAME_OVERHEAD: Final = 128
"""More than a frame header and a transfer take."""

_TXN_ID: Final = "txn-id"
"""Property of a flow that asks to take messages within a transaction (part 4, 4.4.3)."""


class Endpoint(MessageEngine):
    """The server's end of one connection. Not thread-safe."""

    __slots__ = ()

    def _other(self, event: Ptr, out: list[Event]) -> None:
        """Sessions, links, flows, open and close. `pop` of the event is the caller's."""
        kind = ffi.event_type(event)
        if kind == ffi.LINK_FLOW:
            link = self._links.get(ffi.event_link(event))
            if isinstance(link, OutLink):
                link.credit = link_credit(link.ptr)
                if link in self.streams:  # the engine counts what is not sent as a whole as not sent
                    link.credit -= 1 + len(self.streams[link].behind)
                link.drain = ffi.link_get_drain(link.ptr)
                out.append((Kind.OTHER, None, Flowed(link)))
            if self._pushing:
                self._asked(link, out)
        elif kind == ffi.LINK_REMOTE_OPEN:
            self._attached(ffi.event_link(event), out)
        elif kind in (ffi.LINK_REMOTE_DETACH, ffi.LINK_REMOTE_CLOSE):
            link = self._links.get(ffi.event_link(event))
            if link is not None:
                error = terms.read_condition(ffi.link_remote_condition(link.ptr))
                closed = kind == ffi.LINK_REMOTE_CLOSE
                link.keeps_handle = False
                out.append((Kind.OTHER, None, Detached(link, closed, error)))
        elif kind == ffi.SESSION_REMOTE_OPEN:
            self._session_began(ffi.event_session(event))
        elif kind == ffi.SESSION_REMOTE_CLOSE:
            self._ended(ffi.event_session(event), out)
        elif kind == ffi.CONNECTION_REMOTE_OPEN:
            self._peer_opened = True
            scrutiny.check_open(self._tap.open_channel())
            out.append((Kind.OTHER, None, terms.opened(self._connection)))
        elif kind == ffi.CONNECTION_REMOTE_CLOSE:
            self._peer_closed = True
            error = terms.read_condition(ffi.connection_remote_condition(self._connection))
            out.append((Kind.OTHER, None, Closed(error)))
        elif kind in (ffi.TRANSPORT_ERROR, ffi.TRANSPORT_TAIL_CLOSED):
            self._fail(out)

    def _asked(self, link: InLink | OutLink | None, out: list[Event]) -> None:
        """A flow came: see what it asks that the engine does not hear."""
        if isinstance(link, OutLink) and link.drain:
            asked = [each for each in self._tap.drains() if self._named(each) is link]
            if link.credit <= 0:
                self._echoes += [each for each in asked if not each.flow.echo]
            elif asked:
                link.draining_flow = asked[-1]
        for tapped in self._tap.echoes():
            named = self._named(tapped)
            if isinstance(named, OutLink) and _TXN_ID in (tapped.flow.properties or {}):
                out.append((Kind.OTHER, None, Acquires(named)))
            elif tapped.flow.echo:
                self._echoes.append(tapped)

    def _named(self, tapped: tap.TappedFlow) -> InLink | OutLink | None:
        """The link that a flow names."""
        handle = tapped.flow.handle
        return None if handle is None else self._by_handle.get((tapped.channel, handle))

    def _session_began(self, ptr: Ptr) -> None:
        channel = self._tap.take_begin()
        scrutiny.check_begin(channel, {each.channel for each in self._sessions.values()}, is_open=self._peer_opened)
        ffi.session_set_incoming_capacity(ptr, SESSION_FRAMES * self.max_frame)
        session = Session(ptr, channel)
        self._sessions[ptr] = session
        self._begun.append(session)
        if self._is_open:
            ffi.session_open(ptr)
            self._unwritten += 1
            if self._unwritten >= SESSIONS_AT_ONCE:
                # Those that ended meanwhile keep their channels until the engine has written that they did.
                ffi.transport_peek(self._transport, ffi.OUTPUT, 0)
                self._unwritten = 0

    def _attached(self, ptr: Ptr, out: list[Event]) -> None:
        name = ffi.text(ffi.link_name(ptr))
        tapped = self._tap.take_attach(name)
        attach = tapped.attach
        before = self._by_handle.get((tapped.channel, attach.handle))
        scrutiny.check_attach(tapped.channel, attach, handle_in_use=before is not None and before.keeps_handle)
        session = self._sessions[ffi.link_session(ptr)]
        kind: type[InLink] | type[OutLink] = OutLink if ffi.link_is_sender(ptr) else InLink
        link = kind(ptr, name, session)
        if isinstance(link, InLink):
            self._take_up_to(link, self.max_message_bytes)  # some send before they have heard of any credit
        session.links.append(link)
        self._links[ptr] = link
        self._by_handle[tapped.channel, attach.handle] = link
        out.append((Kind.OTHER, None, Attached(link, attach)))

    def _ended(self, ptr: Ptr, out: list[Event]) -> None:
        session = self._sessions.pop(ptr)
        session.has_ended = True
        links = tuple(session.links)
        held = tuple(each for each in self.all_held() if each[0].session is session)
        out.append((Kind.OTHER, None, Ended(session, links, held)))
        for link in links:
            self._forget(link)
            ffi.link_free(link.ptr)
        session.links = []
        ffi.session_close(ptr)
        ffi.session_free(ptr)

    def _fail(self, out: list[Event]) -> None:
        """The engine will take no more: a protocol error of the peer, or its idle time-out."""
        if not self.closed and not self._peer_closed:
            error = terms.read_condition(ffi.transport_condition(self._transport))
            if error is None:  # the engine gave up without a word (a performative by its symbol, for one)
                error = AmqpError("amqp:connection:framing-error", "The frame can't be understood.")
                self._last_words = (error, None)
                self.close(error)
            else:
                fault = engine_faults.fault_of(error)
                error = fault.error
                self._last_words = (error, self._session_of_fault(fault))
            self.closed = True
            out.append((Kind.OTHER, None, Closed(error)))

    def _break(self, error: errors.WireError, out: list[Event]) -> None:
        """The peer's frames can't be read, though the engine took them."""
        self._pushing = False
        if isinstance(error, errors.ProtocolError):
            told = AmqpError(error.condition, str(error))
            self._last_words = (told, self._local_channel(error.session_channel))
        else:
            told = AmqpError("amqp:decode-error", f"A frame can't be read: {error}")
            self._last_words = (told, None)
        self.close(told)
        out.append((Kind.OTHER, None, Closed(told)))

    def _session_of_fault(self, fault: engine_faults.Fault) -> int | None:
        """Our channel of the session that the engine's last chunk broke, if that is certain."""
        if not fault.codes or not self._pushing:
            return None
        channels: set[int] = set()
        with contextlib.suppress(errors.WireError):  # what lies behind the faulty frame may be anything
            channels.update(channel for channel, _ in self._tap.performatives(fault.codes))
        return self._local_channel(channels.pop()) if len(channels) == 1 else None

    def _local_channel(self, channel: int | None) -> int | None:
        """Our number for the session that the peer calls `channel`."""
        session = None if channel is None else self._session_on(channel)
        return None if session is None else session.local_channel

    def open(self, container_id: str, offered: Sequence[str], properties: Mapping[str, values.Value]) -> None:
        """Answer the peer's Open."""
        connection = self._connection
        ffi.connection_set_container(connection, ffi.utf8(container_id))
        ffi.set_data(ffi.connection_offered(connection), terms.symbols(offered))
        ffi.set_data(ffi.connection_properties(connection), terms.symbol_map(properties))
        ffi.connection_open(connection)
        self._is_open = True
        self._one_frame = min(self._most_per_frame, LARGEST_FRAME) - FRAME_OVERHEAD
        if self.closed:  # what came behind the Open has broken the connection already
            ffi.connection_close(connection)
        # A Begin that came with the Open: the engine forgets to answer it if it is opened before the connection.
        for session in self._sessions:
            ffi.session_open(session)

    @property
    def _most_per_frame(self) -> int:
        """The longest frame that the peer takes."""
        return ffi.transport_remote_max_frame(self._transport) or self.max_frame

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
            terms.write_condition(ffi.connection_condition(self._connection), self.fitting(error))
        ffi.connection_close(self._connection)

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
        terms.write_source(ffi.link_source(link.ptr), source)
        terms.write_target(ffi.link_target(link.ptr), target)
        if isinstance(link, InLink):
            self._take_up_to(link, max_message_bytes or self.max_message_bytes)
            ffi.link_set_max_message_size(link.ptr, link.max_bytes)
            if peer_settles is not None:
                ffi.link_set_snd_settle_mode(link.ptr, peer_settles)
            if settles_second:
                link.settles_second = True
                self._second[link.ptr] = link
                ffi.link_set_rcv_settle_mode(link.ptr, 1)
        else:
            link.presettled = sends_settled
            link.default_outcome = source.default_outcome if source is not None else None
            link.settles_second = settles_second and not sends_settled
            ffi.link_set_snd_settle_mode(link.ptr, 1 if sends_settled else 0)
            ffi.link_set_rcv_settle_mode(link.ptr, 1 if link.settles_second else 0)
        self._offers[link.name, isinstance(link, InLink)] = Offer(
            link, offered, answers_unsettled, link.default_outcome if isinstance(link, OutLink) else None
        )
        ffi.link_open(link.ptr)

    def _take_up_to(self, link: InLink, max_bytes: int) -> None:
        link.max_bytes = max_bytes
        link.read_bytes = min(max_bytes + 1, ffi.MESSAGE_BYTES)

    def refuse_attach(self, link: InLink | OutLink, error: AmqpError) -> None:
        """Answer an attach with a null source (of a receiver) or target (of a sender), then a closing detach."""
        ptr = link.ptr
        own = ffi.link_source(ptr) if isinstance(link, OutLink) else ffi.link_target(ptr)
        ffi.terminus_set_type(own, ffi.UNSPECIFIED)
        ffi.link_open(ptr)
        self.detach(link, closed=True, error=error)

    def detach(self, link: InLink | OutLink, *, closed: bool, error: AmqpError | None = None) -> None:
        """Detach or close a link, in answer or of our own accord. The link is gone; its unsettled ones are settled."""
        if not link.is_open:
            return
        self._forget(link)
        if link in link.session.links:
            link.session.links.remove(link)
        if error is not None:
            terms.write_condition(ffi.link_condition(link.ptr), self.fitting(error))
        if closed:
            ffi.link_close(link.ptr)
        else:
            ffi.link_detach(link.ptr)
        ffi.link_free(link.ptr)

    def _forget(self, link: InLink | OutLink) -> None:
        """Drop every pointer key of a link; the engine is about to reuse the pointers."""
        link.is_open = False
        self._links.pop(link.ptr, None)
        for name in [name for name, each in self._by_handle.items() if each is link]:
            del self._by_handle[name]
        for ptr in [ptr for ptr, held in self.unsettled.items() if held[0] is link]:
            del self.unsettled[ptr]
        if isinstance(link, InLink):
            arrivals.forget(link)
            link.spool = None
            if self._second.pop(link.ptr, None) is not None:
                for ptr in [ptr for ptr, each in self._unconfirmed.items() if each is link]:
                    del self._unconfirmed[ptr]
        else:
            self.streams.pop(link, None)

    def all_links(self) -> tuple[InLink | OutLink, ...]:
        """Every link that is attached."""
        return tuple(self._links.values())

    def drained(self, link: OutLink) -> None:
        """Nothing is left to send: give back the credit of a consumer that drains, once all is out.

        Of credit that the messages used up the engine says nothing, and credit below 0 it would take for a number to
        give back: it would count messages that it sent as not sent, and send others without credit.
        """
        if link in self.streams:
            self.streams[link].drains = True
            return
        asked, link.draining_flow = link.draining_flow, None
        if link_credit(link.ptr) > 0:
            ffi.link_drained(link.ptr)
            link.credit = 0
        elif asked is not None:
            self._echoes.append(asked)
        link.drain = False

    @property
    def needs_rewriting(self) -> bool:
        """True if the engine's output says too little: send `rewritten_output`, not `output`."""
        return bool(self._offers or self._begun or self._last_words)

    def rewritten_output(self) -> bytes:
        """All that is to be sent, with what the engine can't say written into its frames (`output_changes`).

        For a turn in which `needs_rewriting`; `output` must have been drained before the attach reply.
        """
        pieces: list[bytes] = []
        while size := self.output():
            pieces.append(ffi.OUTPUT_VIEW[:size].tobytes())
        changes = output_changes.Changes(self._offers, self._begun, self._last_words, self._most_per_frame)
        self._offers, self._last_words = {}, None
        return changes.apply(b"".join(pieces))

    @property
    def has_echoes(self) -> bool:
        """True if the peer asked for our state: send `echoes` once `output` has nothing more."""
        return bool(self._echoes)

    def echoes(self) -> bytes:
        """The flow frames that the engine owes the peer: it does not see that they were asked for.

        A drain is answered behind what used its credit up, also if the session's window keeps that back.
        """
        asked, self._echoes = self._echoes, []
        return b"" if self.closed else b"".join(self._echo(tapped) for tapped in asked)

    def _echo(self, tapped: tap.TappedFlow) -> bytes:
        flow = tapped.flow
        session = self._session_on(tapped.channel)
        if session is None or session.local_channel is None:
            return b""
        if flow.handle is None:
            told = self._session_state(session)
            return b"" if told is None else echo.answer(flow, session.local_channel, told, None)
        link = self._named(tapped)
        if link is None or not link.is_open or link.local is None:
            return b""
        if flow.drain and ffi.session_outgoing_bytes(session.ptr):
            self._echoes.append(tapped)
            return b""
        told = self._session_state(session)
        state = echo.LinkState(link.local[1], isinstance(link, OutLink), link.credit)
        return b"" if told is None else echo.answer(flow, session.local_channel, told, state)

    def _session_state(self, session: Session) -> Flow | None:
        """What the engine says of a session: setting its capacity anew makes it write a flow. None if it has failed."""
        ffi.session_set_incoming_capacity(session.ptr, SESSION_FRAMES * self.max_frame)
        written = ffi.OUTPUT_VIEW[: self.output()].tobytes()
        flows = [read_body(written[body:end], Flow)[0] for _, end, _, _, body in walk(written)]
        return flows[-1] if flows else None

    def _session_on(self, channel: int) -> Session | None:
        """The session that the peer calls `channel`."""
        return next((each for each in self._sessions.values() if each.channel == channel), None)

    def free(self) -> None:
        """Give everything back. The endpoint and its links are unusable from here on."""
        self.closed = True
        self.unsettled.clear()
        self._unconfirmed.clear()
        self._second.clear()
        self.streams.clear()
        for link in self._links.values():
            link.is_open = False
            if isinstance(link, InLink):
                arrivals.forget(link)
                link.spool = None
            link.context = None
        self._links.clear()
        self._begun.clear()
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
