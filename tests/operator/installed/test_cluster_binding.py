"""The example of a binding on a cluster: an application in another namespace than the Broker's gets its Secret, logs in
over TLS with the token of its ServiceAccount, consumes from its own Subscription, and may do nothing else.

The tests run in this order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from e2e.kube import ROOT, wait_for
from e2e.story import StoryError
from support.cluster_images import images
from support.installed_operator import MINUTE, Installation, Team

pytestmark = pytest.mark.cluster

BINDING = ROOT / "examples/kubernetes/binding"


@pytest.fixture(scope="module")
def shop(installation: Installation) -> Iterator[Team]:
    with installation.team() as made:
        yield made


@pytest.fixture(scope="module")
def billing(installation: Installation, shop: Team) -> Iterator[Team]:
    """The team of the application, when both sides have applied their files."""
    with installation.team() as made:
        names = {"shop": shop.kube.namespace, "billing": made.kube.namespace}
        broker, exchange = example("broker.yaml")
        broker["spec"] |= {
            "allowedNamespaces": [names["billing"]],
            "lagAnalysis": {"suspend": True},
            "resources": {"requests": {"cpu": "30m"}},
        }
        exchange["spec"]["allowedNamespaces"] = [names["billing"]]
        shop.apply(broker, exchange)
        account, subscription, deployment = example("billing.yaml")
        for reference in ("brokerRef", "exchangeRef"):
            subscription["spec"][reference]["namespace"] = names["shop"]
        pod = deployment["spec"]["template"]["spec"]
        pod["containers"][0]["image"] = images().broker
        token = pod["volumes"][0]["projected"]["sources"][1]["serviceAccountToken"]
        token["audience"] = f"penstock.dev/{names['shop']}/main"
        made.apply(account, subscription, deployment)
        yield made


def example(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((BINDING / name).read_text()))


def publish(shop: Team, text: str) -> None:
    """A pod of the shop publishes one order, as its ServiceAccount."""
    name = f"publish-{text}"
    sources = [
        {"configMap": {"name": "main-ca"}},
        {"serviceAccountToken": {"audience": f"penstock.dev/{shop.kube.namespace}/main", "path": "token"}},
    ]
    host = f"main-amqp.{shop.kube.namespace}.svc"
    container = {
        "name": "publish",
        "image": images().broker,
        "command": ["penstock", "send", "orders", text, "--broker", f"amqps://{host}"],
        "env": [
            {"name": "PENSTOCK_CA_FILE", "value": "/access/ca.crt"},
            {"name": "PENSTOCK_TOKEN_FILE", "value": "/access/token"},
        ],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "access", "mountPath": "/access"}],
    }
    spec = {
        "serviceAccountName": "shop",
        "automountServiceAccountToken": False,
        "restartPolicy": "OnFailure",
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "access", "projected": {"sources": sources}}],
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "shop"}}
    shop.apply(account, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    wait_for(f"{text} to be published", lambda: shop.field("pod", name, "status", "phase") == "Succeeded", 3 * MINUTE)


def refused(team: Team, *words: str) -> str:
    """What `penstock` says in a pod of the application when the broker refuses it."""
    with pytest.raises(StoryError) as said:
        team.kube.kubectl("exec", "deployment/invoices", "--", "penstock", *words)
    return str(said.value)


def test_the_application_gets_its_secret_and_consumes(shop: Team, billing: Team) -> None:
    shop.wait_ready("broker/main", "exchange/orders", seconds=5 * MINUTE)
    billing.wait_ready("subscription/invoices")
    wait_for(
        "the Secret",
        lambda: billing.field("subscription", "invoices", "status", "binding", "name") == "invoices-binding",
        MINUTE,
    )
    assert billing.kube.secret("invoices-binding", "uri") == f"amqps://orders-x.{shop.kube.namespace}.svc:5671"
    assert billing.kube.secret("invoices-binding", "password") is None
    assert billing.field("secret", "invoices-binding", "type") == "servicebinding.io/amqp"
    billing.kube.kubectl("rollout", "status", "deployment/invoices", "--timeout=180s")
    publish(shop, "first")
    wait_for(
        "the order to be consumed",
        lambda: "first" in billing.kube.kubectl("logs", "-l", "app=invoices", "--tail=-1"),
        2 * MINUTE,
    )


def test_it_may_do_nothing_else(billing: Team) -> None:
    assert "may not publish on exchange 'orders'" in refused(billing, "send", "orders", "mine")
    assert "may not consume on exchange 'orders'" in refused(billing, "receive", "orders", "--subscription", "own")


def test_a_right_that_is_taken_away_ends_the_links_at_once(billing: Team) -> None:
    patch = json.dumps({"spec": {"consumers": None}})
    billing.kube.kubectl("patch", "psub", "invoices", "--type=merge", "--patch", patch)

    def are_out() -> bool:
        logs = billing.kube.kubectl("logs", "-l", "app=invoices", "--tail=-1", "--prefix", check=False)
        before = billing.kube.kubectl("logs", "-l", "app=invoices", "--tail=-1", "--previous", check=False)
        return "may not consume on subscription 'invoices'" in logs + before

    wait_for("the application to be turned out", are_out, 2 * MINUTE)


def test_the_secret_goes_with_the_subscription(billing: Team) -> None:
    billing.kube.kubectl("delete", "deployment", "invoices", "--wait")
    billing.kube.kubectl("delete", "psub", "invoices", "--timeout=120s")
    wait_for("the Secret to be gone", lambda: billing.kube.get("secret", "invoices-binding") is None, MINUTE)
