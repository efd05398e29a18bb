"""The generated CRDs: they equal the files in crds/, and have the names and columns that users see."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.previous_release import previous_tree

ROOT = Path(__file__).resolve().parents[2]
FILES = ("brokers", "exchanges", "subscriptions", "queues")


def crd(plural: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / f"crds/{plural}.yaml").read_text())
    return found


def version(plural: str) -> dict[str, Any]:
    (only,) = crd(plural)["spec"]["versions"]
    return dict(only)


def test_the_files_are_what_the_models_say() -> None:
    check = subprocess.run([sys.executable, ROOT / "hack/crds", "--check"], capture_output=True, text=True)
    assert (check.returncode, check.stderr) == (0, "")


@pytest.mark.parametrize(
    ("plural", "kind", "short"),
    [
        ("brokers", "Broker", "pbroker"),
        ("exchanges", "Exchange", "pex"),
        ("subscriptions", "Subscription", "psub"),
        ("queues", "Queue", "pq"),
    ],
)
def test_names(plural: str, kind: str, short: str) -> None:
    assert crd(plural)["metadata"]["name"] == f"{plural}.penstock.dev"
    assert crd(plural)["spec"]["scope"] == "Namespaced"
    assert crd(plural)["spec"]["names"] == {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": kind.lower(),
        "shortNames": [short],
        "categories": ["messaging"],
    }


def defaults(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """The paths of the fields with a default, below those that need not be given."""
    for name, field in schema.get("properties", {}).items():
        if "default" in field:
            yield f"{path}.{name}"
            yield from defaults(field, f"{path}.{name}")


@pytest.mark.parametrize("plural", ["brokers", "exchanges", "subscriptions"])
def test_the_api_server_writes_no_field_that_the_release_before_would_refuse(plural: str) -> None:
    before = yaml.safe_load((previous_tree() / f"crds/{plural}.yaml").read_text())
    specs = [each["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] for each in (before, crd(plural))]
    known, written = (set(defaults({"properties": {"spec": {"default": {}, **each["spec"]}}})) for each in specs)
    assert written - known == set(), "give these fields `json_schema_extra=schema.UNWRITTEN`"
    assert ".spec.replicas" in written or plural != "brokers"


def test_what_kubectl_get_psub_shows() -> None:
    shown = [
        column["name"] for column in version("subscriptions")["additionalPrinterColumns"] if "priority" not in column
    ]
    assert shown == ["Exchange", "State", "Lag", "Oldest", "Fresh", "Ready", "Reason", "Age"]
    lag = "status.lag."
    paths = {
        column["name"]: column["jsonPath"].removeprefix(".")
        for column in version("subscriptions")["additionalPrinterColumns"]
    }
    assert {name: path.removeprefix(lag) for name, path in paths.items() if path.startswith(lag)} == {
        "State": "state",
        "Lag": "waiting",
        "Oldest": "oldestAgeSeconds",
        "Consumers": "consumers",
        "Suggested": "suggestedConsumers",
        "Arrival": "arrivalPerMinute",
        "Settled": "settledPerMinute",
        "Velocity": "velocityPerMinute",
        "Drain": "drainSeconds",
        "P95": "sojournP95Millis",
        "Redelivery": "redeliveryPercent",
        "Lost": "lost",
        "Source": "source",
        "Run": "runName",
    }, "all but the first three are shown with -o wide"
    assert paths["Fresh"] == 'status.conditions[?(@.type=="LagFresh")].status'


def test_what_kubectl_get_pq_shows() -> None:
    columns = version("queues")["additionalPrinterColumns"]
    shown = [column["name"] for column in columns if "priority" not in column]
    assert shown == ["Broker", "State", "Lag", "Oldest", "Fresh", "Ready", "Reason", "Age"]
    wide = [column["name"] for column in columns if "priority" in column]
    assert wide[:3] + wide[-4:] == ["Consumers", "Suggested", "Arrival", "Source", "Run", "Durability", "Address"]


@pytest.mark.parametrize("plural", ["subscriptions", "queues"])
def test_every_column_of_the_lag_is_a_field_of_the_schema(plural: str) -> None:
    """A path that is not in the schema would show nothing, and no API server says so."""
    fields = version(plural)["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["lag"]
    prefix = ".status.lag."
    for column in version(plural)["additionalPrinterColumns"]:
        if column["jsonPath"].startswith(prefix):
            found = fields["properties"][column["jsonPath"].removeprefix(prefix)]
            assert found["type"] == column["type"]


def test_a_broker_can_be_scaled() -> None:
    assert version("brokers")["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }


def test_references_can_be_selected() -> None:
    paths = [field["jsonPath"] for field in version("subscriptions")["selectableFields"]]
    assert ".spec.brokerRef.name" in paths
    assert ".spec.exchangeRef.name" in paths
    assert {"jsonPath": ".spec.brokerRef.name"} in version("exchanges")["selectableFields"]
    assert {"jsonPath": ".spec.brokerRef.name"} in version("queues")["selectableFields"]


@pytest.mark.parametrize("plural", FILES)
def test_an_object_that_no_operator_has_seen_is_pending(plural: str) -> None:
    root = version(plural)["schema"]["openAPIV3Schema"]
    assert root["required"] == ["spec"]
    assert root["properties"]["status"]["default"]["observedGeneration"] == -1
    (ready,) = root["properties"]["status"]["default"]["conditions"]
    assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "Unknown", "Pending")


@pytest.mark.parametrize("plural", FILES)
def test_conditions_are_a_map_by_type(plural: str) -> None:
    conditions = version(plural)["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["conditions"]
    assert (conditions["x-kubernetes-list-type"], conditions["x-kubernetes-list-map-keys"]) == ("map", ["type"])


@pytest.mark.parametrize("plural", FILES)
def test_everything_a_person_writes_has_a_limit_and_a_description(plural: str) -> None:
    spec = version(plural)["schema"]["openAPIV3Schema"]["properties"]["spec"]
    unlimited = [path for path, node in fields("spec", spec) if not is_limited(node)]
    undescribed = [path for path, node in fields("spec", spec) if "description" not in node and not path.endswith("[]")]
    assert (unlimited, undescribed) == ([], [])


@pytest.mark.parametrize("plural", FILES)
def test_the_schema_is_structural(plural: str) -> None:
    forbidden = {"$ref", "anyOf", "oneOf", "const", "title", "propertyNames", "$defs"}
    root = version(plural)["schema"]["openAPIV3Schema"]
    found = [path for path, node in fields("", root) if forbidden & set(node) or "type" not in node]
    assert found == []


def test_a_size_can_be_set_back_and_the_storage_class_stays_without_advice_that_loses_messages() -> None:
    spec = version("brokers")["schema"]["openAPIV3Schema"]["properties"]["spec"]
    storage = spec["properties"]["storage"]["properties"]
    for size in ("size", "ledgerSize"):
        rules = [rule["rule"] for rule in storage[size]["x-kubernetes-validations"]]
        assert rules == ["isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))"]
    (rule,) = storage["storageClassName"]["x-kubernetes-validations"]
    assert rule["rule"] == "self == oldSelf"
    assert "delete the resource and create it again" not in rule["message"]


def fields(path: str, node: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """All schema nodes below one, itself included."""
    yield path, node
    for name, field in node.get("properties", {}).items():
        yield from fields(f"{path}.{name}", field)
    if "items" in node:
        yield from fields(f"{path}[]", node["items"])
    if "additionalProperties" in node:
        yield from fields(f"{path}[]", node["additionalProperties"])


def is_limited(node: dict[str, Any]) -> bool:
    match node["type"]:
        case "string":
            return "maxLength" in node or "enum" in node or "pattern" in node
        case "integer":
            return "enum" in node or ("minimum" in node and "maximum" in node)
        case "array":
            return "maxItems" in node
        case "object":
            return "properties" in node or "maxProperties" in node
        case _:
            return True
