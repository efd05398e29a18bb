"""A client's connection without I/O: one session, with a link that sends, one that receives, or both.

It uses our own types and frames instead of the proton engine, so that the operator and the observer need no compiled
library, and so that asyncio can drive it with plain bytes. It implements what such a client needs and no more: credit
in both directions, messages of several frames in both directions, echo and drain, dispositions, heartbeats, and Close.

What its messages mean is said by its subclasses, `RequestSession` and `MessageSession`. Must not know sockets or
clocks. Source: AMQP 1.0 part 2, sections 2.4 to 2.7.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

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
    Transfer,
)
from penstock_amqp.types.composites import Composite
from penstock_amqp.types.values import Described

__all__ = ["BACK", "OUT", "ClientConnection", "ConnectionSettings", "Ended", "Ready", "State", "refused"]

EventT = TypeVar("EventT")
State: TypeAlias = Composite | Described | None
"""What a disposition says of a delivery."""

OUT: Final = 0
"""Our handle of the link that sends."""
BACK: Final = 1
"""Our handle of the link that receives."""
_WINDOW: Final = 2**31 - 1
"""Our session window, in frames: the largest value, because the credit of the link bounds what comes already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """What the connection announces, and its limits."""

    container_id: str
    hostname: str | None = None
    max_frame_size: int = 64 * 1024
    max_message_size: int = 64 * 1024 * 1024
    """Bytes of a message that comes; a longer one ends the connection."""
    credit: int = 500
    """How many messages the broker may send before it needs new credit."""
    idle_time_out_ms: int = 15_000
    """Our idle-time-out: the broker has to send something at least this often."""


@dataclass(frozen=True, slots=True)
class Ready:
    """All links are there. Send a heartbeat more often than each `heartbeat_seconds` (None: the broker needs none)."""

    heartbeat_seconds: float | None


@dataclass(frozen=True, slots=True)
class Ended:
    """The connection has ended: nothing more is received, and nothing more can be sent."""

    error: TransportError


