"""Metadata of the objects that belong to a Broker or an Exchange: labels, owner references, and who owns an object.

Children carry the operator's labels only. The tracking labels of a GitOps tool on the parent are not copied: the tool
would delete the children as objects that are not in Git. Source: docs/decisions/050-names-of-children.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from penstock_api.resources import Broker, Exchange
from penstock_operator import names
from penstock_operator.manifest import Manifest, items_of, text_at

__all__ = [
    "APP",
    "belongs_to_predecessor",
    "child_metadata",
    "claim_labels",
    "is_ours",
    "labels",
    "name_with_suffix",
    "pod_selector",
]


APP: Final = "penstock-broker"
_MAX_NAME: Final = 253
_DIGEST_LENGTH: Final = 10


def pod_selector(broker: Broker) -> Manifest:
    """The labels by which Services and policies select the pods. StatefulSets of earlier releases do so, too, and they
    are immutable there, so no label is ever added here.
    """
    return {"app.kubernetes.io/name": APP, "app.kubernetes.io/instance": broker.metadata.name}


def claim_labels(broker: Broker) -> Manifest:
    """The labels by which a StatefulSet selects its pods, and which it gives to the claims of their volumes. A claim
    has no owner, so no label may be here by which a GitOps tool tells what is its own: app.kubernetes.io/instance.
    """
    return {"app.kubernetes.io/name": APP, names.BROKER_LABEL: broker.metadata.name}


def labels(broker: Broker) -> Manifest:
    """The labels of every child."""
    return {
        **pod_selector(broker),
        "app.kubernetes.io/managed-by": names.MANAGER,
        names.BROKER_LABEL: broker.metadata.name,
    }


def child_metadata(
    owner: Broker | Exchange, broker: Broker, name: str, annotations: Manifest | None = None
) -> Manifest:
    """Metadata of a child in its owner's namespace; the cluster deletes the child after its owner."""
    reference = {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    made: Manifest = {
        "name": name,
        "namespace": owner.metadata.namespace,
        "labels": labels(broker),
        "ownerReferences": [reference],
    }
    return {**made, "annotations": annotations} if annotations else made


def name_with_suffix(name: str, suffix: str) -> str:
    """The name of a child of a Subscription; one that would be too long is cut, and gets a digest of the whole name."""
    if len(name) + len(suffix) <= _MAX_NAME:
        return f"{name}{suffix}"
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: _MAX_NAME - len(suffix) - _DIGEST_LENGTH - 1].rstrip('-.')}-{digest}{suffix}"


def is_ours(observed: Manifest, uid: str) -> bool:
    """Whether an existing object belongs to the owner with this uid.

    An object with the operator's label and no controller belongs to it too: it was restored from a backup, or its owner
    was deleted with `--cascade=orphan`.
    """
    controller = _controller_uid(observed)
    return controller == uid or (controller is None and _is_labelled(observed))


def belongs_to_predecessor(observed: Manifest, uid: str) -> bool:
    """Whether an existing object belongs to a deleted owner of the same kind and name; the cluster deletes it, too."""
    return _is_labelled(observed) and not is_ours(observed, uid)


def _is_labelled(observed: Manifest) -> bool:
    return text_at(observed, "metadata", "labels", "app.kubernetes.io/managed-by") == names.MANAGER


def _controller_uid(manifest: Mapping[str, object]) -> str | None:
    """The uid of the object's controller, None if it has none."""
    for owner in items_of(manifest, "metadata", "ownerReferences"):
        if owner.get("controller") is True:
            return text_at(owner, "uid")
    return None
