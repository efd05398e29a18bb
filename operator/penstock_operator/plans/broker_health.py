"""The conditions for the health of a Broker: Available, StorageHealthy, ObserverFailing, ContainersContested.

Source: docs/decisions/056-conditions.md; docs/decisions/048-observer.md (a failing observer does not make the Broker
unavailable); docs/decisions/013-container-uniqueness.md (contested container-ids).
"""

from __future__ import annotations

from typing import Final

from penstock_api.state_documents import BrokerState
from penstock_operator.manifest import Manifest, dig, text_at
from penstock_operator.plans.broker_view import BrokerReportView
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition
from penstock_operator.plans.decisions import Reach
from penstock_operator.plans.pod_trouble import container_of, how_it_ended, waiting_reason, why_not_ready

__all__ = [
    "CONTESTED",
    "available",
    "contested",
    "contested_containers",
    "is_observer_undecided",
    "is_serving",
    "observer_failing",
    "ready_replicas",
    "runs_newest_template",
    "storage",
]

CONTESTED: Final = "ContainersContested"


def available(view: BrokerReportView) -> StatusCondition:
    """Available: clients are served, as the pod and the broker's management say."""
    if view.broker.spec.replicas == 0:
        message = "Scaled to zero; its volumes are kept."
        return StatusCondition("Available", ConditionStatus.FALSE, ConditionReason.SCALED_TO_ZERO, message)
    if ready_replicas(view) < view.broker.spec.replicas:
        why = why_not_ready(f"{view.broker.metadata.name}-0", view.pod, view.events)
        return StatusCondition("Available", ConditionStatus.FALSE, ConditionReason.POD_NOT_READY, why)
    if _is_to_be_replaced(view.pod, view.stateful_set):
        message = f"Pod {view.broker.metadata.name}-0 is of the spec before, and is about to be replaced."
        return StatusCondition("Available", ConditionStatus.FALSE, ConditionReason.POD_NOT_READY, message)
    if view.reach is Reach.NOT_UNDERSTOOD:
        return StatusCondition("Available", ConditionStatus.UNKNOWN, ConditionReason.OPERATOR_TOO_OLD, view.problem)
    if view.reach is Reach.NOT_ASKED:
        return StatusCondition("Available", ConditionStatus.UNKNOWN, ConditionReason.BROKER_NOT_ASKED, view.problem)
    if view.reach is not Reach.CONNECTED:
        return StatusCondition("Available", ConditionStatus.UNKNOWN, ConditionReason.BROKER_UNREACHABLE, view.problem)
    return StatusCondition("Available", ConditionStatus.TRUE, ConditionReason.SERVING, "The broker serves its clients.")


def runs_newest_template(view: BrokerReportView) -> bool:
    """Whether a broker runs, in a pod that the StatefulSet does not replace soon."""
    broker = container_of(view.pod, "broker")
    runs = broker.get("ready") is True or dig(broker, "state", "running") is not None
    return runs and not _is_to_be_replaced(view.pod, view.stateful_set)


def _is_to_be_replaced(pod: Manifest | None, stateful_set: Manifest | None) -> bool:
    """Whether the StatefulSet replaces the pod soon: otherwise a Broker that was just changed would be Ready until its
    old pod goes, and who waits for that would go on too early.

    A StatefulSet that was made again has no observed generation yet; it keeps its pod. Source: Kubernetes,
    "StatefulSets" (`controller-revision-hash`); kstatus, `stsConditions`.
    """
    strategy = ("spec", "updateStrategy")
    is_by_hand = text_at(stateful_set, *strategy, "type") == "OnDelete"
    if is_by_hand or dig(stateful_set, *strategy, "rollingUpdate", "partition") not in (None, 0):
        return False
    wanted, seen = dig(stateful_set, "metadata", "generation"), dig(stateful_set, "status", "observedGeneration")
    if isinstance(wanted, int) and isinstance(seen, int) and 0 < seen < wanted:
        return True
    newest = text_at(stateful_set, "status", "updateRevision")
    own = text_at(pod, "metadata", "labels", "controller-revision-hash")
    return newest is not None and own is not None and own != newest


def ready_replicas(view: BrokerReportView) -> int:
    """The number of pods whose broker serves clients. The figure of the StatefulSet is not used: it counts a pod whose
    observer crashes as not ready, although its broker serves clients.
    """
    return int(is_serving(view.pod))


