"""The status of a Broker from what was observed: all its conditions, and the other fields of status.

Ready never depends on lag, nor on the schedule of the lag job. Source: docs/decisions/056-conditions.md,
docs/decisions/062-exact-lag.md, docs/reference/operator.md.
"""

from __future__ import annotations

from penstock_operator import names
from penstock_operator.children.metadata import pod_selector
from penstock_operator.manifest import Manifest, dig
from penstock_operator.plans import broker_health, conditions, lag_schedule
from penstock_operator.plans.broker_acceptance import accepted
from penstock_operator.plans.broker_view import BrokerReportView
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition
from penstock_operator.plans.decisions import Reach, Report, Retry
from penstock_operator.plans.node_loss import node_lost
from penstock_operator.plans.server_certificate import certificate_obstacle, server_certificate
from penstock_operator.plans.storage_condition import storage_filling
from penstock_operator.plans.volume_report import storage_resizing, storage_sizes

__all__ = ["report_broker"]


def report_broker(view: BrokerReportView) -> Report:
    """The status of a Broker."""
    available = broker_health.available(view)
    deciding = (accepted(view), available)
    ready = conditions.ready_from(deciding, "The broker serves its clients.")
    if available.reason == ConditionReason.SCALED_TO_ZERO and deciding[0].status is ConditionStatus.TRUE:
        # Zero replicas is what the spec asks for, so the Broker is Ready; kstatus would wait for ever otherwise.
        ready = (
            StatusCondition("Ready", ConditionStatus.TRUE, ConditionReason.SCALED_TO_ZERO, available.message),
            *deciding,
        )
    further = [condition for condition in _further(view) if condition is not None]
    waits = available.status is not ConditionStatus.TRUE and available.reason != ConditionReason.SCALED_TO_ZERO
    missing = view.users_missing or view.client_ca_missing or view.token_keys_missing or view.issuer_unknown
    missing = missing or certificate_obstacle(view.server_certificate) is not None
    waits = (
        waits or storage_resizing(view.broker, view.volumes) is not None or broker_health.is_observer_undecided(view)
    )
    obstructed = view.predecessor_children or view.unconfirmed_settings or view.refusal is not None
    retry = Retry.BACKOFF if waits or missing or obstructed else Retry.RESYNC
    return Report((*ready, *further), _details(view), retry)


def _further(view: BrokerReportView) -> tuple[StatusCondition | None, ...]:
    """The conditions on which Ready does not depend."""
    connected_state = view.state if view.reach is Reach.CONNECTED else None
    return (
        broker_health.storage(view),
        None if connected_state is None else storage_filling(connected_state),
        storage_resizing(view.broker, view.volumes),
        _version_aligned(view),
        _insecure_plain(view),
        None if connected_state is None else broker_health.contested(connected_state),
        broker_health.observer_failing(view),
        server_certificate(view.server_certificate, view.now),
        node_lost(view.pod, view.node, is_known=view.is_node_known),
        _reconciliation_paused(view),
        lag_schedule.lag_analysis_scheduled(
            view.broker, view.lag_service, view.lag_schedule, view.shared_lag, view.now
        ),
    )


def _reconciliation_paused(view: BrokerReportView) -> StatusCondition | None:
    if view.broker.metadata.annotations.get(names.PAUSED) != "true":
        return None
    message = f"The objects of this Broker are not changed while the annotation `{names.PAUSED}` is set."
    return StatusCondition("ReconciliationPaused", ConditionStatus.TRUE, ConditionReason.PAUSED_BY_ANNOTATION, message)


def _version_aligned(view: BrokerReportView) -> StatusCondition | None:
    if view.broker.spec.image is not None:
        return None
    pinned = view.pinned.image
    if broker_health.runs_newest_template(view):
        told = f"The pods run {pinned}"
    else:
        told = f"The next pod gets {pinned}; none runs with it now"
    if pinned == view.default_image:
        return StatusCondition("VersionAligned", ConditionStatus.TRUE, ConditionReason.PINNED, f"{told}.")
    message = f"{told}. New Brokers get {view.default_image}: set `spec.image` to that image to replace the pods."
    return StatusCondition("VersionAligned", ConditionStatus.FALSE, ConditionReason.UPDATE_AVAILABLE, message)


def _insecure_plain(view: BrokerReportView) -> StatusCondition | None:
    spec = view.broker.spec
    if not (spec.listeners.amqp and spec.authentication.allow_insecure_plain):
        return None
    message = (
        "Clients may log in with a password on port 5672 without TLS. Everyone who can read the network traffic can "
        "read the password."
    )
    return StatusCondition("InsecurePlain", ConditionStatus.TRUE, ConditionReason.PLAIN_TEXT_PASSWORDS, message)


def _details(view: BrokerReportView) -> Manifest:
    broker = view.broker
    replicas = dig(view.stateful_set, "status", "replicas")
    selector = ",".join(f"{key}={value}" for key, value in pod_selector(broker).items())
    details: Manifest = {
        "replicas": replicas if isinstance(replicas, int) else 0,
        "readyReplicas": broker_health.ready_replicas(view),
        "selector": selector,
        "address": names.broker_address(broker),
        "image": view.pinned.image,
        "exchanges": view.exchanges,
        "subscriptions": view.subscriptions,
    }
    if view.queues:
        details["queues"] = view.queues
    sizes = storage_sizes(view.broker, view.volumes)
    if sizes is not None:
        details["storage"] = sizes
    if view.external_address is not None:
        details["externalAddress"] = view.external_address
    if view.state is not None:
        details |= {"version": view.state.version, "instanceId": view.state.instance_id, "epoch": view.state.epoch}
    if view.orphans:
        details["orphans"] = list(view.orphans)
    if view.lag is not None:
        details["lagAnalysis"] = view.lag
    return details
