"""Names that users and other programs rely on: labels, annotations, ports, Services, addresses.

Source: docs/decisions/050-names-of-children.md, docs/reference/operator.md.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from penstock_api import declaration
from penstock_api.resources import Broker, Exchange

__all__ = [
    "ALL_ADDRESSES",
    "ALL_IPV4",
    "AMQPS_PORT",
    "AMQP_PORT",
    "BROKER_LABEL",
    "BROKER_NAMESPACE_LABEL",
    "DELETE_PROTECTION",
    "FINALIZER",
    "FORCE_DELETE",
    "LAG_MANAGER",
    "MANAGED_BY",
    "MANAGEMENT_PORT",
    "MANAGER",
    "OBSERVER_PORT",
    "PAUSED",
    "PROBE_PORT",
    "ROTATE_CA",
    "SCALE_TOKEN",
    "USER_AGENT",
    "WEB_SOCKET_PORT",
    "address",
    "exchange_service",
    "service_host",
]

MANAGER: Final = "penstock-operator"
"""The field manager of what the operator applies, and the value of the label `app.kubernetes.io/managed-by`."""
USER_AGENT: Final = f"{MANAGER}/{version('penstock')}"
"""The operator's name in requests to the API server, which its audit log shows."""
MANAGED_BY: Final = "app.kubernetes.io/managed-by=penstock-operator"
"""Selects the operator's objects by their label."""
LAG_MANAGER: Final = "penstock-lag"
"""The field manager of `status.lag` and of the conditions Lagging and LagFresh."""
FINALIZER: Final = "penstock.dev/topology"
BROKER_LABEL: Final = "penstock.dev/broker"
BROKER_NAMESPACE_LABEL: Final = "penstock.dev/broker-namespace"
"""On what is made for a Broker in another namespace than its own."""
PAUSED: Final = "penstock.dev/paused"
DELETE_PROTECTION: Final = "penstock.dev/delete-protection"
FORCE_DELETE: Final = "penstock.dev/force-delete"
ROTATE_CA: Final = "penstock.dev/rotate-ca"
SCALE_TOKEN: Final = "penstock.dev/scale-token"

AMQPS_PORT: Final = 5671
AMQP_PORT: Final = 5672
WEB_SOCKET_PORT: Final = 5443
MANAGEMENT_PORT: Final = 5670
OBSERVER_PORT: Final = 8080
PROBE_PORT: Final = 8081

ALL_IPV4: Final = "0.0.0.0"
ALL_ADDRESSES: Final = "[::]"
"""All addresses of a pod, of IPv6 and IPv4."""


def service_host(service: str, namespace: str) -> str:
    """The DNS name of a Service, as server certificates contain it."""
    return f"{service}.{namespace}.svc"


def exchange_service(exchange: Exchange) -> str:
    """The name of the Service of an Exchange. Clients use it, so that the Exchange can move to another pod later."""
    return f"{exchange.metadata.name}-x"


def address(broker: Broker, exchange: Exchange) -> str:
    """The URL of an exchange for clients."""
    host = service_host(exchange_service(exchange), exchange.metadata.namespace)
    return f"{authority(broker, host)}/{declaration.exchange_name(exchange)}"


def broker_address(broker: Broker) -> str:
    """The URL of a Broker for clients."""
    return authority(broker, service_host(f"{broker.metadata.name}-amqp", broker.metadata.namespace))


def authority(broker: Broker, host: str) -> str:
    """Scheme, host and port of a Broker's URL: amqps if it has that listener, else amqp, else AMQP over WebSocket."""
    listeners = broker.spec.listeners
    if listeners.amqps:
        return f"amqps://{host}:{AMQPS_PORT}"
    return f"amqp://{host}:{AMQP_PORT}" if listeners.amqp else f"amqpwss://{host}:{WEB_SOCKET_PORT}"
