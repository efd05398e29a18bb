"""The rendered charts: least privilege, Pod Security level restricted, and checked values."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from e2e.kube import ROOT, Kube, own_cluster_environment
from e2e.story import StoryError

from penstock_api.resources import load

pytestmark = pytest.mark.built  # hack/cluster builds Helm
OPERATOR, BROKER = str(ROOT / "helm/penstock-operator"), str(ROOT / "helm/penstock-broker")
USERS = "broker.spec.authentication.usersSecretRef.name=users"
EVENTS = (USERS, "exchanges.events.type=Topic", "subscriptions.all-events.exchangeRef.name=events")


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
    kube.helm("lint", "--strict", OPERATOR)
    kube.helm("lint", "--strict", BROKER, f"--set={USERS}")


def test_no_wild_cards_no_exec_and_secrets_one_by_one(kube: Kube) -> None:
    documents = rendered(kube, OPERATOR)
    found = [rule for document in documents for rule in document.get("rules", [])]
    assert not any("*" in word for rule in found for words in rule.values() for word in words)
    assert not any("pods/exec" in rule.get("resources", []) for rule in found)
    by_name, others = sorted(
        (rule for rule in found if "secrets" in rule.get("resources", [])), key=lambda it: "resourceNames" not in it
    )
    assert (by_name["resourceNames"], others.get("resourceNames")) == (["one-lag"], None)
    assert sorted(by_name["verbs"]) == ["create", "get", "patch"]
    assert sorted(others["verbs"]) == ["create", "delete", "get", "patch"]


def test_with_namespaces_only_penstock_s_own_kinds_are_for_the_whole_cluster(kube: Kube) -> None:
    documents = rendered(kube, OPERATOR, "watchNamespaces={a,b}", "rbac.aggregate=false")
    roles = [it["metadata"]["namespace"] for it in documents if it["kind"] == "Role"]
    assert roles == ["home", "home", "a", "b"]
    (cluster_role,) = (it for it in documents if it["kind"] == "ClusterRole")
    others = [rule for rule in cluster_role["rules"] if rule.get("apiGroups") != ["penstock.dev"]]
    assert others == [
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
        {"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": ["get"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]},
        {"nonResourceURLs": ["/.well-known/openid-configuration", "/openid/v1/jwks"], "verbs": ["get"]},
    ]


def test_observers_ask_about_tokens_only_where_the_values_name_their_broker(kube: Kube) -> None:
    assert not [it for it in rendered(kube, OPERATOR) if it["metadata"]["name"].endswith("page-login")]
    documents = [
        it
        for it in rendered(kube, OPERATOR, "pageLogin.brokers={shop/main,hub/b-1}")
        if it["metadata"]["name"].endswith("page-login")
    ]
    role, binding = sorted(documents, key=lambda it: str(it["kind"]))
    assert role["rules"] == [
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    ]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [(it["kind"], it["namespace"], it["name"]) for it in binding["subjects"]] == [
        ("ServiceAccount", "shop", "main-observer"),
        ("ServiceAccount", "hub", "b-1-observer"),
    ]


def test_the_cluster_s_roles_see_the_page_and_only_admin_sees_messages(kube: Kube) -> None:
    who: dict[str, set[str]] = {"brokers/page": set(), "brokers/messages": set()}
    for document in rendered(kube, OPERATOR):
        labels = document["metadata"].get("labels", {})
        roles = {
            label.rpartition("-")[2] for label in labels if label.startswith("rbac.authorization.k8s.io/aggregate-to")
        }
        for rule in document.get("rules", []):
            for resource in who.keys() & set(rule.get("resources", [])):
                assert rule["verbs"] == ["get"]
                who[resource] |= roles
    assert who == {"brokers/page": {"admin", "edit", "view"}, "brokers/messages": {"admin"}}


def test_the_crds_can_be_left_out_and_are_kept(kube: Kube) -> None:
    crds = [it for it in rendered(kube, OPERATOR) if it["kind"] == "CustomResourceDefinition"]
    kept = {"helm.sh/resource-policy": "keep", "penstock.dev/delete-protection": "true"}
    assert [it["metadata"]["annotations"] for it in crds] == [kept] * len(list((ROOT / "crds").glob("*.yaml")))
    without = rendered(kube, OPERATOR, "crds.enabled=false")
    assert not [it for it in without if it["kind"] == "CustomResourceDefinition"]


def test_the_operator_runs_as_any_user_but_root(kube: Kube) -> None:
    """Without a number the image's own user holds, or the one of the namespace's range on OpenShift."""
    (deployment,) = (it for it in rendered(kube, OPERATOR) if it["kind"] == "Deployment")
    found = deployment["spec"]["template"]["spec"]["securityContext"]
    assert found == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_a_digest_takes_the_place_of_the_tag(kube: Kube) -> None:
    digest = f"sha256:{'0123456789abcdef' * 4}"
    documents = rendered(kube, OPERATOR, "image.tag=old", f"image.digest={digest}", f"brokerImage.digest={digest}")
    (deployment,) = (it for it in documents if it["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"localhost/penstock-operator@{digest}"
    variables = {it["name"]: it.get("value") for it in container["env"]}
    assert variables["PENSTOCK_OPERATOR_BROKER_IMAGE"] == f"localhost/penstock-broker@{digest}"


@pytest.mark.cluster
@pytest.mark.parametrize("chart", [OPERATOR, BROKER])
def test_the_api_server_knows_every_field_that_a_chart_renders(kube: Kube, chart: str) -> None:
    kube.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    kube.kubectl("wait", "--for=condition=Established", "-f", str(ROOT / "crds"), "--timeout=60s")
    # The API server takes a pod, such as that of a hook, only if its ServiceAccount exists.
    operator = ("crds.enabled=false", "serviceAccount.create=false", "serviceAccount.name=default")
    text = kube.helm(
        "template",
        "one",
        chart,
        "--namespace",
        kube.namespace,
        *(f"--set={it}" for it in (operator if chart == OPERATOR else (*EVENTS, "test.user=app"))),
    )
    kube.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)


def test_the_broker_chart_renders_good_resources(kube: Kube) -> None:
    text = yaml.safe_dump_all(
        rendered(kube, BROKER, *EVENTS, "subscriptions.second.bindingKeys={a}", "broker.name=main")
    )
    found = {(it.kind, it.metadata.name) for it in load(text)}
    assert found == {
        ("Broker", "main"),
        ("Exchange", "events"),
        ("Subscription", "all-events"),
        ("Subscription", "second"),
    }


MONITORING = ("PodMonitor", "PrometheusRule")


@pytest.mark.parametrize(
    ("enabled", "served", "made"),
    [("Auto", False, False), ("Auto", True, True), ("Never", True, False), ("Always", False, True)],
)
def test_what_needs_the_prometheus_operator_is_made_where_it_is(
    kube: Kube, enabled: str, served: bool, made: bool
) -> None:
    """Auto by the CRDs that the cluster serves, each for itself."""
    versions = [f"--api-versions=monitoring.coreos.com/v1/{kind}" for kind in MONITORING] if served else []
    for chart, kinds in ((OPERATOR, MONITORING), (BROKER, ("PodMonitor",))):
        settings = [f"--set={name}.enabled={enabled}" for name in ("podMonitor", "prometheusRule")[: len(kinds)]]
        settings += [f"--set={USERS}"] if chart == BROKER else []
        text = kube.helm("template", "one", chart, "--namespace", "home", *settings, *versions)
        found = [it["kind"] for it in yaml.safe_load_all(text) if it and it["kind"] in MONITORING]
        assert sorted(found) == (sorted(kinds) if made else [])


def test_a_broker_is_scraped_with_the_token_for_metrics_alone(kube: Kube) -> None:
    documents = rendered(kube, BROKER, USERS, "broker.name=main", "podMonitor.enabled=Always")
    (monitor,) = (it for it in documents if it["kind"] == "PodMonitor")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": "main-observer-scrape", "key": "token"}
    assert endpoint["tlsConfig"] == {
        "ca": {"secret": {"name": "main-observer-scrape", "key": "ca.crt"}},
        "serverName": "main-observer.home.svc",
    }
    assert endpoint["honorLabels"] is True
    assert endpoint["port"] == "observer"


def test_tokens_for_autoscalers_are_asked_for_by_name(kube: Kube) -> None:
    documents = rendered(kube, BROKER, *EVENTS, "subscriptions.second.bindingKeys={a}", "scaleTokens={second}")
    asked = {
        it["metadata"]["name"]: it["metadata"].get("annotations") for it in documents if it["kind"] == "Subscription"
    }
    assert asked == {"all-events": None, "second": {"penstock.dev/scale-token": "true"}}


def rule_of(documents: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The alerts of the PrometheusRule by name."""
    (made,) = (it for it in documents if it["kind"] == "PrometheusRule")
    rules_of_all = (rule for group in made["spec"]["groups"] for rule in group["rules"])
    return {rule["alert"]: rule for rule in rules_of_all if "alert" in rule}


