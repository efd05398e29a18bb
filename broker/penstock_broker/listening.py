"""Listening sockets: binds them, takes connections in, and knows who may log in where.

TCP with or without TLS, and Unix sockets whose file mode is the protection. Source: design, section 4.
"""

from __future__ import annotations

import hmac
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock_amqp.sasl import Refused
from penstock_amqp.tls import ServerTls, TlsConnection, TlsFiles, TlsFilesError
from penstock_api.failing import CannotRun, Misuse
from penstock_broker.settings import UNIX, Authentication, Listener, Management, Role, Settings, Tls

__all__ = ["Port", "ports_of", "split_address"]

logger = logging.getLogger(__name__)

BACKLOG: Final = 512


class Port:
    """One listening socket and the rules of its connections."""

    def __init__(
        self,
        listener: Listener,
        settings: Settings,
        mechanisms: tuple[str, ...],
        password_of: Callable[[str], bytes | None],
        file_mode: int = 0o600,
    ) -> None:
        self.name = listener.name
        self.role = listener.role
        self.mechanisms = mechanisms
        self.max_frame = settings.max_frame_bytes
        self.idle_timeout_ms = settings.idle_timeout_seconds * 1000
        self.max_message_bytes = listener.max_message_bytes or settings.max_message_bytes
        self._address = listener.address
        self._password_of = password_of
        self._file_mode = file_mode
        self._tls = listener.tls
        self._server_tls: ServerTls | None = None
        self.sock: socket.socket | None = None

    def bind(self) -> None:
        """Listen. Raises `CannotRun` if the address can't be had."""
        if self._tls is not None:
            self._server_tls = _load(self._tls, self.name)
        try:
            self.sock = self._bind_unix() if self._address.startswith(UNIX) else self._bind_tcp()
        except OSError as error:
            raise CannotRun(
                f"The broker can't listen on {self._address}: {error.strerror or error}.",
                "Free the address, or name another one.",
            ) from error
        self.sock.setblocking(False)

    def _bind_unix(self) -> socket.socket:
        path = self._address.removeprefix(UNIX)
        Path(path).unlink(missing_ok=True)
        sock = socket.socket(socket.AF_UNIX)
        before = os.umask(0o777 & ~self._file_mode)
        try:
            sock.bind(path)
        finally:
            os.umask(before)
        sock.listen(BACKLOG)
        return sock

    def _bind_tcp(self) -> socket.socket:
        host, port = split_address(self._address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=host == "::")

    @property
    def bound(self) -> str:
        """The address that clients can use: HOST:PORT or unix:PATH."""
        assert self.sock is not None
        if self.sock.family is socket.AF_UNIX:
            return self._address
        host, port = self.sock.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def accept(self) -> tuple[socket.socket, str, TlsConnection | None] | None:
        """The next connection with its peer's name; None if none waits."""
        assert self.sock is not None
        try:
            sock, peer = self.sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None
        sock.setblocking(False)
        if sock.family is socket.AF_UNIX:
            return sock, "unix", None
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock, f"{peer[0]}:{peer[1]}", self._begin_tls()

    def _begin_tls(self) -> TlsConnection | None:
        """TLS of a new connection, with the certificate that is there now; connections that are open keep theirs."""
        if self._server_tls is None:
            return None
        try:
            if self._server_tls.reload():
                logger.info("Listener %s has a new certificate", self.name)
        except TlsFilesError as error:
            logger.error("Listener %s keeps its old certificate: %s", self.name, error)
        return self._server_tls.connection()

    def verify(self, user: str, secret: bytes) -> bool:
        """Whether this is the user's password. Compared in constant time, also for unknown users."""
        expected = self._password_of(user)
        right = hmac.compare_digest(secret, expected if expected is not None else b"\0" * len(secret))
        return right and expected is not None

    def refused(self, peer: str, result: Refused) -> None:
        """Log a client that was not let in."""
        logger.warning("Refused %s on listener %s as user %r: %s", peer, self.name, result.user, result.reason)

    def close(self) -> None:
        """Stop listening."""
        if self.sock is not None:
            self.sock.close()
            if self._address.startswith(UNIX):
                Path(self._address.removeprefix(UNIX)).unlink(missing_ok=True)


def _load(tls: Tls, name: str) -> ServerTls:
    try:
        return ServerTls(TlsFiles(tls.certificate, tls.key))
    except TlsFilesError as error:
        raise Misuse(
            f"Listener {name!r} can't use its certificate: {error}.", "Give a PEM chain and its key."
        ) from error


def split_address(address: str) -> tuple[str, int]:
    """HOST:PORT or [HOST]:PORT in parts. Raises `Misuse`."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise Misuse(f"{address!r} is no address.", "Write HOST:PORT, [HOST]:PORT or unix:PATH.")
    return host.strip("[]") or "0.0.0.0", int(port)


def ports_of(settings: Settings) -> list[Port]:
    """All ports of a broker, not bound yet."""
    authentication = settings.authentication
    ports = [_client_port(listener, settings, authentication) for listener in settings.listeners]
    if settings.management is not None:
        ports.append(_management_port(settings.management, settings))
    if settings.observer_socket is not None:
        listener = Listener(name="observer", address=f"{UNIX}{settings.observer_socket}", role=Role.OBSERVER)
        ports.append(Port(listener, settings, ("ANONYMOUS",), lambda _: None, file_mode=0o660))
    return ports


def _client_port(listener: Listener, settings: Settings, authentication: Authentication) -> Port:
    allowed: list[str] = []
    if authentication.users or authentication.users_folder is not None:
        allowed.append("PLAIN")
    if authentication.anonymous:
        allowed.append("ANONYMOUS")
    wanted = allowed if listener.sasl_mechanisms is None else listener.sasl_mechanisms
    mechanisms = tuple(name for name in wanted if name in allowed)
    if not mechanisms:
        raise Misuse(
            f"Nobody can log in on listener {listener.name!r}.",
            "Set authentication.users, usersFolder or anonymous, and saslMechanisms that go with it.",
        )

    def password_of(user: str) -> bytes | None:
        if user in authentication.users:
            return authentication.users[user].encode()
        return _password_in(authentication.users_folder, user)

    return Port(listener, settings, mechanisms, password_of)


def _management_port(management: Management, settings: Settings) -> Port:
    is_unix = management.address.startswith(UNIX)
    listener = Listener(
        name="management", address=management.address, tls=management.tls, role=Role.MANAGEMENT, sasl_mechanisms=()
    )
    if management.password_file is None:
        if not is_unix:
            raise Misuse("The management listener has no password.", "Set management.passwordFile.")
        return Port(listener, settings, ("ANONYMOUS",), lambda _: None)
    if management.tls is None and not listener.is_local:
        raise Misuse("The management listener would take its password without TLS.", "Set management.tls.")
    password_file = management.password_file

    def password_of(user: str) -> bytes | None:
        return _read_password(password_file) if user == management.user else None

    mechanisms = ("PLAIN", "ANONYMOUS") if is_unix else ("PLAIN",)
    return Port(listener, settings, mechanisms, password_of)


def _password_in(folder: Path | None, user: str) -> bytes | None:
    if folder is None or "/" in user or "\0" in user or user.startswith("."):
        return None
    return _read_password(folder / user)


def _read_password(path: Path) -> bytes | None:
    try:
        return path.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        logger.warning("The password file %s can't be read: %s", path, error.strerror)
        return None
