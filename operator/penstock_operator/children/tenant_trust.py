"""The ConfigMap from which clients in another namespace than the Broker's take its CA.

A pod can mount a ConfigMap of its own namespace only. A namespace gets one when a resource in it uses the Broker, which
both sides have then agreed to: the Broker by `allowedNamespaces`, the namespace by its Exchange, Subscription or Queue.
That resource owns the ConfigMap, so nothing stays when the last one is deleted. Source: docs/decisions/101-reach.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from penstock_api.resources import Broker, Declaring
from penstock_operator import names
from penstock_operator.children.metadata import labels
from penstock_operator.manifest import Manifest

__all__ = ["MOST_NAMESPACES", "name_of", "tenant_config_map", "tenants"]

MOST_NAMESPACES: Final = 64
"""So many other namespaces get the CA, and their names into the certificate of a Broker that all may use: the oldest
ones. A certificate with many more names makes every handshake longer.
"""
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


def name_of(broker: Broker) -> str:
    """The name of the ConfigMap in other namespaces; it has the Broker's, since two Brokers may have the same name."""
    return f"{broker.metadata.namespace}.{broker.metadata.name}-ca"


def tenants(broker: Broker, resources: Iterable[Declaring]) -> Mapping[str, Declaring]:
    """Of each other namespace whose resources may use the Broker, and do, the oldest of these; the oldest first."""
    allowed, home = broker.spec.allowed_namespaces, broker.metadata.namespace
    found: dict[str, Declaring] = {}
    for each in sorted(resources, key=_age):
        namespace = each.metadata.namespace
        if namespace != home and ("*" in allowed or namespace in allowed) and each.metadata.deletion_timestamp is None:
            found.setdefault(namespace, each)
    return dict(list(found.items())[:MOST_NAMESPACES])


def _age(resource: Declaring) -> tuple[datetime, str]:
    return resource.metadata.creation_timestamp or _BEGINNING, resource.metadata.uid


def tenant_config_map(broker: Broker, tenant: Declaring, trusted: bytes) -> Manifest:
    """The ConfigMap in the namespace of `tenant`; `trusted`: what clients are to trust, PEM.

    The owner reference does not block the owner's deletion: that would need a right on its finalizers.
    """
    owner: Manifest = {
        "apiVersion": tenant.api_version,
        "kind": tenant.kind,
        "name": tenant.metadata.name,
        "uid": tenant.metadata.uid,
    }
    about: Manifest = {
        "name": name_of(broker),
        "namespace": tenant.metadata.namespace,
        "labels": {**labels(broker), names.BROKER_NAMESPACE_LABEL: broker.metadata.namespace},
        "ownerReferences": [owner],
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {"ca.crt": trusted.decode()}}