def test_the_rules_are_those_of_the_file_and_values_change_single_alerts(kube: Kube) -> None:
    plain = rule_of(rendered(kube, OPERATOR, "prometheusRule.enabled=Always"))
    text = (ROOT / "helm/penstock-operator/files/rules.yaml").read_text(encoding="utf-8")
    base = "https://penstock.dev/docs/how-to/runbooks"
    written = [rule for group in yaml.safe_load(text.replace("RUNBOOKS", base))["groups"] for rule in group["rules"]]
    assert list(plain.values()) == [rule for rule in written if "alert" in rule]
    changed = rule_of(
        rendered(
            kube,
            OPERATOR,
            "prometheusRule.enabled=Always",
            "prometheusRule.runbooks=https://wiki.example/penstock/",
            "prometheusRule.alertLabels.team=platform",
            "prometheusRule.alerts.PenstockSubscriptionLosing.severity=critical",
            "prometheusRule.alerts.PenstockSubscriptionLosing.for=5m",
            "prometheusRule.alerts.PenstockSubscriptionTooOld.expr=vector(1)",
            "prometheusRule.alerts.PenstockLagResultStale.enabled=false",
        )
    )
    assert set(plain) - set(changed) == {"PenstockLagResultStale"}
    losing = changed["PenstockSubscriptionLosing"]
    assert (losing["for"], losing["labels"]) == ("5m", {"severity": "critical", "team": "platform"})
    assert losing["annotations"]["runbook_url"] == "https://wiki.example/penstock/subscription-losing.md"
    assert changed["PenstockSubscriptionTooOld"]["expr"] == "vector(1)"
    assert changed["PenstockBrokerStuck"]["expr"] == plain["PenstockBrokerStuck"]["expr"]


