"""Reconciles one Broker: read its children, apply what they should be, keep a session to its management, report.

Source: docs/decisions/051-broker-pods.md, docs/decisions/058-server-side-apply.md,
docs/decisions/061-different-releases.md (settings that the image of the pods does not know).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from penstock_api.resources import Broker
from penstock_operator import names
from penstock_operator.brokers.sessions import BrokerSessions
from penstock_operator.children import cluster_issuer
from penstock_operator.children.credentials import Credentials
from penstock_operator.children.external_service import (
    external_address,
    service_name,
)
from penstock_operator.children.lag_schedules import KINDS
from penstock_operator.children.shared_lag_job import BrokerName, Member
from penstock_operator.children.stateful_set import (
    PinnedPods,
)
from penstock_operator.cluster.api_server import ApiServer, KubeError
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.cluster.child_versions import ChildVersions
from penstock_operator.manifest import Manifest, dig
from penstock_operator.plans import conditions
from penstock_operator.plans.broker_report import report_broker
from penstock_operator.plans.broker_view import BrokerReportView
from penstock_operator.plans.conditions import ConditionStatus
from penstock_operator.plans.decisions import Reach, Report, Retry
from penstock_operator.plans.lag_service import is_member, lag_service
from penstock_operator.plans.refusals import Refusal, not_applied
from penstock_operator.plans.server_certificate import certificate_obstacle
from penstock_operator.reconcile.broker_children import (
    ObservedChildren,
    absent_for_good,
    apply_child,
    apply_children,
    foreign_children,
    observe_children,
    own_schedule,
    token_keys_config_maps,
)
from penstock_operator.reconcile.broker_connections import BrokerConnections
from penstock_operator.reconcile.broker_findings import BrokerFindings
from penstock_operator.reconcile.certificates_of_clients import certificate_view
from penstock_operator.reconcile.cluster_facts import ClusterFacts
from penstock_operator.reconcile.pod_events import read_events
from penstock_operator.reconcile.ready_brokers import ReadyBrokers
from penstock_operator.reconcile.shared_lag import SharedLag
from penstock_operator.reconcile.tenant_trust import TenantTrust
from penstock_operator.reconcile.volumes import grow_volumes, observe_volumes
from penstock_operator.reconcile.wanted_children import WantedChildren, client_trust
from penstock_operator.settings import OperatorSettings

__all__ = ["BrokerReconciler"]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class BrokerReconciler:
    """Makes the children of a Broker what its spec says."""

    kube: ApiServer
    cache: Cache
    sessions: BrokerSessions
    settings: OperatorSettings
    clock: Callable[[], datetime]
    enqueue: Callable[[ResourceKey], None]
    """Put a resource into the work queue."""
    enqueue_with_dependents: Callable[[ResourceKey], None]
    """Put a Broker, and every resource that refers to it, into the work queue."""
    resync_soon: Callable[[], None]
    """List all resources, and look for orphans, now instead of at the end of the period."""
    children: ChildVersions = field(default_factory=ChildVersions)
    """The versions of the children, as seen and as applied."""
    findings: dict[ResourceKey, BrokerFindings] = field(default_factory=dict[ResourceKey, BrokerFindings])
    shared_lag: SharedLag = field(default_factory=SharedLag)
    """What the operator's one lag job has to know of Brokers, and what is known of it."""
    facts: ClusterFacts = field(init=False)
    _connections: BrokerConnections = field(init=False)
    _wanted: WantedChildren = field(init=False)
    _trust: TenantTrust = field(init=False)
    _ready: ReadyBrokers = field(default_factory=ReadyBrokers)

    def __post_init__(self) -> None:
        self.facts = ClusterFacts(self.kube, self.clock)
        self._trust = TenantTrust(self.kube)
        self._wanted = WantedChildren(self.cache, self.sessions, self.settings, self.findings)
        self._connections = BrokerConnections(
            self.sessions, self.findings, self.clock, self.enqueue, self.enqueue_with_dependents, self.resync_soon
        )

    async def begin_resync(self) -> Callable[[ResourceKey], bool]:
        """Whether a resource has to be reconciled although nothing is known to have changed. Raises KubeError."""
        keys = self.cache.all("Broker")
        self._ready.brokers = len(keys)
        brokers = (self.cache.broker(key.namespace, key.name) for key in keys)
        with_issuer = any(cluster_issuer.is_wanted(broker) for broker in brokers if broker is not None)
        if await self.facts.changed(with_issuer=with_issuer):
            self._ready.clear()
        return self._is_due

    def _is_due(self, key: ResourceKey) -> bool:
        broker = self.cache.broker(key.namespace, key.name) if key.kind == "Broker" else None
        if broker is None:
            return True
        counts = self._counts(key)
        return self._ready.is_due(key, broker, counts, self._namespaces(key), self.clock())

    def _namespaces(self, key: ResourceKey) -> frozenset[str]:
        """Where the resources that use the Broker are: some of them get its CA."""
        return self.cache.namespaces_of(key)

    def _counts(self, key: ResourceKey) -> tuple[int, int, int]:
        """The Exchanges, Subscriptions and Queues that name the Broker."""
        count_of = self.cache.count_of
        return count_of(key, "Exchange"), count_of(key, "Subscription"), count_of(key, "Queue")

    async def reconcile(self, key: ResourceKey, broker: Broker) -> Report | None:
        """Reconcile the Broker, and return the status to write; None if it is being deleted or has just changed, or if
        the status stays as it is until the first attempt to connect has ended.

        Raises:
            KubeError: the API server refused.
        """
        if broker.metadata.deletion_timestamp is not None:
            # The operator puts no finalizer on a Broker: the cluster removes the children and keeps the volumes as the
            # spec says.
            await self.sessions.drop(broker.key)
            self.forget(key)
            return None
        now = self.clock()
        try:
            return await self._reconcile(key, broker, now)
        except KubeError as error:
            if error.refusal is not None:
                # Nobody is about to ask it. Its status says why, and what is declared on it has to say so.
                self.sessions.contacts.looked_at(broker.key)
            raise
        finally:
            # An outage shows also if the API server refuses something else.
            self._connections.note_outage(key, broker, now)

    async def _reconcile(self, key: ResourceKey, broker: Broker, now: datetime) -> Report | None:
        again = self._report_again(key, broker, now)
        if again is not None:
            return again
        self.children.begin_read(key)
        absent = self._ready.begin(key, broker)
        observed = await observe_children(self.kube, self.facts, broker, absent)
        volumes = await observe_volumes(self.kube, broker, observed)
        if self._is_outdated(key, broker):
            # Another pass begins with the newer spec.
            self.enqueue(key)
            return None
        pinned = self._wanted.pin(broker, observed)
        hosts = self._wanted.hosts(key, broker, observed)
        keys = self._wanted.credentials(key, broker, observed, hosts, now)
        certificate = certificate_view(broker, observed)
        wanted = self._wanted.manifests(broker, pinned, keys, observed, hosts, volumes)
        taken_names, predecessor_children = foreign_children(broker, wanted, observed)
        unknown, unconfirmed = self._wanted.unknown_settings(broker, pinned, observed)
        knows_issuer = observed.issuer is not None or not cluster_issuer.is_wanted(broker)
        may_apply = not unknown and not unconfirmed and knows_issuer and certificate_obstacle(certificate) is None
        is_paused = broker.metadata.annotations.get(names.PAUSED) == "true"
        is_applied, refusal = False, None
        # Another that comes during this pass gets the CA with the next one.
        namespaces = self._namespaces(key)
        is_open = not taken_names and not predecessor_children
        if predecessor_children:
            # A broker that answers now may be that of the deleted Broker of the same name.
            await self.sessions.drop(broker.key)
        elif not taken_names and may_apply and not is_paused:
            refusal = await self._apply(key, broker, wanted, observed, now)
            is_applied = refusal is None
        elif is_open and not is_paused:
            for child in wanted:
                if child["kind"] == "Certificate":  # What the others may be waiting for.
                    await apply_child(self.kube, self.children, child, observed, now)
        if is_applied:
            volumes = await grow_volumes(self.kube, broker, observed, volumes)
            await self._trust.publish(broker, self._wanted.tenants(key, broker), client_trust(keys, certificate))
            self._offer(key, broker, keys)
        if is_applied or (is_open and self.sessions.get(broker.key) is None):
            self._note_trust(key, client_trust(keys, certificate))
            # Exchanges and Subscriptions are declared on the broker also while the children have to stay as they are.
            await self._connections.keep(key, broker, observed, keys)
        self.sessions.contacts.looked_at(broker.key)
        self._connections.hurry(broker, observed)
        if self._connections.is_connecting(broker):
            return None
        view = await self._view(key, broker, observed, pinned, now)
        events = await read_events(
            self.kube, broker, view.pod, view.stateful_set, {} if volumes is None else volumes.claims
        )
        report = report_broker(
            replace(
                view,
                events=events,
                taken_names=taken_names,
                predecessor_children=predecessor_children,
                server_certificate=certificate_view(broker, observed),
                volumes=volumes,
                unknown_settings=unknown,
                unconfirmed_settings=unconfirmed,
                refusal=refusal,
            )
        )
        # Nothing tells of a change of a certificate that others renew, so such a Broker is looked at again and again.
        if is_applied and certificate is None and _is_ready(report):
            absent = absent_for_good(broker, wanted, observed)
            self._ready.note_ready(key, view, self._knows_scopes(key), absent, namespaces)
        return report

    def _report_again(self, key: ResourceKey, broker: Broker, now: datetime) -> Report | None:
        """The report of a Ready Broker of which only other things have changed than its spec and its children, such
        as its lag; they need not be read for it. None: they must be.
        """
        namespaces, session = self._namespaces(key), self.sessions.get(broker.key)
        view = self._ready.view(key, broker, self._knows_scopes(key), namespaces, now)
        if view is None or view.state is None or session is None or session.state is None:
            return None
        is_restarted = (view.state.instance_id, view.state.epoch) != (session.state.instance_id, session.state.epoch)
        if is_restarted or session.reach is not Reach.CONNECTED or self.children.has_changed(key):
            return None
        report = report_broker(self._with_news(view, key, broker, now))
        return report if _is_ready(report) else None

    def _knows_scopes(self, key: ResourceKey) -> bool | None:
        accepted = self.findings.setdefault(key, BrokerFindings()).accepted
        return None if accepted is None else accepted.knows_scopes

    async def _apply(
        self, key: ResourceKey, broker: Broker, wanted: list[Manifest], observed: ObservedChildren, now: datetime
    ) -> Refusal | None:
        """Apply the children; the refusal if the API server does not take one. Those before it are applied then."""
        try:
            await apply_children(
                self.kube, self.children, broker, wanted, observed, now, lambda: self._is_going(key, broker)
            )
        except KubeError as error:
            if error.refusal is None:
                raise
            if not conditions.is_shown(not_applied(error.refusal), broker.status.conditions):
                logger.warning("an object of Broker %s is refused: %s", broker.key, error)
            return error.refusal
        return None

    def forget(self, key: ResourceKey) -> None:
        """The Broker is gone, or about to go; its session has ended."""
        self.findings.pop(key, None)
        self._ready.forget(key)
        self._trust.forget(f"{key.namespace}/{key.name}")
        self.shared_lag.withdraw(BrokerName(key.namespace, key.name))

    def _note_trust(self, key: ResourceKey, trusted: bytes) -> None:
        """Note what clients trust; the Subscriptions that tell their clients are to tell them a change."""
        found = self.findings.setdefault(key, BrokerFindings())
        if found.trusted == trusted:
            return
        found.trusted = trusted
        for each in self.cache.subscriptions_of(key):
            if each.spec.binding is not None:
                self.enqueue(ResourceKey("Subscription", each.metadata.namespace, each.metadata.name))

    def _offer(self, key: ResourceKey, broker: Broker, keys: Credentials) -> None:
        """Tell the operator's lag job what it has to know of this Broker."""
        if not is_member(broker):
            self.shared_lag.withdraw(BrokerName(key.namespace, key.name))
            return
        member = Member(
            broker=BrokerName(key.namespace, key.name),
            window_seconds=60 * broker.spec.lag_analysis.window_minutes,
            token=dict(keys.users_of_the_observer())["lag"].encode(),
            ca=keys.trusted,
        )
        self.shared_lag.offer(broker.metadata.uid, member)

    def _is_outdated(self, key: ResourceKey, broker: Broker) -> bool:
        """Whether the Broker was changed or deleted since this pass began, or is another one of the same name now."""
        entry, metadata = self.cache.get(key), broker.metadata
        if entry is None:
            return True
        return (entry.version.uid, entry.version.generation) != (metadata.uid, metadata.generation)

    def _is_going(self, key: ResourceKey, broker: Broker) -> bool:
        """Whether the Broker is gone, or being deleted, since this pass began."""
        entry = self.cache.get(key)
        if entry is None or entry.version.uid != broker.metadata.uid:
            return True
        return dig(entry.manifest, "metadata", "deletionTimestamp") is not None

    async def _view(
        self,
        key: ResourceKey,
        broker: Broker,
        observed: ObservedChildren,
        pinned: PinnedPods,
        now: datetime,
    ) -> BrokerReportView:
        """What the report needs, apart from the obstacles that `reconcile` adds."""
        users = broker.spec.authentication.users_secret_ref
        ca = broker.spec.authentication.client_ca_secret_ref
        backend = broker.spec.lag_analysis.backend
        seen = BrokerReportView(
            broker=broker,
            users_missing=users is not None and observed.get("Secret", users.name) is None,
            token_keys_missing=tuple(
                name
                for name in token_keys_config_maps(broker)
                if dig(observed.get("ConfigMap", name), "data", "keys") is None
            ),
            issuer_unknown=cluster_issuer.is_wanted(broker) and observed.issuer is None,
            client_ca_missing=ca is not None and dig(observed.get("Secret", ca.name), "data", "ca.crt") is None,
            stateful_set=observed.get("StatefulSet", broker.metadata.name),
            pod=observed.get("Pod", f"{broker.metadata.name}-0"),
            node=observed.node,
            is_node_known=observed.is_node_known,
            external_address=external_address(broker, observed.get("Service", service_name(broker))),
            pinned=pinned,
            default_image=self.settings.broker_image,
            reach=Reach.NOT_ASKED,
            lag_service=lag_service(broker.metadata.name, broker.spec.lag_analysis, self.settings.lag_job),
            lag_schedule=own_schedule(broker, backend, observed) if backend in KINDS else None,
            exchanges=0,
            subscriptions=0,
            now=now,
        )
        return self._with_news(seen, key, broker, now)

    def _with_news(self, view: BrokerReportView, key: ResourceKey, broker: Broker, now: datetime) -> BrokerReportView:
        """The view with everything that is known without a look at the children."""
        session = self.sessions.get(broker.key)
        found = self.findings.get(key, BrokerFindings())
        exchanges, subscriptions, queues = self._counts(key)
        return replace(
            view,
            broker=broker,
            reach=Reach.NOT_ASKED if session is None else session.reach,
            problem="The operator has not connected yet." if session is None else session.problem_sentence,
            state=None if session is None else session.state,
            shared_lag=self.shared_lag.view,
            exchanges=exchanges,
            subscriptions=subscriptions,
            queues=queues,
            orphans=found.orphans,
            lag=found.lag if found.lag is not None else _lag_shown(broker),
            now=now,
        )


def _is_ready(report: Report) -> bool:
    return report.retry is Retry.RESYNC and report.conditions[0].status is ConditionStatus.TRUE


def _lag_shown(broker: Broker) -> Manifest | None:
    """`status.lagAnalysis` as it is: an operator that has just started, or can't reach the observer, keeps it."""
    shown = broker.status.lag_analysis
    return None if shown is None else shown.model_dump(mode="json", by_alias=True, exclude_none=True)
