"""The objects that belong to a Broker or an Exchange: what they have in common, and the Services. Pure; whole
manifests.

Labels of children are ours alone: a GitOps tool's tracking labels on the parent are not copied, or the tool would
prune them. Source: section 5 of the design (names, serviceName, selector, publishNotReadyAddresses).
"""

from __future__ import annotations

from typing import Final

from penstock_api.resources import Broker, Exchange
from penstock_operator import names
from penstock_operator.manifest import Manifest, controller_uid, text_at

__all__ = [
    "APP",
    "exchange_service",
    "belongs_to_predecessor",
    "is_ours",
    "labels",
    "metadata",
    "pod_selector",
    "services",
]

APP: Final = "penstock-broker"


def pod_selector(broker: Broker) -> Manifest:
    """What a StatefulSet selects its pods by. Immutable there, so nothing is ever added."""
    return {"app.kubernetes.io/name": APP, "app.kubernetes.io/instance": broker.metadata.name}


def labels(broker: Broker) -> Manifest:
    """Labels of every child."""
    return {
        **pod_selector(broker),
        "app.kubernetes.io/managed-by": names.MANAGER,
        names.BROKER_LABEL: broker.metadata.name,
    }


def metadata(owner: Broker | Exchange, broker: Broker, name: str, annotations: Manifest | None = None) -> Manifest:
    """Metadata of a child in its owner's namespace; the cluster removes it with its owner."""
    reference = {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    made: Manifest = {
        "name": name,
        "namespace": owner.metadata.namespace,
        "labels": labels(broker),
        "ownerReferences": [reference],
    }
    return {**made, "annotations": annotations} if annotations else made


def is_ours(observed: Manifest, uid: str) -> bool:
    """Whether an object that is there belongs to the owner with this uid. One that nobody controls is ours by its
    label: a backup was restored, or its owner was deleted without it.
    """
    controller = controller_uid(observed)
    return controller == uid or (controller is None and _is_labelled(observed))


def belongs_to_predecessor(observed: Manifest, uid: str) -> bool:
    """Whether it was made for an owner of the same kind and name that is gone, and goes as well."""
    return _is_labelled(observed) and not is_ours(observed, uid)


def _is_labelled(observed: Manifest) -> bool:
    return text_at(observed, "metadata", "labels", "app.kubernetes.io/managed-by") == names.MANAGER


def services(broker: Broker) -> list[Manifest]:
    """The four Services of a Broker. They publish pods that aren't ready: who reconnects decides himself, DNS never
    blinks.
    """
    name = broker.metadata.name
    management = _port("management", names.MANAGEMENT_PORT)
    observer = _port("observer", names.OBSERVER_PORT)
    return [
        _service(broker, f"{name}-amqp", client_ports(broker)),
        _service(broker, f"{name}-pods", [*client_ports(broker), management, observer], headless=True),
        _service(broker, f"{name}-management", [management]),
        _service(broker, f"{name}-observer", [observer]),
    ]


def exchange_service(broker: Broker, exchange: Exchange, cluster_domain: str) -> Manifest:
    """The Service `<exchange>-x`. In another namespace than the Broker's a selector finds no pod: there it is an
    alias.
    """
    about = metadata(exchange, broker, names.exchange_service(exchange))
    if exchange.metadata.namespace == broker.metadata.namespace:
        spec: Manifest = {
            "selector": pod_selector(broker),
            "ports": client_ports(broker),
            "publishNotReadyAddresses": True,
        }
    else:
        target = names.service_host(f"{broker.metadata.name}-amqp", broker.metadata.namespace)
        spec = {"type": "ExternalName", "externalName": f"{target}.{cluster_domain}", "ports": client_ports(broker)}
    return {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": spec}


def client_ports(broker: Broker) -> list[Manifest]:
    """The ports that clients connect to."""
    ports: list[Manifest] = []
    if broker.spec.listeners.amqps:
        ports.append(_port("amqps", names.AMQPS_PORT))
    if broker.spec.listeners.amqp:
        ports.append(_port("amqp", names.AMQP_PORT))
    if broker.spec.listeners.web_socket:
        ports.append(_port("wss", names.WEB_SOCKET_PORT))
    return ports


def _port(name: str, number: int) -> Manifest:
    return {"name": name, "port": number, "targetPort": number, "protocol": "TCP"}


def _service(broker: Broker, name: str, ports: list[Manifest], *, headless: bool = False) -> Manifest:
    spec: Manifest = {"selector": pod_selector(broker), "ports": ports, "publishNotReadyAddresses": True}
    if headless:
        spec["clusterIP"] = "None"
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata(broker, broker, name), "spec": spec}
