"""The cluster as an issuer of tokens: the issuer name and the public keys for tokens of ServiceAccounts.

The API server serves both, at two paths. The keys become a ConfigMap that the broker mounts. They are read at every
reconcile of the Broker, so that new keys reach it before the old ones are no longer used. Source:
docs/decisions/060-client-tokens.md; OpenID Connect Discovery 1.0 as Kubernetes serves it (service account issuer
discovery).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from penstock_api.resources import Broker
from penstock_operator.children.metadata import child_metadata
from penstock_operator.manifest import Manifest, items_of, text_at

__all__ = ["DISCOVERY", "KEYS", "ClusterIssuer", "config_map", "config_map_name", "is_wanted", "read"]

DISCOVERY: Final = "/.well-known/openid-configuration"
KEYS: Final = "/openid/v1/jwks"


@dataclass(frozen=True, slots=True)
class ClusterIssuer:
    """What the API server says about the tokens that it signs."""

    issuer: str
    """Claim `iss` of its tokens."""
    keys: str
    """A JSON Web Key Set, sorted, so that it only changes when the keys do."""


def is_wanted(broker: Broker) -> bool:
    """Whether clients of the Broker may log in with tokens of this cluster."""
    return any(issuer.is_cluster for issuer in broker.spec.authentication.tokens)


def read(discovery: Manifest | None, keys: Manifest | None) -> ClusterIssuer | None:
    """The issuer from the documents at `DISCOVERY` and `KEYS`; None if the issuer name or the keys are missing."""
    issuer = text_at(discovery, "issuer")
    found = sorted(items_of(keys, "keys"), key=lambda key: json.dumps(key, sort_keys=True))
    if not issuer or not found:
        return None
    return ClusterIssuer(issuer, json.dumps({"keys": found}, sort_keys=True))


def config_map_name(broker: Broker) -> str:
    """The name of the ConfigMap from which the pods read the keys."""
    return f"{broker.metadata.name}-issuer"


def config_map(broker: Broker, issuer: ClusterIssuer) -> Manifest:
    """The ConfigMap with the keys."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(broker, broker, config_map_name(broker)),
        "data": {"issuer": issuer.issuer, "keys": issuer.keys},
    }
