"""NodeLost: when a pod is lost with its node, and what a person is told to do."""

from __future__ import annotations

from typing import Any

import pytest

from penstock_operator.plans.node_loss import may_be_lost, node_lost

TAINT = "kubectl taint nodes n7 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"


def pod(ready: str = "False", *, terminating: bool = False, node: str | None = "n7", **disruption: str) -> Any:
    conditions: list[Any] = [{"type": "Ready", "status": ready}]
    if disruption:
        conditions.append({"type": "DisruptionTarget", "status": "True", **disruption})
    deleted = {"deletionTimestamp": "2026-03-01T11:05:00Z"} if terminating else {}
    return {
        "metadata": {"name": "main-0", **deleted},
        "spec": {} if node is None else {"nodeName": node},
        "status": {"conditions": conditions},
    }


def node(ready: str, *taints: str) -> Any:
    return {
        "metadata": {"name": "n7"},
        "spec": {"taints": [{"key": key, "effect": "NoExecute"} for key in taints]},
        "status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-03-01T11:00:00Z"}]},
    }


@pytest.mark.parametrize(
    ("its_pod", "expected"),
    [
        (None, False),
        (pod(node=None), False),
        (pod("True"), False),
        (pod("False"), True),
        (pod("Unknown"), True),
        (pod("True", terminating=True), True),
    ],
)
def test_the_node_is_looked_at_only_if_the_pod_may_be_lost(its_pod: Any, expected: bool) -> None:
    assert may_be_lost(its_pod) is expected


@pytest.mark.parametrize("its_pod", [pod("True"), pod("False"), pod(terminating=True), pod(node=None), None])
def test_a_pod_on_a_node_that_answers_is_not_lost(its_pod: Any) -> None:
    assert node_lost(its_pod, node("True"), is_known=True) is None


@pytest.mark.parametrize("ready", ["False", "Unknown"])
@pytest.mark.parametrize("terminating", [False, True])
def test_a_pod_on_a_node_that_does_not_answer_is_lost_and_the_cure_is_told(ready: str, terminating: bool) -> None:
    found = node_lost(pod(terminating=terminating), node(ready), is_known=True)
    assert found is not None
    assert (found.type, found.status.value, str(found.reason)) == ("NodeLost", "True", "NodeNotReady")
    assert found.message.startswith("Node n7 is not ready since 2026-03-01T11:00:00Z")
    assert f"If the machine is certainly off, run `{TAINT}`" in found.message
    assert "two brokers must never write the same volume" in found.message
    assert ("Pod main-0 is to end there" in found.message) is terminating


def test_a_node_that_somebody_marked_needs_nothing_more() -> None:
    marked = node("Unknown", "node.kubernetes.io/unreachable", "node.kubernetes.io/out-of-service")
    found = node_lost(pod(terminating=True), marked, is_known=True)
    assert found is not None
    assert "is marked as out of service. The cluster removes Pod main-0 and detaches its volume" in found.message
    assert "kubectl" not in found.message


def test_a_node_that_is_gone_needs_nothing() -> None:
    found = node_lost(pod(), None, is_known=True)
    assert found is not None
    assert str(found.reason) == "NodeGone"
    assert found.message.startswith("Node n7 of Pod main-0 does not exist any more. The cluster removes the pod")


def test_without_the_right_to_read_nodes_the_pod_tells_who_ordered_its_end() -> None:
    told = node_lost(pod(terminating=True, reason="DeletionByTaintManager"), None, is_known=False)
    assert told is not None
    assert (str(told.reason), TAINT in told.message) == ("NodeNotReady", True)
    assert node_lost(pod(terminating=True, reason="EvictionByEvictionAPI"), None, is_known=False) is None
    assert node_lost(pod(terminating=True), None, is_known=False) is None
    assert node_lost(pod(reason="DeletionByTaintManager"), None, is_known=False) is None
