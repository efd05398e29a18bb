"""The Service for clients outside the cluster, and the address that is shown for it."""

from __future__ import annotations

from typing import Any

import pytest
from support.resources import broker

from penstock_operator.children.external_service import external_address, external_services, outside_names
from penstock_operator.children.metadata import child_metadata
from penstock_operator.children.network_policy import network_policies

OWN: dict[str, Any] = {"podSelector": {}}
ALL = {"amqps": True, "amqp": True, "webSocket": True}


def port(name: str, number: int) -> dict[str, Any]:
    return {"name": name, "port": number, "targetPort": number, "protocol": "TCP"}


def test_a_broker_that_asks_for_none_has_none() -> None:
    assert external_services(broker()) == []


def test_the_whole_of_it() -> None:
    annotations: dict[str, Any] = {"example.com/internal": "true"}
    service = {
        "annotations": annotations,
        "loadBalancerClass": "example.com/lb",
        "externalTrafficPolicy": "Local",
        "loadBalancerSourceRanges": ["10.0.0.0/8"],
    }
    assert external_services(broker(externalService=service)) == [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": child_metadata(broker(), broker(), "main-external", annotations),
            "spec": {
                "type": "LoadBalancer",
                "selector": {"app.kubernetes.io/name": "penstock-broker", "app.kubernetes.io/instance": "main"},
                "ports": [port("amqps", 5671)],
                "publishNotReadyAddresses": True,
                "externalTrafficPolicy": "Local",
                "loadBalancerClass": "example.com/lb",
                "loadBalancerSourceRanges": ["10.0.0.0/8"],
            },
        }
    ]


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        pytest.param({}, [port("amqps", 5671), port("wss", 5443)], id="without-a-word-none-without-tls"),
        pytest.param({"listeners": ["webSocket"]}, [port("wss", 5443)], id="one"),
        pytest.param({"listeners": ["amqp"]}, [port("amqp", 5672)], id="without-tls-if-named"),
    ],
)
def test_which_listeners_are_offered_outside(service: dict[str, Any], expected: list[Any]) -> None:
    (made,) = external_services(broker(listeners=ALL, externalService=service))
    spec: Any = made["spec"]
    assert spec["ports"] == expected


def observed(*ingress: dict[str, str], node_port: int = 31671) -> dict[str, Any]:
    return {
        "spec": {"ports": [{**port("wss", 5443), "nodePort": 1}, {**port("amqps", 5671), "nodePort": node_port}]},
        "status": {"loadBalancer": {"ingress": [*ingress]}},
    }


@pytest.mark.parametrize(
    ("service", "names", "there", "expected"),
    [
        pytest.param({}, [], observed(), None, id="no-address-yet"),
        pytest.param({}, ["b.example"], observed(), None, id="a-name-but-no-address-yet"),
        pytest.param({}, [], None, None, id="no-service-yet"),
        pytest.param({}, [], observed({"ip": "10.1.2.3"}), "amqps://10.1.2.3:5671", id="ip"),
        pytest.param({}, [], observed({"ip": "fd00::1"}), "amqps://[fd00::1]:5671", id="ip-6"),
        pytest.param(
            {}, [], observed({"ip": "10.1.2.3", "hostname": "lb.example"}), "amqps://lb.example:5671", id="name"
        ),
        pytest.param({}, ["*.x", "b.example"], observed({"ip": "10.1.2.3"}), "amqps://b.example:5671", id="own-name"),
        pytest.param({"type": "NodePort"}, [], observed(), None, id="node-port-of-no-name"),
        pytest.param({"type": "NodePort"}, ["n.example"], observed(), "amqps://n.example:31671", id="node-port"),
    ],
)
def test_the_address_outside(service: dict[str, Any], names: list[str], there: Any, expected: str | None) -> None:
    assert external_address(broker(externalService=service, tls={"names": names}), there) == expected


def test_without_the_service_there_is_no_address() -> None:
    assert external_address(broker(), observed({"ip": "10.1.2.3"})) is None


def test_every_name_of_a_load_balancer_is_one() -> None:
    assert outside_names(observed({"ip": "10.1.2.3", "hostname": "lb.example"}, {"ip": "10.1.2.2"})) == (
        "10.1.2.2",
        "10.1.2.3",
        "lb.example",
    )


@pytest.mark.parametrize(
    ("service", "clients"),
    [
        pytest.param({"type": "ClusterIP"}, [OWN], id="inside"),
        pytest.param({}, None, id="anywhere"),
        pytest.param({"type": "NodePort"}, None, id="nodes"),
        pytest.param({"loadBalancerSourceRanges": ["10.0.0.0/8"]}, None, id="addresses-of-nodes"),
        pytest.param(
            {"loadBalancerSourceRanges": ["10.0.0.0/8"], "externalTrafficPolicy": "Local"},
            [OWN, {"ipBlock": {"cidr": "10.0.0.0/8"}}],
            id="ranges",
        ),
    ],
)
def test_a_network_policy_lets_clients_outside_in(service: dict[str, Any], clients: list[Any] | None) -> None:
    (policy,) = network_policies(broker(externalService=service, networkPolicy={}), "home")
    spec: Any = policy["spec"]
    assert spec["ingress"][0].get("from") == clients
