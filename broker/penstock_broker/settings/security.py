"""The part of the configuration that says who may connect, how, and what for. Keys are camelCase in the file.

Source: docs/security.md.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from penstock_amqp.transports.certificate_names import NamePart
from penstock_core.permissions import Action, Grant

__all__ = [
    "MECHANISM_NAMES",
    "Authentication",
    "ClientCertificates",
    "ConnectionLimits",
    "Grants",
    "Model",
    "Permission",
    "Tls",
    "TokenIssuer",
]

MECHANISM_NAMES: Final = (
    "EXTERNAL",
    "SCRAM-SHA-512",
    "SCRAM-SHA-256",
    "OAUTHBEARER",
    "XOAUTH2",
    "PLAIN",
    "ANONYMOUS",
)
"""All that can be offered, in the order of preference."""


class Model(BaseModel):
    """Base of all settings."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class ClientCertificates(Enum):
    """Whether a client has to show a certificate. Values are those of the file."""

    REQUIRED = "required"
    OPTIONAL = "optional"


class Tls(Model):
    """Server certificate chain and key, PEM, and who signs clients' certificates. Read again when the files change."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    client_certificates: ClientCertificates = ClientCertificates.REQUIRED
    """Counts where `client_ca` is set."""
    minimum_version: Literal["1.2", "1.3"] = "1.2"


_SIGNATURES = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]


class TokenIssuer(Model):
    """Whose signed tokens are taken, and by which keys they are checked."""

    issuer: str = Field(min_length=1)
    audiences: Annotated[tuple[str, ...], Field(min_length=1)]
    """A token has to name one of them: `penstock.dev/NAMESPACE/BROKER` in a cluster."""
    keys_file: Path
    """A JWKS document or public keys in PEM; read again when it changes."""
    algorithms: Annotated[tuple[_SIGNATURES, ...], Field(min_length=1)] = ("RS256", "ES256")
    user_claim: str = "sub"
    groups_claim: str | None = None
    leeway_seconds: int = Field(default=30, ge=0, le=600)
    """How far clocks may be apart."""


class Authentication(Model):
    """Who may connect to client listeners."""

    anonymous: bool = False
    users_folder: Path | None = None
    """A file per user, named like the user, holding the password or its salted record; looked at in each log-in."""
    users: dict[str, str] = {}
    """Passwords or salted records by user."""
    allow_insecure_plain: bool = False
    """Take passwords and tokens without TLS on listeners that other machines reach."""
    scram_iterations: int = Field(default=16_384, ge=4096, le=2_000_000)
    """Rounds of hashing for passwords given in plain; each client does as many when it logs in."""
    certificate_user: NamePart = NamePart.COMMON_NAME
    groups: dict[str, tuple[str, ...]] = {}
    """Users of each group."""
    tokens: tuple[TokenIssuer, ...] = ()

    @property
    def has_users(self) -> bool:
        """True if somebody can log in by a password."""
        return bool(self.users) or self.users_folder is not None


class Permission(Model):
    """One grant: these users may do this with what these patterns match. `*` stands for any characters."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    actions: Annotated[tuple[Action, ...], Field(min_length=1)]
    exchanges: tuple[str, ...] = ()
    subscriptions: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    management: bool = False

    @model_validator(mode="after")
    def _reaches_something(self) -> Permission:
        if not (self.users or self.groups):
            raise ValueError("a permission without users and groups is nobody's: name some, or '*'")
        if not (self.exchanges or self.subscriptions or self.queues or self.management):
            raise ValueError("a permission without exchanges, subscriptions, queues or management allows nothing")
        return self

    def grant(self) -> Grant:
        """The same for the rules."""
        return Grant(
            users=self.users,
            groups=self.groups,
            actions=frozenset(self.actions),
            exchanges=self.exchanges,
            subscriptions=self.subscriptions,
            queues=self.queues,
            management=self.management,
        )


class Grants(Model):
    """What `permissionsFile` holds."""

    permissions: tuple[Permission, ...]


class ConnectionLimits(Model):
    """What clients may hold at once, so that one of them can't take what the others need. Absent: no limit."""

    connections: int = Field(default=10_000, ge=1)
    """Of the whole broker; management and observer are not counted."""
    connections_per_user: int | None = Field(default=None, ge=1)
    connections_per_peer: int | None = Field(default=None, ge=1)
    """By network address."""
    unauthenticated: int = Field(default=1000, ge=1)
    """Connections that have not logged in yet; more wait in the system's queue until some have."""
    unauthenticated_per_peer: int | None = Field(default=200, ge=1)
    login_seconds: int = Field(default=30, ge=1)
    """From the first byte to the Open."""
    sessions_per_connection: int = Field(default=256, ge=1, le=256)
    links_per_connection: int = Field(default=1024, ge=1)
