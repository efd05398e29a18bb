"""Who may connect to a Broker, how, and what for: as people write it in its spec, and as the broker's configuration has
it. Source: docs/security.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from penstock_api.resources import base

__all__ = [
    "CLUSTER",
    "AuthenticationSpec",
    "ClientLimitsSpec",
    "Mechanism",
    "PermissionSpec",
    "Permissions",
    "TokenIssuerSpec",
    "UserGroup",
    "mechanisms_without_tls",
    "permission_settings",
]

Mechanism = Literal["EXTERNAL", "SCRAM-SHA-512", "SCRAM-SHA-256", "OAUTHBEARER", "XOAUTH2", "PLAIN", "ANONYMOUS"]
_REVEALING: Final[frozenset[str]] = frozenset({"PLAIN", "OAUTHBEARER", "XOAUTH2"})
"""Mechanisms that show a secret to whoever listens in."""
_OF_TLS: Final[frozenset[str]] = frozenset({"EXTERNAL"})
_OF_USERS: Final[frozenset[str]] = frozenset({"SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"})

Name = Annotated[str, Field(min_length=1, max_length=255)]
Patterns = Annotated[
    tuple[Name, ...],
    Field(max_length=64, json_schema_extra={base.LIST_TYPE: "set"}),
    AfterValidator(base.check_unique),
]
Action = Literal["Publish", "Consume", "Create", "Manage"]

_SOMEBODY: Final = base.cel(
    "self.anonymous || has(self.usersSecretRef) || has(self.clientCaSecretRef) || "
    "(has(self.tokens) && size(self.tokens) > 0)",
    "nobody could connect: set `anonymous`, `usersSecretRef`, `clientCaSecretRef` or `tokens` of `authentication`",
)
_NEEDS_ANONYMOUS: Final = base.cel(
    "!has(self.mechanisms) || !self.mechanisms.exists(it, it == 'ANONYMOUS') || self.anonymous",
    "the mechanism ANONYMOUS needs `authentication.anonymous`",
)
_NEEDS_USERS: Final = base.cel(
    "!has(self.mechanisms) || has(self.usersSecretRef) || "
    "!self.mechanisms.exists(it, it in ['SCRAM-SHA-512', 'SCRAM-SHA-256', 'PLAIN'])",
    "mechanisms with a password need `authentication.usersSecretRef`",
)
_NEEDS_CA: Final = base.cel(
    "!has(self.mechanisms) || has(self.clientCaSecretRef) || !self.mechanisms.exists(it, it == 'EXTERNAL')",
    "the mechanism EXTERNAL needs `authentication.clientCaSecretRef`",
)
_NEEDS_TOKENS: Final = base.cel(
    "!has(self.mechanisms) || (has(self.tokens) && size(self.tokens) > 0) || "
    "!self.mechanisms.exists(it, it in ['OAUTHBEARER', 'XOAUTH2'])",
    "mechanisms with a token need `authentication.tokens`",
)


CLUSTER: Final = "Cluster"
"""`issuer` of tokens that this Kubernetes cluster makes for the ServiceAccounts of pods."""

_KEYS: Final = base.cel(
    "(self.issuer == 'Cluster') != has(self.keysConfigMapRef)",
    "an issuer needs `keysConfigMapRef`, a ConfigMap with its public keys; `Cluster` has none, its keys are fetched",
)


class TokenIssuerSpec(base.Spec):
    """Whose signed tokens (JWT) log a client in, and by which keys they are checked."""

    model_config = ConfigDict(json_schema_extra=base.validations(_KEYS))

    issuer: Annotated[str, Field(min_length=1, max_length=512)]
    """What a token has to say of who made it (`iss`); or `Cluster`: this cluster, for the ServiceAccounts of its pods.
    Name and keys of that are then asked of the API server, and kept up to date.
    """
    keys_config_map_ref: base.LocalRef | None = None
    """A ConfigMap in the Broker's namespace whose key `keys` holds the issuer's public keys: a JWKS document, or PEM. A
    change holds from the next log-in on. Not for `Cluster`.
    """
    audiences: Annotated[
        tuple[Name, ...],
        Field(max_length=16, json_schema_extra={base.LIST_TYPE: "set"}),
        AfterValidator(base.check_unique),
    ] = ()
    """Of which a token has to name one; none: `penstock.dev/NAMESPACE/BROKER`."""
    algorithms: Annotated[
        tuple[Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"], ...],
        Field(min_length=1, max_length=10, json_schema_extra={base.LIST_TYPE: "set"}),
        AfterValidator(base.check_unique),
    ] = ("RS256", "ES256")
    """Signatures that are accepted, whatever a token says."""
    user_claim: Name = "sub"
    """Claim that is the user name."""
    groups_claim: Name | None = None
    """Claim that lists the user's groups."""
    leeway_seconds: Annotated[int, Field(ge=0, le=600)] = 30
    """How far clocks may be apart."""

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if self.is_cluster != (self.keys_config_map_ref is None):
            raise ValueError(str(_KEYS["message"]))
        return self

    @property
    def is_cluster(self) -> bool:
        """Whether its keys are those of the Kubernetes cluster that the Broker is in."""
        return self.issuer == CLUSTER


class UserGroup(base.Spec):
    """Users that `permissions` can name together."""

    name: Name
    """Name of the group."""
    users: Annotated[
        tuple[Name, ...],
        Field(max_length=256, json_schema_extra={base.LIST_TYPE: "set"}),
        AfterValidator(base.check_unique),
    ] = ()
    """Who is in it."""


def _check_names(groups: tuple[UserGroup, ...]) -> tuple[UserGroup, ...]:
    base.check_unique(tuple(group.name for group in groups))
    return groups


class AuthenticationSpec(base.Spec):
    """How clients say who they are."""

    model_config = ConfigDict(
        json_schema_extra=base.validations(_SOMEBODY, _NEEDS_ANONYMOUS, _NEEDS_USERS, _NEEDS_CA, _NEEDS_TOKENS)
    )

    anonymous: bool = False
    """Let clients in without a name (SASL ANONYMOUS)."""
    users_secret_ref: base.LocalRef | None = None
    """A Secret in the Broker's namespace: each key is a user, its value the password, or its salted record
    (`SCRAM-SHA-256$ITERATIONS:SALT$STOREDKEY:SERVERKEY`).
    """
    client_ca_secret_ref: base.LocalRef | None = None
    """A Secret in the Broker's namespace whose key `ca.crt` holds, in PEM, who signs clients' certificates (mutual
    TLS on the listener with TLS). A change holds from the next connection on.
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
        Field(min_length=1, max_length=8, json_schema_extra={base.LIST_TYPE: "set"}),
        AfterValidator(lambda names: None if names is None else base.check_unique(names)),
    ] = None
    """SASL mechanisms that are offered, in the order of preference; left out: all that the rest allows."""
    allow_insecure_plain: bool = False
    """Accept passwords on the listener without TLS, where anybody on the way can read them; without it, that listener
    offers SCRAM and ANONYMOUS only. Shows as condition InsecurePlain.
    """
    groups: Annotated[
        tuple[UserGroup, ...],
        Field(max_length=64, json_schema_extra={base.LIST_TYPE: "map", base.LIST_KEYS: ["name"]}),
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
    """What of the chosen mechanisms is offered without TLS: what shows no secret, or all if that is allowed."""
    hidden = _OF_TLS if authentication.allow_insecure_plain else _OF_TLS | _REVEALING
    return tuple(name for name in authentication.mechanisms or () if name not in hidden)


_OF_SOMEBODY: Final = base.cel(
    "(has(self.users) && size(self.users) > 0) || (has(self.groups) && size(self.groups) > 0)",
    "a permission without `users` and `groups` is nobody's; name some, or `*`",
)
_OF_SOMETHING: Final = base.cel(
    "self.management || (has(self.exchanges) && size(self.exchanges) > 0) || "
    "(has(self.subscriptions) && size(self.subscriptions) > 0) || (has(self.queues) && size(self.queues) > 0)",
    "a permission without `exchanges`, `subscriptions`, `queues` or `management` allows nothing",
)


class PermissionSpec(base.Spec):
    """Whoever matches `users`, or is in one of `groups`, may do `actions` to what the other patterns match. In
    patterns `*` stands for any characters.
    """

    model_config = ConfigDict(json_schema_extra=base.validations(_OF_SOMEBODY, _OF_SOMETHING))

    users: Patterns = ()
    """Patterns of user names; who did not say who it is, is `anonymous`."""
    groups: Patterns = ()
    """Patterns of groups."""
    actions: Annotated[
        tuple[Action, ...],
        Field(min_length=1, max_length=4, json_schema_extra={base.LIST_TYPE: "set"}),
        AfterValidator(base.check_unique),
    ]
    """What they may do: publish; consume and browse; make durable subscriptions, queues and exchanges; use, browse and
    end what others made.
    """
    exchanges: Patterns = ()
    """Patterns of exchanges, by the names that clients use."""
    subscriptions: Patterns = ()
    """Patterns of subscriptions, by the names that clients use."""
    queues: Patterns = ()
    """Patterns of queues."""
    management: bool = False
    """Also `$management`, and closing connections of others."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not (self.users or self.groups):
            raise ValueError(str(_OF_SOMEBODY["message"]))
        if not (self.exchanges or self.subscriptions or self.queues or self.management):
            raise ValueError(str(_OF_SOMETHING["message"]))
        return self


Permissions = Annotated[tuple[PermissionSpec, ...], Field(max_length=128)]

Count = Annotated[int, Field(ge=1, le=1_000_000)]


class ClientLimitsSpec(base.Spec):
    """What clients may hold at once, so that one of them can't take what the others need."""

    connections: Count | None = None
    """Connections that are open; left out: 10,000."""
    connections_per_user: Count | None = None
    """Those of one user; left out: no limit."""
    connections_per_peer: Count | None = None
    """Those from one network address; left out: no limit. Behind a proxy or a load balancer all clients have one."""
    unauthenticated: Count | None = None
    """Connections that have not logged in yet; left out: 1,000. More wait."""
    unauthenticated_per_peer: Count | None = None
    """Those from one network address; left out: 200. More are closed."""
    login_seconds: Annotated[int, Field(ge=1, le=3600)] | None = None
    """How long a log-in may take; left out: 30."""
    sessions_per_connection: Annotated[int, Field(ge=1, le=256)] | None = None
    """Sessions of one connection; left out: 256."""
    links_per_connection: Count | None = None
    """Links of one connection; left out: 1,024."""


def permission_settings(permissions: Iterable[PermissionSpec]) -> list[dict[str, object]]:
    """The grants as the broker's file of permissions has them."""
    return [
        {
            **permission.model_dump(mode="json", by_alias=True, exclude_defaults=True),
            "actions": [action.lower() for action in permission.actions],
        }
        for permission in permissions
    ]
