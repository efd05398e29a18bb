"""What is reported of a Broker: conditions and status from what was observed. Pure.

Ready never depends on lag, nor on the schedule of the lag job. Source: sections 5 and 6 of the design,
docs/operator.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from penstock_api.management import BrokerState
from penstock_api.resources import Broker
from penstock_operator import names
from penstock_operator.children import cluster_issuer, services
from penstock_operator.children.stateful_set import Pinned
from penstock_operator.manifest import Manifest, dig, items_of, text_at
from penstock_operator.plans import conditions, container_contests, lag_schedule
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition
from penstock_operator.plans.decisions import Reach, Report, Retry

__all__ = ["BrokerReportView", "is_serving", "report_broker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReportView:
    """Everything that the report looks at."""

    broker: Broker
    taken: tuple[str, ...] = ()
    """Children whose name somebody else's object has, as `Kind name`."""
    leaving: tuple[str, ...] = ()
    """Children of a Broker that had this name before, which are still there."""
    users_missing: bool = False
    """The Secret of `authentication.usersSecretRef` is not there."""
    client_ca_missing: bool = False
    """The Secret of `authentication.clientCaSecretRef` is not there, or has no `ca.crt`."""
    token_keys_missing: tuple[str, ...] = ()
    """ConfigMaps of `authentication.tokens` that are not there, or have no `keys`."""
    issuer_unknown: bool = False
    """The API server doesn't say what the cluster signs tokens with, and `authentication.tokens` wants it."""
    unknown_settings: tuple[str, ...] = ()
    """Settings that the broker's image doesn't know; nothing of the spec is applied."""
    unconfirmed_settings: tuple[str, ...] = ()
    """Settings of which the broker that runs has not told yet whether it knows them; nothing is applied until then."""
    stateful_set: Manifest | None = None
    pod: Manifest | None = None
    """The pod of ordinal 0."""
    pinned: Pinned
    default_image: str
    """What new Brokers get."""
    reach: Reach
    problem: str = ""
    """Why the management can't be reached."""
    state: BrokerState | None = None
    """What the broker says of itself."""
    spark_installed: bool
    schedule: Manifest | None = None
    last_run: Manifest | None = None
    exchanges: int
    subscriptions: int
    orphans: tuple[Manifest, ...] = ()
    lag: Manifest | None = None
    """`status.lagAnalysis`."""
    now: datetime


def report_broker(view: BrokerReportView) -> Report:
    """The status of a Broker."""
    available = _available(view)
    deciding = (_accepted(view), available)
    ready = conditions.ready_from(deciding, "The broker serves its clients.")
    if available.reason == ConditionReason.SCALED_TO_ZERO and deciding[0].status is ConditionStatus.TRUE:
        # What was asked for is reached; kstatus would wait for ever otherwise.
        ready = (
            StatusCondition("Ready", ConditionStatus.TRUE, ConditionReason.SCALED_TO_ZERO, available.message),
            *deciding,
        )
    further = [condition for condition in _further(view) if condition is not None]
    scheduled = lag_schedule.condition(
        view.broker,
        spark_installed=view.spark_installed,
        observed=view.schedule,
        last_run=view.last_run,
        now=view.now,
    )
    waits = available.status is not ConditionStatus.TRUE and available.reason != ConditionReason.SCALED_TO_ZERO
    missing = view.users_missing or view.client_ca_missing or view.token_keys_missing or view.issuer_unknown
    retry = Retry.BACKOFF if waits or missing or view.leaving or view.unconfirmed_settings else Retry.RESYNC
    return Report((*ready, *further, scheduled), _details(view), retry)


def _further(view: BrokerReportView) -> tuple[StatusCondition | None, ...]:
    fights = (
        None if view.state is None or view.reach is not Reach.CONNECTED else container_contests.condition(view.state)
    )
    return _storage(view), _version(view), _insecure(view), fights, _observer(view), _paused(view)


def _paused(view: BrokerReportView) -> StatusCondition | None:
    if view.broker.metadata.annotations.get(names.PAUSED) != "true":
        return None
    message = f"Its children are left as they are while the annotation `{names.PAUSED}` is set."
    return StatusCondition("ReconciliationPaused", ConditionStatus.TRUE, ConditionReason.PAUSED_BY_ANNOTATION, message)


