"""The listeners: accept connections, begin TLS and WebSocket, and offer the SASL mechanisms of each listener.

A Unix socket is protected by the mode of its file. Source: docs/reference/security.md.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock_amqp.sasl.credentials import CredentialRecord
from penstock_amqp.sasl.mechanisms import (
    MECHANISMS,
    External,
    LookUpKeys,
    OAuthBearer,
    ScramKeys,
    Table,
)
from penstock_amqp.sasl.scram import Scram
from penstock_amqp.transports.certificate_names import name_in
from penstock_amqp.transports.tls import ServerTls, TlsFiles, TlsFilesError, Wrapping
from penstock_amqp.transports.websocket import WebSocket
from penstock_api.failure import Misuse
from penstock_api.management import MAX_REQUEST_BYTES
from penstock_broker.access import sockets
from penstock_broker.access.users import Users, in_folder, one_user
from penstock_broker.settings.addresses import UNIX
from penstock_broker.settings.security import MECHANISM_NAMES, ClientCertificates, Tls, TokenIssuer
from penstock_broker.settings.settings import (
    CLEARTEXT_MECHANISMS,
    BrokerSettings,
    ListenerKind,
    ListenerSettings,
    ManagementListener,
    Role,
)

if TYPE_CHECKING:
    from penstock_broker.access.token_issuers import TokenIssuers

__all__ = ["Listener", "listeners_of"]

logger = logging.getLogger(__name__)

_FACTORIES: Final[Table] = {
    **MECHANISMS,
    "SCRAM-SHA-256": partial(Scram, "SCRAM-SHA-256"),
    "SCRAM-SHA-512": partial(Scram, "SCRAM-SHA-512"),
    "XOAUTH2": partial(OAuthBearer, "XOAUTH2"),
    "OAUTHBEARER": partial(OAuthBearer, "OAUTHBEARER"),
}


class Listener:
    """One listening socket, and what holds for the connections that it accepts."""

    def __init__(
        self,
        listener_settings: ListenerSettings,
        settings: BrokerSettings,
        mechanisms: tuple[str, ...],
        users: Users | None = None,
        folder: Path | None = None,
        issuers: TokenIssuers | None = None,
        file_mode: int = 0o600,
    ) -> None:
        """`folder`: of files of users whose passwords can be hashed in advance."""
        self.name = listener_settings.name
        self.role = listener_settings.role
        self.mechanisms = mechanisms
        self.users = users
        self.issuers = issuers
        self.max_frame = settings.max_frame_bytes
        idle_seconds = listener_settings.idle_timeout_seconds
        self.idle_timeout_ms = (settings.idle_timeout_seconds if idle_seconds is None else idle_seconds) * 1000
        self.max_message_bytes = listener_settings.max_message_bytes or settings.max_message_bytes
        self.max_sessions = settings.limits.sessions_per_connection
        self.max_links = settings.limits.links_per_connection
        self._kind = listener_settings.kind
        self._origins = listener_settings.allowed_origins
        self._address = listener_settings.address
        self._folder = folder
        self._name_part = settings.authentication.certificate_user
        self._file_mode = file_mode
        self._tls = listener_settings.tls
        self._server_tls: ServerTls | None = None
        self._tls_failure = ""
        """Why the files of TLS could not be loaded again, which is told once and not to each connection."""
        self.sock: socket.socket | None = None
        """None until `bind`."""

    def bind(self) -> None:
        """Listen. Raises `CannotRun` if the address can't be had."""
        if self._tls is not None:
            self._server_tls = _load(self._tls, self.name)
        self.sock = sockets.bind(self._address, self._file_mode)

    @property
    def bound(self) -> str:
        """The address that clients can use: HOST:PORT or unix:PATH."""
        assert self.sock is not None
        return sockets.bound(self.sock)

    def accept(self) -> tuple[socket.socket, str, str] | None:
        """The next connection, its peer (HOST:PORT or "unix") and the peer's network address; None if none waits.

        Raises `OSError` if the system has no descriptor or memory for it.
        """
        assert self.sock is not None
        try:
            sock, peer = self.sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None
        sock.setblocking(False)
        if sock.family is socket.AF_UNIX:
            return sock, "unix", "unix"
        return sock, f"{peer[0]}:{peer[1]}", peer[0]

    def wrap(self, sock: socket.socket) -> Wrapping | None:
        """TLS or WebSocket of a new connection; None if SASL or AMQP come without."""
        if sock.family is not socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tls = self._begin_tls()
        return WebSocket(tls, self._origins) if self._kind is ListenerKind.WEB_SOCKET else tls

    def _begin_tls(self) -> Wrapping | None:
        """TLS of a new connection, with the certificate that is there now; connections that are open keep theirs."""
        if self._server_tls is None:
            return None
        try:
            if self._server_tls.reload():
                logger.info("Listener %s has a new certificate", self.name)
            self._tls_failure = ""
        except TlsFilesError as error:
            if str(error) != self._tls_failure:
                logger.error("Listener %s keeps its old certificate: %s", self.name, error)
            self._tls_failure = str(error)
        return self._server_tls.connection()

    def table(self, certificate: bytes | None) -> Table:
        """The mechanisms to offer to a client that showed this certificate, in the order of preference."""
        table = {name: _FACTORIES[name] for name in self.mechanisms if name != "EXTERNAL"}
        user = name_in(certificate, self._name_part) if certificate is not None else None
        if "EXTERNAL" not in self.mechanisms or user is None:
            return table
        with_external: Table = {**table, "EXTERNAL": partial(External, user)}
        return {name: with_external[name] for name in self.mechanisms}

    @property
    def has_revocable_logins(self) -> bool:
        """Whether the login of an open connection can end: a token expires, a password file is removed."""
        return self.issuers is not None or (self.users is not None and self.users.has_files)

    def user_names(self) -> list[str]:
        """Users whose files lie in the folder now."""
        if self._folder is None or not self._folder.is_dir():
            return []
        return [path.name for path in self._folder.iterdir() if path.is_file() and not path.name.startswith(".")]

    def keys_of(self, question: LookUpKeys, record: CredentialRecord | None) -> ScramKeys:
        """The keys for one mechanism; made-up ones if there is no such user, or no record for this mechanism."""
        assert self.users is not None
        keys = record.keys.get(question.mechanism) if record is not None else None
        return keys if keys is not None else self.users.fake(question.user).keys[question.mechanism]

    def close(self) -> None:
        """Stop listening."""
        if self.sock is not None:
            sockets.close(self.sock)


