"""The examples are valid manifests, and each begins with a comment for its readers."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from penstock_api.delegation import rights_of
from penstock_api.resources import Broker, Exchange, Subscription, load

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "kubernetes"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_an_example_is_good(path: Path) -> None:
    assert list(load(path.read_text())) != []
    assert path.read_text().startswith("# ")


def test_the_example_of_a_binding_mounts_what_the_operator_writes() -> None:
    documents = list(yaml.safe_load_all((EXAMPLES / "binding" / "billing.yaml").read_text()))
    ours = [each for each in documents if each["apiVersion"] == "penstock.dev/v1alpha1"]
    (wanted,) = load(yaml.safe_dump_all(ours))
    broker, orders = load((EXAMPLES / "binding" / "broker.yaml").read_text())
    assert isinstance(wanted, Subscription) and isinstance(broker, Broker) and isinstance(orders, Exchange)
    assert rights_of(broker, orders.model_copy(update={"metadata": broker.metadata})).problem == ""
    (deployment,) = [each for each in documents if each["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    assert wanted.spec.binding is not None
    assert [grantee.service_accounts for grantee in wanted.spec.consumers] == [(pod["serviceAccountName"],)]
    secret, token = pod["volumes"][0]["projected"]["sources"]
    assert secret == {"secret": {"name": f"{wanted.metadata.name}-binding"}}
    assert token["serviceAccountToken"]["audience"] == "penstock.dev/shop/main"


def test_the_whole_one_has_three_subscriptions_of_one_exchange() -> None:
    kinds = [resource.kind for resource in load((EXAMPLES / "whole.yaml").read_text())]
    assert kinds == ["Broker", "Exchange", "Subscription", "Subscription", "Subscription"]
