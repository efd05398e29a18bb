"""The asyncio client that sends requests to a node of the broker and waits for the replies.

A thin shell around `sasl.client` and `request_session`: it owns the socket, the heartbeats and the waiting requests.
Requests may be pipelined from any number of tasks. It does not reconnect: only its user knows which requests have to be
sent again.

Errors are those of `client.errors`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from penstock_amqp.client.errors import TransportError
from penstock_amqp.client.request_session import (
    Ended,
    Ready,
    Refusal,
    Reply,
    RequestSession,
    SessionEvent,
    SessionSettings,
)
from penstock_amqp.errors import WireError
from penstock_amqp.messages.message_codec import Message, Properties
from penstock_amqp.sasl.client import ClientMechanism, Credentials, Login, NotAuthenticated, SaslClient
from penstock_amqp.types.values import Value
from penstock_api.connection_failures import connection_failure

__all__ = ["Address", "Client", "authenticate"]

_READ_BYTES = 256 * 1024
_FAREWELL_SECONDS = 2.0
"""How long `close` waits for the broker to close the connection too."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the broker listens: a Unix socket, or a host and port, with or without TLS."""

    unix_path: str | None = None
    host: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    """The name the broker's certificate has to carry; absent: `host`."""

    @classmethod
    def parse(cls, text: str, tls: ssl.SSLContext | None = None, server_name: str | None = None) -> Address:
        """Read `unix:PATH`, `HOST:PORT` or `[IPV6]:PORT`. Raises `ValueError`."""
        if text.startswith("unix:"):
            return cls(unix_path=text.removeprefix("unix:"))
        host, colon, port = text.rpartition(":")
        if not colon or not host or "/" in host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
            raise ValueError(f"{text!r} is neither unix:PATH nor HOST:PORT")
        return cls(host=host.removeprefix("[").removesuffix("]"), port=int(port), tls=tls, server_name=server_name)

    def __str__(self) -> str:
        return f"unix:{self.unix_path}" if self.unix_path is not None else f"{self.host}:{self.port}"

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open the socket. Raises `OSError`."""
        if self.unix_path is not None:
            return await asyncio.open_unix_connection(self.unix_path)
        name = (self.server_name or self.host) if self.tls is not None else None
        return await asyncio.open_connection(self.host, self.port, ssl=self.tls, server_hostname=name)


class Client:
    """One connection to one node. Make it with `connect`."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, session: RequestSession, idle_seconds: float
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._session = session
        self._idle_seconds = idle_seconds
        self._waiting: dict[str, asyncio.Future[Message]] = {}
        self._numbers: dict[int, str] = {}
        self._next_id = 0
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._error: TransportError | None = None
        self._heartbeat: asyncio.TimerHandle | None = None
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def connect(
        cls,
        address: Address,
        settings: SessionSettings,
        *,
        login: ClientMechanism | Credentials | None = None,
        timeout_seconds: float,
    ) -> Client:
        """Connect, authenticate (anonymous without `login`) and attach both links.

        Raises `TransportError` if that fails, `NotAuthenticated` if the broker refuses the credentials,
        `TimeoutError` if it takes longer than `timeout_seconds`.
        """
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(timeout_seconds):
                reader, writer = await address.connect()
                rest = await authenticate(reader, writer, login or Login(), settings.hostname)
                client = cls(reader, writer, RequestSession(settings), settings.idle_time_out_ms / 1000)
                await client._begin(rest)
                return client
        except BaseException as error:
            if writer is not None:
                writer.transport.abort()
            if isinstance(error, NotAuthenticated | TransportError | TimeoutError):
                raise
            if isinstance(error, OSError | WireError):
                raise TransportError(f"no connection to {address}: {connection_failure(error)}") from error
            raise

    async def _begin(self, rest: bytes) -> None:
        self._reading = asyncio.create_task(self._read(rest), name="penstock-client")
        try:
            await asyncio.shield(self._ready)
        except BaseException:
            self._reading.cancel()
            raise
        if self._error is not None:  # attached, and detached at once
            raise self._error.again()

    @property
    def error(self) -> TransportError | None:
        """Why the connection ended; None while it is open."""
        return self._error

    async def request(
        self, application_properties: Mapping[str, Value], body: Value, *, timeout_seconds: float
    ) -> Message:
        """Send a request and return its answer.

        Raises `TransportError` if the connection ends before, `RequestRefused` if the broker rejects the request's
        message, `TimeoutError` after `timeout_seconds`, `EncodeError` if the request has a value that AMQP can't carry.
        After a `TransportError` or `TimeoutError` the request may or may not have been carried out.
        """
        if self._error is not None:
            raise self._error.again()
        correlation_id = str(self._next_id)
        self._next_id += 1
        properties = Properties(
            message_id=correlation_id, correlation_id=correlation_id, reply_to=self._session.reply_to
        )
        message = Message(properties=properties, application_properties=application_properties, body=body)
        number = self._session.request(message)
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = answer
        self._numbers[number] = correlation_id
        try:
            async with asyncio.timeout(timeout_seconds):
                self._flush()
                return await answer
        finally:
            self._session.forget(number)
            del self._waiting[correlation_id]
            del self._numbers[number]

    async def close(self) -> None:
        """Close the connection with a Close frame; waiting requests get a `TransportError`. May be called more than
        once."""
        self._session.close()
        self._flush()
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=_FAREWELL_SECONDS)
            self._reading.cancel()
            await asyncio.wait([self._reading])
        self._end(TransportError("the connection was closed here"))
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await self._writer.wait_closed()

    async def _read(self, rest: bytes) -> None:
        """Feed the session until the connection ends, whatever the reason."""
        error = TransportError("the broker ended the connection")
        try:
            data = rest
            while True:
                self._take(self._session.feed(data))
                self._flush()
                # Twice the announced idle time-out: the broker's heartbeats arrive within half of it.
                async with asyncio.timeout(2 * self._idle_seconds):
                    data = await self._reader.read(_READ_BYTES)
                if not data:
                    return
        except TimeoutError:
            error = TransportError(f"nothing came from the broker for {2 * self._idle_seconds:g} seconds")
        except OSError as reason:
            error = TransportError(f"the connection to the broker broke: {connection_failure(reason)}")
        finally:
            self._end(error)

    def _take(self, events: list[SessionEvent]) -> None:
        for event in events:
            match event:
                case Ready():
                    if event.heartbeat_seconds is not None:
                        self._beat(event.heartbeat_seconds)
                    if not self._ready.done():
                        self._ready.set_result(None)
                case Reply():
                    answer = self._waiting.get(str(event.message.properties.correlation_id))
                    if answer is not None and not answer.done():
                        answer.set_result(event.message)
                case Refusal():
                    waiting = self._waiting.get(self._numbers.get(event.number, ""))
                    if waiting is not None and not waiting.done():
                        waiting.set_exception(event.error)
                case Ended():
                    self._end(event.error)
                case _:
                    assert_never(event)

    def _beat(self, seconds: float) -> None:
        """Send a heartbeat, and the next one in time."""
        self._session.heartbeat()
        self._flush()
        self._heartbeat = asyncio.get_running_loop().call_later(seconds, self._beat, seconds)

    def _flush(self) -> None:
        data = self._session.output()
        if data and not self._writer.is_closing():
            self._writer.write(data)

    def _end(self, error: TransportError) -> None:
        """Pass the error to every waiting request. Only the first error counts."""
        if self._error is not None:
            return
        self._error = error
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        self._flush()
        self._writer.close()
        if not self._ready.done():
            self._ready.set_exception(error)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(error.again())


async def authenticate(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    login: ClientMechanism | Credentials,
    hostname: str | None,
) -> bytes:
    """Run the SASL dialogue; return the bytes that came after it.

    Raises `NotAuthenticated`, `WireError`, `OSError`.
    """
    dialogue = SaslClient(login, hostname)
    while True:
        writer.write(dialogue.output())
        data = await reader.read(_READ_BYTES)
        if not data:
            raise TransportError("the broker closed the connection before authentication was done")
        rest = dialogue.feed(data)
        if rest is not None:
            return rest
