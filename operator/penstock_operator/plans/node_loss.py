"""Condition NodeLost of a Broker: its pod is on a node that does not answer, and what a person has to do.

The cluster asks a lost node to end the pod, and waits for its answer before a StatefulSet gets another pod: the node
may still run the pod and write its volume. Only somebody who knows that the machine is off can end the waiting.
Source: Kubernetes, "Non-graceful node shutdown"; docs/decisions/100-placement-and-lost-nodes.md.
"""

from __future__ import annotations

from typing import Final

from penstock_operator.manifest import Manifest, dig, items_of, text_at
from penstock_operator.plans.conditions import ConditionReason, ConditionStatus, StatusCondition

__all__ = ["NODE_LOST", "may_be_lost", "node_lost"]

NODE_LOST: Final = "NodeLost"
_OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
_RUNBOOK: Final = "docs/how-to/runbooks/node-lost.md"


def may_be_lost(pod: Manifest | None) -> bool:
    """Whether the pod's node has to be looked at: the pod is bound to one, and is ending or not ready."""
    if text_at(pod, "spec", "nodeName") is None:
        return False
    return _is_terminating(pod) or text_at(_condition(pod, "Ready"), "status") != "True"


def node_lost(pod: Manifest | None, node: Manifest | None, *, is_known: bool) -> StatusCondition | None:
    """NodeLost; only while the pod is bound to a node that is gone or not ready.

    `node`: the pod's node, None if there is none. `is_known`: whether the operator was allowed to look.
    """
    if pod is None or not may_be_lost(pod):
        return None
    pod_name, node_name = text_at(pod, "metadata", "name") or "", text_at(pod, "spec", "nodeName") or ""
    if not is_known:
        return _by_the_pod_alone(pod, pod_name, node_name)
    if node is None:
        message = (
            f"Node {node_name} of Pod {pod_name} does not exist any more. The cluster removes the pod by itself, and "
            "starts it on another node once the volume can be attached there, which may take some minutes."
        )
        return StatusCondition(NODE_LOST, ConditionStatus.TRUE, ConditionReason.NODE_GONE, message)
    ready = _condition(node, "Ready")
    if text_at(ready, "status") == "True":
        return None
    since = text_at(ready, "lastTransitionTime")
    fact = f"Node {node_name} is not ready{f' since {since}' if since else ''}"
    if any(taint.get("key") == _OUT_OF_SERVICE for taint in items_of(node, "spec", "taints")):
        message = (
            f"{fact}, and is marked as out of service. The cluster removes Pod {pod_name} and detaches its volume, and "
            f"then starts the pod on another node. Remove the taint {_OUT_OF_SERVICE} when the node is back."
        )
        return StatusCondition(NODE_LOST, ConditionStatus.TRUE, ConditionReason.NODE_NOT_READY, message)
    if not _is_terminating(pod):
        message = (
            f"{fact}. If it stays so, the cluster asks it to end Pod {pod_name} after the time that the pod tolerates "
            f"this (five minutes unless its tolerations say otherwise), and waits for its answer. {_cure(node_name)}"
        )
    else:
        message = (
            f"{fact}, and Pod {pod_name} is to end there. The cluster starts no other pod until the node answers, "
            f"because it may still write the volume. {_cure(node_name)}"
        )
    return StatusCondition(NODE_LOST, ConditionStatus.TRUE, ConditionReason.NODE_NOT_READY, message)


def _by_the_pod_alone(pod: Manifest, pod_name: str, node_name: str) -> StatusCondition | None:
    """What the pod tells by itself: who ordered its end was the controller that looks after lost nodes."""
    disruption = _condition(pod, "DisruptionTarget")
    if not _is_terminating(pod) or text_at(disruption, "reason") != "DeletionByTaintManager":
        return None
    message = (
        f"Pod {pod_name} is to end because of a taint of Node {node_name}, and the node has not answered. (The "
        f"operator may not read nodes and cannot say more.) {_cure(node_name)}"
    )
    return StatusCondition(NODE_LOST, ConditionStatus.TRUE, ConditionReason.NODE_NOT_READY, message)


def _cure(node_name: str) -> str:
    return (
        "If the machine is certainly off, run "
        f"`kubectl taint nodes {node_name} {_OUT_OF_SERVICE}=nodeshutdown:NoExecute`; the pod then starts on another "
        "node that can attach its volume. If the machine may still run, switch it off or bring it back first: two "
        f"brokers must never write the same volume. See {_RUNBOOK}."
    )


def _is_terminating(pod: Manifest | None) -> bool:
    return dig(pod, "metadata", "deletionTimestamp") is not None


def _condition(manifest: Manifest | None, kind: str) -> Manifest:
    """A condition of a pod or node, empty if it has none of this type."""
    for each in items_of(manifest, "status", "conditions"):
        if each.get("type") == kind:
            return each
    return {}
