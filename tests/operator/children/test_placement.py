"""Tolerations, affinity and topology spread in the pod template."""

from __future__ import annotations

from typing import Any

import pytest
from support.resources import broker

from penstock_operator.children.placement import placement
from penstock_operator.children.stateful_set import PinnedPods, broker_stateful_set

PINNED = PinnedPods(image="r/broker:1", default_image="r/broker:1", revision=1)
NOT_READY = {
    "key": "node.kubernetes.io/not-ready",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 300,
}
UNREACHABLE = {**NOT_READY, "key": "node.kubernetes.io/unreachable"}


def pod(**options: Any) -> Any:
    made: Any = broker_stateful_set(broker(pod=options), PINNED)[0]
    return made["spec"]["template"]["spec"]


def test_a_broker_that_says_nothing_about_places_has_the_template_of_before() -> None:
    assert placement(broker()) == {}
    assert {"tolerations", "affinity", "topologySpreadConstraints"}.isdisjoint(pod())


@pytest.mark.parametrize(
    ("given", "added"),
    [
        pytest.param({"key": "dedicated", "value": "messaging"}, [NOT_READY, UNREACHABLE], id="another-taint"),
        pytest.param({"operator": "Exists"}, [NOT_READY, UNREACHABLE], id="every-taint-for-ever"),
        pytest.param({**NOT_READY, "tolerationSeconds": 20}, [UNREACHABLE], id="its-own-time"),
        pytest.param(
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists"}, [NOT_READY], id="every-effect-of-it"
        ),
        pytest.param(
            {**UNREACHABLE, "effect": "NoSchedule", "tolerationSeconds": None}, [NOT_READY, UNREACHABLE], id="schedule"
        ),
    ],
)
def test_no_pod_tolerates_a_lost_node_for_ever_unless_somebody_says_so(
    given: dict[str, Any], added: list[dict[str, Any]]
) -> None:
    first, *others = pod(tolerations=[given])["tolerations"]
    assert first == {key: value for key, value in given.items() if value is not None}
    assert others == added


def test_affinity_is_taken_as_it_is_written() -> None:
    brokers = {"matchLabels": {"app.kubernetes.io/name": "penstock-broker"}}
    zone = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]
    written = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": zone}},
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 50,
                    "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": brokers},
                }
            ]
        },
    }
    assert pod(affinity=written)["affinity"] == written


def test_spread_is_taken_as_it_is_written() -> None:
    written = [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "minDomains": 2,
            "nodeTaintsPolicy": "Honor",
            "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
        }
    ]
    assert pod(topologySpreadConstraints=written)["topologySpreadConstraints"] == written
