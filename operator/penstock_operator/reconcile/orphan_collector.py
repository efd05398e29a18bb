"""Deletes orphans: after each complete list, it compares the marked entities on each connected broker with the
resources.

`plans.orphans` decides. Which resources claim an entity comes from their raw manifests, because one that can't be
parsed has not given up what it declared. Source: docs/decisions/054-owner-mark.md, docs/decisions/055-deletion.md,
docs/decisions/096-unreadable-resources.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock_operator.brokers.management import Unreachable
from penstock_operator.brokers.session import BrokerSession
from penstock_operator.brokers.sessions import BrokerSessions
from penstock_operator.cluster.cache import Cache, ResourceKey, key_of
from penstock_operator.plans import rights
from penstock_operator.plans.decisions import Reach
from penstock_operator.plans.orphans import Claim, MarkedEntity, find_orphans
from penstock_operator.reconcile.broker_findings import BrokerFindings
from penstock_operator.settings import OperatorSettings

__all__ = ["OrphanCollector"]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class OrphanCollector:
    """Looks for orphans, and remembers since when each resource is missing."""

    cache: Cache
    sessions: BrokerSessions
    settings: OperatorSettings
    cluster_id: str
    findings: dict[ResourceKey, BrokerFindings]
    monotonic: Callable[[], float]
    enqueue: Callable[[ResourceKey], None]
    _missing_since: dict[ResourceKey, dict[Claim, float]] = field(default_factory=dict[ResourceKey, dict[Claim, float]])

    async def run(self) -> None:
        """Look for orphans on every connected broker once; what is known of Brokers that are gone is forgotten."""
        brokers = self.cache.all("Broker")
        for memory in (self._missing_since, self.findings):
            for key in memory.keys() - set(brokers):
                del memory[key]
        for key in brokers:
            session = self.sessions.get(f"{key.namespace}/{key.name}")
            if session is not None and session.reach is Reach.CONNECTED:
                try:
                    await self._look(key, session)
                except Exception:
                    # All exceptions end here: a bug with one broker must not stop the lists of the resources.
                    logger.exception("the orphans on %s are not known because of a bug in the operator", key)

    async def _look(self, key: ResourceKey, session: BrokerSession) -> None:
        found = self.findings.setdefault(key, BrokerFindings())
        try:
            marked_entities = await session.marked_entities()
            found_orphans = find_orphans(
                marked_entities,
                claims=self._claims(key),
                missing_since=self._missing_since.get(key, {}),
                cluster_id=self.cluster_id,
                namespaces=self.settings.namespaces,
                now=self.monotonic(),
                pending_removals=found.pending_removals,
                unreadable=self.cache.unreadable(key),
            )
            found.pending_removals &= {entity.owner.uid for entity in marked_entities}
            resources = {(entity.name, entity.owner.uid): entity for entity in marked_entities}
            for deletion in found_orphans.collect:
                if self.cache.unreadable(key) or self._is_claimed(key, resources[deletion.name, deletion.owner_uid]):
                    continue  # While the ones before it were deleted, its resource was made again, or may have been.
                reply = await session.delete(deletion)
                logger.info(
                    "the operator asked to delete the orphan %s on %s: the broker replied %s %s",
                    deletion.name,
                    key,
                    reply.status,
                    reply.description,
                )
            understands = frozenset[str]() if session.state is None else frozenset(session.state.understands or ())
            for withdrawal in found_orphans.end_rights:
                if rights.are_known(understands, withdrawal.entity):
                    await session.delete(withdrawal)
        except Unreachable as error:
            logger.info("the orphans on %s are not known: %s", key, error)
            return
        self._missing_since[key] = dict(found_orphans.missing_since)
        if found.orphans != found_orphans.listed:
            found.orphans = found_orphans.listed
            self.enqueue(key)

    def _is_claimed(self, key: ResourceKey, entity: MarkedEntity) -> bool:
        """Whether the resource that an entity belongs to exists by now, and still means it."""
        entry = self.cache.get(ResourceKey(entity.owner.kind, entity.owner.namespace, entity.owner.name))
        return entry is not None and (entry.references.broker, entry.references.entity) == (key[1:], entity.name)

    def _claims(self, key: ResourceKey) -> set[Claim]:
        claims: set[Claim] = set()
        for entry in self.cache.naming(key):
            resource, entity = key_of(entry.manifest), entry.references.entity
            if entity is not None:
                claims.add((resource.kind, resource.namespace, resource.name, entity))
        return claims
