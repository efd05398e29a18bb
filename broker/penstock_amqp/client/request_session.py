"""A request client without I/O: one connection with one link for requests and one for replies.

Must not know sockets, clocks or what requests mean. The connection is `connection`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock_amqp.client.connection import (
    BACK,
    OUT,
    ClientConnection,
    ConnectionSettings,
    Ended,
    Ready,
    State,
    refused,
)
from penstock_amqp.client.errors import RequestRefused, RequestTooLong
from penstock_amqp.frames.performatives import Attach, Modified, Rejected, Released, Source, Target
from penstock_amqp.messages.message_codec import Message, decode_message, encode_message

__all__ = ["Ended", "Ready", "Refusal", "Reply", "RequestEvent", "RequestSession", "SessionSettings"]

_SUFFIXES: Final = {OUT: "-out", BACK: "-back"}
"""Endings of the names of our links, which begin with the reply address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings(ConnectionSettings):
    """What the connection announces, its limits, and the addresses of its links."""

    node: str
    """Address of the node that the requests are sent to."""
    reply_to: str
    """Address that replies are sent to: the target of our link for replies."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a request."""

    message: Message


@dataclass(frozen=True, slots=True)
class Refusal:
    """The broker did not accept the message of the request `number`."""

    number: int
    error: RequestRefused


RequestEvent: TypeAlias = Reply | Refusal


class RequestSession(ClientConnection[RequestEvent]):
    """One connection on which requests can be sent once it is Ready."""

    def __init__(self, settings: SessionSettings) -> None:
        out = Attach(
            name=settings.reply_to + _SUFFIXES[OUT],
            handle=OUT,
            role=False,
            source=Source(),
            target=Target(address=settings.node),
            initial_delivery_count=0,
        )
        back = Attach(
            name=settings.reply_to + _SUFFIXES[BACK],
            handle=BACK,
            role=True,
            source=Source(address=settings.node),
            target=Target(address=settings.reply_to),
        )
        super().__init__(settings, (out, back))
        self.reply_to = settings.reply_to
        """The `reply-to` for requests; final after `Ready`, because the broker may assign a dynamic address."""

    def request(self, message: Message, most_bytes: int | None = None) -> int:
        """Send `message` as soon as credit and window allow; return its number. Raises `EncodeError`,
        `TransportError`, and `RequestTooLong` if it has more than `most_bytes`, or more than the broker takes."""
        encoded = encode_message(message)
        limits = [limit for limit in (most_bytes, self.max_sent_bytes) if limit is not None]
        if limits and len(encoded) > min(limits):
            raise RequestTooLong(len(encoded), min(limits))
        return self._put(encoded)

    def forget(self, number: int) -> None:
        """Do not send a request that is still queued: its reply is no longer wanted."""
        self._out.forget(number)

    def _attached(self, attach: Attach) -> None:
        source = attach.source
        if self._handles[attach.name] == BACK and source is not None and source.dynamic and source.address:
            self.reply_to = source.address

    def _arrived(self, encoded: bytes) -> None:
        self._events.append(Reply(decode_message(encoded)))

    def _settled(self, numbers: Sequence[int], state: State) -> None:
        if isinstance(state, Rejected | Released | Modified):
            self._events += [Refusal(number, refused(state)) for number in numbers]

    def _fed(self) -> None:
        self._accept()
        if BACK in self._peer_handles.values() and self._back.top_up():
            self._send_flow(BACK)
