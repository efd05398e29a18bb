"""The cluster as an issuer of tokens: the name it signs with and its public keys, for the tokens of ServiceAccounts.

The API server serves both to whoever may read two paths. The keys become a ConfigMap that the broker mounts; they are
looked at in every pass over the Broker, so that a rotation reaches it before the old keys go. Pure. Source: section 5
of the design (credentials); OpenID Connect Discovery 1.0 as Kubernetes serves it (service account issuer discovery).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from penstock_api.resources import Broker
from penstock_operator.children import services
from penstock_operator.manifest import Manifest, items_of, text_at

__all__ = ["DISCOVERY", "KEYS", "ClusterIssuer", "config_map", "config_map_name", "is_wanted", "read"]

DISCOVERY: Final = "/.well-known/openid-configuration"
KEYS: Final = "/openid/v1/jwks"


@dataclass(frozen=True, slots=True)
class ClusterIssuer:
    """What the API server says."""

    issuer: str
    """`iss` of its tokens."""
    keys: str
    """JWKS, in one form whatever order the API server has."""


def is_wanted(broker: Broker) -> bool:
    """Whether tokens of this cluster log clients in."""
    return any(issuer.is_cluster for issuer in broker.spec.authentication.tokens)


def read(discovery: Manifest | None, keys: Manifest | None) -> ClusterIssuer | None:
    """The issuer of what `DISCOVERY` and `KEYS` answered; None if one of them is of no use."""
    issuer = text_at(discovery, "issuer")
    found = sorted(items_of(keys, "keys"), key=lambda key: json.dumps(key, sort_keys=True))
    if not issuer or not found:
        return None
    return ClusterIssuer(issuer, json.dumps({"keys": found}, sort_keys=True))


def config_map_name(broker: Broker) -> str:
    """Where the pods find the keys."""
    return f"{broker.metadata.name}-issuer"


def config_map(broker: Broker, issuer: ClusterIssuer) -> Manifest:
    """The ConfigMap with the keys."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": services.metadata(broker, broker, config_map_name(broker)),
        "data": {"issuer": issuer.issuer, "keys": issuer.keys},
    }