def _load(tls: Tls, name: str) -> ServerTls:
    try:
        wants = tls.client_certificates is ClientCertificates.REQUIRED
        minimum = ssl.TLSVersion.TLSv1_3 if tls.minimum_version == "1.3" else ssl.TLSVersion.TLSv1_2
        return ServerTls(TlsFiles(tls.certificate, tls.key, tls.client_ca, wants, minimum))
    except TlsFilesError as error:
        raise Misuse(
            f"Listener {name!r} can't use its certificate: {error}.", "Give a PEM chain and its key."
        ) from error


def listeners_of(settings: BrokerSettings, key: bytes | None = None) -> list[Listener]:
    """All listeners of a broker, not bound yet. Raises `Misuse` if nobody could log in on one of them.

    `key`: salts passwords; 32 random bytes, the same over restarts, so that the salts shown of users that don't exist
    do not change either.
    """
    key = os.urandom(32) if key is None else key
    authentication = settings.authentication
    users: Users | None = None
    if authentication.has_users:
        file_of = in_folder(authentication.users_folder)
        users = Users(
            authentication.users,
            file_of,
            key=key,
            rounds=authentication.scram_iterations,
            has_files=authentication.users_folder is not None,
        )
    issuers = _issuers_of(authentication.tokens)
    listeners = [
        _client_listener(listener_settings, settings, users, issuers) for listener_settings in settings.listeners
    ]
    if settings.management is not None:
        listeners.append(_management_listener(settings.management, settings, key))
    if settings.observer_socket is not None:
        listener_settings = ListenerSettings(
            name="observer",
            address=f"{UNIX}{settings.observer_socket}",
            role=Role.OBSERVER,
            max_message_bytes=_longest_request(settings),
        )
        listeners.append(Listener(listener_settings, settings, ("ANONYMOUS",), file_mode=0o660))
    return listeners


def _issuers_of(given: tuple[TokenIssuer, ...]) -> TokenIssuers | None:
    """Raises `Misuse` if a file of keys can't be used."""
    if not given:
        return None
    # The libraries for tokens and keys take a tenth of a broker's start, and few brokers accept tokens.
    from penstock_broker.access.token_issuers import TokenIssuers

    return TokenIssuers(given)


def _client_listener(
    listener_settings: ListenerSettings, settings: BrokerSettings, users: Users | None, issuers: TokenIssuers | None
) -> Listener:
    possible = _possible_mechanisms(listener_settings, settings)
    wanted = possible if listener_settings.sasl_mechanisms is None else listener_settings.sasl_mechanisms
    mechanisms = tuple(name for name in wanted if name in possible)
    if not mechanisms:
        raise Misuse(
            f"Nobody can log in on listener {listener_settings.name!r}.",
            "Set authentication.users, usersFolder, tokens or anonymous, or tls.clientCa, and saslMechanisms that go "
            "with it. For a test, give --dev: then every client can log in.",
        )
    folder = settings.authentication.users_folder
    return Listener(listener_settings, settings, mechanisms, users, folder, issuers)


def _possible_mechanisms(listener: ListenerSettings, settings: BrokerSettings) -> list[str]:
    """The SASL mechanisms by which a client can log in on a listener, in the order of preference."""
    authentication = settings.authentication
    with_users = {"SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"} if authentication.has_users else set[str]()
    anonymous = {"ANONYMOUS"} if authentication.anonymous else set[str]()
    external = {"EXTERNAL"} if listener.tls is not None and listener.tls.client_ca is not None else set[str]()
    bearer = {"XOAUTH2", "OAUTHBEARER"} if authentication.tokens else set[str]()
    possible = with_users | anonymous | external | bearer
    if not settings.is_private(listener):
        possible -= CLEARTEXT_MECHANISMS
    return [name for name in MECHANISM_NAMES if name in possible]


def _longest_request(settings: BrokerSettings) -> int:
    """What clients may send limits no request of the operator: many declarations travel in one."""
    return max(settings.max_message_bytes, MAX_REQUEST_BYTES)


def _management_listener(management: ManagementListener, settings: BrokerSettings, key: bytes) -> Listener:
    is_unix = management.address.startswith(UNIX)
    listener_settings = ListenerSettings(
        name="management",
        address=management.address,
        tls=management.tls,
        role=Role.MANAGEMENT,
        sasl_mechanisms=(),
        max_message_bytes=_longest_request(settings),
    )
    if management.password_file is None:
        if not is_unix:
            raise Misuse("The management listener has no password.", "Set management.passwordFile.")
        return Listener(listener_settings, settings, ("ANONYMOUS",))
    if management.tls is None and not listener_settings.is_local:
        raise Misuse("The management listener would take its password without TLS.", "Set management.tls.")
    users = Users({}, one_user(management.user, management.password_file), key=key)
    return Listener(listener_settings, settings, ("PLAIN", "ANONYMOUS") if is_unix else ("PLAIN",), users)
