"""A client without I/O that sends messages to one address, or receives them from one: one connection, one link.

For the command line, not for throughput. It uses our own types and frames, as `request_session` does, and shares its
links' state (`request_links`). A receiver's messages are accepted when `accept` says so, that is when they are printed.

Must not know sockets or clocks. Source: AMQP 1.0 part 2, sections 2.4 to 2.7; part 3, 3.4 and 3.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock_amqp.client.errors import RequestRefused, TransportError
from penstock_amqp.client.request_links import ReplyLink, RequestLink
from penstock_amqp.errors import DecodeError
from penstock_amqp.frames.frames import AMQP_FRAME, AMQP_HEADER, Frame, FrameReader, encode_frame, read_body
from penstock_amqp.frames.performatives import (
    Accepted,
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
from penstock_amqp.types.values import Described, Symbol, ULong, Value

__all__ = ["Arrived", "Attached", "Ended", "MessageEvent", "MessageSession", "Sender", "Settled", "Subscriber"]

_HANDLE: Final = 0
_WINDOW: Final = 2**31 - 1
_FRAME_BYTES: Final = 64 * 1024
_MESSAGE_BYTES: Final = 1024 * 1024 * 1024
_IDLE_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class Sender:
    """A link that sends to `address`."""

    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A link that receives from `address`: a queue, or an exchange with an optional `/KEY`."""

    address: str
    subscription: str | None = None
    """Name of a shared, durable, global subscription of the exchange; None: a queue, or one that ends with the link."""
    selector: str | None = None
    copies: bool = False
    """Browse: the messages stay."""


