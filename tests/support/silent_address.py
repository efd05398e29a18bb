"""A TCP address that neither accepts nor refuses a connection, as that of a pod whose network was removed."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["silent_address"]


@contextmanager
def silent_address() -> Generator[tuple[str, int]]:
    """Host and port. The listener's queue is full, so that Linux drops the first packet of each further connection."""
    with socket.socket() as listener, socket.socket() as queued:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        host, port = listener.getsockname()
        queued.connect((host, port))
        yield host, port
