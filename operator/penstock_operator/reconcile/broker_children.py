"""The children of a Broker as they are in the cluster: read them, apply what they should be, delete what is unwanted.

All of them are read before any is applied. If an object that is not the operator's has one of the names, nothing is
applied; otherwise a pod could mount a Secret that is not the operator's. Source:
docs/decisions/050-names-of-children.md, docs/decisions/058-server-side-apply.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from penstock_api.resources import Broker
from penstock_operator.children import cluster_issuer, lag_job, lag_schedules, page_account, server_certificate
from penstock_operator.children.cluster_issuer import ClusterIssuer
from penstock_operator.children.credentials import SECRETS
from penstock_operator.children.metadata import belongs_to_predecessor, is_ours
from penstock_operator.cluster.api_server import API_RESOURCES, ApiServer, Conflict, KubeError, api_resource_of
from penstock_operator.cluster.child_versions import ChildVersions
from penstock_operator.manifest import Manifest, text_at
from penstock_operator.plans import node_loss
from penstock_operator.plans.lag_schedule import ScheduleView, has_active_run
from penstock_operator.reconcile.cluster_facts import ClusterFacts

__all__ = [
    "ChildName",
    "ObservedChildren",
    "absent_for_good",
    "apply_child",
    "apply_children",
    "foreign_children",
    "observe_children",
    "own_schedule",
    "token_keys_config_maps",
]

logger = logging.getLogger(__name__)

ChildName: TypeAlias = tuple[str, str]
"""Kind and name, in the namespace of the Broker."""

_OF_CHOICES: Final = (
    ("Secret", "-observer-messages"),
    ("ServiceAccount", "-observer"),
    ("Service", "-external"),
    ("PodDisruptionBudget", ""),
    ("NetworkPolicy", ""),
    ("ConfigMap", "-issuer"),
)
"""What only some choices of a spec need: kind, and name after the Broker's."""


@dataclass(slots=True)
class ObservedChildren:
    """The children of one Broker, and the other objects that its pods need, as they were found."""

    found: dict[ChildName, Manifest | None]
    """None: there is no such object."""
    spark_installed: bool
    """Whether the cluster has the CRD ScheduledSparkApplication."""
    last_run: Manifest | None = None
    """The newest SparkApplication of the Broker's own schedule."""
    issuer: ClusterIssuer | None = None
    """The cluster as an issuer of tokens, if the Broker wants it and the API server publishes it."""
    has_cert_manager: bool = False
    """Whether the cluster has the kind Certificate; looked at only if the Broker has to do with it."""
    certificate_request: Manifest | None = None
    """What cert-manager asks of the issuer; looked at only while there is no certificate."""
    node: Manifest | None = None
    """The node of the pod, if the pod is ending or not ready."""
    is_node_known: bool = True
    """Whether the operator was allowed to look at the node."""

    def get(self, kind: str, name: str) -> Manifest | None:
        """The object, None if there is none."""
        return self.found.get((kind, name))


async def observe_children(
    kube: ApiServer, facts: ClusterFacts, broker: Broker, absent: Set[ChildName] = frozenset()
) -> ObservedChildren:
    """Read every object that the Broker may have, apart from those that are known to be `absent`, and the objects that
    its spec refers to.

    Raises:
        KubeError: the API server refused.
    """
    name, namespace = broker.metadata.name, broker.metadata.namespace
    spark_installed = await facts.spark_installed()
    wanted = [
        ("StatefulSet", name),
        *(("Secret", f"{name}-{stem}") for stem in SECRETS),
        *(("Service", f"{name}-{stem}") for stem in ("amqp", "pods", "management", "observer", "external")),
        *(("ConfigMap", f"{name}-{stem}") for stem in ("ca", "config")),
        ("ServiceAccount", f"{name}-lag"),
        ("ServiceAccount", page_account.name_of(broker)),
        ("CronJob", f"{name}-lag"),
        ("Pod", f"{name}-0"),
    ]
    authentication = broker.spec.authentication
    for reference in (authentication.users_secret_ref, authentication.client_ca_secret_ref):
        if reference is not None:
            wanted.append(("Secret", reference.name))
    own_certificate = server_certificate.secret_name(broker)
    if own_certificate is not None:
        wanted.append(("Secret", own_certificate))
    wanted += [("ConfigMap", name) for name in token_keys_config_maps(broker)]
    wanted.append(("ConfigMap", cluster_issuer.config_map_name(broker)))
    issuer = await facts.issuer() if cluster_issuer.is_wanted(broker) else None
    if spark_installed:
        wanted.append(("ScheduledSparkApplication", f"{name}-lag"))
    read = [each for each in wanted if each not in absent]
    objects = await asyncio.gather(*(kube.get(API_RESOURCES[kind], namespace, child) for kind, child in read))
    found: dict[ChildName, Manifest | None] = {**dict.fromkeys(wanted), **dict(zip(read, objects, strict=True))}
    for kind in ("PodDisruptionBudget", "NetworkPolicy"):
        is_absent = (kind, name) in absent
        found[kind, name] = None if is_absent else await _if_allowed(kube, kind, namespace, name)
    run = text_at(found.get(("ScheduledSparkApplication", f"{name}-lag")), "status", "lastRunName")
    last_run = await kube.get(API_RESOURCES["SparkApplication"], namespace, run) if run else None
    observed = ObservedChildren(found, spark_installed, last_run, issuer)
    await _observe_certificate(kube, observed, broker)
    await _observe_node(kube, observed, found.get(("Pod", f"{name}-0")))
    return observed


