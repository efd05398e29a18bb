"""Orphans: entities on a broker whose owner mark names a resource that does not exist; delete them, or only list them.

A resource is missing if a complete list of all resources does not contain it. An orphan is deleted if its
deletionPolicy is not Retain and the resource has been missing for ten minutes, or if the operator saw the deletion but
could not reach the broker. The broker then still checks what the policy demands: that nobody uses it, that it is empty.
An orphan that is retained loses the rights that its resource gave, also after ten minutes.
While a resource that may refer to the broker can't be read, nothing is deleted there. Nothing is decided from status.
Source: docs/decisions/054-owner-mark.md, docs/decisions/057-lists-are-the-truth.md,
docs/decisions/096-unreadable-resources.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock_api.management import EntityType, Owner
from penstock_operator.manifest import Manifest
from penstock_operator.plans.decisions import DeleteEntity

__all__ = ["COLLECT_AFTER_SECONDS", "Claim", "MarkedEntity", "Orphans", "Owning", "find_orphans"]

COLLECT_AFTER_SECONDS: Final = 600
"""How long a resource must be missing before its entity is deleted."""
MAX_LISTED: Final = 50
"""The highest number of orphans in the status of one Broker."""

Claim = tuple[str, str, str, str]
"""Kind, namespace and name of a resource, and the name of the entity that it declares."""

Owning = tuple[str, str, str]
"""Kind, namespace and name of a resource."""

_ENTITIES: Final = {
    "Exchange": EntityType.EXCHANGE,
    "Subscription": EntityType.SUBSCRIPTION,
    "Queue": EntityType.QUEUE,
}


@dataclass(frozen=True, slots=True)
class MarkedEntity:
    """An entity on the broker that has an owner mark."""

    name: str
    owner: Owner

    @property
    def resource(self) -> Owning:
        """Kind, namespace and name of the resource."""
        return (self.owner.kind, self.owner.namespace, self.owner.name)

    @property
    def claim(self) -> Claim:
        """Kind, namespace and name of the resource, and the name of the entity."""
        return (*self.resource, self.name)


@dataclass(frozen=True, slots=True)
class Orphans:
    """The orphans of one broker."""

    collect: tuple[DeleteEntity, ...]
    """What is to be deleted now."""
    end_rights: tuple[DeleteEntity, ...]
    """What is kept, and must not go on giving rights."""
    listed: tuple[Manifest, ...]
    """For `Broker.status.orphans`."""
    missing_since: Mapping[Claim, float]
    """Since when each resource is missing, as `now` counts; the argument `missing_since` of the next call."""


def find_orphans(
    entities: Iterable[MarkedEntity],
    *,
    claims: Collection[Claim],
    missing_since: Mapping[Claim, float],
    cluster_id: str,
    namespaces: Collection[str],
    now: float,
    pending_removals: Collection[str] = (),
    unreadable: Collection[Owning] = (),
) -> Orphans:
    """The orphans among `entities`, all marked entities of one broker.

    `claims`: those of all resources, from a complete list. `namespaces`: those that this operator watches, empty for
    all. `now`: seconds on a monotonic clock. `pending_removals`: the uids of resources that were deleted while their
    broker could not be reached. `unreadable`: the resources that can't be read and may refer to this broker; what they
    have declared is no orphan, and nothing at all is collected while there are any.
    """
    collect: list[DeleteEntity] = []
    end_rights: list[DeleteEntity] = []
    listed: list[Manifest] = []
    since: dict[Claim, float] = {}
    for entity in sorted(entities, key=lambda it: it.claim):
        owner = entity.owner
        unseen = bool(namespaces) and owner.namespace not in namespaces
        if entity.claim in claims or (owner.cluster_id == cluster_id and (unseen or entity.resource in unreadable)):
            continue
        if owner.cluster_id != cluster_id:
            listed.append(_orphan(entity, "OtherCluster"))
            continue
        since[entity.claim] = missing_since.get(entity.claim, now)
        if owner.deletion_policy == "Retain":
            listed.append(_orphan(entity, "Retain"))
            if owner.kind != "Queue" and not unreadable and now - since[entity.claim] >= COLLECT_AFTER_SECONDS:
                end_rights.append(_withdrawal(entity))
        elif owner.uid not in pending_removals and now - since[entity.claim] < COLLECT_AFTER_SECONDS:
            listed.append(_orphan(entity, "NotYetDue"))
        elif unreadable:
            listed.append(_orphan(entity, "Held"))
        else:
            # It stays in the status until the broker has deleted it.
            listed.append(_orphan(entity, "Collecting"))
            collect.append(_deletion(entity))
    return Orphans(tuple(collect), tuple(end_rights), tuple(listed[:MAX_LISTED]), since)


def _orphan(entity: MarkedEntity, reason: str) -> Manifest:
    resource = f"{entity.owner.namespace}/{entity.owner.name}"
    return {"kind": entity.owner.kind, "name": entity.name, "resource": resource, "reason": reason}


def _withdrawal(entity: MarkedEntity) -> DeleteEntity:
    return DeleteEntity(
        entity=_ENTITIES[entity.owner.kind],
        name=entity.name,
        if_unused=False,
        if_empty=False,
        owner_uid=entity.owner.uid,
        rights_only=True,
    )


def _deletion(entity: MarkedEntity) -> DeleteEntity:
    policy = entity.owner.deletion_policy
    return DeleteEntity(
        entity=_ENTITIES[entity.owner.kind],
        name=entity.name,
        if_unused=entity.owner.kind != "Exchange" or policy == "DeleteWhenUnused",
        if_empty=policy == "DeleteWhenEmpty",
        owner_uid=entity.owner.uid,
    )
