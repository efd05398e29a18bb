"""`helm test` and the guard before `helm uninstall`: which command the hooks of the charts run, and as whom."""

from __future__ import annotations

from typing import Any

import pytest
from support.helm_template import BROKER, OPERATOR, hooks, rendered
from support.kubectl_commands import penstock_fault

pytestmark = pytest.mark.built  # hack/cluster builds Helm

USERS = "broker.spec.authentication.usersSecretRef.name=users"


def container(pod: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = pod["containers"]
    return found


def message_test(*settings: str) -> dict[str, Any] | None:
    """The spec of the pod that `helm test` starts for a Broker, None if there is none."""
    pods = hooks(rendered(BROKER, *settings), "test")
    assert len(pods) <= 1
    return pods[0]["spec"] if pods else None


def guard(*settings: str) -> dict[str, Any] | None:
    """The spec of the guard's pod."""
    jobs = hooks(rendered(OPERATOR, *settings), "pre-delete")
    return jobs[0]["spec"]["template"]["spec"] if jobs else None


def test_the_operator_s_test_checks_the_installation_as_the_operator() -> None:
    (pod,) = hooks(rendered(OPERATOR), "test")
    assert pod["spec"]["serviceAccountName"] == "one-penstock-operator"
    assert container(pod["spec"])["args"] == [
        "installation", "check", "--namespace", "home", "--deployment", "one-penstock-operator",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "crds", "namespaces"),
    [
        ((), "kept", ""),
        (("crds.keep=false",), "removed", ""),
        (("crds.keep=false", "crds.enabled=false"), "kept", ""),
        (("watchNamespaces={a,b}",), "kept", "a,b"),
    ],
)
def test_the_guard_knows_what_becomes_of_the_crds_and_what_the_operator_watches(
    settings: tuple[str, ...], crds: str, namespaces: str
) -> None:
    pod = guard(*settings)
    assert pod is not None
    assert container(pod)["args"] == [
        "installation", "guard", "--crds", crds, "--release", "one", "--namespace", "home", "--namespaces", namespaces,
    ]  # fmt: skip


def test_a_guard_that_failed_leaves_its_words_and_is_not_repeated() -> None:
    (job,) = hooks(rendered(OPERATOR), "pre-delete")
    assert job["spec"]["backoffLimit"] == 0
    assert job["metadata"]["annotations"]["helm.sh/hook-output-log-policy"] == "hook-failed"
    assert "hook-failed" not in job["metadata"]["annotations"]["helm.sh/hook-delete-policy"]


def test_the_guard_can_be_turned_off() -> None:
    assert guard("uninstallGuard.enabled=false") is None


def test_the_commands_of_all_hooks_exist() -> None:
    pods = [guard(), hooks(rendered(OPERATOR), "test")[0]["spec"], message_test(USERS, "test.user=app")]
    for pod in pods:
        assert pod is not None
        arguments = ["/dev/null" if it.startswith("/") else it for it in container(pod)["args"]]
        assert penstock_fault([it.replace("=/ca/ca.crt", "=/dev/null").replace("=/login/password", "=/dev/null")
                               for it in arguments]) is None  # fmt: skip


def test_all_hooks_are_restricted_pods() -> None:
    for pod in (guard(), hooks(rendered(OPERATOR), "test")[0]["spec"], message_test(USERS, "test.user=app")):
        assert pod is not None
        assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        assert container(pod)["securityContext"] == {
            "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True,
        }  # fmt: skip


def test_hooks_have_limits_for_all_that_a_quota_may_ask_for() -> None:
    """Else the namespace has no room for the guard, and nothing can be uninstalled."""
    for pod in (guard(), hooks(rendered(OPERATOR), "test")[0]["spec"], message_test(USERS, "test.user=app")):
        assert pod is not None
        resources = container(pod)["resources"]
        assert (sorted(resources["requests"]), sorted(resources["limits"])) == (["cpu", "memory"], ["cpu", "memory"])
    changed = guard("hookResources.limits.cpu=1")
    assert changed is not None
    assert container(changed)["resources"]["limits"] == {"cpu": 1, "memory": "512Mi"}


