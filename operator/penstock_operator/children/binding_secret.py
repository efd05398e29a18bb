"""The Secret from which an application takes how to connect to its Subscription, in the layout of the Service Binding
Specification.

It is in the Subscription's namespace and holds no password: a pod logs in with its ServiceAccount's token, or with a
Secret of its own namespace that the binding names. Source: docs/decisions/111-binding-secrets.md; Service Binding
Specification for Kubernetes 1.1, "Provisioned Service" and "Well-known Secret Entries".
"""

from __future__ import annotations

import base64
from typing import Final
from urllib.parse import urlsplit

from penstock_api import declaration
from penstock_api.page_login import audience_of
from penstock_api.resources import Broker, Exchange, Subscription
from penstock_operator import names
from penstock_operator.children.metadata import labels, name_with_suffix
from penstock_operator.manifest import Manifest

__all__ = ["TYPE", "manifest", "secret_name"]

TYPE: Final = "servicebinding.io/amqp"
"""The type of the Secret."""
_SUFFIX: Final = "-binding"


def secret_name(subscription: Subscription) -> str:
    """`<subscription>-binding`; a name that would be too long is cut, and ends with a digest of the whole name."""
    return name_with_suffix(subscription.metadata.name, _SUFFIX)


def manifest(broker: Broker, exchange: Exchange, subscription: Subscription, trusted: bytes) -> Manifest:
    """The Secret; `trusted`: what clients trust, PEM. The cluster deletes it after the Subscription.

    The owner reference does not block the owner's deletion: that would need a right on `subscriptions/finalizers`.
    """
    metadata = subscription.metadata
    owner: Manifest = {
        "apiVersion": subscription.api_version,
        "kind": subscription.kind,
        "name": metadata.name,
        "uid": metadata.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    data = _data(broker, exchange, subscription, trusted)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": secret_name(subscription),
            "namespace": metadata.namespace,
            "labels": labels(broker),
            "ownerReferences": [owner],
        },
        "type": TYPE,
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


def _data(broker: Broker, exchange: Exchange, subscription: Subscription, trusted: bytes) -> dict[str, bytes]:
    """The entries: those of the specification, and what a client attaches to."""
    spec = subscription.spec
    uri = names.authority(broker, names.service_host(names.exchange_service(exchange), exchange.metadata.namespace))
    parts = urlsplit(uri)
    texts = {
        "type": "amqp",
        "provider": "penstock",
        "host": parts.hostname or "",
        "port": str(parts.port),
        "uri": uri,
        "address": declaration.exchange_name(exchange),
        "subscription": declaration.subscription_name(subscription),
        "scope": spec.scope,
        "sharing": spec.sharing,
        "durability": spec.durability,
        "client-id": spec.client_id,
        "audience": _audience(broker),
        "credentials-secret": _credentials_secret(subscription),
    }
    found = {key: text.encode() for key, text in texts.items() if text is not None}
    return {**found, "ca.crt": trusted} if parts.scheme in ("amqps", "amqpwss") else found


def _audience(broker: Broker) -> str | None:
    """The audience of a ServiceAccount's token with which a pod logs in; None if the Broker takes none."""
    for issuer in broker.spec.authentication.tokens:
        if issuer.is_cluster:
            own = audience_of(broker.metadata.namespace, broker.metadata.name)
            return issuer.audiences[0] if issuer.audiences else own
    return None


def _credentials_secret(subscription: Subscription) -> str | None:
    binding = subscription.spec.binding
    return None if binding is None or binding.credentials_secret_ref is None else binding.credentials_secret_ref.name
