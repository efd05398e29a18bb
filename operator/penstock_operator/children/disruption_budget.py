"""The PodDisruptionBudget of a Broker, only if its spec refuses evictions.

With one pod a budget allows every eviction or none, so by default there is none: a drain must not wait for ever. A
budget that refuses does not hold a pod that is not ready. Source: docs/decisions/100-placement-and-lost-nodes.md.
"""

from __future__ import annotations

from penstock_api.resources import Broker
from penstock_operator.children.metadata import child_metadata, pod_selector
from penstock_operator.manifest import Manifest

__all__ = ["disruption_budgets"]


def disruption_budgets(broker: Broker) -> list[Manifest]:
    """The PodDisruptionBudget; none if evictions are allowed."""
    if broker.spec.pod.eviction == "Allow":
        return []
    return [
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": child_metadata(broker, broker, broker.metadata.name),
            "spec": {
                "maxUnavailable": 0,
                "selector": {"matchLabels": pod_selector(broker)},
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            },
        }
    ]