def _accepted(view: BrokerReportView) -> StatusCondition:
    if view.taken:
        message = (
            f"There is already {', '.join(view.taken)}, which belongs to somebody else. Delete it, or give the Broker "
            "another name."
        )
        return StatusCondition("Accepted", ConditionStatus.FALSE, ConditionReason.NAME_TAKEN, message)
    if view.leaving:
        message = (
            "A Broker of this name was deleted, and the cluster still removes what belonged to it: "
            f"{', '.join(view.leaving)}. This one is set up when that is gone."
        )
        return StatusCondition("Accepted", ConditionStatus.FALSE, ConditionReason.PREDECESSOR_LEAVING, message)
    users = view.broker.spec.authentication.users_secret_ref
    if view.users_missing and users is not None:
        message = f"There is no Secret {users.name}; make it: each key is a user, its value the password."
        return StatusCondition("Accepted", ConditionStatus.FALSE, ConditionReason.USERS_SECRET_NOT_FOUND, message)
    ca = view.broker.spec.authentication.client_ca_secret_ref
    if view.client_ca_missing and ca is not None:
        message = f"There is no Secret {ca.name} with a key `ca.crt`; make it: who signs clients' certificates, in PEM."
        return StatusCondition("Accepted", ConditionStatus.FALSE, ConditionReason.CLIENT_CA_NOT_FOUND, message)
    if view.token_keys_missing:
        found = ", ".join(view.token_keys_missing)
        message = f"There is no ConfigMap {found} with a key `keys`; make it: the issuer's public keys, JWKS or PEM."
        return StatusCondition("Accepted", ConditionStatus.FALSE, ConditionReason.TOKEN_KEYS_NOT_FOUND, message)
    if view.issuer_unknown:
        message = (
            "The API server does not tell this operator what the cluster signs ServiceAccount tokens with "
            f"({cluster_issuer.DISCOVERY}, {cluster_issuer.KEYS}); allow it, or give the issuer and `keysConfigMapRef`."
        )
        return StatusCondition("Accepted", ConditionStatus.FALSE, ConditionReason.CLUSTER_ISSUER_UNKNOWN, message)
    if view.unknown_settings:
        known = "" if view.state is None else view.state.version
        message = (
            f"The image {view.pinned.image}, version {known}, does not know {_terms(view.unknown_settings)}. "
            "Set `spec.image` to a newer one, or leave that out; until then the pods stay as they are."
        )
        return StatusCondition("Accepted", ConditionStatus.FALSE, ConditionReason.BROKER_TOO_OLD, message)
    if view.unconfirmed_settings:
        message = (
            f"The broker has not told yet whether it knows {_terms(view.unconfirmed_settings)}; until it has, the pods stay as they "
            f"are. {view.problem}"
        )
        return StatusCondition("Accepted", ConditionStatus.UNKNOWN, ConditionReason.BROKER_UNREACHABLE, message.strip())
    return StatusCondition(
        "Accepted", ConditionStatus.TRUE, ConditionReason.ACCEPTED, "The spec is valid and its children are ours."
    )


def _terms(settings: Iterable[str]) -> str:
    return ", ".join(f"`{term}`" for term in settings)


def _available(view: BrokerReportView) -> StatusCondition:
    if view.broker.spec.replicas == 0:
        message = "Scaled to zero; its volumes are kept."
        return StatusCondition("Available", ConditionStatus.FALSE, ConditionReason.SCALED_TO_ZERO, message)
    if _ready_replicas(view) < view.broker.spec.replicas:
        return StatusCondition("Available", ConditionStatus.FALSE, ConditionReason.POD_NOT_READY, _why_not_ready(view))
    if view.reach is Reach.NOT_UNDERSTOOD:
        return StatusCondition("Available", ConditionStatus.UNKNOWN, ConditionReason.OPERATOR_TOO_OLD, view.problem)
    if view.reach is not Reach.CONNECTED:
        return StatusCondition("Available", ConditionStatus.UNKNOWN, ConditionReason.BROKER_UNREACHABLE, view.problem)
    return StatusCondition("Available", ConditionStatus.TRUE, ConditionReason.SERVING, "The broker serves its clients.")


