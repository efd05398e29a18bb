"""What a counted client uses besides TCP: TLS by the standard library, WebSocket by its library."""

from __future__ import annotations

import socket
import ssl
from collections import deque

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

__all__ = ["OverTls", "OverWebSocket"]


class OverTls:
    """A stream inside TLS. Reads all records that have come, so that a batch takes as many turns as over TCP."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._tls = context.wrap_socket(sock, server_hostname="127.0.0.1")
        self.sendall, self.recv = self._tls.sendall, self._tls.recv
        self.setblocking, self.fileno, self.close = self._tls.setblocking, self._tls.fileno, self._tls.close

    def recv_into(self, buffer: memoryview) -> int:
        read = 0
        try:
            while read < len(buffer) and (size := self._tls.recv_into(buffer[read:])):
                read += size
        except ssl.SSLWantReadError:
            if not read:
                raise BlockingIOError from None
        return read

    def send(self, data: memoryview) -> int:
        try:
            return self._tls.send(data)
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None


class OverWebSocket:
    """A stream inside binary WebSocket frames, one per write."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._protocol = ClientProtocol(parse_uri("ws://localhost/amqp"), subprotocols=[Subprotocol("amqp")])
        self._read: deque[memoryview] = deque()
        self.setblocking, self.fileno, self.close = sock.setblocking, sock.fileno, sock.close
        self._protocol.send_request(self._protocol.connect())
        self._pass_on()
        while not self._protocol.events_received():
            self._protocol.receive_data(sock.recv(65_536))
        assert self._protocol.subprotocol == "amqp"

    def _pass_on(self) -> None:
        # Loopback takes a batch of messages at once; what counts is not a slow reader's socket.
        self._sock.sendall(b"".join(self._protocol.data_to_send()))

    def sendall(self, data: bytes | memoryview) -> None:
        self._protocol.send_binary(data)
        self._pass_on()

    def send(self, data: memoryview) -> int:
        self.sendall(data)
        return len(data)

    def recv(self, size: int) -> bytes:
        buffer = bytearray(size)
        return bytes(buffer[: self.recv_into(memoryview(buffer))])

    def recv_into(self, buffer: memoryview) -> int:
        if not self._read:
            data = self._sock.recv(65_536)
            if not data:
                return 0
            self._protocol.receive_data(data)
            for event in self._protocol.events_received():
                if isinstance(event, Frame) and event.opcode in (Opcode.BINARY, Opcode.CONT):
                    self._read.append(memoryview(event.data))
        if not self._read:
            raise BlockingIOError
        part = self._read.popleft()
        taken = min(len(part), len(buffer))
        buffer[:taken] = part[:taken]
        if taken < len(part):
            self._read.appendleft(part[taken:])
        return taken
