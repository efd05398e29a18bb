"""The NetworkPolicy of a Broker, only if its spec asks for one: who reaches which port of the pods.

What must work always gets in: the operator to management and observer, and the lag job to the observer. Kubelet's
probes come from the pod's own node, which no policy keeps out. What the pods connect to is not limited. Source:
Kubernetes, "Network Policies"; docs/decisions/101-reach.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock_api.resources import Broker
from penstock_api.resources.network import NetworkPeer
from penstock_operator import names
from penstock_operator.children.lag_schedules import KINDS
from penstock_operator.children.metadata import child_metadata, pod_selector
from penstock_operator.children.services import client_ports
from penstock_operator.manifest import Manifest

__all__ = ["network_policies"]

_NAMESPACE: Final = "kubernetes.io/metadata.name"
"""The label that the API server gives to every namespace."""
_EVERY_POD: Final[Manifest] = {"namespaceSelector": {}}
_OWN_NAMESPACE: Final[Manifest] = {"podSelector": {}}


def network_policies(broker: Broker, operator_namespace: str) -> list[Manifest]:
    """The NetworkPolicy; none if the spec asks for none.

    `operator_namespace`: where the operator runs, empty if it runs outside the cluster; management and observer are
    then open for everybody, who still has to log in.
    """
    wanted = broker.spec.network_policy
    if wanted is None:
        return []
    clients = _clients(broker) if wanted.clients is None else [_peer(each) for each in wanted.clients]
    rules = [
        *([] if clients == [] else [_rule([port["port"] for port in client_ports(broker)], clients)]),
        _rule([names.MANAGEMENT_PORT], _operator(operator_namespace)),
        _rule([names.OBSERVER_PORT], _of_the_observer(broker, wanted.observer, operator_namespace)),
    ]
    spec: Manifest = {
        "podSelector": {"matchLabels": pod_selector(broker)},
        "policyTypes": ["Ingress"],
        "ingress": rules,
    }
    about = child_metadata(broker, broker, broker.metadata.name)
    return [{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": about, "spec": spec}]


def _rule(ports: Sequence[object], peers: list[Manifest] | None) -> Manifest:
    """One rule; None as peers: from everywhere."""
    rule: Manifest = {"ports": [{"protocol": "TCP", "port": port} for port in ports]}
    return rule if peers is None else {**rule, "from": peers}


def _clients(broker: Broker) -> list[Manifest] | None:
    """Who may connect if the spec does not say: whose resources may use the Broker, and everybody if it has a Service
    for clients outside. Their addresses are known only if the load balancer takes some ranges alone and passes them on.
    """
    external = broker.spec.external_service
    ranges: list[Manifest] = []
    if external is not None and external.type != "ClusterIP":
        if external.external_traffic_policy != "Local" or not external.load_balancer_source_ranges:
            return None
        ranges = [{"ipBlock": {"cidr": cidr}} for cidr in external.load_balancer_source_ranges]
    allowed = broker.spec.allowed_namespaces
    if "*" in allowed:
        return [_EVERY_POD, *ranges]
    others = sorted(set(allowed) - {broker.metadata.namespace})
    return [_OWN_NAMESPACE, *([_namespaces(others)] if others else []), *ranges]


def _operator(namespace: str) -> list[Manifest] | None:
    return [_namespaces([namespace])] if namespace else None


def _of_the_observer(
    broker: Broker, peers: Sequence[NetworkPeer] | None, operator_namespace: str
) -> list[Manifest] | None:
    """Also the lag job: the operator's one runs beside it, a Broker's own one in the Broker's namespace."""
    if not operator_namespace:
        return None
    if peers is None:
        return [_EVERY_POD]
    own_job = [_OWN_NAMESPACE] if broker.spec.lag_analysis.backend in KINDS else []
    return [_namespaces([operator_namespace]), *own_job, *(_peer(each) for each in peers)]


def _namespaces(found: list[str]) -> Manifest:
    return {"namespaceSelector": {"matchExpressions": [{"key": _NAMESPACE, "operator": "In", "values": found}]}}


def _peer(peer: NetworkPeer) -> Manifest:
    if peer.cidr is not None:
        return {"ipBlock": {"cidr": peer.cidr}}
    return peer.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
