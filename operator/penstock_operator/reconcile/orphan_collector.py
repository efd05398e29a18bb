"""Looks for what bears the mark of a missing resource, on every connected broker, after each complete list. Thin;
`orphans` decides.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock_api import declaration
from penstock_operator.brokers.management import Unreachable
from penstock_operator.brokers.sessions import BrokerSession, BrokerSessions
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.plans import orphans
from penstock_operator.plans.decisions import Reach
from penstock_operator.reconcile.broker_reconciler import BrokerFindings
from penstock_operator.settings import OperatorSettings

__all__ = ["OrphanCollector"]

logger = logging.getLogger(__name__)

Claim = tuple[str, str, str, str]


@dataclass(slots=True)
class OrphanCollector:
    """Remembers since when what is missing."""

    cache: Cache
    sessions: BrokerSessions
    settings: OperatorSettings
    cluster_id: str
    findings: dict[ResourceKey, BrokerFindings]
    monotonic: Callable[[], float]
    enqueue: Callable[[ResourceKey], None]
    _missing_since: dict[ResourceKey, dict[Claim, float]] = field(default_factory=dict[ResourceKey, dict[Claim, float]])

    async def run(self) -> None:
        """Look at every connected broker once."""
        for key in self.cache.all("Broker"):
            session = self.sessions.get(f"{key.namespace}/{key.name}")
            if session is not None and session.reach is Reach.CONNECTED:
                await self._look(key, session)

    async def _look(self, key: ResourceKey, session: BrokerSession) -> None:
        found = self.findings.setdefault(key, BrokerFindings())
        try:
            marked_entities = await session.marked_entities()
            verdict = orphans.find_orphans(
                marked_entities,
                claims=self._claims(key),
                missing_since=self._missing_since.get(key, {}),
                cluster_id=self.cluster_id,
                namespaces=self.settings.namespaces,
                now=self.monotonic(),
                pending_removals=found.pending_removals,
            )
            found.pending_removals &= {entity.owner.uid for entity in marked_entities}
            for entry in verdict.collect:
                reply = await session.delete(entry)
                logger.info("orphan %s on %s: %s %s", entry.name, key, reply.status, reply.description)
        except Unreachable as error:
            logger.info("orphans of %s are not known: %s", key, error)
            return
        self._missing_since[key] = dict(verdict.missing_since)
        if found.orphans != verdict.listed:
            found.orphans = verdict.listed
            self.enqueue(key)

    def _claims(self, key: ResourceKey) -> set[Claim]:
        exchanges = {
            ("Exchange", it.metadata.namespace, it.metadata.name, declaration.exchange_name(it))
            for it in self.cache.exchanges_of(key)
        }
        subscriptions = {
            ("Subscription", it.metadata.namespace, it.metadata.name, declaration.queue_name(it))
            for it in self.cache.subscriptions_of(key)
        }
        return exchanges | subscriptions
