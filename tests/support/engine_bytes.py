"""Bytes between proton's engine and a socket that does not block, for clients that are turned by hand."""

# pyright: reportUnknownMemberType=false
# proton's own types are not complete.

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TypeAlias

from proton import Transport

__all__ = ["receive_all", "send_all"]

Ends: TypeAlias = type[OSError] | tuple[()]
"""The errors that mean no more than that there is nothing further to do; the others come through."""


def send_all(transport: Transport, sock: socket.socket, ends: Ends = ()) -> int:
    """Send what the engine has; how many bytes."""
    total = 0
    while (pending := transport.pending()) > 0:
        data = transport.peek(pending) or b""
        try:
            sock.sendall(data)
        except ends:
            break
        transport.pop(len(data))
        total += len(data)
    return total


def receive_all(transport: Transport, sock: socket.socket, look: Callable[[], None], ends: Ends) -> int:
    """Give the engine what there is, and `look` at what it raised after each piece; how many bytes."""
    total = 0
    while True:
        try:
            data = sock.recv(65_536)
        except ends:
            return total
        if not data:
            return total
        total += len(data)
        while data and (capacity := transport.capacity()) > 0:
            transport.push(data[:capacity])
            data = data[capacity:]
            look()
