"""The ServiceAccount as which a Broker's observer asks whose a Kubernetes token is, and how its pod mounts the token.

Only the observer mounts it; the broker's container has no token of the API server. What the account may do is said by
the operator's chart (`pageLogin`), not by the operator, which gives no rights. An image that does not know the variable
of the environment ignores it. Source: docs/decisions/075-login-by-kubernetes-token.md.
"""

from __future__ import annotations

from typing import Final

from penstock_api.page_login import ACCOUNT_CA, ACCOUNT_TOKEN
from penstock_api.resources import Broker
from penstock_operator.children.metadata import child_metadata
from penstock_operator.manifest import Manifest

__all__ = ["FOLDER", "VOLUME", "environment", "manifests", "name_of", "volume"]

FOLDER: Final = "/etc/penstock/account"
VOLUME: Final = "account"
_TOKEN_SECONDS: Final = 3600
_CLUSTER_CA: Final = "kube-root-ca.crt"
"""A ConfigMap that the cluster puts into every namespace."""


def name_of(broker: Broker) -> str:
    """The name of the ServiceAccount."""
    return f"{broker.metadata.name}-observer"


def manifests(broker: Broker) -> list[Manifest]:
    """The ServiceAccount; none if nobody logs in by a Kubernetes token."""
    if not broker.spec.page.service_account_login:
        return []
    about = child_metadata(broker, broker, name_of(broker))
    return [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about, "automountServiceAccountToken": False}]


def environment() -> list[Manifest]:
    """What tells the observer where its account is."""
    return [{"name": "PENSTOCK_OBSERVER_ACCOUNT", "value": FOLDER}]


def volume() -> Manifest:
    """The token of the account, which kubelet replaces in time, and the authority of the API server."""
    token = {"path": ACCOUNT_TOKEN, "expirationSeconds": _TOKEN_SECONDS}
    authority = {"name": _CLUSTER_CA, "items": [{"key": "ca.crt", "path": ACCOUNT_CA}]}
    sources = [{"serviceAccountToken": token}, {"configMap": authority}]
    return {"name": VOLUME, "projected": {"defaultMode": 0o440, "sources": sources}}
