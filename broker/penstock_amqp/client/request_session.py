"""A request client without I/O: one connection, one session, one link for requests and one for replies.

It uses our own types and frames instead of the proton engine, so that the operator and the observer need no compiled
library, and so that asyncio can drive it with plain bytes. It implements what such a client needs and no more: credit
in both directions, messages of several frames in both directions, echo and drain, dispositions, and Close.

Must not know sockets, clocks or what requests mean. Source: AMQP 1.0 part 2, sections 2.4 to 2.7.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from penstock_amqp.client.errors import RequestRefused, TransportError
from penstock_amqp.client.request_links import ReplyLink, RequestLink
from penstock_amqp.errors import DecodeError
from penstock_amqp.frames.frames import AMQP_FRAME, AMQP_HEADER, Frame, FrameReader, encode_frame, read_body
from penstock_amqp.frames.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Performative,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
)
from penstock_amqp.messages.message_codec import Message, decode_message, encode_message
from penstock_amqp.types.composites import Composite

__all__ = ["Ended", "Ready", "Refusal", "Reply", "RequestSession", "SessionEvent", "SessionSettings"]

_OUT, _BACK = 0, 1
"""Our handles of the two links."""
_WINDOW = 2**31 - 1
"""Our session window, in frames: the largest value, because the credit of the link bounds the replies already."""
_SUFFIXES = {_OUT: "-out", _BACK: "-back"}
"""Endings of the names of our links, which begin with the reply address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """What the connection announces, and its limits."""

    container_id: str
    node: str
    """Address of the node that the requests are sent to."""
    reply_to: str
    """Address that replies are sent to: the target of our link for replies."""
    hostname: str | None = None
    max_frame_size: int = 64 * 1024
    max_message_size: int = 64 * 1024 * 1024
    """Bytes of a reply; a longer one ends the connection."""
    credit: int = 500
    """How many replies the broker may send before it needs new credit."""
    idle_time_out_ms: int = 15_000
    """Our idle-time-out: the broker has to send something at least this often."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Requests can be sent. Send a heartbeat more often than each `heartbeat_seconds` (None: the broker needs none)."""

    heartbeat_seconds: float | None


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a request."""

    message: Message


@dataclass(frozen=True, slots=True)
class Refusal:
    """The broker did not accept the message of the request `number`."""

    number: int
    error: RequestRefused


@dataclass(frozen=True, slots=True)
class Ended:
    """The connection has ended: nothing more is received, and nothing more can be sent."""

    error: TransportError


SessionEvent: TypeAlias = Ready | Reply | Refusal | Ended


class RequestSession:
    """One connection, from its AMQP header on (SASL is done before)."""

    def __init__(self, settings: SessionSettings) -> None:
        self._settings = settings
        self._reader = FrameReader(settings.max_frame_size)
        self._header = b""
        self._output = bytearray(AMQP_HEADER)
        self._events: list[SessionEvent] = []
        self._ended = False
        self._heartbeat_seconds: float | None = None
        self._max_frame_size = 512
        self._peer_handles: dict[int, int] = {}
        self._out = RequestLink(_OUT)
        self._back = ReplyLink(_BACK, settings.credit, settings.max_message_size)
        self.reply_to = settings.reply_to
        """The `reply-to` for requests; final after `Ready`, because the broker may assign a dynamic address."""
        for performative in _opening(settings):
            self._send(performative)

    def output(self) -> bytes:
        """Remove and return the bytes that are to be sent."""
        data = bytes(self._output)
        self._output.clear()
        return data

    def heartbeat(self) -> None:
        """Write an empty frame."""
        if not self._ended:
            self._send(None)

    def request(self, message: Message) -> int:
        """Send `message` as soon as credit and window allow; return its number. Raises `EncodeError`,
        `TransportError`."""
        if self._ended:
            raise TransportError("the connection to the broker has ended")
        number = self._out.add(encode_message(message), self._max_frame_size)
        self._leave()
        return number

    def forget(self, number: int) -> None:
        """Do not send a request that is still queued: its reply is no longer wanted."""
        self._out.forget(number)

    def close(self) -> None:
        """Send Close."""
        if not self._ended:
            self._send(Close())
            self._ended = True

    def feed(self, data: bytes) -> list[SessionEvent]:
        """Process received bytes; return the events in order. Raises no exception, whatever the bytes are."""
        try:
            for frame in self._frames(data):
                if not self._ended and frame.body:
                    self._take(frame)
        except DecodeError as error:
            self._end(f"the broker sent what a client can't take: {error}", None)
        if not self._ended:
            self._output += b"".join(self._back.settle())
            if _BACK in self._peer_handles.values() and self._back.top_up():
                self._send(self._flow_of(_BACK))
        events, self._events = self._events, []
        return events

    def _frames(self, data: bytes) -> Iterator[Frame]:
        missing = 8 - len(self._header)
        if missing > 0:
            self._header += data[:missing]
            data = data[missing:]
            if not AMQP_HEADER.startswith(self._header):
                raise DecodeError(f"it begins with {self._header!r}, not with the AMQP header", 0)
        yield from self._reader.feed(data)

    def _send(self, body: Composite | None) -> None:
        self._output += encode_frame(body)

    def _leave(self) -> None:
        self._output += b"".join(self._out.leave())

    def _take(self, frame: Frame) -> None:
        if frame.type != AMQP_FRAME:
            raise DecodeError(f"a frame of type {frame.type}", 0)
        performative, payload = read_body(frame.body, Performative)
        match performative:
            case Open():
                self._opened(performative)
            case Begin():
                self._out.begin(performative.incoming_window)
                self._back.begin(performative.next_outgoing_id)
            case Attach():
                self._attached(performative)
            case Flow():
                self._flow(performative)
            case Transfer():
                message = self._back.transfer(performative, payload)
                if message is not None:
                    self._events.append(Reply(decode_message(message)))
            case Disposition():
                self._disposition(performative)
            case Detach():
                self._end("the broker detached a link of ours", performative.error)
            case End():
                self._end("the broker ended the session", performative.error)
            case Close():
                self._end("the broker closed the connection", performative.error)
            case _:
                raise DecodeError(f"{performative.NAME} was not expected", 0)

    def _opened(self, opened: Open) -> None:
        peers = 2**32 - 1 if opened.max_frame_size is None else opened.max_frame_size
        self._max_frame_size = max(512, min(peers, self._settings.max_frame_size))
        if opened.idle_time_out:
            # "Half the peer's threshold" is what the specification advises (2.4.5).
            self._heartbeat_seconds = opened.idle_time_out / 2000

    def _attached(self, attach: Attach) -> None:
        names = {self._settings.reply_to + suffix: handle for handle, suffix in _SUFFIXES.items()}
        handle = names.get(attach.name)
        if handle is None:
            raise DecodeError(f"it attached {attach.name!r}, which nobody asked for", 0)
        terminus = attach.source if handle == _BACK else attach.target
        if terminus is None:
            return  # refused; the detach that follows says why
        self._peer_handles[attach.handle] = handle
        if handle == _BACK:
            if attach.source is not None and attach.source.dynamic and attach.source.address:
                self.reply_to = attach.source.address
            self._back.attach(attach.initial_delivery_count)
            self._send(self._flow_of(_BACK))
        if len(self._peer_handles) == 2:
            self._events.append(Ready(self._heartbeat_seconds))

    def _flow_of(self, handle: int | None) -> Flow:
        """A flow with our state of the session, and of one link if `handle` names one."""
        link: ReplyLink | RequestLink | None = self._back if handle == _BACK else None if handle is None else self._out
        return Flow(
            next_incoming_id=self._back.next_incoming_id,
            incoming_window=_WINDOW,
            next_outgoing_id=self._out.next_outgoing_id,
            outgoing_window=_WINDOW,
            handle=handle,
            delivery_count=None if link is None else link.delivery_count,
            link_credit=None if link is None else link.credit,
        )

    def _flow(self, flow: Flow) -> None:
        self._out.flow(flow)
        handle = None if flow.handle is None else self._peer_handles.get(flow.handle)
        drains = self._out.grant(flow) if handle == _OUT else False
        self._leave()
        if drains:
            self._out.drain()
        if drains or flow.echo:
            self._send(self._flow_of(handle))

    def _disposition(self, disposition: Disposition) -> None:
        if not disposition.role:
            return  # it is about replies, which we settle ourselves
        numbers = self._out.settle(disposition)
        if isinstance(disposition.state, Rejected | Released | Modified):
            self._events += [Refusal(number, _refused(disposition.state)) for number in numbers]

    def _end(self, reason: str, error: Error | None) -> None:
        if self._ended:
            return
        condition = None if error is None else str(error.condition)
        if error is not None and error.description:
            reason = f"{reason}: {error.description}"
        self._events.append(Ended(TransportError(reason, condition)))
        self.close()


def _refused(state: Rejected | Released | Modified) -> RequestRefused:
    error = state.error if isinstance(state, Rejected) else None
    if error is None:
        return RequestRefused(state.NAME.split(":")[1], "it was not taken, without a reason")
    return RequestRefused(str(error.condition), error.description or "no description")


def _opening(settings: SessionSettings) -> Iterator[Performative]:
    """The frames that are sent at once, without waiting for the peer's Open, Begin and Attach."""
    yield Open(
        container_id=settings.container_id,
        hostname=settings.hostname,
        max_frame_size=settings.max_frame_size,
        channel_max=0,
        idle_time_out=settings.idle_time_out_ms,
    )
    yield Begin(next_outgoing_id=0, incoming_window=_WINDOW, outgoing_window=_WINDOW, handle_max=1)
    yield Attach(
        name=settings.reply_to + _SUFFIXES[_OUT],
        handle=_OUT,
        role=False,
        source=Source(),
        target=Target(address=settings.node),
        initial_delivery_count=0,
    )
    yield Attach(
        name=settings.reply_to + _SUFFIXES[_BACK],
        handle=_BACK,
        role=True,
        source=Source(address=settings.node),
        target=Target(address=settings.reply_to),
    )
