"""The examples are valid manifests, and each begins with a comment for its readers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock_api.delegation import rights_of
from penstock_api.resources import Broker, Exchange, Subscription, load

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "kubernetes"


def spec_of(kind: str) -> dict[str, Any]:
    """The schema of a kind's spec, as its CRD has it."""
    (version,) = yaml.safe_load((ROOT / f"crds/{kind}s.yaml").read_text())["spec"]["versions"]
    spec: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec


def fields(schema: dict[str, Any]) -> Iterator[str]:
    """The names of all fields of an object and of what is below it."""
    for name, field in schema.get("properties", {}).items():
        yield name
        yield from fields(field)
        yield from fields(field.get("items", {}))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_an_example_is_good(path: Path) -> None:
    assert list(load(path.read_text())) != []
    assert path.read_text().startswith("# ")


@pytest.mark.parametrize("kind", ["exchange", "subscription", "queue"])
def test_an_example_names_every_field(kind: str) -> None:
    """As a key, or in a comment about another one: a reader sees all that the kind has."""
    words = set(re.findall(r"\w+", (EXAMPLES / f"{kind}.yaml").read_text()))
    assert set(fields(spec_of(kind))) - words == set()


def test_the_example_of_a_broker_has_every_field_of_its_spec() -> None:
    """Those below have `kubectl explain` and pages of their own."""
    keys = set(re.findall(r"^  (?:# )?(\w+):", (EXAMPLES / "broker.yaml").read_text(), re.MULTILINE))
    assert set(spec_of("broker")["properties"]) - keys == set()


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