def is_serving(pod: Manifest | None) -> bool:
    """Whether the broker in a pod serves clients."""
    if pod is None or dig(pod, "metadata", "deletionTimestamp") is not None:
        return False
    return container_of(pod, "broker").get("ready") is True


def storage(view: BrokerReportView) -> StatusCondition | None:
    """StorageHealthy: whether durable messages can be stored; None until the broker has said."""
    if view.state is None:
        return None
    match view.state.durable_work:
        case "Ok":
            return StatusCondition("StorageHealthy", ConditionStatus.TRUE, "Ok", "Durable messages can be stored.")
        case "Full":
            message = (
                "The volume is full: durable messages are refused until consumers have taken some of those stored."
            )
            return StatusCondition("StorageHealthy", ConditionStatus.FALSE, "StorageFull", message)
        case "Failed":
            message = (
                "Writing to the volume failed: durable messages are not stored any more. Read the broker's log, then "
                "delete the pod."
            )
            return StatusCondition("StorageHealthy", ConditionStatus.FALSE, "StorageFailed", message)
        case later:
            message = (
                f"The broker reports the state {later} for its volume, which this operator does not know. Upgrade the "
                "operator."
            )
            return StatusCondition("StorageHealthy", ConditionStatus.UNKNOWN, ConditionReason.OPERATOR_TOO_OLD, message)


def observer_failing(view: BrokerReportView) -> StatusCondition | None:
    """ObserverFailing, from when the observer does not run until it is ready: one that crashes at each start does not
    come and go with each attempt.
    """
    observer = container_of(view.pod, "observer")
    waiting = waiting_reason(observer)
    if waiting is None and observer.get("ready") is False and how_it_ended(observer) is not None:
        return _shown(view, "ObserverFailing")
    if waiting is None or waiting in ("ContainerCreating", "PodInitializing"):
        return None
    ended = how_it_ended(observer)
    delivered = "Messages are still delivered, but metrics" if is_serving(view.pod) else "Metrics"
    message = (
        f"The observer does not run ({waiting}{'' if ended is None else f': it {ended}'}). {delivered} and lag are not "
        f"updated. `kubectl describe pod {view.broker.metadata.name}-0` and the log of the container `observer` say "
        "why."
    )
    return StatusCondition("ObserverFailing", ConditionStatus.TRUE, waiting, message)


def _shown(view: BrokerReportView, kind: str) -> StatusCondition | None:
    """A condition as the status has it; None if it has none of this type."""
    for stored in view.broker.status.conditions:
        if stored.type == kind:
            return StatusCondition(kind, ConditionStatus(stored.status), stored.reason, stored.message)
    return None


def is_observer_undecided(view: BrokerReportView) -> bool:
    """Whether the observer starts or has just crashed: what becomes of it shows in its pod alone, which nothing
    watches.
    """
    observer = container_of(view.pod, "observer")
    return observer.get("ready") is False and dig(observer, "state", "waiting") is None


def contested(state: BrokerState) -> StatusCondition | None:
    """ContainersContested; only while clients take container-ids from one another."""
    found = contested_containers(state)
    if not found:
        return None
    who = ", ".join(f"{name!r} (at least {count} times)" for name, count in found)
    # The container-ids come last: clients choose them, and a message that is too long is cut off at its end.
    message = (
        "Programs that share a container-id keep closing each other's connections or stealing each other's links. Give "
        "each pod a ClientID of its own, or none; pods that share a subscription need none if it is `scope: Global`. "
        f"The container-ids are {who}."
    )
    return StatusCondition(CONTESTED, ConditionStatus.TRUE, ConditionReason.TAKEOVERS_REPEATED, message)


def contested_containers(state: BrokerState) -> tuple[tuple[str, int], ...]:
    """The contested container-ids in order, each with its number of takeovers: all that the condition says.

    The numbers are rounded down to 1, 2 or 5 times a power of ten, so that a contest of days does not write a new
    status at each takeover.
    """
    return tuple(sorted((each.container_id, _rounded(each.takeovers)) for each in state.contested_containers))


def _rounded(count: int) -> int:
    """The highest of 1, 2, 5, 10, 20, 50... that is not above `count`, which is at least 1."""
    power: int = 10 ** (len(str(count)) - 1)
    return next(step * power for step in (5, 2, 1) if step * power <= count)