def test_a_change_of_an_alert_that_does_not_exist_is_refused(kube: Kube) -> None:
    with pytest.raises(StoryError, match="PenstockNothing: there is no such alert"):
        rendered(kube, OPERATOR, "prometheusRule.enabled=Always", "prometheusRule.alerts.PenstockNothing.for=1m")


def test_the_dashboards_are_made_on_request_as_they_are_in_the_files(kube: Kube) -> None:
    assert not [it for it in rendered(kube, OPERATOR) if it["metadata"]["name"].endswith("-dashboard")]
    documents = rendered(kube, OPERATOR, "dashboard.enabled=true", "dashboard.namespace=grafana")
    (made,) = (it for it in documents if it["kind"] == "ConfigMap")
    assert made["metadata"]["namespace"] == "grafana"
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    folder = ROOT / "helm/penstock-operator/files/dashboards"
    names = ("broker", "operator", "subscriptions")
    assert made["data"] == {
        f"penstock-{name}.json": (folder / f"{name}.json").read_text(encoding="utf-8") for name in names
    }


@pytest.mark.parametrize(
    ("chart", "setting"),
    [
        (OPERATOR, "watchNamespaces={Team_A}"),
        (OPERATOR, "logLevel=loud"),
        (OPERATOR, "imagee.tag=x"),
        (OPERATOR, "image.digest=latest"),
        (OPERATOR, "podMonitor.enabled=true"),
        (OPERATOR, "prometheusRule.alerts.PenstockSubscriptionLosing.annotations=x"),
        (OPERATOR, "prometheusRule.alerts.PenstockSubscriptionLosing.for=soon"),
        (BROKER, "podMonitor.interval=often"),
        (BROKER, "broker.name=1st"),
        (BROKER, "exchanges.events.type=Queue"),
    ],
)
def test_values_are_checked(kube: Kube, chart: str, setting: str) -> None:
    with pytest.raises(StoryError, match="values don't meet the specifications"):
        rendered(kube, chart, setting)


def test_the_lag_job_s_pods_reach_the_api_only_with_executors(kube: Kube) -> None:
    """Only that of the driver: an executor needs none of it."""
    without = rendered(kube, OPERATOR)
    assert accounts(without) == {"one-lag": False}
    assert not rules(without, "Role", "one-lag-driver")
    distributed = rendered(kube, OPERATOR, "lag.executors.instances=2")
    assert accounts(distributed) == {"one-lag": True, "one-lag-executor": False}
    assert {resource for rule in rules(distributed, "Role", "one-lag-driver") for resource in rule["resources"]} == {
        "configmaps", "persistentvolumeclaims", "pods", "services",
    }  # fmt: skip
    assert not any("secrets" in rule["resources"] for rule in rules(distributed, "Role", "one-lag-driver"))


def accounts(documents: list[dict[str, Any]]) -> dict[str, bool]:
    """Whether pods get a token, by ServiceAccount of the lag job."""
    return {
        it["metadata"]["name"]: it["automountServiceAccountToken"]
        for it in documents
        if it["kind"] == "ServiceAccount" and it["metadata"]["name"].startswith("one-lag")
    }


def test_what_the_operator_may_do_for_the_lag_job_is_by_name(kube: Kube) -> None:
    """In its own namespace it may have no other rights, if it watches others."""
    found = rules(rendered(kube, OPERATOR, "watchNamespaces={a}"), "Role", "one-penstock-operator-lag")
    names = {rule["resources"][0]: rule.get("resourceNames") for rule in found}
    assert names == {
        "secrets": ["one-lag"],
        "cronjobs": ["one-lag"],
        "scheduledsparkapplications": ["one-lag"],
        "sparkapplications": None,
        "deployments": ["one-penstock-operator"],
    }
