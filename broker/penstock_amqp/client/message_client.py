"""The asyncio client that sends messages to an address, or receives them from one.

The connection is `connected_client`'s. Errors are those of `client.errors`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable
from typing import Any, assert_never

from penstock_amqp.client.address import Address
from penstock_amqp.client.connected_client import ConnectedClient, LoggedIn, log_in
from penstock_amqp.client.errors import RequestRefused, TransportError
from penstock_amqp.client.message_session import Arrived, MessageEvent, MessageSession, Sender, Settled, Subscriber
from penstock_amqp.sasl.client import ClientMechanism, Credentials

__all__ = ["MessageClient"]


class MessageClient(ConnectedClient[MessageEvent]):
    """One connection with one link. Make it with `connect`."""

    def __init__(self, socket: LoggedIn, session: MessageSession) -> None:
        self._session = session
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._arrived: asyncio.Queue[Arrived | TransportError] = asyncio.Queue()
        self._received = 0
        """Number of the last message that `receive` returned."""
        super().__init__(socket, session)

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
        async with log_in(address, login, hostname, timeout_seconds) as socket:
            client = cls(socket, MessageSession(link, f"penstock-{uuid.uuid4().hex}", hostname))
            await client.ready()
            return client

    @property
    def address(self) -> str | None:
        """Where the link receives from, as the broker says; None for a sender."""
        return self._session.address

    async def send(self, encoded: bytes) -> None:
        """Send one message; return when the broker has accepted it, that is when it is safe.

        Raises `RequestRefused` if the broker does not take it, `TransportError` if the link ends before.
        """
        self.check()
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
            async with asyncio.timeout(seconds):
                found = await self._arrived.get()
        except TimeoutError:
            return None
        if isinstance(found, TransportError):
            raise found
        self._received = found.number
        return found.encoded

    def accept(self) -> None:
        """Accept everything that `receive` has returned; what has come besides goes back to the broker at the end."""
        self._session.accept(self._received)
        self._flush()

    def _waits(self) -> Iterable[asyncio.Future[Any]]:
        return self._waiting.values()

    def _end(self, error: TransportError) -> None:
        if self._error is None:
            self._arrived.put_nowait(error.again())
        super()._end(error)

    def _take(self, event: MessageEvent) -> None:
        match event:
            case Arrived():
                self._arrived.put_nowait(event)
            case Settled():
                self._answer(event.number, event.refusal)
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
