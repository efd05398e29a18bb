"""On a cluster of IPv6 the pods listen on all their addresses; on any other nothing is different."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml
from support.operator_in_memory import SETTINGS, World, resource
from support.resources import broker

from penstock_operator import names
from penstock_operator.children.stateful_set import PinnedPods, broker_stateful_set
from penstock_operator.settings import OperatorSettings

PINNED = PinnedPods(image="r/broker:1", default_image="r/broker:1", revision=1)
IMAGES = {"PENSTOCK_OPERATOR_BROKER_IMAGE": "b:1", "PENSTOCK_OPERATOR_LAG_IMAGE": "l:1"}


def test_broker_observer_and_probes_listen_on_all_addresses() -> None:
    made = broker(listeners={"amqps": True, "amqp": True, "webSocket": True})
    children: Any = broker_stateful_set(made, PINNED, host=names.ALL_ADDRESSES)
    stateful_set, config_map = children
    settings = yaml.safe_load(config_map["data"]["broker.yaml"])
    assert [it["address"] for it in settings["listeners"]] == ["[::]:5671", "[::]:5672", "[::]:5443"]
    assert (settings["management"]["address"], settings["probes"]) == ("[::]:5670", "[::]:8081")
    (observer,) = (it for it in stateful_set["spec"]["template"]["spec"]["containers"] if it["name"] == "observer")
    assert "--listen=[::]:8080" in observer["args"]


def test_the_address_of_the_api_server_tells_which_cluster_it_is() -> None:
    for address, expected in (("fd00:10:96::1", True), ("10.96.0.1", False), ("", False)):
        found = OperatorSettings.from_environment({**IMAGES, "KUBERNETES_SERVICE_HOST": address})
        assert found.has_ipv6 is expected


@pytest.mark.parametrize(("has_ipv6", "address"), [(True, "[::]:8081"), (False, "0.0.0.0:8081")])
async def test_the_operator_makes_the_pods_of_its_cluster(has_ipv6: bool, address: str) -> None:
    world = World(settings=replace(SETTINGS, has_ipv6=has_ipv6))
    world.api.user_applies(resource("Broker", "main"))
    await world.calm_down()
    config_map: Any = world.api.objects["ConfigMap", "shop", "main-config"]
    assert yaml.safe_load(config_map["data"]["broker.yaml"])["probes"] == address
