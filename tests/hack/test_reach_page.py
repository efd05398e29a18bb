"""What hack/soak/reach takes from the pages is there, so that a change of a page does not first show on a node."""

from __future__ import annotations

import yaml
from e2e.kube import ROOT
from kube.additions import LOAD_BALANCER_CLASS, pool
from kube.settings import addresses
from support.page_manifests import shown_yaml
from support.reach_issuers import AUTHORITY
from support.reach_stage import TENANTS, installation, part


def test_the_page_on_reach_shows_each_part_once() -> None:
    assert part("networkPolicy", lambda value: value == {}) == {"networkPolicy": {}}
    narrow = part("networkPolicy", bool)["networkPolicy"]
    assert {"clients", "observer"} == set(narrow)
    assert narrow["clients"][0]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] == "billing"
    outside = part("externalService")
    assert outside["externalService"]["loadBalancerClass"] == LOAD_BALANCER_CLASS
    assert outside["externalService"]["externalTrafficPolicy"] == "Local"
    assert len(outside["tls"]["names"]) == 1


def test_the_issuer_of_the_page_is_the_one_of_the_example() -> None:
    wanted = part("tls", lambda value: "issuerRef" in value)["tls"]["issuerRef"]
    made = [(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(AUTHORITY.read_text())]
    assert (wanted["kind"], wanted["name"]) in made


def test_the_page_on_tenants_shows_one_broker_that_another_namespace_may_use() -> None:
    (broker,) = (each for each in shown_yaml(TENANTS) if each.get("kind") == "Broker")
    assert "billing" in broker["spec"]["allowedNamespaces"]
    assert (broker["metadata"]["namespace"], broker["metadata"]["name"]) == ("shop", "main")
    assert "permissions" in broker["spec"]


def test_readme_installs_the_operator_before_it_makes_a_namespace() -> None:
    first, *rest = installation("localhost")
    assert first.startswith("helm install penstock helm/penstock-operator ")
    assert "--set global.imageRegistry=localhost " in first
    assert rest == ["kubectl create namespace shop"]
    assert (ROOT / "helm/penstock-operator/Chart.yaml").is_file()


def test_services_get_addresses_that_neither_host_nor_node_has() -> None:
    at = addresses()
    first, last = pool(at)
    assert first in at.cable
    assert last in at.cable
    assert not {at.host, at.node} & {str(first + number) for number in range(int(last) - int(first) + 1)}
