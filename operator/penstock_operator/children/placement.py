"""Where the pods of a Broker may run, as their template says it: tolerations, affinity and topology spread.

A pod that tolerates every taint for ever would never be taken from a lost node. So beside a person's tolerations there
are always those of a node that is not ready or unreachable, with the 300 seconds that the API server gives to pods
without tolerations. Without a person's tolerations nothing is written, because the API server adds the same.
Source: docs/decisions/100-placement-and-lost-nodes.md.
"""

from __future__ import annotations

from typing import Final

from penstock_api.resources import Broker
from penstock_api.schema import Spec
from penstock_operator.manifest import Manifest

__all__ = ["LOST_NODE_SECONDS", "placement"]

LOST_NODE_SECONDS: Final = 300
"""How long a pod stays on a node that is lost; the default of Kubernetes."""
_LOST: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def placement(broker: Broker) -> Manifest:
    """The fields of the pod's spec that say where it may run; none for a Broker that says nothing about it."""
    pod = broker.spec.pod
    fields: Manifest = {}
    if pod.tolerations:
        fields["tolerations"] = [*map(_plain, pod.tolerations), *_of_lost_nodes(broker)]
    if pod.affinity is not None:
        fields["affinity"] = _plain(pod.affinity)
    if pod.topology_spread_constraints:
        fields["topologySpreadConstraints"] = [_plain(each) for each in pod.topology_spread_constraints]
    return fields


def _of_lost_nodes(broker: Broker) -> list[Manifest]:
    named = {each.key for each in broker.spec.pod.tolerations if each.effect in ("NoExecute", None)}
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": LOST_NODE_SECONDS}
        for key in _LOST
        if key not in named
    ]


def _plain(spec: Spec) -> Manifest:
    """As Kubernetes writes it, without what has its default."""
    return spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
