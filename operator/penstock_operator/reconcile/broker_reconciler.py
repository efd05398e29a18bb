"""One pass over one Broker: look at its children, apply what they ought to be, keep its session, say how it is. Thin.

All children are looked at before any is applied: if one name is somebody else's, nothing is made, or a pod would
mount a Secret that isn't ours.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, assert_never

from penstock_api.management import BrokerState
from penstock_api.resources import Broker
from penstock_operator import names
from penstock_operator.brokers.management import ManagementTarget
from penstock_operator.brokers.observer_client import ObserverTarget
from penstock_operator.brokers.sessions import BrokerSessions, SessionChange
from penstock_operator.children import cluster_issuer, credentials, lag_job, services
from penstock_operator.children import stateful_set as children_stateful_set
from penstock_operator.children.cluster_issuer import ClusterIssuer
from penstock_operator.children.credentials import Credentials
from penstock_operator.children.stateful_set import Pinned
from penstock_operator.cluster.api_server import API_RESOURCES, ApiServer, KubeError, api_resource_of
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.manifest import Manifest, dig, text_at
from penstock_operator.plans import broker_report
from penstock_operator.plans.broker_report import BrokerReportView
from penstock_operator.plans.decisions import Reach, Report
from penstock_operator.settings import OperatorSettings

__all__ = ["BrokerFindings", "BrokerReconciler"]

logger = logging.getLogger(__name__)

_SECRETS: Final = ("ca", "amqp", "management", "observer")


@dataclass(slots=True)
class BrokerFindings:
    """What other tasks have found out about a Broker, for its next report."""

    orphans: tuple[Manifest, ...] = ()
    lag: Manifest | None = None
    observer: ObserverTarget | None = None
    """Where its lag results are."""
    pending_removals: set[str] = field(default_factory=set[str])
    """uids of deleted resources whose entities the broker could not be asked to remove."""


@dataclass(slots=True)
class _Observed:
    """The children as they are."""

    found: dict[tuple[str, str], Manifest | None]
    spark_installed: bool
    issuer: ClusterIssuer | None = None
    """The cluster as an issuer of tokens, if it is wanted and known."""

    def get(self, kind: str, name: str) -> Manifest | None:
        return self.found.get((kind, name))


@dataclass(slots=True)
class BrokerReconciler:
    """Brings a Broker's children to what its spec says."""

    kube: ApiServer
    cache: Cache
    sessions: BrokerSessions
    settings: OperatorSettings
    clock: Callable[[], datetime]
    enqueue: Callable[[ResourceKey], None]
    """Have a Broker looked at."""
    enqueue_with_dependents: Callable[[ResourceKey], None]
    """Have a Broker and everything on it looked at."""
    resync_soon: Callable[[], None]
    """Have everything listed, and orphans looked for, without waiting for the period's end."""
    findings: dict[ResourceKey, BrokerFindings] = field(default_factory=dict[ResourceKey, BrokerFindings])

    async def run(self, key: ResourceKey, broker: Broker) -> Report | None:
        """One pass; None if there is nothing to say.

        Raises:
            KubeError: the API server refused.
        """
        if broker.metadata.deletion_timestamp is not None:
            # It has no finalizer of ours: the cluster removes the children, the volumes stay as its spec says.
            await self.sessions.drop(broker.key)
            return None
        now = self.clock()
        observed = await self._observe(broker)
        pinned = self._pin(broker, observed)
        keys = self._credentials(broker, observed, now)
        wanted = self._wanted(broker, pinned, keys, observed)
        taken, leaving = _foreign(broker, wanted, observed)
        unknown_settings, unconfirmed_settings = self._not_understood(broker, pinned, observed)
        may_apply = (
            not unknown_settings
            and not unconfirmed_settings
            and (observed.issuer is not None or not cluster_issuer.is_wanted(broker))
        )
        if leaving:
            # What may still answer is the broker of the one that had this name before.
            await self.sessions.drop(broker.key)
        elif not taken and may_apply and broker.metadata.annotations.get(names.PAUSED) != "true":
            await self._apply(broker, wanted, observed)
            await self._keep_session(key, broker, observed, keys)
        elif not taken and self.sessions.get(broker.key) is None:
            # Its children are left alone, but what is declared on it goes on.
            await self._keep_session(key, broker, observed, keys)
        view = await self._view(key, broker, observed, pinned, now)
        return broker_report.report_broker(
            replace(
                view,
                taken=taken,
                leaving=leaving,
                unknown_settings=unknown_settings,
                unconfirmed_settings=unconfirmed_settings,
            )
        )

    async def _observe(self, broker: Broker) -> _Observed:
        """Every object that the Broker may have, and the CRD of the Spark operator."""
        name, namespace = broker.metadata.name, broker.metadata.namespace
        spark_installed = await self.kube.serves(API_RESOURCES["ScheduledSparkApplication"])
        wanted = [
            ("StatefulSet", name),
            *(("Secret", f"{name}-{stem}") for stem in _SECRETS),
            *(("Service", f"{name}-{stem}") for stem in ("amqp", "pods", "management", "observer")),
            *(("ConfigMap", f"{name}-{stem}") for stem in ("ca", "config")),
            ("ServiceAccount", f"{name}-lag"),
            ("CronJob", f"{name}-lag"),
            ("Pod", f"{name}-0"),
        ]
        authentication = broker.spec.authentication
        for reference in (authentication.users_secret_ref, authentication.client_ca_secret_ref):
            if reference is not None:
                wanted.append(("Secret", reference.name))
        wanted += [("ConfigMap", name) for name in _token_keys(broker)]
        issuer = None
        if cluster_issuer.is_wanted(broker):
            wanted.append(("ConfigMap", cluster_issuer.config_map_name(broker)))
            issuer = await self._cluster_issuer()
        if spark_installed:
            wanted.append(("ScheduledSparkApplication", f"{name}-lag"))
        objects = await asyncio.gather(
            *(self.kube.get(API_RESOURCES[kind], namespace, child) for kind, child in wanted)
        )
        return _Observed(dict(zip(wanted, objects, strict=True)), spark_installed, issuer)

    async def _cluster_issuer(self) -> ClusterIssuer | None:
        """What the API server says of it; None if it says nothing, or not to us."""
        try:
            documents = [await self.kube.document(path) for path in (cluster_issuer.DISCOVERY, cluster_issuer.KEYS)]
        except KubeError as error:
            if error.status == 0 or error.status >= 500:
                raise  # it may say more in a moment
            logger.warning("the cluster's issuer can't be looked up: %s", error)
            return None
        return cluster_issuer.read(*documents)

    def _pin(self, broker: Broker, observed: _Observed) -> Pinned:
        """What the pods are made with, and what that image says it knows: now, or when it ran last."""
        name = broker.metadata.name
        pinned = children_stateful_set.pin(broker, observed.get("StatefulSet", name), self.settings.broker_image)
        session = self.sessions.get(broker.key)
        state = None if session is None or session.reach is not Reach.CONNECTED else session.state
        if state is None or children_stateful_set.image_of(observed.get("Pod", f"{name}-0")) not in (
            None,
            pinned.image,
        ):
            return pinned
        terms = frozenset(term for term in state.understands or () if term.startswith("settings."))
        return replace(pinned, understood=terms or None)

    def _not_understood(
        self, broker: Broker, pinned: Pinned, observed: _Observed
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What the new settings have that the image of the pods doesn't know: it wouldn't start with them. And what it
        has not told of yet, though its broker runs: it is about to be asked.
        """
        stateful_set = observed.get("StatefulSet", broker.metadata.name)
        if children_stateful_set.running_image(stateful_set) != pinned.image:
            return (), ()
        running = observed.get("ConfigMap", f"{broker.metadata.name}-config")
        found = children_stateful_set.not_understood(broker, pinned, running)
        if pinned.understood is not None:
            return found, ()
        session = self.sessions.get(broker.key)
        is_awaited = session is None or session.reach is Reach.UNREACHABLE
        serves = broker_report.is_serving(observed.get("Pod", f"{broker.metadata.name}-0"))
        return (), found if serves and is_awaited else ()

    def _credentials(self, broker: Broker, observed: _Observed, now: datetime) -> Credentials:
        name = broker.metadata.name
        secrets = {f"{name}-{stem}": observed.get("Secret", f"{name}-{stem}") for stem in _SECRETS}
        return credentials.renew(secrets, broker, credentials.hosts_of(broker, self.settings.cluster_domain), now)

    def _wanted(self, broker: Broker, pinned: Pinned, keys: Credentials, observed: _Observed) -> list[Manifest]:
        """All children, in the order in which they are applied: what pods mount comes before the pods."""
        issuer = observed.issuer
        stateful_set, config_map = children_stateful_set.stateful_set(
            broker, pinned, "" if issuer is None else issuer.issuer
        )
        return [
            *credentials.manifests(broker, keys),
            config_map,
            *([] if issuer is None else [cluster_issuer.config_map(broker, issuer)]),
            *services.services(broker),
            stateful_set,
            *lag_job.manifests(broker, self.settings.lag_image, spark_installed=observed.spark_installed),
        ]

    async def _apply(self, broker: Broker, wanted: list[Manifest], observed: _Observed) -> None:
        """Apply the children; `observed` is then what they are."""
        applied: set[tuple[str, str]] = set()
        for manifest in wanted:
            kind, name = str(manifest["kind"]), text_at(manifest, "metadata", "name") or ""
            before = observed.get(kind, name)
            if before is not None and lag_job.must_be_recreated(manifest, before):
                logger.info("%s %s/%s is made anew", kind, broker.metadata.namespace, name)
                await self.kube.delete(before)
            observed.found[kind, name] = await self.kube.apply(manifest)
            applied.add((kind, name))
        for kind in ("ScheduledSparkApplication", "CronJob"):
            before = observed.get(kind, f"{broker.metadata.name}-lag")
            unwanted = (kind, f"{broker.metadata.name}-lag") not in applied
            if before is not None and unwanted and services.is_ours(before, broker.metadata.uid):
                await self.kube.delete(before)
                observed.found[kind, f"{broker.metadata.name}-lag"] = None

    async def _keep_session(self, key: ResourceKey, broker: Broker, observed: _Observed, keys: Credentials) -> None:
        """A session to the Service's own address: it needs no DNS, and the certificate still has to have the name."""
        name, namespace = broker.metadata.name, broker.metadata.namespace
        found = self.findings.setdefault(key, BrokerFindings())
        observer = text_at(observed.get("Service", f"{name}-observer"), "spec", "clusterIP")
        management = text_at(observed.get("Service", f"{name}-management"), "spec", "clusterIP")
        if broker.spec.replicas == 0 or management is None or observer is None:
            found.observer = None
            await self.sessions.drop(broker.key)
            return
        found.observer = ObserverTarget(
            host=observer,
            port=names.OBSERVER_PORT,
            server_name=names.service_host(f"{name}-observer", namespace),
            ca=keys.ca.certificate,
            token=keys.token,
        )
        target = ManagementTarget(
            host=management,
            port=names.MANAGEMENT_PORT,
            server_name=names.service_host(f"{name}-management", namespace),
            ca=keys.ca.certificate,
            user=credentials.MANAGEMENT_USER,
            password=keys.password,
        )
        await self.sessions.ensure(broker.key, target, lambda news: self._told(key, news))

    def _told(self, key: ResourceKey, news: SessionChange) -> None:
        match news:
            case SessionChange.REACH:
                self.enqueue_with_dependents(key)
                if self.findings.setdefault(key, BrokerFindings()).pending_removals:
                    self.resync_soon()
            case SessionChange.STATE:
                self.enqueue(key)
            case _:
                assert_never(news)

    async def _view(
        self,
        key: ResourceKey,
        broker: Broker,
        observed: _Observed,
        pinned: Pinned,
        now: datetime,
    ) -> BrokerReportView:
        users = broker.spec.authentication.users_secret_ref
        ca = broker.spec.authentication.client_ca_secret_ref
        session = self.sessions.get(broker.key)
        state: BrokerState | None = None if session is None else session.state
        found = self.findings.get(key, BrokerFindings())
        lag_schedule = observed.get("ScheduledSparkApplication", f"{broker.metadata.name}-lag")
        run = text_at(lag_schedule, "status", "lastRunName")
        return BrokerReportView(
            broker=broker,
            users_missing=users is not None and observed.get("Secret", users.name) is None,
            token_keys_missing=tuple(
                name for name in _token_keys(broker) if dig(observed.get("ConfigMap", name), "data", "keys") is None
            ),
            issuer_unknown=cluster_issuer.is_wanted(broker) and observed.issuer is None,
            client_ca_missing=ca is not None and dig(observed.get("Secret", ca.name), "data", "ca.crt") is None,
            stateful_set=observed.get("StatefulSet", broker.metadata.name),
            pod=observed.get("Pod", f"{broker.metadata.name}-0"),
            pinned=pinned,
            default_image=self.settings.broker_image,
            reach=Reach.UNREACHABLE if session is None else session.reach,
            problem="The operator has not connected yet." if session is None else session.problem,
            state=state,
            spark_installed=observed.spark_installed,
            schedule=lag_schedule,
            last_run=None
            if run is None
            else await self.kube.get(API_RESOURCES["SparkApplication"], broker.metadata.namespace, run),
            exchanges=len(self.cache.exchanges_of(key)),
            subscriptions=len(self.cache.subscriptions_of(key)),
            orphans=found.orphans,
            lag=found.lag,
            now=now,
        )


def _token_keys(broker: Broker) -> list[str]:
    """ConfigMaps that people make with keys of issuers."""
    references = (issuer.keys_config_map_ref for issuer in broker.spec.authentication.tokens)
    return sorted({reference.name for reference in references if reference is not None})


def _foreign(broker: Broker, wanted: list[Manifest], observed: _Observed) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names that somebody else has, and children of a Broker that had this name before and which are still going."""
    taken: list[str] = []
    leaving: list[str] = []
    for manifest in wanted:
        kind, name = api_resource_of(manifest).kind, text_at(manifest, "metadata", "name") or ""
        found = observed.get(kind, name)
        if found is not None and not services.is_ours(found, broker.metadata.uid):
            to = leaving if services.belongs_to_predecessor(found, broker.metadata.uid) else taken
            to.append(f"{kind} {name}")
    return tuple(taken), tuple(leaving)
