"""The Secret from which an autoscaler of one Subscription takes token, CA and address of the observer.

It is in the Subscription's namespace, and the operator writes it only if the Subscription's annotation asks for it.
Source: docs/decisions/070-observer-tokens.md, docs/how-to/autoscaling.md.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from penstock_api import declaration
from penstock_api.observer_api import SCALE
from penstock_api.observer_tokens import scale_token
from penstock_api.resources import Broker, Subscription
from penstock_operator import names
from penstock_operator.children.metadata import labels
from penstock_operator.manifest import Manifest

__all__ = ["ScaleAccess", "is_wanted", "manifest", "secret_name"]

_SUFFIX: Final = "-scale"
_MAX_NAME: Final = 253
_DIGEST_LENGTH: Final = 10


@dataclass(frozen=True, slots=True)
class ScaleAccess:
    """What the tokens of a Broker's subscriptions are made with."""

    key: bytes = field(repr=False)
    ca: bytes = field(repr=False)
    """The certificate of the CA, PEM."""


def is_wanted(subscription: Subscription) -> bool:
    """Whether the Subscription asks for the Secret."""
    return subscription.metadata.annotations.get(names.SCALE_TOKEN) == "true"


def secret_name(subscription: Subscription) -> str:
    """`<subscription>-scale`; a name that would be too long is cut, and ends with a digest of the whole name."""
    name = subscription.metadata.name
    if len(name) + len(_SUFFIX) <= _MAX_NAME:
        return f"{name}{_SUFFIX}"
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: _MAX_NAME - len(_SUFFIX) - _DIGEST_LENGTH - 1].rstrip('-.')}-{digest}{_SUFFIX}"


def manifest(broker: Broker, subscription: Subscription, access: ScaleAccess) -> Manifest:
    """The Secret, with the keys `token`, `ca.crt` and `url`. The cluster deletes it after the Subscription.

    The owner reference does not block the owner's deletion: that would need a right on `subscriptions/finalizers`.
    """
    metadata, queue_name = subscription.metadata, declaration.queue_name(subscription)
    host = names.service_host(f"{broker.metadata.name}-observer", broker.metadata.namespace)
    path = SCALE.format(queue_name=quote(queue_name, safe=":"))
    data = {
        "token": scale_token(access.key, metadata.namespace, queue_name).encode(),
        "ca.crt": access.ca,
        "url": f"https://{host}:{names.OBSERVER_PORT}{path}".encode(),
    }
    owner = {
        "apiVersion": subscription.api_version,
        "kind": subscription.kind,
        "name": metadata.name,
        "uid": metadata.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": secret_name(subscription),
            "namespace": metadata.namespace,
            "labels": labels(broker),
            "ownerReferences": [owner],
        },
        "type": "Opaque",
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }
