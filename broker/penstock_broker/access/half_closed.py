"""Sockets on which our Close is sent and that stay open for a moment, so that their peers can read it.

To close a socket while something that the peer sent is unread resets the connection, and the reset makes the peer's
system throw away what it has not read yet: a client that is sending would learn that the connection was reset, and not
why it was closed. So the socket is shut for writing, what still comes is thrown away, and it is closed once the peer
closes it, or after a second. Source: RFC 9112, 9.6 (the same of HTTP); AMQP 1.0 part 2, 2.4.3.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from penstock_broker.access.transport import Transport

__all__ = ["HalfClosed"]

LINGER_MS: Final = 1000
"""So long a peer may take to read the Close and to close its side."""
MOST: Final = 1000
"""Sockets that stay open; where there are more, the one that was looked at the longest time ago is closed."""
PER_LOOK: Final = 250
"""Sockets that are looked at in one turn: each costs a read of at most `transport.DISCARDED_BYTES`."""


class HalfClosed:
    """The sockets of one broker."""

    def __init__(self) -> None:
        self._open: deque[tuple[int, Transport]] = deque()
        """When each is closed in any case, milliseconds of the monotonic clock."""

    def __len__(self) -> int:
        return len(self._open)

    def add(self, transport: Transport, now_ms: int) -> None:
        """Close a socket as described above."""
        transport.end()
        if not transport.shut():
            transport.close()
            return
        self._open.append((now_ms + LINGER_MS, transport))
        if len(self._open) > MOST:
            self._open.popleft()[1].close()

    def look(self, now_ms: int) -> None:
        """Throw away what has come, and close the sockets whose peers have closed theirs, or whose time is over."""
        for _ in range(min(PER_LOOK, len(self._open))):
            close_ms, transport = self._open.popleft()
            if now_ms < close_ms and transport.discard():
                self._open.append((close_ms, transport))
            else:
                transport.close()

    def close(self) -> None:
        """Close all of them."""
        while self._open:
            self._open.popleft()[1].close()
