"""The chart penstock-broker leaves no broker open, and makes nothing that its values do not name. Helm renders it."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import yaml
from charts.expressions import ROOT
from kube.binaries import located
from kube.settings import folders

pytestmark = pytest.mark.built  # hack/cluster builds Helm

USERS = "broker.spec.authentication.usersSecretRef.name=users"


def template(*settings: str) -> subprocess.CompletedProcess[str]:
    command = [
        str(located(folders())["helm"]),
        "template",
        "one",
        str(ROOT / "helm/penstock-broker"),
        *(f"--set={it}" for it in settings),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def documents(*settings: str) -> list[dict[str, Any]]:
    done = template(*settings)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("broker.spec=null",),
        ("broker.spec.authentication=null",),
        ("broker.spec.authentication.anonymous=false",),
        ("broker.spec.authentication.allowInsecurePlain=true",),
    ],
)
def test_without_authentication_nothing_is_rendered_and_helm_says_what_to_write(settings: tuple[str, ...]) -> None:
    done = template(*settings)
    assert (done.returncode, done.stdout) == (1, "")
    assert "write who may into broker.spec.authentication, such as `usersSecretRef: {name: my-users}`" in done.stderr


@pytest.mark.parametrize(
    ("setting", "authentication"),
    [
        (USERS, {"usersSecretRef": {"name": "users"}}),
        ("broker.spec.authentication.clientCaSecretRef.name=ca", {"clientCaSecretRef": {"name": "ca"}}),
        ("broker.spec.authentication.tokens[0].issuer=Cluster", {"tokens": [{"issuer": "Cluster"}]}),
        ("broker.spec.authentication.anonymous=true", {"anonymous": True}),
    ],
)
def test_who_may_connect_is_what_the_values_say_and_nothing_else_is_made(
    setting: str, authentication: dict[str, object]
) -> None:
    done = template(setting)
    assert done.returncode == 0, done.stderr
    made = [it for it in yaml.safe_load_all(done.stdout) if it]
    (broker,) = (it for it in made if "helm.sh/hook" not in it["metadata"].get("annotations", {}))
    assert (broker["kind"], broker["spec"]) == ("Broker", {"authentication": authentication})


def test_exchanges_for_a_broker_that_exists_need_no_authentication() -> None:
    done = template("broker.create=false", "exchanges.orders.type=Topic")
    assert done.returncode == 0, done.stderr
    assert [it["kind"] for it in yaml.safe_load_all(done.stdout) if it] == ["Exchange"]


def test_a_queue_is_made_with_what_the_values_say_of_it() -> None:
    done = template(USERS, "queues.invoices.limits.maxBytes=1Mi", "broker.create=false")
    assert done.returncode == 0, done.stderr
    (queue,) = (it for it in yaml.safe_load_all(done.stdout) if it)
    assert (queue["kind"], queue["metadata"]["name"]) == ("Queue", "invoices")
    assert queue["spec"] == {"brokerRef": {"name": "one"}, "limits": {"maxBytes": "1Mi"}}


def test_delete_protection_is_on_everything_that_the_release_makes() -> None:
    """A Queue that goes takes its messages along."""
    several = (
        "broker.spec.authentication.anonymous=true",
        "exchanges.events.type=Topic",
        "subscriptions.all.sharing=Shared",
        "queues.jobs.durability=Durable",
    )
    made = [it for it in documents(*several, "deleteProtection=true") if it["apiVersion"].startswith("penstock.dev/")]
    assert sorted(it["kind"] for it in made) == ["Broker", "Exchange", "Queue", "Subscription"]
    for each in made:
        assert each["metadata"]["annotations"] == {"penstock.dev/delete-protection": "true"}, each["kind"]
    for each in documents(*several):
        assert "penstock.dev/delete-protection" not in each["metadata"].get("annotations", {})