@dataclass(frozen=True, slots=True)
class Attached:
    """The link is there. Send a heartbeat more often than each `heartbeat_seconds` (None: the broker needs none)."""

    heartbeat_seconds: float | None


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message came; `encoded` are its sections."""

    encoded: bytes


@dataclass(frozen=True, slots=True)
class Settled:
    """The broker has answered for the message `number`; `refusal` is None if it took it."""

    number: int
    refusal: RequestRefused | None


@dataclass(frozen=True, slots=True)
class Ended:
    """The link or the connection has ended, and nothing more comes."""

    error: TransportError


MessageEvent: TypeAlias = Attached | Arrived | Settled | Ended


class MessageSession:
    """One connection, from its AMQP header on (SASL is done before)."""

    def __init__(self, link: Sender | Subscriber, container_id: str, hostname: str | None = None) -> None:
        self._is_sender = isinstance(link, Sender)
        self._reader = FrameReader(_FRAME_BYTES)
        self._header = b""
        self._output = bytearray(AMQP_HEADER)
        self._events: list[MessageEvent] = []
        self._ended = False
        self._heartbeat_seconds: float | None = None
        self._max_frame_size = 512
        self._out = RequestLink(_HANDLE)
        self._in = ReplyLink(_HANDLE, 0, _MESSAGE_BYTES)
        opened = Open(
            container_id=container_id,
            hostname=hostname,
            max_frame_size=_FRAME_BYTES,
            channel_max=0,
            idle_time_out=_IDLE_MS,
        )
        begun = Begin(next_outgoing_id=0, incoming_window=_WINDOW, outgoing_window=_WINDOW, handle_max=0)
        for performative in (opened, begun, _attach(link, container_id)):
            self._send(performative)

    def output(self) -> bytes:
        """Remove and return the bytes that are to be sent."""
        data = bytes(self._output)
        self._output.clear()
        return data

    def heartbeat(self) -> None:
        """Write an empty frame."""
        if not self._ended:
            self._output += encode_frame(None)

    def send(self, encoded: bytes) -> int:
        """Send a message as soon as credit and window allow; return the number that `Settled` names.

        Raises `TransportError` after the end.
        """
        if self._ended:
            raise TransportError("the connection to the broker has ended")
        number = self._out.add(encoded, self._max_frame_size)
        self._output += b"".join(self._out.leave())
        return number

    def ask_for(self, messages: int) -> None:
        """Let the broker send so many messages from now on."""
        if not self._ended:
            self._in.credit = messages
            self._send(self._flow())

    def accept(self) -> None:
        """Accept everything that has come."""
        if not self._ended:
            self._output += b"".join(self._in.settle())

    def close(self) -> None:
        """Send Close. A subscription stays; what was not accepted goes back."""
        if not self._ended:
            self._send(Close())
            self._ended = True

    def feed(self, data: bytes) -> list[MessageEvent]:
        """Process received bytes; return the events in order. Raises no exception, whatever the bytes are."""
        try:
            for frame in self._frames(data):
                if not self._ended and frame.body:
                    self._take(frame)
        except DecodeError as error:
            self._end(f"the broker sent what a client can't take: {error}", None)
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

    def _send(self, body: Performative) -> None:
        self._output += encode_frame(body)

    def _take(self, frame: Frame) -> None:
        if frame.type != AMQP_FRAME:
            raise DecodeError(f"a frame of type {frame.type}", 0)
        performative, payload = read_body(frame.body, Performative)
        match performative:
            case Open():
                peers = 2**32 - 1 if performative.max_frame_size is None else performative.max_frame_size
                self._max_frame_size = max(512, min(peers, _FRAME_BYTES))
                if performative.idle_time_out:
                    self._heartbeat_seconds = performative.idle_time_out / 2000
            case Begin():
                self._out.begin(performative.incoming_window)
                self._in.begin(performative.next_outgoing_id)
            case Attach():
                self._attached(performative)
            case Flow():
                self._flowed(performative)
            case Transfer():
                message = self._in.transfer(performative, payload)
                if message is not None:
                    self._events.append(Arrived(message))
            case Disposition():
                self._settled(performative)
            case Detach():
                self._end("the broker ended the link", performative.error)
            case End():
                self._end("the broker ended the session", performative.error)
            case Close():
                self._end("the broker closed the connection", performative.error)
            case _:
                raise DecodeError(f"{performative.NAME} was not expected", 0)

    def _attached(self, attach: Attach) -> None:
        if (attach.target if self._is_sender else attach.source) is None:
            return  # refused; the detach that follows says why
        if not self._is_sender:
            self._in.attach(attach.initial_delivery_count)
        self._events.append(Attached(self._heartbeat_seconds))

    def _flow(self) -> Flow:
        link = self._out if self._is_sender else self._in
        return Flow(
            next_incoming_id=self._in.next_incoming_id,
            incoming_window=_WINDOW,
            next_outgoing_id=self._out.next_outgoing_id,
            outgoing_window=_WINDOW,
            handle=_HANDLE,
            delivery_count=link.delivery_count,
            link_credit=link.credit,
        )

    def _flowed(self, flow: Flow) -> None:
        self._out.flow(flow)
        drains = self._out.grant(flow) if self._is_sender and flow.handle is not None else False
        self._output += b"".join(self._out.leave())
        if drains:
            self._out.drain()
        if drains or flow.echo:
            self._send(self._flow())

    def _settled(self, disposition: Disposition) -> None:
        if not disposition.role:
            return  # it is about what we received, which we settle ourselves
        refusal = None if isinstance(disposition.state, Accepted) else _refused(disposition.state)
        self._events += [Settled(number, refusal) for number in self._out.settle(disposition)]

    def _end(self, reason: str, error: Error | None) -> None:
        if self._ended:
            return
        condition = None if error is None else str(error.condition)
        if error is not None and error.description:
            reason = f"{reason}: {error.description}"
        self._events.append(Ended(TransportError(reason, condition)))
        self.close()


def _attach(link: Sender | Subscriber, container_id: str) -> Attach:
    if isinstance(link, Sender):
        return Attach(
            name=container_id,
            handle=_HANDLE,
            role=False,
            source=Source(),
            target=Target(address=link.address),
            initial_delivery_count=0,
        )
    # The name of a link to a shared subscription is the subscription's, up to the first "|".
    name = container_id if link.subscription is None else f"{link.subscription}|{container_id}"
    is_durable = link.subscription is not None
    source = Source(
        address=link.address,
        durable=2 if is_durable else None,
        expiry_policy=Symbol("never") if is_durable else None,
        distribution_mode=Symbol("copy") if link.copies else None,
        filter=None if link.selector is None else _selected(link.selector),
        capabilities=(Symbol("topic"), Symbol("shared"), Symbol("global")) if is_durable else None,
    )
    return Attach(name=name, handle=_HANDLE, role=True, source=source, target=Target())


def _selected(selector: str) -> dict[Symbol, Value]:
    """The filter of a JMS selector, as the Qpid JMS client sends it."""
    return {Symbol("jms-selector"): Described(ULong(0x0000_468C_0000_0004), selector)}


def _refused(state: object) -> RequestRefused:
    error = state.error if isinstance(state, Rejected) else None
    if error is not None:
        return RequestRefused(str(error.condition), error.description or "no description")
    name = state.NAME.split(":")[1] if isinstance(state, Rejected | Released | Modified) else "no outcome"
    return RequestRefused(name, "it was not taken, without a reason")
