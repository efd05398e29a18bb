"""A node on the real engine that answers requests: the other side for tests of our clients, not on our frames."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock_amqp.sasl.mechanisms import MECHANISMS, Verdict, Verify
from penstock_amqp.sasl.server import Authenticated, Refused, SaslServer

__all__ = ["Asked", "Cut", "Node", "Reject", "Release", "Reply", "Silence", "serving"]

proton: Any = importlib.import_module("proton")  # it has no complete type information


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as the engine read it."""

    properties: dict[str, Any]
    body: Any


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer so."""

    properties: dict[str, Any] = field(default_factory=dict[str, Any])
    body: Any = None


@dataclass(frozen=True, slots=True)
class Reject:
    """Reject the request's message."""

    condition: str
    description: str


@dataclass(frozen=True, slots=True)
class Release:
    """Release the request's message: it was not taken, without a reason."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Cut the connection without a word."""


@dataclass(frozen=True, slots=True)
class Silence:
    """Accept the request and never answer."""


Decide = Callable[[Asked], Reply | Reject | Release | Cut | Silence]


@dataclass
class Node:
    """What a node does and saw."""

    decide: Decide
    credit: int = 10
    """Requests it takes at a time."""
    refuse_links: str | None = None
    """How links are refused: with a `null` terminus, or with a `full` one."""
    verdict: Verdict = Verdict.RIGHT
    address: str = ""
    """Where it listens, as our clients want it."""
    users: list[str] = field(default_factory=list[str])
    received: list[Asked] = field(default_factory=list[Asked])
    idle_timeout_seconds: float = 0.0
    max_frame_size: int = 0
    max_message_size: int = 0
    """The longest request that its link says it takes; 0: it says nothing."""
    writers: list[asyncio.StreamWriter] = field(default_factory=list[asyncio.StreamWriter])
    tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])
    heartbeats: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        task = asyncio.current_task()
        assert task is not None
        self.tasks.append(task)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            start = await self._authenticate(reader, writer)
            if start is not None:
                await _Engine(self).run(start, reader, writer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def _authenticate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
        sasl = SaslServer(MECHANISMS, without_sasl=False)
        while data := await reader.read(65_536):
            result = sasl.feed(data)
            if isinstance(result, Verify):
                result = sasl.answer(self.verdict)
            writer.write(sasl.output())
            match result:
                case Authenticated():
                    self.users.append(result.user)
                    return result.rest
                case Refused():
                    return None
                case _:
                    pass
        return None


class _Engine:
    """One connection on the engine."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._transport: Any = proton.Transport(proton.Transport.SERVER)
        self._connection: Any = proton.Connection()
        self._collector: Any = proton.Collector()
        self._transport.require_auth(False)
        if node.idle_timeout_seconds:
            self._transport.idle_timeout = node.idle_timeout_seconds
        if node.max_frame_size:
            self._transport.max_frame_size = node.max_frame_size
        self._connection.collect(self._collector)
        self._transport.bind(self._connection)
        self._cut = False

    async def run(self, data: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            if data == b"\x00\x00\x00\x08\x02\x00\x00\x00":
                self._node.heartbeats.release()
            while data:
                taken = min(self._transport.capacity(), len(data))
                if taken <= 0:
                    break
                self._transport.push(data[:taken])
                data = data[taken:]
                self._dispatch()
            while (pending := self._transport.pending()) > 0:
                writer.write(self._transport.peek(pending))
                self._transport.pop(pending)
                self._dispatch()
            if self._cut or self._transport.pending() < 0:
                return
            data = await reader.read(65_536)
            if not data:
                return

    def _dispatch(self) -> None:
        while (event := self._collector.peek()) is not None:
            self._handle(event)
            self._collector.pop()

    def _handle(self, event: Any) -> None:
        match event.type.name:
            case "PN_CONNECTION_REMOTE_OPEN":
                self._connection.container = "node"
                self._connection.open()
            case "PN_SESSION_REMOTE_OPEN":
                event.session.open()
            case "PN_LINK_REMOTE_OPEN":
                self._attach(event.link)
            case "PN_DELIVERY" if event.link.is_receiver and event.delivery.readable and not event.delivery.partial:
                self._receive(event.link, event.delivery)
            case "PN_CONNECTION_REMOTE_CLOSE":
                self._connection.close()
            case _:
                pass

    def _attach(self, link: Any) -> None:
        if self._node.refuse_links is not None:
            if self._node.refuse_links == "null":
                link.source.type = link.target.type = proton.Terminus.UNSPECIFIED
            link.open()
            link.condition = proton.Condition("amqp:unauthorized-access", "not for you")
            link.close()
            return
        link.source.address = link.remote_source.address
        link.target.address = link.remote_target.address
        if link.is_receiver and self._node.max_message_size:
            link.max_message_size = self._node.max_message_size
        link.open()
        if link.is_receiver:
            link.flow(self._node.credit)

    def _receive(self, link: Any, delivery: Any) -> None:
        message = proton.Message()
        message.decode(link.recv(delivery.pending))
        link.advance()
        asked = Asked(dict(message.properties or {}), message.body)
        self._node.received.append(asked)
        link.flow(1)
        match self._node.decide(asked):
            case Reply() as reply:
                delivery.update(proton.Delivery.ACCEPTED)
                self._answer(message, reply)
            case Reject() as reject:
                delivery.local.condition = proton.Condition(reject.condition, reject.description)
                delivery.update(proton.Delivery.REJECTED)
            case Release():
                delivery.update(proton.Delivery.RELEASED)
            case Cut():
                self._cut = True
            case Silence():
                delivery.update(proton.Delivery.ACCEPTED)
        delivery.settle()

    def _answer(self, request: Any, reply: Reply) -> None:
        link = self._connection.link_head(proton.Endpoint.LOCAL_ACTIVE)
        while link is not None:
            if link.is_sender and link.remote_target.address == request.reply_to:
                answer = proton.Message(body=reply.body, properties=reply.properties)
                answer.correlation_id = request.correlation_id
                link.delivery(str(len(self._node.received)))
                link.send(answer.encode())
                link.advance()
            link = link.next(proton.Endpoint.LOCAL_ACTIVE)


@asynccontextmanager
async def serving(
    node: Node, *, unix_path: Path | None = None, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[Node]:
    """Let `node` listen, on a Unix socket or a free port of the loopback address."""
    if unix_path is not None:
        server = await asyncio.start_unix_server(node.serve, unix_path)
        node.address = f"unix:{unix_path}"
    else:
        server = await asyncio.start_server(node.serve, "127.0.0.1", 0, ssl=tls)
        node.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield node
    finally:
        server.close()
        for writer in node.writers:
            writer.transport.abort()
        await asyncio.gather(*node.tasks)
        await server.wait_closed()
