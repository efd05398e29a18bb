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
from dataclasses import replace
from typing import Final

from penstock_amqp import errors
from penstock_amqp.endpoint import buffers, conditions, incoming_messages, output_changes, terms
from penstock_amqp.endpoint.buffers import Ptr, link_credit
from penstock_amqp.endpoint.echoing import SESSION_FRAMES, Echoer
from penstock_amqp.endpoint.events import AmqpError, Attached, Closed, Detached, Ended, Event, EventKind, Flowed
from penstock_amqp.endpoint.links import InLink, OutLink, Session
from penstock_amqp.endpoint.output_changes import AttachAdditions
from penstock_amqp.frames import flow_echo, frame_sizes, performatives, protocol_checks
from penstock_amqp.types import values
from penstock_amqp.types.values import Symbol

__all__ = ["Endpoint"]

SESSIONS_AT_ONCE: Final = 16
"""Sessions that begin before the engine writes. With no channel left it would fall silent for good."""

LARGEST_FRAME: Final = 65_536
"""Messages that take a frame of this size are looked at more closely, whatever the peer takes: they may be streamed."""

OPEN_BYTES: Final = 32
"""What the engine says in an Open beside container-id, capabilities and properties, at most."""

FRAME_OVERHEAD: Final = 128
"""More than a frame header and a transfer take."""


