"""The operator's session to the management of each Broker: kept while it has pods, and what follows if it is lost.

Source: docs/decisions/070-observer-tokens.md, docs/decisions/097-outages.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from penstock_api.management import Owner
from penstock_api.observer_tokens import FULL_TOKEN
from penstock_api.resources import Broker
from penstock_operator import names
from penstock_operator.brokers.accepted_tokens import AcceptedTokens
from penstock_operator.brokers.management import ManagementAccess
from penstock_operator.brokers.observer_client import ObserverAccess
from penstock_operator.brokers.session_change import SessionChange
from penstock_operator.brokers.sessions import BrokerSessions
from penstock_operator.children import credentials
from penstock_operator.children.credentials import Credentials
from penstock_operator.children.scale_secret import ScaleAccess
from penstock_operator.cluster.cache import ResourceKey
from penstock_operator.manifest import text_at
from penstock_operator.plans import outage
from penstock_operator.plans.broker_health import is_serving
from penstock_operator.plans.decisions import Reach
from penstock_operator.reconcile.broker_children import ObservedChildren
from penstock_operator.reconcile.broker_findings import BrokerFindings

__all__ = ["BrokerConnections"]


@dataclass(slots=True)
class BrokerConnections:
    """The sessions, and what is noted in the findings about them."""

    sessions: BrokerSessions
    findings: dict[ResourceKey, BrokerFindings]
    clock: Callable[[], datetime]
    enqueue: Callable[[ResourceKey], None]
    """Put a resource into the work queue."""
    enqueue_with_dependents: Callable[[ResourceKey], None]
    """Put a Broker, and every resource that refers to it, into the work queue."""
    resync_soon: Callable[[], None]
    """List all resources, and look for orphans, now instead of at the end of the period."""

    async def keep(self, key: ResourceKey, broker: Broker, observed: ObservedChildren, keys: Credentials) -> None:
        """Keep a session to the Service's IP address, which needs no DNS; the certificate must still have its name."""
        name, namespace = broker.metadata.name, broker.metadata.namespace
        found = self.findings.setdefault(key, BrokerFindings())
        found.scale_access = ScaleAccess(keys.scale_key, keys.trusted)
        if found.accepted is None:
            found.accepted = AcceptedTokens(self.clock, lambda: self.enqueue(key))
        observer = text_at(observed.get("Service", f"{name}-observer"), "spec", "clusterIP")
        management = text_at(observed.get("Service", f"{name}-management"), "spec", "clusterIP")
        if broker.spec.replicas == 0 or management is None or observer is None:
            found.observer = None
            await self.sessions.drop(broker.key)
            return
        found.observer = ObserverAccess(
            host=observer,
            port=names.OBSERVER_PORT,
            server_name=names.service_host(f"{name}-observer", namespace),
            ca=keys.trusted,
            token=keys.observer["operator.token"],
            full_token=keys.observer[FULL_TOKEN],
            accepted=found.accepted,
        )
        access = ManagementAccess(
            host=management,
            port=names.MANAGEMENT_PORT,
            server_name=names.service_host(f"{name}-management", namespace),
            ca=keys.trusted,
            user=credentials.MANAGEMENT_USER,
            password=keys.password,
        )
        await self.sessions.ensure(
            broker.key, access, lambda change: self._session_changed(key, change), self._entity_drifted
        )

    def hurry(self, broker: Broker, observed: ObservedChildren) -> None:
        """While the broker did not answer, the pauses between two attempts have grown. Once its pod serves clients, the
        Broker must not stay not Ready for the rest of such a pause.
        """
        session = self.sessions.get(broker.key)
        serves = is_serving(observed.get("Pod", f"{broker.metadata.name}-0"))
        if session is not None and session.reach in (Reach.NOT_ASKED, Reach.UNREACHABLE) and serves:
            session.try_soon()

    def note_outage(self, key: ResourceKey, broker: Broker, now: datetime) -> None:
        """If the broker has not answered for too long, what is declared on it has to say so."""
        found = self.findings.setdefault(key, BrokerFindings())
        session, contacts = self.sessions.get(broker.key), self.sessions.contacts
        if broker.spec.replicas == 0:
            contacts.stopped(broker.key)
        elif session is None:
            contacts.lost(broker.key)
        elif session.reach is Reach.NOT_ASKED:
            return  # Nobody knows yet whether it answers.
        contacts.reported(broker.key, outage.began(broker, now))
        was_out, found.is_out = found.is_out, outage.is_over_grace(contacts.of(broker.key), now)
        if found.is_out and not was_out:
            self.enqueue_with_dependents(key)

    def is_connecting(self, broker: Broker) -> bool:
        """Whether the operator has just started to connect, and the status already says something about this spec."""
        session = self.sessions.get(broker.key)
        shown = [it for it in broker.status.conditions if it.type == "Available"]
        is_current = any(it.observed_generation == broker.metadata.generation for it in shown)
        return session is not None and session.reach is Reach.NOT_ASKED and is_current

    def _entity_drifted(self, owner: Owner) -> None:
        """Somebody has changed or deleted on the broker what a resource declares."""
        self.enqueue(ResourceKey(owner.kind, owner.namespace, owner.name))

    def _session_changed(self, key: ResourceKey, change: SessionChange) -> None:
        match change:
            case SessionChange.LOST:
                self.enqueue(key)
            case SessionChange.REACH:
                found = self.findings.get(key)
                if found is not None:
                    found.is_out = False
                self.enqueue_with_dependents(key)
                if self.findings.setdefault(key, BrokerFindings()).pending_removals:
                    self.resync_soon()
            case SessionChange.STATE:
                self.enqueue(key)
            case _:
                assert_never(change)
