"""The asyncio client that sends messages to an address, or receives them from one: a thin shell around
`message_session`, which owns the socket, the heartbeats and what waits.

It does not reconnect. Errors are those of `client.errors`.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from typing import Final, assert_never

from penstock_amqp.client.client import Address, authenticate
from penstock_amqp.client.errors import RequestRefused, TransportError
from penstock_amqp.client.message_session import (
    Arrived,
    Attached,
    Ended,
    MessageEvent,
    MessageSession,
    Sender,
    Settled,
    Subscriber,
)
from penstock_amqp.errors import WireError
from penstock_amqp.sasl.client import ClientMechanism, Credentials, Login, NotAuthenticated
from penstock_api.connection_failures import connection_failure

__all__ = ["MessageClient"]

_READ_BYTES: Final = 256 * 1024
_FAREWELL_SECONDS: Final = 2.0


class MessageClient:
    """One connection with one link. Make it with `connect`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, session: MessageSession) -> None:
        self._reader = reader
        self._writer = writer
        self._session = session
        self._attached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._arrived: asyncio.Queue[bytes | TransportError] = asyncio.Queue()
        self._error: TransportError | None = None
        self._heartbeat: asyncio.TimerHandle | None = None
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def connect(
        cls,
        address: Address,
        link: Sender | Subscriber,
        *,
        login: ClientMechanism | Credentials | None = None,
        timeout_seconds: float = 10.0,
    ) -> MessageClient:
        """Connect, log in (anonymous without `login`) and attach the link.

        Raises `TransportError`, also if the broker refuses the link; `NotAuthenticated`; `TimeoutError`.
        """
        hostname = address.server_name or address.host or None
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(timeout_seconds):
                reader, writer = await address.connect()
                rest = await authenticate(reader, writer, login or Login(), hostname)
                client = cls(reader, writer, MessageSession(link, f"penstock-{uuid.uuid4().hex}", hostname))
                client._reading = asyncio.create_task(client._read(rest), name="penstock-messages")
                await asyncio.shield(client._attached)
                if client._error is not None:
                    raise client._error.again()
                return client
        except BaseException as error:
            if writer is not None:
                writer.transport.abort()
            if isinstance(error, NotAuthenticated | TransportError | TimeoutError):
                raise
            if isinstance(error, OSError | WireError):
                raise TransportError(f"no connection to {address}: {connection_failure(error)}") from error
            raise

    async def send(self, encoded: bytes) -> None:
        """Send one message; return when the broker has accepted it, that is when it is safe.

        Raises `RequestRefused` if the broker does not take it, `TransportError` if the link ends before.
        """
        if self._error is not None:
            raise self._error.again()
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[self._session.send(encoded)] = answer
        self._flush()
        await answer

    def ask_for(self, messages: int) -> None:
        """Let the broker send so many messages from now on."""
        self._session.ask_for(messages)
        self._flush()

    async def receive(self, seconds: float | None) -> bytes | None:
        """The sections of the next message; None if none came within `seconds` (None: wait for ever).

        Raises `TransportError` if the link has ended.
        """
        try:
            found = await asyncio.wait_for(self._arrived.get(), seconds)
        except TimeoutError:
            return None
        if isinstance(found, TransportError):
            raise found
        return found

    def accept(self) -> None:
        """Accept everything that was received."""
        self._session.accept()
        self._flush()

    async def close(self) -> None:
        """End the connection with a Close frame. May be called more than once."""
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
        error = TransportError("the broker ended the connection")
        try:
            data = rest
            while True:
                for event in self._session.feed(data):
                    self._take(event)
                self._flush()
                data = await self._reader.read(_READ_BYTES)
                if not data:
                    return
        except OSError as reason:
            error = TransportError(f"the connection to the broker broke: {connection_failure(reason)}")
        finally:
            self._end(error)

    def _take(self, event: MessageEvent) -> None:
        match event:
            case Attached():
                if event.heartbeat_seconds is not None:
                    self._beat(event.heartbeat_seconds)
                if not self._attached.done():
                    self._attached.set_result(None)
            case Arrived():
                self._arrived.put_nowait(event.encoded)
            case Settled():
                self._answer(event.number, event.refusal)
            case Ended():
                self._end(event.error)
            case _:
                assert_never(event)

    def _answer(self, number: int, refusal: RequestRefused | None) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting is None or waiting.done():
            return
        if refusal is None:
            waiting.set_result(None)
        else:
            waiting.set_exception(refusal)

    def _beat(self, seconds: float) -> None:
        self._session.heartbeat()
        self._flush()
        self._heartbeat = asyncio.get_running_loop().call_later(seconds, self._beat, seconds)

    def _flush(self) -> None:
        data = self._session.output()
        if data and not self._writer.is_closing():
            self._writer.write(data)

    def _end(self, error: TransportError) -> None:
        """Pass the error to everything that waits. Only the first one counts."""
        if self._error is not None:
            return
        self._error = error
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        self._flush()
        self._writer.close()
        if not self._attached.done():
            self._attached.set_exception(error)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error.again())
        self._arrived.put_nowait(error.again())
