"""A broker's settings: the configuration file (YAML), whose values the options of the command line override.

Keys are camelCase in the file. Times are seconds; sizes are bytes, or quantities such as 16Mi. `--dev` is a shorthand
for `BrokerSettings.for_dev`. Source: docs/reference/configuration.md.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator

from penstock_amqp.transports.origins import normal_origin
from penstock_amqp.types.values import Symbol, Value
from penstock_api.failure import Misuse
from penstock_api.management import DeliveryPolicy
from penstock_api.quantity import SizeBytes
from penstock_api.schema import Spec
from penstock_api.settings.announcements import Announcements, FailoverServer
from penstock_api.settings.auto_creation import AutoCreate
from penstock_api.settings.client_limits import ConnectionLimits
from penstock_api.settings.memory import MemorySettings
from penstock_api.settings.permissions import Permission
from penstock_api.settings.transaction_limits import TransactionSettings
from penstock_api.validation_messages import validation_messages
from penstock_api.yaml_documents import NotYaml, yaml_document
from penstock_broker.settings.addresses import UNIX, Address, HostPort, split
from penstock_broker.settings.security import MECHANISM_NAMES, Authentication, Tls
from penstock_core.terms import Overflow

__all__ = [
    "CLEARTEXT_MECHANISMS",
    "Authentication",
    "BrokerSettings",
    "DeliverySettings",
    "ListenerKind",
    "ListenerSettings",
    "LogSettings",
    "ManagementListener",
    "Role",
    "load",
    "open_properties",
]

CLEARTEXT_MECHANISMS: Final = frozenset(("PLAIN", "XOAUTH2", "OAUTHBEARER"))
"""Mechanisms that send the secret itself, so that everyone who can read the network traffic gets it."""


class Role(Enum):
    """What the peers of a listener may do in `$management`."""

    CLIENT = "client"
    OBSERVER = "observer"
    MANAGEMENT = "management"


class ListenerKind(Enum):
    """What clients speak first on a listener. Values are those of the file."""

    AMQP = "amqp"
    WEB_SOCKET = "webSocket"
    """HTTP, then AMQP in binary WebSocket frames (subprotocol `amqp`)."""


def _origin(text: str) -> str:
    """As browsers write it: in lower case, without the port that the scheme implies. Raises `ValueError`."""
    if text in ("*", "null"):
        return text
    origin = normal_origin(text)
    if origin is None:
        raise ValueError(f"{text!r} is not an origin: write SCHEME://HOST or SCHEME://HOST:PORT, or '*'")
    return origin


Origin: TypeAlias = Annotated[str, AfterValidator(_origin)]


class ListenerSettings(Spec):
    """Where clients connect. `address` is HOST:PORT, [HOST]:PORT or unix:PATH; port 0 lets the system choose."""

    name: str = "amqp"
    address: Address
    kind: ListenerKind = ListenerKind.AMQP
    tls: Tls | None = None
    sasl_mechanisms: tuple[str, ...] | None = None
    """Names in the order of preference; absent: all that `authentication` allows."""
    role: Role = Role.CLIENT
    max_message_bytes: SizeBytes | None = Field(default=None, ge=1024)
    """Absent: that of the broker."""
    idle_timeout_seconds: int | None = Field(default=None, ge=0)
    """A peer that is silent for longer than this is disconnected; 0: never. Absent: that of the broker."""
    allowed_origins: tuple[Origin, ...] | None = None
    """From where pages in browsers may use a WebSocket listener; `*`: from anywhere. Absent: from the same host."""

    @model_validator(mode="after")
    def _has_origins_of_web_sockets(self) -> ListenerSettings:
        if self.allowed_origins is not None and self.kind is not ListenerKind.WEB_SOCKET:
            raise ValueError("allowedOrigins is for listeners of kind webSocket: browsers reach no other")
        return self

    @property
    def is_local(self) -> bool:
        """True if only processes of this machine reach it."""
        if self.address.startswith(UNIX):
            return True
        host, _ = split(self.address)
        if host == "localhost":
            return True
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False


class ManagementListener(Spec):
    """The operator's access to `$management`: everything is allowed."""

    address: Address
    tls: Tls | None = None
    user: str = "operator"
    password_file: Path | None = None
    """Absent on a Unix socket, whose file mode is the protection."""


class DeliverySettings(DeliveryPolicy):
    """The delivery policy of subscriptions and queues that clients make, or auto-creation makes for them."""

    idle_expiry_seconds: int | None = Field(default=None, ge=1)
    """A client's permanent subscription that nobody has consumed from for longer than this is ended; absent: never."""


class LogSettings(Spec):
    """The log's files."""

    segment_bytes: SizeBytes = Field(default=64 * 1024 * 1024, ge=1024 * 1024, le=4 * 1024**3)
    max_unsynced_bytes: SizeBytes = Field(default=64 * 1024 * 1024, ge=1024 * 1024)
    """While more bytes of large messages than this are written and not synced, nothing is read from their senders."""

    @field_validator("segment_bytes", mode="after")
    @classmethod
    def _in_whole_pages(cls, given: int) -> int:
        """`100M` is no multiple of 4096, as the log's files have to be: it stands for the next lower one."""
        return given // 4096 * 4096