def _why_not_ready(view: BrokerReportView) -> str:
    """What kubelet or scheduler say of the pod, in one sentence."""
    name = f"{view.broker.metadata.name}-0"
    if view.pod is None:
        return f"Pod {name} is not there yet."
    waiting = text_at(_container(view.pod, "broker"), "state", "waiting", "reason")
    if waiting is not None:
        said = text_at(_container(view.pod, "broker"), "state", "waiting", "message") or ""
        return f"Pod {name}: {waiting}. {said}".strip()
    for condition in items_of(view.pod, "status", "conditions"):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"Pod {name} can't be scheduled: {condition.get('message', '')}"
    return f"Pod {name} is {text_at(view.pod, 'status', 'phase') or 'Pending'} and not ready yet."


def _storage(view: BrokerReportView) -> StatusCondition | None:
    if view.state is None:
        return None
    match view.state.durable_work:
        case "Ok":
            return StatusCondition("StorageHealthy", ConditionStatus.TRUE, "Ok", "Durable messages are taken.")
        case "Full":
            message = "The volume is full: publishing of durable messages is refused until consumers have drained some."
            return StatusCondition("StorageHealthy", ConditionStatus.FALSE, "StorageFull", message)
        case "Failed":
            message = "The volume failed: durable work has stopped. See the broker's log; then delete the pod."
            return StatusCondition("StorageHealthy", ConditionStatus.FALSE, "StorageFailed", message)
        case later:
            message = f"The broker says {later} of its volume, which this operator doesn't know: upgrade the operator."
            return StatusCondition("StorageHealthy", ConditionStatus.UNKNOWN, ConditionReason.OPERATOR_TOO_OLD, message)


def _version(view: BrokerReportView) -> StatusCondition | None:
    if view.broker.spec.image is not None:
        return None
    pinned = view.pinned.image
    if pinned == view.default_image:
        return StatusCondition(
            "VersionAligned", ConditionStatus.TRUE, ConditionReason.PINNED, f"The pods run {pinned}."
        )
    message = (
        f"The pods run {pinned}; new Brokers get {view.default_image}. Set `spec.image` to it to have them replaced."
    )
    return StatusCondition("VersionAligned", ConditionStatus.FALSE, ConditionReason.UPDATE_AVAILABLE, message)


def _insecure(view: BrokerReportView) -> StatusCondition | None:
    spec = view.broker.spec
    if not (spec.listeners.amqp and spec.authentication.allow_insecure_plain):
        return None
    message = "Passwords are taken on port 5672 without TLS: whoever sees the traffic can read them."
    return StatusCondition("InsecurePlain", ConditionStatus.TRUE, ConditionReason.PLAIN_TEXT_PASSWORDS, message)


def _ready_replicas(view: BrokerReportView) -> int:
    """Pods whose broker serves clients. Not the StatefulSet's figure: a pod with a crashing observer counts as not
    ready there, and yet messages flow and new connections succeed.
    """
    return int(is_serving(view.pod))


def is_serving(pod: Manifest | None) -> bool:
    """Whether the broker in a pod serves clients."""
    if pod is None or dig(pod, "metadata", "deletionTimestamp") is not None:
        return False
    return _container(pod, "broker").get("ready") is True


def _container(pod: Manifest | None, name: str) -> Manifest:
    """The status of one container of a pod, empty if there is none."""
    for status in items_of(pod, "status", "containerStatuses"):
        if status.get("name") == name:
            return status
    return {}


def _observer(view: BrokerReportView) -> StatusCondition | None:
    """Only while something is wrong with it."""
    waiting = text_at(_container(view.pod, "observer"), "state", "waiting", "reason")
    if waiting is None or waiting in ("ContainerCreating", "PodInitializing"):
        return None
    message = f"The observer does not run ({waiting}): messages flow, metrics and lag stand still. See its log."
    return StatusCondition("ObserverFailing", ConditionStatus.TRUE, waiting, message)


def _details(view: BrokerReportView) -> Manifest:
    broker = view.broker
    replicas = dig(view.stateful_set, "status", "replicas")
    selector = ",".join(f"{key}={value}" for key, value in services.pod_selector(broker).items())
    details: Manifest = {
        "replicas": replicas if isinstance(replicas, int) else 0,
        "readyReplicas": _ready_replicas(view),
        "selector": selector,
        "address": names.broker_address(broker),
        "image": view.pinned.image,
        "exchanges": view.exchanges,
        "subscriptions": view.subscriptions,
    }
    if view.state is not None:
        details |= {"version": view.state.version, "instanceId": view.state.instance_id, "epoch": view.state.epoch}
    if view.orphans:
        details["orphans"] = list(view.orphans)
    if view.lag is not None:
        details["lagAnalysis"] = view.lag
    return details
