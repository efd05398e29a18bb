"""The claims for the volumes of a Broker: their names, their sizes, their template, and the one field that is changed.

A StatefulSet makes the claims from templates that cannot be changed afterwards. Source:
docs/decisions/105-volumes-grow.md; Kubernetes, "StatefulSets".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock_api.quantity import parse_quantity
from penstock_api.resources import Broker
from penstock_operator.manifest import Manifest, dig, items_of, text_at

__all__ = [
    "VOLUMES",
    "are_same",
    "capacity_of",
    "claim_name",
    "claim_template",
    "request_of",
    "resized",
    "template_sizes",
    "wanted_sizes",
]

VOLUMES: Final = ("data", "ledger")


def claim_name(broker: Broker, volume: str) -> str:
    """The name of the claim of the pod with ordinal 0."""
    return f"{volume}-{broker.metadata.name}-0"


def wanted_sizes(broker: Broker) -> dict[str, str]:
    """The sizes in the spec, by volume."""
    return {"data": broker.spec.storage.size, "ledger": broker.spec.storage.ledger_size}


def template_sizes(stateful_set: Manifest | None) -> dict[str, str] | None:
    """The sizes in the templates of a StatefulSet, by volume; None without a StatefulSet."""
    if stateful_set is None:
        return None
    templates = {text_at(it, "metadata", "name"): it for it in items_of(stateful_set, "spec", "volumeClaimTemplates")}
    return {volume: request_of(templates[volume]) or "0" for volume in VOLUMES if volume in templates}


def are_same(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether the sizes are equal; the API server writes `10240Mi` as `10Gi`."""
    return {name: parse_quantity(size) for name, size in one.items()} == {
        name: parse_quantity(size) for name, size in other.items()
    }


def request_of(claim: Manifest | None) -> str | None:
    """The size that a claim, or the template of one, asks for."""
    return _text(dig(claim, "spec", "resources", "requests", "storage"))


def capacity_of(claim: Manifest | None) -> str | None:
    """The size that the volume of a claim has; None while the claim is not bound."""
    return _text(dig(claim, "status", "capacity", "storage"))


def _text(quantity: object) -> str | None:
    """A quantity, which JSON may hold as a number."""
    return str(quantity) if isinstance(quantity, str | int) else None


def claim_template(broker: Broker, volume: str, size: str, labels: Manifest) -> Manifest:
    """The template in the StatefulSet."""
    spec: Manifest = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    if broker.spec.storage.storage_class_name is not None:
        spec["storageClassName"] = broker.spec.storage.storage_class_name
    about = {"name": volume, "labels": labels}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": about, "spec": spec}


def resized(claim: Manifest, size: str) -> Manifest:
    """What is applied to a claim that exists. The uid keeps the API server from making a claim if it is gone."""
    about = {key: dig(claim, "metadata", key) for key in ("name", "namespace", "uid")}
    spec = {"resources": {"requests": {"storage": size}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": about, "spec": spec}
