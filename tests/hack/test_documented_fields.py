"""Each field that a page names by its path is in a resource, in a chart's values, or in the broker's configuration.

Such as `spec.lagAnalysis.memory`, `delivery.maxDeliveries`, `lag.backend` or `memory.maxBytes`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast, get_args

import pytest
import yaml
from pydantic import BaseModel

from penstock_broker.settings.settings import BrokerSettings

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    each
    for each in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "helm").rglob("*.md")))
    if "decisions" not in each.parts
]
PATH = re.compile(r"`([a-z][a-zA-Z]*(?:\.[a-zA-Z]+)+)(?::[^`]*)?`")
"""The value behind a colon does not matter."""
OTHERS = {
    "amqp.drainTimeout": "Qpid JMS",
    "amqp.vhost": "Qpid JMS",
    "broker.spec.authentication": "the chart of a Broker, whose values hold a whole spec",
    "exchange.spec": "kubectl explain",
    "metadata.managedFields": "of every object",
    "metadata.name": "of every object",
    "spec.observerResources.limits.memory": "a map of a container",
    "spec.resources.limits.memory": "a map of a container",
    "spec.nodeName": "of a Pod",
    "spec.renewTime": "of a Lease",
    "spec.volumeName": "of a PersistentVolumeClaim",
}
"""What else looks like it, and what it is of."""
FILES = re.compile(r"\.(?:crt|dev|json|key|log|token|yaml)$")
"""Names of files, of keys of Secrets and of kinds."""


def of_schema(schema: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every path below a field of a CRD."""
    schema = schema.get("items", schema)
    for name, below in schema.get("properties", {}).items():
        yield (*path, name)
        yield from of_schema(below, (*path, name))


def of_values(values: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every path of a chart's values."""
    if isinstance(values, dict):
        for name, below in cast("dict[str, object]", values).items():
            yield (*path, name)
            yield from of_values(below, (*path, name))


def of_model(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every path of the broker's configuration."""
    for name, field in model.model_fields.items():
        here = (*path, field.alias or name)
        yield here
        for below in models_in(field.annotation):
            yield from of_model(below, here)


def models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from models_in(each)


@pytest.fixture(scope="module")
def fields() -> frozenset[tuple[str, ...]]:
    """Every path, and every end of it: pages leave out what comes before where it is clear."""
    found = set[tuple[str, ...]]()
    for crd in sorted((ROOT / "crds").glob("*.yaml")):
        version: dict[str, Any] = yaml.safe_load(crd.read_text(encoding="utf-8"))["spec"]["versions"][0]
        found |= set(of_schema(version["schema"]["openAPIV3Schema"]))
    for values in sorted((ROOT / "helm").glob("*/values.yaml")):
        found |= set(of_values(yaml.safe_load(values.read_text(encoding="utf-8"))))
    found |= set(of_model(BrokerSettings))
    return frozenset(path[at:] for path in found for at in range(len(path)))


def test_fields_that_pages_name_are_there(fields: frozenset[tuple[str, ...]]) -> None:
    tops = {"spec", "status"} | {path[0] for path in fields}
    wrong: list[str] = []
    for page in PAGES:
        for name in PATH.findall(page.read_text(encoding="utf-8")):
            path = tuple(name.split("."))
            if path[0] in tops and path not in fields and name not in OTHERS and not FILES.search(name):
                wrong.append(f"{page.relative_to(ROOT)}: {name}")
    assert wrong == []


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("spec.lagAnalysis.memory", True),
        ("status.lag.messages", True),
        ("lag.backend", True),
        ("memory.maxBytes", True),
        ("tls.clientCa", True),
        ("spec.lag.memory", False),
        ("status.lag.depth", False),
        ("memory.maximum", False),
    ],
)
def test_a_field_is_told_from_one_that_is_not_there(fields: frozenset[tuple[str, ...]], name: str, there: bool) -> None:
    assert (tuple(name.split(".")) in fields) is there
