"""What bears the mark of a resource that isn't there any more: collect it, or only list it. Pure.

A resource counts as missing only by a complete list, and something is collected only if its policy says Delete and it
has been missing for ten minutes, or its deletion was seen and is owed; the broker then still checks what the policy
demands (nobody uses it, it is empty). Nothing is decided from status. Source: section 5 of the design (owner mark).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock_api.management import EntityType, Owner
from penstock_operator.manifest import Manifest
from penstock_operator.plans.decisions import DeleteEntity

__all__ = ["COLLECT_AFTER_SECONDS", "MarkedEntity", "Orphans", "find_orphans"]

COLLECT_AFTER_SECONDS: Final = 600
MAX_LISTED: Final = 50

_ENTITIES: Final = {"Exchange": EntityType.EXCHANGE, "Subscription": EntityType.SUBSCRIPTION}


@dataclass(frozen=True, slots=True)
class MarkedEntity:
    """An entity on the broker, and whose it is."""

    name: str
    owner: Owner

    @property
    def claim(self) -> tuple[str, str, str, str]:
        """Kind, namespace and name of the resource, and the name of the entity."""
        return (self.owner.kind, self.owner.namespace, self.owner.name, self.name)


@dataclass(frozen=True, slots=True)
class Orphans:
    """What to do, and what to remember until next time."""

    collect: tuple[DeleteEntity, ...]
    listed: tuple[Manifest, ...]
    """For `Broker.status.orphans`."""
    missing_since: Mapping[tuple[str, str, str, str], float]


def find_orphans(
    entities: Iterable[MarkedEntity],
    *,
    claims: Collection[tuple[str, str, str, str]],
    missing_since: Mapping[tuple[str, str, str, str], float],
    cluster_id: str,
    namespaces: Collection[str],
    now: float,
    pending_removals: Collection[str] = (),
) -> Orphans:
    """Judge everything that bears a mark; `claims` are those of all resources, from a complete list, `owed` the uids of
    resources that were seen being deleted while their broker could not be asked.
    """
    collect: list[DeleteEntity] = []
    listed: list[Manifest] = []
    since: dict[tuple[str, str, str, str], float] = {}
    for entity in sorted(entities, key=lambda it: it.claim):
        owner = entity.owner
        unseen = bool(namespaces) and owner.namespace not in namespaces
        if entity.claim in claims or (owner.cluster_id == cluster_id and unseen):
            continue
        if owner.cluster_id != cluster_id:
            listed.append(_orphan(entity, "OtherCluster"))
            continue
        since[entity.claim] = missing_since.get(entity.claim, now)
        if owner.deletion_policy == "Retain":
            listed.append(_orphan(entity, "Retain"))
        elif owner.uid not in pending_removals and now - since[entity.claim] < COLLECT_AFTER_SECONDS:
            listed.append(_orphan(entity, "NotYetDue"))
        else:
            # It stays listed until the broker has let it go.
            listed.append(_orphan(entity, "Collecting"))
            collect.append(_deletion(entity))
    return Orphans(tuple(collect), tuple(listed[:MAX_LISTED]), since)


def _orphan(entity: MarkedEntity, reason: str) -> Manifest:
    resource = f"{entity.owner.namespace}/{entity.owner.name}"
    return {"kind": entity.owner.kind, "name": entity.name, "resource": resource, "reason": reason}


def _deletion(entity: MarkedEntity) -> DeleteEntity:
    policy = entity.owner.deletion_policy
    return DeleteEntity(
        entity=_ENTITIES[entity.owner.kind],
        name=entity.name,
        if_unused=entity.owner.kind == "Subscription" or policy == "DeleteWhenUnused",
        if_empty=policy == "DeleteWhenEmpty",
        owner_uid=entity.owner.uid,
    )
