"""The Secret from which an autoscaler of one Subscription or Queue takes token, CA and address of the observer.

It is in the namespace of that resource, and the operator writes it only if the annotation of the resource asks for it.
Source: docs/decisions/070-observer-tokens.md, docs/how-to/autoscaling.md.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from penstock_api import declaration
from penstock_api.observer_api import SCALE
from penstock_api.observer_tokens import scale_token
from penstock_api.resources import Broker, Holding, Queue
from penstock_operator import names
from penstock_operator.children.metadata import labels, name_with_suffix
from penstock_operator.manifest import Manifest

__all__ = ["ScaleAccess", "is_wanted", "manifest", "secret_name"]

_SUFFIX: Final = "-scale"
_SUFFIX_OF_QUEUE: Final = "-queue-scale"
"""A Subscription may have the same name."""


@dataclass(frozen=True, slots=True)
class ScaleAccess:
    """What the tokens of a Broker's subscriptions are made with."""

    key: bytes = field(repr=False)
    ca: bytes = field(repr=False)
    """The certificate of the CA, PEM."""


def is_wanted(resource: Holding) -> bool:
    """Whether the resource asks for the Secret."""
    return resource.metadata.annotations.get(names.SCALE_TOKEN) == "true"


def secret_name(resource: Holding) -> str:
    """`<name>-scale`, for a Queue `<name>-queue-scale`; a name that would be too long is cut, and has a digest of the
    whole name there.
    """
    return name_with_suffix(resource.metadata.name, _SUFFIX_OF_QUEUE if isinstance(resource, Queue) else _SUFFIX)


def manifest(broker: Broker, resource: Holding, access: ScaleAccess) -> Manifest:
    """The Secret, with the keys `token`, `ca.crt` and `url`. The cluster deletes it after the resource.

    The owner reference does not block the owner's deletion: that would need a right on its finalizers.
    """
    metadata, queue_name = resource.metadata, declaration.queue_name(resource)
    host = names.service_host(f"{broker.metadata.name}-observer", broker.metadata.namespace)
    path = SCALE.format(queue_name=quote(queue_name, safe=":"))
    data = {
        "token": scale_token(access.key, metadata.namespace, queue_name).encode(),
        "ca.crt": access.ca,
        "url": f"https://{host}:{names.OBSERVER_PORT}{path}".encode(),
    }
    owner = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": metadata.name,
        "uid": metadata.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": secret_name(resource),
            "namespace": metadata.namespace,
            "labels": labels(broker),
            "ownerReferences": [owner],
        },
        "type": "Opaque",
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }
