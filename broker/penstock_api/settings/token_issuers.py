"""Token issuers: whose signed tokens (JWT) log a client in, and by which keys they are checked.

The broker reads keys from a file, which the operator writes from a ConfigMap or fetches from the cluster. So a
resource names a ConfigMap, and the configuration a file: its model is `penstock_broker.settings.security.TokenIssuer`.
Source: docs/reference/security.md; docs/decisions/060-client-tokens.md.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from penstock_api import references, schema

__all__ = ["CLUSTER", "TokenChecks", "TokenIssuerSpec"]

CLUSTER: Final = "Cluster"
"""`issuer` of tokens that this Kubernetes cluster makes for the ServiceAccounts of pods."""

Signature = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
Name = Annotated[str, Field(min_length=1, max_length=255)]


class TokenChecks(schema.Spec):
    """How a token is checked, and what it says of the user, whoever issued it."""

    algorithms: Annotated[tuple[Signature, ...], Field(min_length=1)] = ("RS256", "ES256")
    """Signature algorithms that are accepted."""
    user_claim: str = "sub"
    """Claim that is the user name."""
    groups_claim: str | None = None
    """Claim that lists the user's groups."""
    leeway_seconds: Annotated[int, Field(ge=0, le=600)] = 30
    """Largest difference between the clocks of issuer and broker."""


_KEYS: Final = schema.cel(
    "(self.issuer == 'Cluster') != has(self.keysConfigMapRef)",
    "an issuer needs `keysConfigMapRef`, a ConfigMap with its public keys; `Cluster` has none: its keys are fetched",
)


class IssuerSpec(schema.Spec):
    """Who issues the tokens, and where its keys are."""

    issuer: Annotated[str, Field(min_length=1, max_length=512)]
    """Value of a token's claim `iss`; or `Cluster` for this Kubernetes cluster, which issues tokens to the
    ServiceAccounts of pods. The operator asks the API server for the cluster's issuer name and keys, and keeps them up
    to date.
    """
    keys_config_map_ref: references.LocalRef | None = None
    """A ConfigMap in the Broker's namespace whose key `keys` holds the issuer's public keys: a JWKS document, or PEM. A
    change applies from the next log-in on. Not for `Cluster`.
    """
    audiences: Annotated[
        tuple[Name, ...],
        Field(max_length=16, json_schema_extra={schema.LIST_TYPE: "set"}),
        AfterValidator(schema.check_unique),
    ] = ()
    """Audiences; a token must name one of them. Left out: `penstock.dev/NAMESPACE/BROKER`."""


class TokenIssuerSpec(TokenChecks, IssuerSpec):
    """Whose signed tokens (JWT) log a client in, and by which keys they are checked."""

    model_config = ConfigDict(json_schema_extra=schema.validations(_KEYS))

    algorithms: Annotated[
        tuple[Signature, ...],
        Field(min_length=1, max_length=10, json_schema_extra={schema.LIST_TYPE: "set"}),
        AfterValidator(schema.check_unique),
    ] = ("RS256", "ES256")
    user_claim: Name = "sub"
    groups_claim: Name | None = None

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if self.is_cluster != (self.keys_config_map_ref is None):
            raise ValueError(str(_KEYS["message"]))
        return self

    @property
    def is_cluster(self) -> bool:
        """Whether its keys are those of the Kubernetes cluster that the Broker is in."""
        return self.issuer == CLUSTER
