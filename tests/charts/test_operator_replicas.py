"""One operator or several: what the chart renders for them."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import yaml
from e2e.kube import ROOT
from kube.binaries import located
from kube.settings import folders


def helm(*settings: str) -> subprocess.CompletedProcess[str]:
    command = [
        str(located(folders())["helm"]),
        "template",
        "one",
        str(ROOT / "helm/penstock-operator"),
        "--namespace=home",
        *(f"--set={it}" for it in settings),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rendered(*settings: str) -> dict[tuple[str, str], dict[str, Any]]:
    """What the chart renders, by kind and name."""
    answer = helm(*settings)
    assert answer.returncode == 0, answer.stderr
    documents = [it for it in yaml.safe_load_all(answer.stdout) if it]
    return {(it["kind"], it["metadata"]["name"]): it for it in documents}


pytestmark = pytest.mark.built  # hack/cluster builds Helm

NAME = "one-penstock-operator"


def test_one_operator_goes_before_its_successor_comes() -> None:
    found = rendered()
    spec = found["Deployment", NAME]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert "affinity" not in spec["template"]["spec"]
    assert ("PodDisruptionBudget", NAME) not in found


def test_two_operators_are_on_two_nodes_and_are_replaced_one_by_one() -> None:
    found = rendered("replicas=2")
    spec = found["Deployment", NAME]["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    labels = {"app.kubernetes.io/name": "penstock-operator", "app.kubernetes.io/instance": "one"}
    (term,) = spec["template"]["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"] == {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": labels},
        # Else the second of the new pods is as far from an old one as from the first new one.
        "matchLabelKeys": ["pod-template-hash"],
    }
    budget = found["PodDisruptionBudget", NAME]["spec"]
    assert (budget["maxUnavailable"], budget["selector"]["matchLabels"]) == (1, labels)


def test_an_affinity_of_the_values_is_the_only_one() -> None:
    found = rendered("replicas=2", "affinity.nodeAffinity.x=y")
    assert found["Deployment", NAME]["spec"]["template"]["spec"]["affinity"] == {"nodeAffinity": {"x": "y"}}


def test_each_operator_knows_the_lease_and_its_own_name() -> None:
    (container,) = rendered("leaseSeconds=30")["Deployment", NAME]["spec"]["template"]["spec"]["containers"]
    variables = {it["name"]: it.get("value", it.get("valueFrom")) for it in container["env"]}
    assert variables["PENSTOCK_OPERATOR_LEASE"] == NAME
    assert variables["PENSTOCK_OPERATOR_LEASE_SECONDS"] == "30"
    assert variables["PENSTOCK_OPERATOR_IDENTITY"] == {"fieldRef": {"fieldPath": "metadata.name"}}


@pytest.mark.parametrize("settings", [(), ("watchNamespaces={a,b}",)], ids=["cluster-wide", "namespaced"])
def test_the_operator_may_change_its_own_lease_and_no_other(settings: tuple[str, ...]) -> None:
    found = rendered(*settings)
    role = found["Role", f"{NAME}-lease"]
    assert role["metadata"]["namespace"] == "home"
    assert role["rules"] == [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": [NAME],
            "verbs": ["get", "patch", "update"],
        },
    ]
    binding = found["RoleBinding", f"{NAME}-lease"]
    assert (binding["metadata"]["namespace"], binding["roleRef"]["name"]) == ("home", f"{NAME}-lease")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": "home"}]
    others = [it for key, it in found.items() if key[0] in ("Role", "ClusterRole") and key[1] != f"{NAME}-lease"]
    about_leases = [rule for it in others for rule in it["rules"] if "leases" in rule.get("resources", [])]
    # Whether another operator, which a Broker names, still lives: docs/decisions/120-one-operator-manages-a-broker.md.
    assert about_leases == [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}]


@pytest.mark.parametrize("setting", ["replicas=6", "replicas=-1", "leaseSeconds=4", "replicas=two"])
def test_what_can_t_be_used_is_refused(setting: str) -> None:
    answer = helm(setting)
    assert answer.returncode != 0
    assert setting.partition("=")[0] in answer.stderr


LOST = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def tolerations(*settings: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rendered(*settings)["Deployment", NAME]["spec"]["template"]["spec"]["tolerations"]
    return found


def test_an_operator_is_replaced_soon_after_its_node_is_lost() -> None:
    # It has no volume, and the Lease lets one alone lead: nothing is gained by the five minutes of every pod.
    soon = [{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30} for key in LOST]
    assert tolerations() == soon
    assert tolerations("tolerations[0].operator=Exists") == [{"operator": "Exists"}, *soon]


def test_a_toleration_of_the_values_for_a_lost_node_takes_the_place_of_the_charts() -> None:
    own = {"key": LOST[1], "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 600}
    settings = [f"tolerations[0].{name}={value}" for name, value in own.items()]
    assert [it["tolerationSeconds"] for it in tolerations(*settings) if it["key"] == LOST[1]] == [600]
    assert [it["tolerationSeconds"] for it in tolerations(*settings) if it["key"] == LOST[0]] == [30]
