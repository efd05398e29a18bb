"""The Service of a Broker for clients outside the cluster, and the address that it has there.

It is a Service of its own: the address inside the cluster does not change with it, and a listener without TLS is only
offered outside if the spec names it. Source: docs/decisions/101-reach.md.
"""

from __future__ import annotations

from typing import Final

from penstock_api.resources import Broker
from penstock_api.resources.server_tls import is_address
from penstock_operator.children.metadata import child_metadata, pod_selector
from penstock_operator.children.services import client_ports
from penstock_operator.manifest import Manifest, items_of, text_at

__all__ = ["external_address", "external_services", "outside_names", "service_name"]

_PORT_NAMES: Final = {"amqps": "amqps", "amqp": "amqp", "webSocket": "wss"}
_SCHEMES: Final = {"amqps": "amqps", "wss": "amqpwss", "amqp": "amqp"}
"""By names of ports, in the order in which an address prefers them."""


def service_name(broker: Broker) -> str:
    """The name of the Service."""
    return f"{broker.metadata.name}-external"


def external_services(broker: Broker) -> list[Manifest]:
    """The Service; none if the spec asks for none."""
    wanted = broker.spec.external_service
    if wanted is None:
        return []
    spec: Manifest = {
        "type": wanted.type,
        "selector": pod_selector(broker),
        "ports": _ports(broker),
        "publishNotReadyAddresses": True,
    }
    if wanted.external_traffic_policy is not None:
        spec["externalTrafficPolicy"] = wanted.external_traffic_policy
    if wanted.load_balancer_class is not None:
        spec["loadBalancerClass"] = wanted.load_balancer_class
    if wanted.load_balancer_source_ranges:
        spec["loadBalancerSourceRanges"] = list(wanted.load_balancer_source_ranges)
    about = child_metadata(broker, broker, service_name(broker), dict(wanted.annotations))
    return [{"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": spec}]


def _ports(broker: Broker) -> list[Manifest]:
    """The ports of the listeners that are offered outside: those that the spec names, else those with TLS."""
    wanted = broker.spec.external_service
    named = None if wanted is None else wanted.listeners
    offered = {_PORT_NAMES[each] for each in named or ("amqps", "webSocket")}
    return [port for port in client_ports(broker) if port["name"] in offered]


def outside_names(observed: Manifest | None) -> tuple[str, ...]:
    """The names and IP addresses that a load balancer has given to the Service, sorted."""
    found = items_of(observed, "status", "loadBalancer", "ingress")
    given = {text_at(each, key) for each in found for key in ("hostname", "ip")}
    return tuple(sorted(each for each in given if each))


def external_address(broker: Broker, observed: Manifest | None) -> str | None:
    """The URL for clients outside; None while nobody has given the Service a name, an address or a port."""
    wanted = broker.spec.external_service
    if wanted is None or observed is None:
        return None
    given = outside_names(observed)
    named = next((each for each in broker.spec.tls.names if not each.startswith("*")), None)
    host = named or next((each for each in given if not is_address(each)), next(iter(given), None))
    ports = {str(port.get("name")): port for port in items_of(observed, "spec", "ports")}
    name = next((each for each in _SCHEMES if each in ports), None)
    if host is None or name is None or (wanted.type == "LoadBalancer" and not given):
        return None
    number = ports[name].get("nodePort" if wanted.type == "NodePort" else "port")
    if not isinstance(number, int):
        return None
    return f"{_SCHEMES[name]}://{f'[{host}]' if ':' in host else host}:{number}"
