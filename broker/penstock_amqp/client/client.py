"""The asyncio client that sends requests to a node of the broker and waits for the replies.

Requests may be pipelined from any number of tasks. The connection is `connected_client`'s. Errors are those of
`client.errors`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, assert_never

from penstock_amqp.client.address import Address
from penstock_amqp.client.connected_client import ConnectedClient, LoggedIn, log_in
from penstock_amqp.client.request_session import Refusal, Reply, RequestEvent, RequestSession, SessionSettings
from penstock_amqp.messages.message_codec import Message, Properties
from penstock_amqp.sasl.client import ClientMechanism, Credentials
from penstock_amqp.types.values import Value

__all__ = ["Client"]


class Client(ConnectedClient[RequestEvent]):
    """One connection to one node. Make it with `connect`."""

    def __init__(self, socket: LoggedIn, session: RequestSession) -> None:
        self._session = session
        self._waiting: dict[str, asyncio.Future[Message]] = {}
        self._numbers: dict[int, str] = {}
        self._next_id = 0
        super().__init__(socket, session)

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
        async with log_in(address, login, settings.hostname, timeout_seconds) as socket:
            client = cls(socket, RequestSession(settings))
            await client.ready()
            return client

    async def request(
        self,
        application_properties: Mapping[str, Value],
        body: Value,
        *,
        timeout_seconds: float,
        most_bytes: int | None = None,
    ) -> Message:
        """Send a request and return its answer.

        Raises `TransportError` if the connection ends before, `RequestRefused` if the broker rejects the request's
        message, `RequestTooLong` if it has more than `most_bytes` or than the broker takes, `TimeoutError` after
        `timeout_seconds`, `EncodeError` if the request has a value that AMQP can't carry.
        After a `TransportError` or `TimeoutError` the request may or may not have been carried out.
        """
        self.check()
        correlation_id = str(self._next_id)
        self._next_id += 1
        properties = Properties(
            message_id=correlation_id, correlation_id=correlation_id, reply_to=self._session.reply_to
        )
        message = Message(properties=properties, application_properties=application_properties, body=body)
        number = self._session.request(message, most_bytes)
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

    def _waits(self) -> Iterable[asyncio.Future[Any]]:
        return self._waiting.values()

    def _take(self, event: RequestEvent) -> None:
        match event:
            case Reply():
                answer = self._waiting.get(str(event.message.properties.correlation_id))
                if answer is not None and not answer.done():
                    answer.set_result(event.message)
            case Refusal():
                waiting = self._waiting.get(self._numbers.get(event.number, ""))
                if waiting is not None and not waiting.done():
                    waiting.set_exception(event.error)
            case _:
                assert_never(event)
