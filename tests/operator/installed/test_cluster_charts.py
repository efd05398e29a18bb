"""The rendered charts: least privilege, Pod Security level restricted, and checked values."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from e2e.kube import ROOT, Kube, own_cluster_environment
from e2e.story import StoryError

from penstock_api.resources import load

pytestmark = pytest.mark.cluster
OPERATOR, BROKER = str(ROOT / "helm/penstock-operator"), str(ROOT / "helm/penstock-broker")


@pytest.fixture(scope="module")
def kube() -> Kube:
    return Kube("default", own_cluster_environment())


def rendered(kube: Kube, chart: str, *settings: str) -> list[dict[str, Any]]:
    text = kube.helm("template", "one", chart, "--namespace", "home", *(f"--set={it}" for it in settings))
    return [document for document in yaml.safe_load_all(text) if document]


def rules(documents: list[dict[str, Any]], kind: str, name: str) -> list[dict[str, Any]]:
    return [
        rule
        for document in documents
        if document["kind"] == kind and document["metadata"]["name"] == name
        for rule in document["rules"]
    ]


def test_charts_are_clean(kube: Kube) -> None:
    kube.helm("lint", "--strict", OPERATOR, BROKER)


def test_no_wild_cards_no_exec_and_secrets_one_by_one(kube: Kube) -> None:
    documents = rendered(kube, OPERATOR)
    found = [rule for document in documents for rule in document.get("rules", [])]
    assert not any("*" in word for rule in found for words in rule.values() for word in words)
    assert not any("pods/exec" in rule.get("resources", []) for rule in found)
    (secrets,) = (rule for rule in found if "secrets" in rule.get("resources", []))
    assert sorted(secrets["verbs"]) == ["create", "get", "patch"]


def test_with_namespaces_only_penstock_s_own_kinds_are_for_the_whole_cluster(kube: Kube) -> None:
    documents = rendered(kube, OPERATOR, "watchNamespaces={a,b}", "rbac.aggregate=false")
    roles = [it["metadata"]["namespace"] for it in documents if it["kind"] == "Role"]
    assert roles == ["a", "b"]
    (cluster_role,) = (it for it in documents if it["kind"] == "ClusterRole")
    others = [rule for rule in cluster_role["rules"] if rule.get("apiGroups") != ["penstock.dev"]]
    assert others == [
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
        {"nonResourceURLs": ["/.well-known/openid-configuration", "/openid/v1/jwks"], "verbs": ["get"]},
    ]


def test_the_crds_can_be_left_out_and_are_kept(kube: Kube) -> None:
    crds = [it for it in rendered(kube, OPERATOR) if it["kind"] == "CustomResourceDefinition"]
    assert [it["metadata"]["annotations"] for it in crds] == [{"helm.sh/resource-policy": "keep"}] * 3
    without = rendered(kube, OPERATOR, "crds.enabled=false")
    assert not [it for it in without if it["kind"] == "CustomResourceDefinition"]


def test_two_operators_never_run_at_once(kube: Kube) -> None:
    (deployment,) = (it for it in rendered(kube, OPERATOR) if it["kind"] == "Deployment")
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (1, {"type": "Recreate"})


def test_a_digest_takes_the_place_of_the_tag(kube: Kube) -> None:
    digest = f"sha256:{'0123456789abcdef' * 4}"
    documents = rendered(kube, OPERATOR, "image.tag=old", f"image.digest={digest}", f"brokerImage.digest={digest}")
    (deployment,) = (it for it in documents if it["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"localhost/penstock-operator@{digest}"
    variables = {it["name"]: it.get("value") for it in container["env"]}
    assert variables["PENSTOCK_OPERATOR_BROKER_IMAGE"] == f"localhost/penstock-broker@{digest}"


@pytest.mark.parametrize("chart", [OPERATOR, BROKER])
def test_the_api_server_knows_every_field_that_a_chart_renders(kube: Kube, chart: str) -> None:
    kube.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    kube.kubectl("wait", "--for=condition=Established", "-f", str(ROOT / "crds"), "--timeout=60s")
    text = kube.helm(
        "template",
        "one",
        chart,
        "--namespace",
        kube.namespace,
        *(["--set=crds.enabled=false"] if chart == OPERATOR else []),
    )
    kube.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)


def test_the_broker_chart_renders_good_resources(kube: Kube) -> None:
    text = yaml.safe_dump_all(rendered(kube, BROKER, "subscriptions.second.bindingKeys={a}", "broker.name=main"))
    found = {(it.kind, it.metadata.name) for it in load(text)}
    assert found == {
        ("Broker", "main"),
        ("Exchange", "events"),
        ("Subscription", "all-events"),
        ("Subscription", "second"),
    }


@pytest.mark.parametrize(
    ("chart", "setting"),
    [
        (OPERATOR, "watchNamespaces={Team_A}"),
        (OPERATOR, "logLevel=loud"),
        (OPERATOR, "imagee.tag=x"),
        (OPERATOR, "image.digest=latest"),
        (BROKER, "broker.name=1st"),
        (BROKER, "exchanges.events.type=Queue"),
        (BROKER, "subscriptions.a.brokerRef.name=b"),
    ],
)
def test_values_are_checked(kube: Kube, chart: str, setting: str) -> None:
    with pytest.raises(StoryError, match="values don't meet the specifications"):
        rendered(kube, chart, setting)