async def _if_allowed(kube: ApiServer, kind: str, namespace: str, name: str) -> Manifest | None:
    """An object of a kind that earlier releases did not know, so that roles of one's own may lack the right to it; it
    then counts as absent, and only a Broker that needs it is told.
    """
    try:
        return await kube.get(API_RESOURCES[kind], namespace, name)
    except KubeError as error:
        if error.status != 403:
            raise
        return None


async def _observe_certificate(kube: ApiServer, observed: ObservedChildren, broker: Broker) -> None:
    name, namespace = broker.metadata.name, broker.metadata.namespace
    has_one = server_certificate.mounts_issued_secret(broker, observed.get("StatefulSet", name))
    if broker.spec.tls.issuer_ref is None and not has_one:
        return
    observed.has_cert_manager = await kube.serves(API_RESOURCES["Certificate"])
    if observed.has_cert_manager:
        found = await _if_allowed(kube, "Certificate", namespace, f"{name}-tls")
        observed.found["Certificate", f"{name}-tls"] = found
        if found is not None and server_certificate.read(observed.get("Secret", f"{name}-tls")) is None:
            request = server_certificate.request_name(found)
            observed.certificate_request = await _if_allowed(kube, "CertificateRequest", namespace, request)


async def _observe_node(kube: ApiServer, observed: ObservedChildren, pod: Manifest | None) -> None:
    """Look at the node of a pod that may be lost with it. Roles of one's own may lack the right to."""
    if not node_loss.may_be_lost(pod):
        return
    try:
        observed.node = await kube.get(API_RESOURCES["Node"], None, text_at(pod, "spec", "nodeName") or "")
    except KubeError as error:
        if error.status != 403:
            raise
        observed.is_node_known = False


def absent_for_good(broker: Broker, wanted: Sequence[Manifest], observed: ObservedChildren) -> frozenset[ChildName]:
    """What only some specs need, and this one does not, and is not there: while the spec stays as it is the operator
    does not make it, so it need not look for it again to delete it.
    """
    name = broker.metadata.name
    optional = [(kind, f"{name}{ending}") for kind, ending in _OF_CHOICES]
    optional += [(kind, f"{name}-lag") for kind in (*lag_schedules.KINDS, "ServiceAccount")]
    made = {(str(manifest["kind"]), text_at(manifest, "metadata", "name") or "") for manifest in wanted}
    return frozenset(each for each in optional if each not in made and observed.get(*each) is None)


def token_keys_config_maps(broker: Broker) -> list[str]:
    """The names of the ConfigMaps in which people put the keys of token issuers."""
    references = (issuer.keys_config_map_ref for issuer in broker.spec.authentication.tokens)
    return sorted({reference.name for reference in references if reference is not None})


