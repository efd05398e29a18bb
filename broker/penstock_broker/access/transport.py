"""The transport of one connection: its socket, and TLS or WebSocket between the socket and SASL or AMQP.

Output that the socket does not take waits in `backlog`, in order. Must not know SASL, AMQP or the loop.

Written for speed: `send` runs for every batch.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import socket
import struct
import termios

from penstock_amqp.errors import WireError
from penstock_amqp.transports.tls import Wrapping

__all__ = ["Transport"]

_TAKES_NOTHING_NOW = (-errno.EAGAIN, -errno.EWOULDBLOCK, -errno.EINTR)
DISCARDED_BYTES = 65_536
"""Most bytes that `discard` reads in one call."""


class Transport:
    """The bytes of one connection, in and out."""

    __slots__ = ("backlog", "events_mask", "fd", "is_unauthenticated", "peer", "sock", "wrapping")

    def __init__(self, sock: socket.socket, peer: str, wrapping: Wrapping | None) -> None:
        """`peer`: HOST:PORT of the other end, or "unix". `wrapping`: TLS or WebSocket; None if there is neither."""
        self.sock = sock
        self.fd = sock.fileno()
        self.peer = peer
        self.wrapping = wrapping
        self.backlog = b""
        """Bytes that the socket did not take yet."""
        self.events_mask = 0
        """The epoll events that are waited for."""
        self.is_unauthenticated = False
        """Its descriptor is in the epoll of unauthenticated connections, not in the loop's."""

    @property
    def peer_host(self) -> str:
        """The peer's network address, without its port."""
        return self.peer.rpartition(":")[0] or self.peer

    @property
    def has_more(self) -> bool:
        """Received bytes wait in the TLS or WebSocket layer; epoll raises no event for them."""
        return self.wrapping is not None and self.wrapping.has_more

    @property
    def has_ended(self) -> bool:
        """The peer said, within TLS or WebSocket, that nothing more comes."""
        return self.wrapping is not None and self.wrapping.has_ended

    @property
    def peer_certificate(self) -> bytes | None:
        """The certificate that the peer showed, if any."""
        return self.wrapping.peer_certificate if self.wrapping is not None else None

    def unwrap(self, data: bytes) -> bytes:
        """Return the SASL or AMQP bytes in bytes from the socket; answers of TLS or WebSocket are sent at once.

        Raises `WireError` if TLS or WebSocket fails; `send_failure` then informs the peer.
        """
        wrapping = self.wrapping
        if wrapping is None:
            return data
        data = wrapping.feed(data)
        self.backlog += wrapping.output()
        if self.backlog:
            self.send_backlog()
        return data

    def send_failure(self) -> None:
        """Send what TLS or WebSocket say of their failure: an alert, or a response of HTTP."""
        if self.wrapping is not None:
            with contextlib.suppress(WireError):  # what they want to say may be broken too
                self.backlog += self.wrapping.output()
            self.send_backlog()

    def authenticated(self) -> None:
        """The peer has logged in: TLS and WebSocket lift what limits they had before."""
        if self.wrapping is not None:
            self.wrapping.known()

    def send(self, data: memoryview) -> bool:
        """Send bytes behind what waits already; False if the socket is broken. `data` may be overwritten afterwards."""
        if self.wrapping is not None or self.backlog:
            return self.write(data.tobytes())
        try:
            sent = self.sock.send(data)
        except OSError as error:
            sent = -(error.errno or errno.EIO)
        return self.sent(data, sent)

    def sent(self, data: memoryview, sent: int) -> bool:
        """Keep what the socket did not take of `data`; False if it is broken. `sent`: how many bytes it took, or
        -errno."""
        if sent < 0:
            if sent not in _TAKES_NOTHING_NOW:
                return False
            sent = 0
        if sent < len(data):
            self.backlog = data[sent:].tobytes()
        return True

    def write(self, data: bytes) -> bool:
        """Send bytes behind what waits already; False if the socket is broken."""
        if self.wrapping is not None:
            self.wrapping.send(data)
            data = self.wrapping.output()
        self.backlog += data
        return self.send_backlog()

    def send_backlog(self) -> bool:
        """Send what the socket takes of what waits; False if the socket is broken."""
        try:
            sent = self.sock.send(self.backlog) if self.backlog else 0
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            return False
        self.backlog = self.backlog[sent:]
        return True

    def discard(self) -> bool:
        """Read once and throw away what came; False if the peer is gone."""
        try:
            return bool(self.sock.recv(DISCARDED_BYTES))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def is_acknowledged(self) -> bool:
        """True if the peer's TCP has acknowledged all that was sent, and did not reset."""
        if self.backlog:
            return False
        unsent = struct.unpack("i", fcntl.ioctl(self.fd, termios.TIOCOUTQ, b"\0\0\0\0"))[0]
        return unsent == 0 and self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0

    def end(self) -> None:
        """Say at the end of an orderly close, within TLS or WebSocket, that nothing more comes."""
        if self.wrapping is not None and not self.backlog:
            self.wrapping.close()
            with contextlib.suppress(OSError, WireError):  # the peer may be gone; an error has no consequence
                self.sock.send(self.wrapping.output())

    def shut(self) -> bool:
        """Tell the peer that nothing more comes; what it sends can still be read. False if the socket is broken."""
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()