class BrokerSettings(Spec):
    """One broker."""

    listeners: tuple[ListenerSettings, ...] = ()
    management: ManagementListener | None = None
    observer_socket: Path | None = None
    observer_peek: bool = False
    """The observer may also PEEK, so that its page can show messages."""
    probes: HostPort | None = None
    """HOST:PORT of GET /livez and /readyz."""
    authentication: Authentication = Authentication()
    permissions: tuple[Permission, ...] | None = None
    """Grants on client listeners; neither these nor `permissions_file`: everything is allowed."""
    permissions_file: Path | None = None
    """More grants, under the key `permissions`; read again when it changes."""
    limits: ConnectionLimits = ConnectionLimits()
    log: LogSettings = LogSettings()
    delivery: DeliverySettings = DeliverySettings()
    memory: MemorySettings = MemorySettings()
    transactions: TransactionSettings = TransactionSettings()
    auto_create: bool | AutoCreate = False
    """Make queues and topic exchanges that clients name: true (any name), false (none), or by rules."""
    announce: Announcements = Announcements()
    """What the broker's Open announces to clients."""
    temporary_per_connection: int = Field(default=1000, ge=0)
    """Temporary queues and topics that one connection may have at a time."""
    max_message_bytes: SizeBytes = Field(default=16 * 1024 * 1024, ge=1024)
    max_frame_bytes: Annotated[SizeBytes, Field(ge=4096, le=65_536)] = 65_536
    idle_timeout_seconds: int = Field(default=60, ge=0)
    queue_max_bytes: SizeBytes | None = Field(default=None, ge=1)
    """Largest size of a queue without `maxBytes` of its own; absent: nothing but the volume limits it."""
    queue_overflow: Overflow = Overflow.REJECT
    """What a queue without limits of its own does at `queue_max_bytes`."""
    link_credit: int = Field(default=1000, ge=2)
    """Messages that a producer may send ahead."""

    @model_validator(mode="after")
    def _fits_together(self) -> BrokerSettings:
        wrong = [told for listener in self.listeners for told in self._mistakes_of(listener)]
        names = [listener.name for listener in self.listeners]
        wrong += [f"several listeners are named {name!r}" for name in sorted(set(names)) if names.count(name) > 1]
        try:
            self.transactions.check(self.log.segment_bytes)
        except ValueError as error:
            wrong.append(str(error))
        if wrong:
            raise ValueError("; ".join(wrong))
        return self

    def _mistakes_of(self, listener: ListenerSettings) -> Iterator[str]:
        wanted = listener.sasl_mechanisms or ()
        for name in wanted:
            if name not in MECHANISM_NAMES:
                yield f"{name!r} is not a SASL mechanism; there are {', '.join(MECHANISM_NAMES)}"
        exposed = [name for name in wanted if name in CLEARTEXT_MECHANISMS]
        if exposed and not self.is_private(listener):
            yield (
                f"listener {listener.name!r} would take {exposed[0]} without TLS from other machines: give it tls, or "
                "set authentication.allowInsecurePlain"
            )

    @property
    def largest_message_bytes(self) -> int:
        """Largest message that any listener accepts."""
        return max(self.max_message_bytes, *(each.max_message_bytes or 0 for each in self.listeners), 0)

    def is_private(self, listener: ListenerSettings) -> bool:
        """Whether clients may send secrets on this listener."""
        return listener.tls is not None or listener.is_local or self.authentication.allow_insecure_plain

    def for_dev(self) -> BrokerSettings:
        """The settings for `--dev`: ANONYMOUS and guest/guest may log in, and what clients name is made, unless
        `autoCreate` is set.
        """
        authentication = self.authentication.model_copy(
            update={"anonymous": True, "users": {**self.authentication.users, "guest": "guest"}}
        )
        return self.model_copy(update={"authentication": authentication, "auto_create": self.auto_create or True})


def load(path: Path) -> BrokerSettings:
    """Read the configuration file. Raises `Misuse` that names every wrong key."""
    try:
        content = yaml_document(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Misuse(f"The configuration {path} can't be read: {error.strerror}.", "Check the path.") from error
    except UnicodeDecodeError as error:
        raise Misuse(f"The configuration {path} is not text in UTF-8.", "Convert it, such as with iconv.") from error
    except NotYaml as error:
        raise Misuse(f"The configuration {path} is not valid YAML: {error}.", "Correct the line.") from error
    try:
        return BrokerSettings.model_validate({} if content is None else content)
    except ValidationError as error:
        wrong = "; ".join(validation_messages(error, whole="the file"))
        raise Misuse(
            f"The configuration {path} is wrong: {wrong}.", "docs/reference/configuration.md lists all keys."
        ) from error


def open_properties(announcements: Announcements) -> dict[str, Value]:
    """The properties of an Open that announce other servers and prefixes, as the Qpid JMS client reads them:
    ``failover-server-list``, ``queue-prefix`` and ``topic-prefix``.
    """
    properties: dict[str, Value] = {}
    if announcements.failover_servers:
        properties["failover-server-list"] = [_failover_entry(each) for each in announcements.failover_servers]
    if announcements.prefixes:
        properties |= {"queue-prefix": "queue://", "topic-prefix": "topic://"}
    return properties


def _failover_entry(server: FailoverServer) -> Value:
    """One entry of ``failover-server-list``."""
    entry: dict[Value, Value] = {
        Symbol("hostname"): server.hostname,
        Symbol("network-host"): server.network_host or server.hostname,
        Symbol("port"): server.port,
    }
    if server.scheme is not None:
        entry[Symbol("scheme")] = server.scheme
    if server.path is not None:
        entry[Symbol("path")] = server.path
    return entry
