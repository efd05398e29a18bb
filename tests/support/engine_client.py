"""proton's own engine as a client on one end of a socket that does not block, turned by hand: the part that all such
clients share. What a client does with its links, and with what comes, is its own.
"""

# pyright: reportUnknownMemberType=false
# proton's own types are not complete.

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import TypeAlias

from proton import Collector, Connection, Delivery, Event, Link, Message, Transport

__all__ = ["EngineClient", "arrived"]

Ends: TypeAlias = type[OSError] | tuple[()]
"""The errors that mean no more than that there is nothing further to do; the others come through."""


class EngineClient:
    """One connection with one session, both opened. `look` gets the engine's events after each piece of input."""

    def __init__(self, sock: socket.socket, container_id: str, look: Callable[[Iterator[Event]], None]) -> None:
        self._sock, self._look = sock, look
        self._collector = Collector()
        self.connection = Connection()
        self.connection.collect(self._collector)
        self.connection.container = container_id
        self._transport = Transport()
        self._transport.bind(self.connection)
        self.connection.open()
        self.session = self.connection.session()
        self.session.open()

    def flush(self, ends: Ends = ()) -> int:
        """Send what the engine has; how many bytes."""
        total = 0
        while (pending := self._transport.pending()) > 0:
            data = self._transport.peek(pending) or b""
            try:
                self._sock.sendall(data)
            except ends:
                break
            self._transport.pop(len(data))
            total += len(data)
        return total

    def receive(self, ends: Ends) -> int:
        """Give the engine what there is, piece by piece; how many bytes."""
        total = 0
        while True:
            try:
                data = self._sock.recv(65_536)
            except ends:
                return total
            if not data:
                return total
            total += len(data)
            while data and (capacity := self._transport.capacity()) > 0:
                self._transport.push(data[:capacity])
                data = data[capacity:]
                self._look(self._events())

    def _events(self) -> Iterator[Event]:
        while (event := self._collector.peek()) is not None:
            if event.type is Event.TRANSPORT_ERROR:
                raise AssertionError(self._transport.condition)
            yield event
            self._collector.pop()

    def close_socket(self) -> None:
        """Leave without a word."""
        self._sock.close()

    def cut(self) -> None:
        """Leave without a word, and give everything back."""
        self._sock.close()
        self._transport.unbind()
        self.connection.free()
        self._collector.release()


def arrived(link: Link) -> Iterator[tuple[Message, Delivery]]:
    """The messages that are there as a whole."""
    while (delivery := link.current) is not None and delivery.readable and not delivery.partial:
        message = Message()
        message.decode(link.recv(delivery.pending) or b"")
        link.advance()
        yield message, delivery