class Endpoint(Echoer):
    """The server's end of one connection. Not thread-safe."""

    __slots__ = ()

    def _other(self, event: Ptr, out: list[Event]) -> None:
        """Sessions, links, flows, open and close. `pop` of the event is the caller's."""
        kind = buffers.event_type(event)
        if kind == buffers.LINK_FLOW:
            link = self._links.get(buffers.event_link(event))
            if isinstance(link, OutLink):
                link.credit = link_credit(link.ptr)
                if link.credit < 0 and self._pushing and self._allows_more(link):
                    link.credit = flow_echo.MOST_CREDIT
                if link in self.streams:  # the engine counts what is not sent as a whole as not sent
                    link.credit -= 1 + len(self.streams[link].behind)
                link.drain = buffers.link_get_drain(link.ptr)
                out.append((EventKind.OTHER, None, Flowed(link)))
            if self._pushing:
                self._asked(link, out)
        elif kind == buffers.LINK_REMOTE_OPEN:
            self._attached(buffers.event_link(event), out)
        elif kind in (buffers.LINK_REMOTE_DETACH, buffers.LINK_REMOTE_CLOSE):
            self._name_is_free(buffers.event_link(event))
            link = self._links.get(buffers.event_link(event))
            if link is not None:
                error = terms.read_condition(buffers.link_remote_condition(link.ptr))
                closed = kind == buffers.LINK_REMOTE_CLOSE
                link.keeps_handle = False
                out.append((EventKind.OTHER, None, Detached(link, closed, error)))
        elif kind == buffers.SESSION_REMOTE_OPEN:
            self._session_began(buffers.event_session(event))
        elif kind == buffers.SESSION_REMOTE_CLOSE:
            self._ended(buffers.event_session(event), out)
        elif kind == buffers.CONNECTION_REMOTE_OPEN:
            self._peer_opened = True
            protocol_checks.check_open(self._tap.open_channel())
            out.append((EventKind.OTHER, None, terms.opened(self._connection)))
        elif kind == buffers.CONNECTION_REMOTE_CLOSE:
            self._peer_closed = True
            error = terms.read_condition(buffers.connection_remote_condition(self._connection))
            out.append((EventKind.OTHER, None, Closed(error)))
        elif kind in (buffers.TRANSPORT_ERROR, buffers.TRANSPORT_TAIL_CLOSED):
            self._fail(out)

    def _session_began(self, ptr: Ptr) -> None:
        begin = self._tap.take_begin()
        channel = begin.channel
        protocol_checks.check_begin(
            channel, {each.channel for each in self._sessions.values()}, is_open=self._peer_opened
        )
        buffers.session_set_incoming_capacity(ptr, SESSION_FRAMES * self.max_frame)
        session = Session(ptr, channel)
        session.handle_max = begin.handle_max
        self._sessions[ptr] = session
        self._begun.append(session)
        buffers.session_open(ptr)
        self._unwritten += 1
        if self._unwritten >= SESSIONS_AT_ONCE:
            # Those that ended meanwhile keep their channels until the engine has written that they did.
            buffers.transport_peek(self._transport, buffers.OUTPUT, 0)
            self._unwritten = 0

    def _attached(self, ptr: Ptr, out: list[Event]) -> None:
        name = buffers.text(buffers.link_name(ptr))
        tapped = self._tap.take_attach(name)
        attach = tapped.attach
        before = self._by_handle.get((tapped.channel, attach.handle))
        protocol_checks.check_attach(tapped.channel, attach, handle_in_use=before is not None and before.keeps_handle)
        protocol_checks.check_reply_fits(tapped.channel, attach, self._most_per_frame)
        session = self._sessions[buffers.link_session(ptr)]
        protocol_checks.check_handle_left(tapped.channel, len(session.links), session.handle_max)
        named = self._gate.attached(tapped.channel, name)
        is_sender = buffers.link_is_sender(ptr)
        link = OutLink(ptr, named, session) if is_sender else InLink(ptr, named, session, self._gathering)
        link.engine_name = name
        if isinstance(link, InLink):
            self._take_up_to(link, self.max_message_bytes)  # some send before they have heard of any credit
        else:
            link.max_bytes = attach.max_message_size or 0
        session.links.append(link)
        self._links[ptr] = link
        link.remote = (tapped.channel, attach.handle)
        self._by_handle[link.remote] = link
        out.append((EventKind.OTHER, None, Attached(link, replace(attach, name=link.name))))

    def _name_is_free(self, ptr: Ptr) -> None:
        """The peer has detached a link, which we may have freed before."""
        session = self._sessions.get(buffers.link_session(ptr))
        if session is not None:
            self._gate.detached(session.channel, buffers.text(buffers.link_name(ptr)))

    def _ended(self, ptr: Ptr, out: list[Event]) -> None:
        session = self._sessions.pop(ptr)
        session.has_ended = True
        self._gate.ended(session.channel)
        for link in session.links:
            link.keeps_handle = False
        out.append((EventKind.OTHER, None, Ended(session)))

    def end(self, session: Session) -> None:
        """Answer the peer's End. The session is gone with its links; their unsettled deliveries are settled."""
        for link in session.links:
            self._forget(link)
            buffers.link_free(link.ptr)
        session.links = []
        buffers.session_close(session.ptr)
        buffers.session_free(session.ptr)

    def _fail(self, out: list[Event]) -> None:
        """The engine will take no more: a protocol error of the peer, or its idle time-out."""
        if not self.closed and not self._peer_closed:
            error = terms.read_condition(buffers.transport_condition(self._transport))
            if error is None:  # the engine gave up without a word (a performative by its symbol, for one)
                error = AmqpError("amqp:connection:framing-error", "The frame can't be understood.")
                self._last_words = (error, None)
                self.close(error)
            else:
                fault = conditions.fault_of(error)
                error = fault.error
                self._last_words = (error, self._session_of_fault(fault))
            self.closed = True
            out.append((EventKind.OTHER, None, Closed(error)))

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
        out.append((EventKind.OTHER, None, Closed(told)))

    def _session_of_fault(self, fault: conditions.Fault) -> int | None:
        """Our channel of the session that the engine's last chunk broke, if that is certain."""
        if not fault.codes or not self._pushing:
            return None
        channels: set[int] = set()
        with contextlib.suppress(errors.WireError):  # what lies behind the faulty frame may be anything
            channels.update(channel for channel, _ in self._tap.performatives(fault.codes))
        return self._local_channel(channels.pop()) if len(channels) == 1 else None

    def open(self, container_id: str, offered: Sequence[str], properties: Mapping[str, values.Value]) -> None:
        """Answer the peer's Open."""
        connection = self._connection
        buffers.connection_set_container(connection, buffers.utf8(container_id))
        most = self._most_per_frame - OPEN_BYTES
        told = {Symbol(key): value for key, value in properties.items()}
        whole = performatives.Open(
            container_id=container_id, offered_capabilities=tuple(Symbol(name) for name in offered), properties=told
        )
        fits = frame_sizes.fitted(whole, 0, most)
        if not isinstance(fits, performatives.Open):
            fits = performatives.Open(container_id=container_id)
        buffers.set_data(buffers.connection_offered(connection), terms.symbols(fits.offered_capabilities or ()))
        buffers.set_data(
            buffers.connection_properties(connection), terms.symbol_map(properties if fits.properties else {})
        )
        buffers.connection_open(connection)
        self._is_open = True
        self._one_frame = min(self._most_per_frame, LARGEST_FRAME) - FRAME_OVERHEAD
        if self.closed:  # the engine gave up meanwhile
            buffers.connection_close(connection)

    @property
    def _most_per_frame(self) -> int:
        """The longest frame that the peer takes."""
        return buffers.transport_remote_max_frame(self._transport) or self.max_frame

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
            terms.write_condition(buffers.connection_condition(self._connection), self.fitting(error))
        buffers.connection_close(self._connection)

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
        terms.write_source(buffers.link_source(link.ptr), source)
        terms.write_target(buffers.link_target(link.ptr), target)
        if isinstance(link, InLink):
            self._take_up_to(link, max_message_bytes or self.max_message_bytes)
            buffers.link_set_max_message_size(link.ptr, link.max_bytes)
            if peer_settles is not None:
                buffers.link_set_snd_settle_mode(link.ptr, peer_settles)
            if settles_second:
                link.settles_second = True
                self._second[link.ptr] = link
                buffers.link_set_rcv_settle_mode(link.ptr, 1)
        else:
            link.presettled = sends_settled
            link.default_outcome = source.default_outcome if source is not None else None
            link.settles_second = settles_second and not sends_settled
            buffers.link_set_snd_settle_mode(link.ptr, 1 if sends_settled else 0)
            buffers.link_set_rcv_settle_mode(link.ptr, 1 if link.settles_second else 0)
        default_outcome = link.default_outcome if isinstance(link, OutLink) else None
        self._open_link(AttachAdditions(link, offered, answers_unsettled, default_outcome))

    def _open_link(self, offer: AttachAdditions) -> None:
        offer.link.is_answered = True
        if offer.link.session.handle_max is not None:
            self._write()  # handles of links that have gone are free once that is written
        self._offers.append(offer)
        buffers.link_open(offer.link.ptr)

    def _take_up_to(self, link: InLink, max_bytes: int) -> None:
        link.max_bytes = max_bytes
        link.read_bytes = min(max_bytes + 1, buffers.MESSAGE_BYTES)

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
        if not link.is_answered:
            own = buffers.link_source(link.ptr) if isinstance(link, OutLink) else buffers.link_target(link.ptr)
            buffers.terminus_set_type(own, buffers.UNSPECIFIED)
            self._open_link(AttachAdditions(link))
        if error is not None:
            terms.write_condition(buffers.link_condition(link.ptr), self.fitting(error))
        if closed:
            buffers.link_close(link.ptr)
        else:
            buffers.link_detach(link.ptr)
        buffers.link_free(link.ptr)

    def _forget(self, link: InLink | OutLink) -> None:
        """Drop every pointer key of a link; the engine is about to reuse the pointers."""
        link.is_open = False
        self._links.pop(link.ptr, None)
        if self._by_handle.get(link.remote) is link:  # the peer may have given its handle to another one
            del self._by_handle[link.remote]
        if isinstance(link, OutLink) and buffers.link_unsettled(link.ptr):
            for ptr in [ptr for ptr, held in self.unsettled.items() if held[0] is link]:
                del self.unsettled[ptr]
        if isinstance(link, InLink):
            incoming_messages.forget(link)
            link.spool = None
            if self._second.pop(link.ptr, None) is not None:
                for ptr in [ptr for ptr, each in self._unconfirmed.items() if each is link]:
                    del self._unconfirmed[ptr]
        else:
            self.streams.pop(link, None)

    def all_links(self) -> tuple[InLink | OutLink, ...]:
        """Every link that is attached."""
        return tuple(self._links.values())

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
            pieces.append(buffers.OUTPUT_VIEW[:size].tobytes())
        changes = output_changes.OutputChanges(self._offers, self._begun, self._last_words, self._most_per_frame)
        self._offers, self._last_words = [], None
        return changes.apply(b"".join(pieces))

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
                incoming_messages.forget(link)
                link.spool = None
            link.context = None
        self._links.clear()
        self._begun.clear()
        self._by_handle.clear()
        for session in self._sessions.values():
            session.links = []
            session.context = None
        self._sessions.clear()
        buffers.transport_unbind(self._transport)
        buffers.collector_release(self._collector)
        buffers.connection_release(self._connection)
        buffers.decref(self._transport)
        buffers.decref(self._connection)
        buffers.collector_free(self._collector)
