"""Who may connect to a Broker, and how: the part `authentication` of its spec. Source: docs/reference/security.md."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from penstock_api import references, schema
from penstock_api.settings.token_issuers import TokenIssuerSpec

__all__ = [
    "AuthenticationSpec",
    "Mechanism",
    "UserGroup",
    "mechanisms_without_tls",
]

Mechanism = Literal["EXTERNAL", "SCRAM-SHA-512", "SCRAM-SHA-256", "OAUTHBEARER", "XOAUTH2", "PLAIN", "ANONYMOUS"]
_REVEALING: Final[frozenset[str]] = frozenset({"PLAIN", "OAUTHBEARER", "XOAUTH2"})
"""Mechanisms that reveal a secret to whoever can read the network traffic."""
_OF_TLS: Final[frozenset[str]] = frozenset({"EXTERNAL"})
_OF_USERS: Final[frozenset[str]] = frozenset({"SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"})

Name = Annotated[str, Field(min_length=1, max_length=255)]

_SOMEBODY: Final = schema.cel(
    "self.anonymous || has(self.usersSecretRef) || has(self.clientCaSecretRef) || "
    "(has(self.tokens) && size(self.tokens) > 0)",
    "nobody could connect: set `anonymous`, `usersSecretRef`, `clientCaSecretRef` or `tokens` of `authentication`",
)
_NEEDS_ANONYMOUS: Final = schema.cel(
    "!has(self.mechanisms) || !self.mechanisms.exists(it, it == 'ANONYMOUS') || self.anonymous",
    "the mechanism ANONYMOUS needs `authentication.anonymous`",
)
_NEEDS_USERS: Final = schema.cel(
    "!has(self.mechanisms) || has(self.usersSecretRef) || "
    "!self.mechanisms.exists(it, it in ['SCRAM-SHA-512', 'SCRAM-SHA-256', 'PLAIN'])",
    "mechanisms with a password need `authentication.usersSecretRef`",
)
_NEEDS_CA: Final = schema.cel(
    "!has(self.mechanisms) || has(self.clientCaSecretRef) || !self.mechanisms.exists(it, it == 'EXTERNAL')",
    "the mechanism EXTERNAL needs `authentication.clientCaSecretRef`",
)
_NEEDS_TOKENS: Final = schema.cel(
    "!has(self.mechanisms) || (has(self.tokens) && size(self.tokens) > 0) || "
    "!self.mechanisms.exists(it, it in ['OAUTHBEARER', 'XOAUTH2'])",
    "mechanisms with a token need `authentication.tokens`",
)


class UserGroup(schema.Spec):
    """Users that `permissions` can name together."""

    name: Name
    """Name of the group."""
    users: Annotated[
        tuple[Name, ...],
        Field(max_length=256, json_schema_extra={schema.LIST_TYPE: "set"}),
        AfterValidator(schema.check_unique),
    ] = ()
    """Names of the users in the group."""


def _check_names(groups: tuple[UserGroup, ...]) -> tuple[UserGroup, ...]:
    schema.check_unique(tuple(group.name for group in groups))
    return groups


class AuthenticationSpec(schema.Spec):
    """How clients authenticate."""

    model_config = ConfigDict(
        json_schema_extra=schema.validations(_SOMEBODY, _NEEDS_ANONYMOUS, _NEEDS_USERS, _NEEDS_CA, _NEEDS_TOKENS)
    )

    anonymous: bool = False
    """Let clients in without a name (SASL ANONYMOUS)."""
    users_secret_ref: references.LocalRef | None = None
    """A Secret in the Broker's namespace: each key is a user, its value the password, or its salted record
    (`SCRAM-SHA-256$ITERATIONS:SALT$STOREDKEY:SERVERKEY`).
    """
    client_ca_secret_ref: references.LocalRef | None = None
    """A Secret in the Broker's namespace whose key `ca.crt` holds, in PEM, the certificates of the CAs that sign
    clients' certificates (mutual TLS on the listener with TLS). A change applies from the next connection on.
    """
    client_certificates: Literal["Required", "Optional"] = "Required"
    """With `clientCaSecretRef`: whether a client without a certificate may log in by another mechanism."""
    certificate_user: Literal["CommonName", "Subject", "Dns", "Email", "Uri"] = "CommonName"
    """Which part of a client's certificate is its user name (SASL EXTERNAL)."""
    tokens: Annotated[tuple[TokenIssuerSpec, ...], Field(max_length=8)] = ()
    """Issuers whose tokens log clients in (SASL OAUTHBEARER and XOAUTH2), such as the cluster itself for the
    ServiceAccounts of pods.
    """
    mechanisms: Annotated[
        tuple[Mechanism, ...] | None,
        Field(min_length=1, max_length=8, json_schema_extra={schema.LIST_TYPE: "set"}),
        AfterValidator(lambda names: None if names is None else schema.check_unique(names)),
    ] = None
    """SASL mechanisms that are offered, in the order of preference; left out: all that the other fields of
    `authentication` allow.
    """
    allow_insecure_plain: bool = False
    """Accept passwords on the listener without TLS, where anybody on the way can read them; without it, that listener
    offers SCRAM and ANONYMOUS only. The Broker then has the condition InsecurePlain.
    """
    groups: Annotated[
        tuple[UserGroup, ...],
        Field(max_length=64, json_schema_extra={schema.LIST_TYPE: "map", schema.LIST_KEYS: ["name"]}),
        AfterValidator(_check_names),
    ] = ()
    """Groups of users, for `permissions`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not (self.anonymous or self.users_secret_ref or self.client_ca_secret_ref or self.tokens):
            raise ValueError(str(_SOMEBODY["message"]))
        wanted = self.mechanisms or ()
        if "ANONYMOUS" in wanted and not self.anonymous:
            raise ValueError(str(_NEEDS_ANONYMOUS["message"]))
        if not _OF_USERS.isdisjoint(wanted) and self.users_secret_ref is None:
            raise ValueError(str(_NEEDS_USERS["message"]))
        if "EXTERNAL" in wanted and self.client_ca_secret_ref is None:
            raise ValueError(str(_NEEDS_CA["message"]))
        if not {"OAUTHBEARER", "XOAUTH2"}.isdisjoint(wanted) and not self.tokens:
            raise ValueError(str(_NEEDS_TOKENS["message"]))
        return self


def mechanisms_without_tls(authentication: AuthenticationSpec) -> tuple[Mechanism, ...]:
    """The chosen mechanisms that are offered without TLS: all but EXTERNAL, and only those that reveal no secret unless
    `allowInsecurePlain` is set.
    """
    hidden = _OF_TLS if authentication.allow_insecure_plain else _OF_TLS | _REVEALING
    return tuple(name for name in authentication.mechanisms or () if name not in hidden)