PLACE = ("nodeSelector.pool=a", "tolerations[0].key=pool", "affinity.nodeAffinity.x=y", "priorityClassName=high")


def test_hooks_run_where_the_operator_or_the_broker_may_run() -> None:
    """Where every node has a taint, or the nodes of a pool alone may be used."""
    broker = tuple(f"broker.spec.pod.{it}" for it in PLACE)
    for pod in (guard(*PLACE), hooks(rendered(OPERATOR, *PLACE), "test")[0]["spec"],
                message_test(USERS, "test.user=app", *broker)):  # fmt: skip
        assert pod is not None
        assert pod["nodeSelector"] == {"pool": "a"}
        assert pod["tolerations"] == [{"key": "pool"}]
        assert pod["affinity"] == {"nodeAffinity": {"x": "y"}}
        assert pod["priorityClassName"] == "high"


def test_the_message_s_test_fetches_its_image_as_the_broker_does() -> None:
    pod = message_test(USERS, "test.user=app", "broker.spec.imagePullPolicy=Always")
    assert pod is not None
    assert container(pod)["imagePullPolicy"] == "Always"


def test_a_user_of_the_secret_sends_a_message_over_tls() -> None:
    pod = message_test(USERS, "test.user=app", "broker.name=main")
    assert pod is not None
    assert container(pod)["args"] == [
        "ping", "--wait=120", "--broker=amqps://main-amqp.home.svc", "--ca-file=/ca/ca.crt", "--user=app",
        "--password-file=/login/password",
    ]  # fmt: skip
    assert pod["volumes"] == [
        {"name": "ca", "configMap": {"name": "main-ca"}},
        {"name": "login", "secret": {"secretName": "users", "items": [{"key": "app", "path": "password"}]}},
    ]
    assert pod["automountServiceAccountToken"] is False


def test_without_tls_nothing_is_mounted_and_without_a_login_there_is_no_test() -> None:
    open_to_all = "broker.spec.authentication.anonymous=true"
    plain = ("broker.spec.listeners.amqps=false", "broker.spec.listeners.amqp=true")
    pod = message_test(open_to_all, *plain)
    assert pod is not None
    assert container(pod)["args"] == ["ping", "--wait=120", "--broker=amqp://one-amqp.home.svc"]
    assert not pod["volumes"]
    assert message_test(open_to_all) is not None
    assert message_test(USERS) is None
    assert message_test(open_to_all, "broker.spec.listeners.amqps=false") is None
    assert message_test("broker.create=false", "exchanges.e.type=Topic") is None


def test_protection_is_an_annotation_of_all_that_the_chart_makes() -> None:
    topology = ("exchanges.e.type=Topic", "subscriptions.a.bindingKeys={x}", "scaleTokens={a}")
    made = rendered(BROKER, USERS, "deleteProtection=true", "broker.annotations.mine=x", *topology)
    protection = {"penstock.dev/delete-protection": "true"}
    assert {it["kind"]: it["metadata"]["annotations"] for it in made} == {
        "Broker": {"mine": "x", **protection},
        "Exchange": protection,
        "Subscription": {"penstock.dev/scale-token": "true", **protection},
    }
    plain = {it["kind"]: it["metadata"].get("annotations") for it in rendered(BROKER, USERS, *topology)}
    assert plain == {"Broker": None, "Exchange": None, "Subscription": {"penstock.dev/scale-token": "true"}}


def test_a_policy_refuses_to_delete_crds_that_are_kept() -> None:
    made = rendered(OPERATOR)
    kept = [it["metadata"]["annotations"] for it in made if it["kind"] == "CustomResourceDefinition"]
    assert {it["penstock.dev/delete-protection"] for it in kept} == {"true"}
    (policy,) = (it for it in made if it["kind"] == "ValidatingAdmissionPolicy")
    rules = policy["spec"]["matchConstraints"]["resourceRules"]
    assert ["customresourcedefinitions"] in [rule["resources"] for rule in rules]
    removed = [it for it in rendered(OPERATOR, "crds.keep=false") if it["kind"] == "CustomResourceDefinition"]
    assert not [it for it in removed if "annotations" in it["metadata"]]
