"""The asyncio shell of a client's connection: it owns the socket, the log-in, the heartbeats and the end.

It does not reconnect: only its user knows what has to be sent again. Errors are those of `client.errors`.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from penstock_amqp.client.address import Address
from penstock_amqp.client.connection import ClientConnection, Ended, Ready
from penstock_amqp.client.errors import TransportError
from penstock_amqp.errors import WireError
from penstock_amqp.sasl.client import ClientMechanism, Credentials, Login, NotAuthenticated, SaslClient
from penstock_api.connection_failures import connection_failure

__all__ = ["ConnectedClient", "LoggedIn", "log_in"]

EventT = TypeVar("EventT")

_READ_BYTES: Final = 256 * 1024
_FAREWELL_SECONDS: Final = 2.0
"""How long `close` waits for the broker to close the connection too."""


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """A socket after the SASL dialogue."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    rest: bytes
    """What came after the dialogue."""


@contextlib.asynccontextmanager
async def log_in(
    address: Address, login: ClientMechanism | Credentials | None, hostname: str | None, timeout_seconds: float
) -> AsyncGenerator[LoggedIn]:
    """Connect and log in (anonymous without `login`); the body makes the client. If it fails, the socket is closed.

    Raises `TransportError` if connecting or the body fails, `NotAuthenticated` if the broker refuses the credentials,
    `TimeoutError` if all that takes longer than `timeout_seconds`.
    """
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(timeout_seconds):
            reader, writer = await address.connect()
            yield LoggedIn(reader, writer, await _authenticate(reader, writer, login or Login(), hostname))
    except BaseException as error:
        if writer is not None:
            writer.transport.abort()
        if isinstance(error, NotAuthenticated | TransportError | TimeoutError):
            raise
        if isinstance(error, OSError | WireError):
            raise TransportError(f"no connection to {address}: {connection_failure(error)}") from error
        raise


async def _authenticate(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    login: ClientMechanism | Credentials,
    hostname: str | None,
) -> bytes:
    """Run the SASL dialogue; return the bytes that came after it. Raises `NotAuthenticated`, `WireError`, `OSError`."""
    dialogue = SaslClient(login, hostname)
    while True:
        writer.write(dialogue.output())
        data = await reader.read(_READ_BYTES)
        if not data:
            raise TransportError("the broker closed the connection before authentication was done; it may expect TLS")
        rest = dialogue.feed(data)
        if rest is not None:
            return rest


class ConnectedClient(ABC, Generic[EventT]):
    """One connection with its socket. A subclass says what its events mean and who waits for them."""

    def __init__(self, socket: LoggedIn, connection: ClientConnection[EventT]) -> None:
        self._reader = socket.reader
        self._writer = socket.writer
        self._connection = connection
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._error: TransportError | None = None
        self._heartbeat: asyncio.TimerHandle | None = None
        self._reading = asyncio.create_task(self._read(socket.rest), name="penstock-client")

    @property
    def error(self) -> TransportError | None:
        """Why the connection ended; None while it is open."""
        return self._error

    async def ready(self) -> None:
        """Wait until all links are attached. Raises `TransportError` if the broker refuses one."""
        try:
            await asyncio.shield(self._ready)
        except BaseException:
            self._reading.cancel()
            raise
        self.check()  # attached, and detached at once

    def check(self) -> None:
        """Raise `TransportError` if the connection has ended."""
        if self._error is not None:
            raise self._error.again()

    async def close(self) -> None:
        """Close the connection with a Close frame; what waits gets a `TransportError`. May be called more than once."""
        self._connection.close()
        self._flush()
        await asyncio.wait([self._reading], timeout=_FAREWELL_SECONDS)
        self._reading.cancel()
        await asyncio.wait([self._reading])
        self._end(TransportError("the connection was closed here"))
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await self._writer.wait_closed()

    @abstractmethod
    def _take(self, event: EventT) -> None:
        """Pass the event to whoever waits for it."""

    @abstractmethod
    def _waits(self) -> Iterable[asyncio.Future[Any]]:
        """What waits for the broker; it gets a `TransportError` when the connection ends."""

    async def _read(self, rest: bytes) -> None:
        """Feed the connection until it ends, whatever the reason."""
        error = TransportError("the broker ended the connection")
        # Twice the announced idle time-out: the broker's heartbeats arrive within half of it.
        patience = 2 * self._connection.idle_seconds
        try:
            data = rest
            while True:
                for event in self._connection.feed(data):
                    match event:
                        case Ready():
                            self._begin(event.heartbeat_seconds)
                        case Ended():
                            self._end(event.error)
                        case _:
                            self._take(event)
                self._flush()
                async with asyncio.timeout(patience):
                    data = await self._reader.read(_READ_BYTES)
                if not data:
                    return
        except TimeoutError:
            error = TransportError(f"nothing came from the broker for {patience:g} seconds")
        except OSError as reason:
            error = TransportError(f"the connection to the broker broke: {connection_failure(reason)}")
        finally:
            self._end(error)

    def _begin(self, heartbeat_seconds: float | None) -> None:
        if heartbeat_seconds is not None:
            self._beat(heartbeat_seconds)
        if not self._ready.done():
            self._ready.set_result(None)

    def _beat(self, seconds: float) -> None:
        """Send a heartbeat, and the next one in time."""
        self._connection.heartbeat()
        self._flush()
        self._heartbeat = asyncio.get_running_loop().call_later(seconds, self._beat, seconds)

    def _flush(self) -> None:
        data = self._connection.output()
        if data and not self._writer.is_closing():
            self._writer.write(data)

    def _end(self, error: TransportError) -> None:
        """Pass the error to everything that waits. Only the first error counts."""
        if self._error is not None:
            return
        self._error = error
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        self._flush()
        self._writer.close()
        for waiting in (self._ready, *self._waits()):
            if not waiting.done():
                waiting.set_exception(error.again())
