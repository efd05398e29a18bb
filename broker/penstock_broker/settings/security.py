"""The part of the configuration that says who may connect, and how. Keys are camelCase in the file.

Source: docs/reference/security.md.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from penstock_amqp.transports.certificate_names import NamePart
from penstock_api.schema import Spec
from penstock_api.settings.token_issuers import TokenChecks

__all__ = [
    "MECHANISM_NAMES",
    "Authentication",
    "ClientCertificates",
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
"""All mechanisms that the broker has, in the order of preference."""


class ClientCertificates(Enum):
    """Whether a client has to show a certificate. Values are those of the file."""

    REQUIRED = "required"
    OPTIONAL = "optional"


class Tls(Spec):
    """Server certificate chain and key, PEM, and who signs clients' certificates. Read again when the files change."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    client_certificates: ClientCertificates = ClientCertificates.REQUIRED
    """Has an effect only if `client_ca` is set."""
    minimum_version: Literal["1.2", "1.3"] = "1.2"


class TokenIssuer(TokenChecks):
    """One issuer in the broker's configuration."""

    issuer: Annotated[str, Field(min_length=1)]
    audiences: Annotated[tuple[str, ...], Field(min_length=1)]
    """A token has to name one of them: `penstock.dev/NAMESPACE/BROKER` in a cluster."""
    keys_file: Path
    """A JWKS document or public keys in PEM; read again when it changes."""


class Authentication(Spec):
    """Who may connect to client listeners."""

    anonymous: bool = False
    users_folder: Path | None = None
    """A file per user, named like the user, holding the password or its salted record; looked at in each login."""
    users: dict[str, str] = Field(default_factory=dict[str, str])
    """Passwords or salted records by user."""
    allow_insecure_plain: bool = False
    """Accept passwords and tokens without TLS on listeners that other machines reach."""
    scram_iterations: int = Field(default=16_384, ge=4096, le=2_000_000)
    """Hash iterations for passwords given in plain text; each client needs as many to log in by SCRAM."""
    certificate_user: NamePart = NamePart.COMMON_NAME
    groups: dict[str, tuple[str, ...]] = Field(default_factory=dict[str, tuple[str, ...]])
    """Users of each group."""
    tokens: tuple[TokenIssuer, ...] = ()

    @property
    def has_users(self) -> bool:
        """True if there are users with passwords."""
        return bool(self.users) or self.users_folder is not None
