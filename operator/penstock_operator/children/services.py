"""The Services of a Broker, and the Service of an Exchange.

They publish pods that are not ready (`publishNotReadyAddresses`): a client that reconnects finds the name while the pod
starts, and new clients are served while the observer crash-loops. They also publish a pod that ends, for a moment
longer than it has a network; what clients do about that is in docs/decisions/107-addresses-of-deleted-pods.md. Source:
docs/decisions/050-names-of-children.md, docs/decisions/051-broker-pods.md.
"""

from __future__ import annotations

from penstock_api.resources import Broker, Exchange
from penstock_operator import names
from penstock_operator.children.metadata import child_metadata, pod_selector
from penstock_operator.manifest import Manifest

__all__ = ["broker_services", "client_ports", "exchange_service"]


def broker_services(broker: Broker) -> list[Manifest]:
    """The four Services of a Broker: for clients, for each pod, for the management, for the observer."""
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
    """The Service `<exchange>-x`.

    A selector finds no pods of another namespace. If the Broker is in another namespace, the Service is an alias
    (`ExternalName`) of the Broker's Service.
    """
    about = child_metadata(exchange, broker, names.exchange_service(exchange))
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
    """The ports of the listeners that the Broker has, as a Service lists them."""
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
    return {"apiVersion": "v1", "kind": "Service", "metadata": child_metadata(broker, broker, name), "spec": spec}
