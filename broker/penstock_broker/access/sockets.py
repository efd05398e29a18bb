"""Sockets that listen, on TCP or at a path. Must not know which protocol is spoken there, or who may log in."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path
from typing import Final

from penstock_api.failure import CannotRun
from penstock_api.listen_failures import listen_failure
from penstock_broker.settings.addresses import UNIX, split

__all__ = ["bind", "bound", "close"]

BACKLOG: Final = 512


def bind(address: str, file_mode: int = 0o600) -> socket.socket:
    """Listen with a non-blocking socket. `file_mode`: of a Unix socket, which is protected by it alone.

    Raises `CannotRun` if the address can't be used. A file at the path is removed only if it is the socket of a broker
    that has died.
    """
    try:
        sock = _bind_unix(address.removeprefix(UNIX), file_mode) if address.startswith(UNIX) else _bind_tcp(address)
    except OSError as error:
        why, cure = listen_failure(error, is_path=address.startswith(UNIX))
        raise CannotRun(f"The broker can't listen on {address}: {why}.", cure) from error
    sock.setblocking(False)
    return sock


def bound(sock: socket.socket) -> str:
    """The address that clients can use: HOST:PORT or unix:PATH."""
    if sock.family is socket.AF_UNIX:
        return f"{UNIX}{sock.getsockname()}"
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def close(sock: socket.socket) -> None:
    """Stop listening, and remove the file of a Unix socket."""
    path = sock.getsockname() if sock.family is socket.AF_UNIX else None
    sock.close()
    if path is not None:
        Path(path).unlink(missing_ok=True)


def _bind_tcp(address: str) -> socket.socket:
    host, port = split(address)
    if host == "::" and not socket.has_dualstack_ipv6():
        host = "0.0.0.0"  # [::] means all addresses, and those of IPv4 are all that such a machine has
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=host == "::")


def _bind_unix(path: str, file_mode: int) -> socket.socket:
    _clear(path)
    sock = socket.socket(socket.AF_UNIX)
    before = os.umask(0o777 & ~file_mode)
    try:
        sock.bind(path)
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(before)
    sock.listen(BACKLOG)
    return sock


def _clear(path: str) -> None:
    """Remove the socket of a process that died. Raises `OSError` if it is not a socket or a process listens on it."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    with socket.socket(socket.AF_UNIX) as visitor:
        visitor.setblocking(False)  # a full backlog must not block us: it also shows that a process listens
        try:
            visitor.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)
            return
        except BlockingIOError:
            pass
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), path)
