"""A client of bare frames: nothing is sent or answered that a test did not ask for, and no engine stands between.

with RawClient(port, "container") as client:
    client.begin()
    reply = client.attach_receiver("sub|1", Source(address="news", capabilities=SHARED))
    client.flow(reply.handle, credit=10)
    transfer = client.expect(Transfer)
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, TypeVar

from penstock_amqp.frames.frames import AMQP_FRAME, AMQP_HEADER, FrameReader, encode_frame, read_body
from penstock_amqp.frames.performatives import (
    Attach,
    Begin,
    Close,
    Coordinator,
    Detach,
    Flow,
    Open,
    Performative,
    Source,
    Target,
    Transfer,
)
from penstock_amqp.sasl.client import ClientMechanism, Login, SaslClient
from penstock_amqp.types.composites import Composite
from penstock_amqp.types.values import Symbol, Value

__all__ = ["RawClient", "Received", "Stream", "symbols"]

P = TypeVar("P", bound=Performative)
TIMEOUT_SECONDS = 300.0
"""Only a test that fails waits so long."""


def symbols(*names: str) -> tuple[Symbol, ...]:
    return tuple(Symbol(name) for name in names)


@dataclass(frozen=True, slots=True)
class Received:
    """A frame that came."""

    channel: int
    performative: Performative
    payload: bytes


class Stream(Protocol):
    """What bytes go over."""

    def sendall(self, data: bytes, /) -> None: ...

    def recv(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


def _connect(host: str, port: int, context: ssl.SSLContext | None) -> socket.socket:
    sock = socket.create_connection((host, port), TIMEOUT_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # many small frames, and each is waited for
    return sock if context is None else context.wrap_socket(sock, server_hostname="broker")


class RawClient:
    """One connection, open when it is made."""

    def __init__(
        self,
        port: int,
        container_id: str,
        *,
        host: str = "127.0.0.1",
        login: ClientMechanism | None = None,
        desired: tuple[Symbol, ...] | None = None,
        idle_time_out: int | None = None,
        max_frame_size: int = 65_536,
        channel_max: int | None = None,
        context: ssl.SSLContext | None = None,
        stream: Stream | None = None,
        properties: Mapping[Symbol, Value] | None = None,
    ) -> None:
        """`max_frame_size`: ours; a longer frame is an error. `channel_max`, `properties`: of our Open. `context`: for
        TLS. `stream`: what to speak over instead of a socket of its own.
        """
        self.socket = stream or _connect(host, port, context)
        self._reader = FrameReader(1 << 20)
        self._frames: deque[Received] = deque()
        self._next_handle = 0
        try:
            self._reader.add(self._authenticate(login or Login()))
            self.send_bytes(AMQP_HEADER)
            self.send(
                Open(
                    container_id=container_id,
                    desired_capabilities=desired,
                    max_frame_size=max_frame_size,
                    channel_max=channel_max,
                    idle_time_out=idle_time_out,
                    properties=properties,
                )
            )
            self._expect_header(max_frame_size)
            self.open = self.expect(Open)
            """What the broker opened with."""
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def _authenticate(self, login: ClientMechanism) -> bytes:
        dialogue = SaslClient(login)
        while True:
            self.send_bytes(dialogue.output())
            rest = dialogue.feed(self._read())
            if rest is not None:
                return rest

    def _expect_header(self, max_frame_size: int) -> None:
        data = self._reader.rest
        while len(data) < 8:
            data += self._read()
        assert data[:8] == AMQP_HEADER
        self._reader = FrameReader(max_frame_size)
        self._reader.add(data[8:])

    def _read(self) -> bytes:
        data = self.socket.recv(65_536)
        if not data:
            raise EOFError("the broker closed the connection")
        return data

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def send(self, body: Composite | None, channel: int = 0, payload: bytes = b"") -> None:
        """Send a frame; None is a heartbeat."""
        self.send_bytes(encode_frame(body, channel, payload))

    def receive(self) -> Received:
        """The next frame that is no heartbeat. Raises `TimeoutError`, or `EOFError` at the end of the connection."""
        while True:
            frame = self._reader.next()
            if frame is None:
                self._reader.add(self._read())
            elif frame.body:
                assert frame.type == AMQP_FRAME
                performative, payload = read_body(frame.body, Performative)
                return Received(frame.channel, performative, payload)

    def expect(self, kind: type[P]) -> P:
        """The next frame, which has to be of this kind; flows are passed over unless one is expected."""
        while True:
            received = self.receive()
            if isinstance(received.performative, kind):
                return received.performative
            assert isinstance(received.performative, Flow), f"expected {kind.__name__}, got {received.performative}"

    def expect_transfer(self) -> tuple[Transfer, bytes]:
        """The next transfer and its payload."""
        while True:
            received = self.receive()
            if isinstance(received.performative, Transfer):
                return received.performative, received.payload
            assert isinstance(received.performative, Flow), f"expected a transfer, got {received.performative}"

    def begin(self, channel: int = 0) -> Begin:
        """Begin a session."""
        self.send(Begin(next_outgoing_id=0, incoming_window=10_000, outgoing_window=10_000), channel)
        return self.expect(Begin)

    def attach_receiver(
        self,
        name: str,
        source: Source | None,
        *,
        desired: tuple[Symbol, ...] | None = None,
        channel: int = 0,
        handle: int | None = None,
        target: Target | None = None,
        max_message_size: int | None = None,
    ) -> Attach:
        """Attach a receiving link as the JMS client does; return the broker's attach."""
        self.send(
            Attach(
                name=name,
                handle=self._take_handle() if handle is None else handle,
                role=True,
                snd_settle_mode=0,
                rcv_settle_mode=0,
                source=source,
                target=target or Target(),
                max_message_size=max_message_size,
                desired_capabilities=desired,
            ),
            channel,
        )
        return self.expect(Attach)

    def attach_sender(
        self, name: str, target: Target | Coordinator | None, *, source: Source | None = None, channel: int = 0
    ) -> Attach:
        """Attach a sending link; return the broker's attach."""
        handle = self._take_handle()
        self.send(
            Attach(
                name=name,
                handle=handle,
                role=False,
                source=source or Source(),
                target=target,
                initial_delivery_count=0,
            ),
            channel,
        )
        return self.expect(Attach)

    def _take_handle(self) -> int:
        handle = self._next_handle
        self._next_handle += 1
        return handle

    @property
    def last_handle(self) -> int:
        """Our handle of the link attached last."""
        return self._next_handle - 1

    def flow(self, handle: int, *, credit: int, drain: bool | None = None, echo: bool | None = None) -> None:
        """Grant credit on a link of ours (no delivery was received on it so far)."""
        self.send(
            Flow(
                next_incoming_id=0,
                incoming_window=10_000,
                next_outgoing_id=0,
                outgoing_window=10_000,
                handle=handle,
                delivery_count=0,
                link_credit=credit,
                drain=drain,
                echo=echo,
            )
        )

    def detach(self, handle: int, *, closed: bool, channel: int = 0) -> Detach:
        """Detach a link of ours; return the broker's detach."""
        self.send(Detach(handle=handle, closed=closed), channel)
        return self.expect(Detach)

    def close(self) -> Close:
        """Close the connection in order."""
        self.send(Close())
        return self.expect(Close)