class ClientConnection(ABC, Generic[EventT]):
    """One connection, from its AMQP header on (SASL is done before). `EventT`: the events besides Ready and Ended."""

    def __init__(self, settings: ConnectionSettings, links: Sequence[Attach]) -> None:
        """`links` have the handles OUT and BACK. They are attached at once, without waiting for the peer's Open."""
        self._settings = settings
        self._reader = FrameReader(settings.max_frame_size)
        self._header = b""
        self._output = bytearray(AMQP_HEADER)
        self._events: list[EventT | Ready | Ended] = []
        self._ended = False
        self._heartbeat_seconds: float | None = None
        self._max_frame_size = 512
        self._handles = {link.name: link.handle for link in links}
        self._peer_handles: dict[int, int] = {}
        self._out = RequestLink(OUT)
        self.max_sent_bytes: int | None = None
        """The longest message that the peer takes on our link; None: as long as it likes."""
        self._back = ReplyLink(BACK, settings.credit, settings.max_message_size)
        opened = Open(
            container_id=settings.container_id,
            hostname=settings.hostname,
            max_frame_size=settings.max_frame_size,
            channel_max=0,
            idle_time_out=settings.idle_time_out_ms,
        )
        begun = Begin(next_outgoing_id=0, incoming_window=_WINDOW, outgoing_window=_WINDOW, handle_max=1)
        for performative in (opened, begun, *links):
            self._send(performative)

    @property
    def idle_seconds(self) -> float:
        """The idle-time-out that was announced."""
        return self._settings.idle_time_out_ms / 1000

    def output(self) -> bytes:
        """Remove and return the bytes that are to be sent."""
        data = bytes(self._output)
        self._output.clear()
        return data

    def heartbeat(self) -> None:
        """Write an empty frame."""
        if not self._ended:
            self._send(None)

    def close(self) -> None:
        """Send Close. What was received and not settled goes back to the broker."""
        if not self._ended:
            self._send(Close())
            self._ended = True

    def feed(self, data: bytes) -> list[EventT | Ready | Ended]:
        """Process received bytes; return the events in order. Raises no exception, whatever the bytes are."""
        try:
            for frame in self._frames(data):
                if not self._ended and frame.body:
                    self._take(frame)
        except DecodeError as error:
            self._end(f"the broker sent what a client can't take: {error}", None)
        if not self._ended:
            self._fed()
        events, self._events = self._events, []
        return events

    @abstractmethod
    def _arrived(self, encoded: bytes) -> None:
        """A message came. Raises `DecodeError`."""

    @abstractmethod
    def _settled(self, numbers: Sequence[int], state: State) -> None:
        """The broker has said what became of these messages, which `_put` has numbered."""

    def _attached(self, attach: Attach) -> None:
        """The peer has attached one of our links."""

    def _fed(self) -> None:
        """All received bytes were processed, and the connection is open."""

    def _put(self, encoded: bytes) -> int:
        """Send a message as soon as credit and window allow; return its number. Raises `TransportError`."""
        if self._ended:
            raise TransportError("the connection to the broker has ended")
        number = self._out.add(encoded, self._max_frame_size)
        self._leave()
        return number

    def _accept(self, until: int | None = None) -> None:
        """Accept everything that has come, or what had come when the link's `unsettled` was `until`."""
        self._output += b"".join(self._back.settle(until))

    def _send_flow(self, handle: int | None) -> None:
        """Send our state of the session, and of one link if `handle` names one."""
        link: ReplyLink | RequestLink | None = self._back if handle == BACK else None if handle is None else self._out
        self._send(
            Flow(
                next_incoming_id=self._back.next_incoming_id,
                incoming_window=_WINDOW,
                next_outgoing_id=self._out.next_outgoing_id,
                outgoing_window=_WINDOW,
                handle=handle,
                delivery_count=None if link is None else link.delivery_count,
                link_credit=None if link is None else link.credit,
            )
        )

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
                self._take_attach(performative)
            case Flow():
                self._take_flow(performative)
            case Transfer():
                message = self._back.transfer(performative, payload)
                if message is not None:
                    self._arrived(message)
            case Disposition():
                if performative.role:  # else it is about what we received, which we settle ourselves
                    self._settled(self._out.settle(performative), performative.state)
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

    def _take_attach(self, attach: Attach) -> None:
        handle = self._handles.get(attach.name)
        if handle is None:
            raise DecodeError(f"it attached {attach.name!r}, which nobody asked for", 0)
        if (attach.source if handle == BACK else attach.target) is None:
            return  # refused; the detach that follows says why
        self._peer_handles[attach.handle] = handle
        self._attached(attach)
        if handle == OUT:
            self.max_sent_bytes = attach.max_message_size or None  # 0 is no limit either
        if handle == BACK:
            self._back.attach(attach.initial_delivery_count)
            if self._back.credit:
                self._send_flow(BACK)
        if len(self._peer_handles) == len(self._handles):
            self._events.append(Ready(self._heartbeat_seconds))

    def _take_flow(self, flow: Flow) -> None:
        self._out.flow(flow)
        handle = None if flow.handle is None else self._peer_handles.get(flow.handle)
        drains = self._out.grant(flow) if handle == OUT else False
        self._leave()
        if drains:
            self._out.drain()
        if drains or flow.echo:
            self._send_flow(handle)

    def _end(self, reason: str, error: Error | None) -> None:
        if self._ended:
            return
        condition = None if error is None else str(error.condition)
        if error is not None and error.description:
            reason = f"{reason}: {error.description}"
        self._events.append(Ended(TransportError(reason, condition)))
        self.close()


def refused(state: State) -> RequestRefused:
    """Why the broker did not take a message; `state` is not Accepted."""
    error = state.error if isinstance(state, Rejected) else None
    if error is not None:
        return RequestRefused(str(error.condition), error.description or "no description")
    name = state.NAME.split(":")[1] if isinstance(state, Rejected | Released | Modified) else "no outcome"
    return RequestRefused(name, "it was not taken, without a reason")