def foreign_children(
    broker: Broker, wanted: Sequence[Manifest], observed: ObservedChildren
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The objects, as `Kind name`, that have the name of a child but are not this Broker's.

    First those that are not the operator's; second the children of an earlier Broker of the same name, which are being
    removed.
    """
    taken: list[str] = []
    of_predecessor: list[str] = []
    for manifest in wanted:
        kind, name = api_resource_of(manifest).kind, text_at(manifest, "metadata", "name") or ""
        found = observed.get(kind, name)
        if found is not None and not is_ours(found, broker.metadata.uid):
            listed = of_predecessor if belongs_to_predecessor(found, broker.metadata.uid) else taken
            listed.append(f"{kind} {name}")
    return tuple(taken), tuple(of_predecessor)


async def apply_children(
    kube: ApiServer,
    versions: ChildVersions,
    broker: Broker,
    wanted: Sequence[Manifest],
    observed: ObservedChildren,
    now: datetime,
    is_going: Callable[[], bool],
) -> None:
    """Apply the children in this order, apart from those that are as they were after they were applied last, and delete
    those that are not wanted any more: what a choice of the spec needed that was taken back, and a lag schedule, unless
    a run of it is under way. Updates `observed`. `is_going`: whether the Broker is deleted by now. Who deletes it with
    `--cascade=orphan` keeps its children, and one that got its owner again after that would be deleted for it.

    Raises:
        KubeError: the API server refused; Conflict if the Broker is deleted meanwhile.
    """
    certificate = observed.get("Certificate", f"{broker.metadata.name}-tls")
    if broker.spec.tls.issuer_ref is None and certificate is not None and is_ours(certificate, broker.metadata.uid):
        # Before the StatefulSet changes, which alone tells that there is one.
        await _delete(kube, versions, certificate)
        observed.found["Certificate", f"{broker.metadata.name}-tls"] = None
    applied: set[tuple[str, str]] = set()
    for manifest in wanted:
        if is_going():
            raise Conflict(409, f"Broker {broker.key} was deleted meanwhile")
        kind, name = str(manifest["kind"]), text_at(manifest, "metadata", "name") or ""
        before = observed.get(kind, name)
        if before is not None and lag_schedules.must_be_recreated(manifest, before):
            logger.info("%s %s/%s is deleted and created again", kind, broker.metadata.namespace, name)
            await kube.delete(before)
            observed.found[kind, name] = None
        await apply_child(kube, versions, manifest, observed, now)
        applied.add((kind, name))
    for kind, name in _OF_CHOICES:
        full_name = f"{broker.metadata.name}{name}"
        before = observed.get(kind, full_name)
        if before is not None and (kind, full_name) not in applied and is_ours(before, broker.metadata.uid):
            await _delete(kube, versions, before)
            observed.found[kind, full_name] = None
    for kind in lag_schedules.KINDS:
        before = observed.get(kind, f"{broker.metadata.name}-lag")
        unwanted = (kind, f"{broker.metadata.name}-lag") not in applied
        if before is not None and unwanted and is_ours(before, broker.metadata.uid):
            if has_active_run(own_schedule(broker, kind, observed), now):
                # Its run would be deleted with it. The next reconcile looks again.
                if (last := lag_schedules.suspended(before)) is not None:
                    await kube.apply(last)
                continue
            await kube.delete(before)
            observed.found[kind, f"{broker.metadata.name}-lag"] = None
    await _delete_account_of_lag(kube, versions, broker, applied, observed)


async def _delete_account_of_lag(
    kube: ApiServer, versions: ChildVersions, broker: Broker, applied: Set[ChildName], observed: ObservedChildren
) -> None:
    """Delete the ServiceAccount of the Broker's own lag job, once there is no such job whose run may need it."""
    name = f"{broker.metadata.name}-lag"
    account = observed.get("ServiceAccount", name)
    has_schedule = any(observed.get(kind, name) is not None for kind in lag_schedules.KINDS)
    is_wanted = ("ServiceAccount", name) in applied or has_schedule
    if account is not None and not is_wanted and is_ours(account, broker.metadata.uid):
        await _delete(kube, versions, account)
        observed.found["ServiceAccount", name] = None


async def apply_child(
    kube: ApiServer, versions: ChildVersions, manifest: Manifest, observed: ObservedChildren, now: datetime
) -> None:
    """Apply one child, unless it is as it was after it was applied last. Updates `observed`.

    Raises:
        KubeError: the API server refused.
    """
    kind, name = str(manifest["kind"]), text_at(manifest, "metadata", "name") or ""
    before = observed.get(kind, name)
    if before is None or not versions.confirm(manifest, before, now.timestamp()):
        observed.found[kind, name] = result = await kube.apply(manifest)
        versions.note_applied(manifest, result, now.timestamp())


async def _delete(kube: ApiServer, versions: ChildVersions, unwanted: Manifest) -> None:
    """Without the right to delete it, which roles of one's own may lack, it stays: its token is good for nothing. The
    log tells it once, and not at each pass.
    """
    try:
        await kube.delete(unwanted)
    except KubeError as error:
        if error.status != 403:
            raise
        if versions.note_kept(unwanted, str(error)):
            about = (text_at(unwanted, "metadata", each) for each in ("namespace", "name"))
            logger.warning("%s %s/%s is not needed any more, and stays: %s", unwanted["kind"], *about, error)
    else:
        versions.note_deleted(unwanted)


def own_schedule(broker: Broker, kind: str, observed: ObservedChildren) -> ScheduleView:
    """The schedule of a lag job of the Broker's own, as it was found."""
    return ScheduleView(
        kind=kind,
        namespace=broker.metadata.namespace,
        name=f"{broker.metadata.name}-lag",
        cron=lag_job.cron(broker),
        interval_minutes=broker.spec.lag_analysis.interval_minutes,
        spark_installed=observed.spark_installed,
        observed=observed.get(kind, f"{broker.metadata.name}-lag"),
        last_run=observed.last_run if kind == "ScheduledSparkApplication" else None,
    )
