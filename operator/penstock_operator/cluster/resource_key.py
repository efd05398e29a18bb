"""What names one Broker, Exchange, Subscription or Queue in the operator: kind, namespace and name."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, cast

from penstock_operator.manifest import Manifest, text_at

__all__ = ["KIND_NAMES", "KindName", "ResourceKey", "key_of"]

KindName = Literal["Broker", "Exchange", "Subscription", "Queue"]
KIND_NAMES: Final[tuple[KindName, ...]] = ("Broker", "Exchange", "Subscription", "Queue")


class ResourceKey(NamedTuple):
    """The key of one resource: kind, namespace and name."""

    kind: KindName
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def key_of(manifest: Manifest) -> ResourceKey:
    """The key of a Broker, Exchange, Subscription or Queue."""
    kind = cast(KindName, manifest["kind"])
    return ResourceKey(
        kind, text_at(manifest, "metadata", "namespace") or "", text_at(manifest, "metadata", "name") or ""
    )
