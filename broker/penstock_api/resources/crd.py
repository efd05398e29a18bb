"""CustomResourceDefinitions from the models of the resources. Pure; `hack/crds` writes what this returns.

Kubernetes wants *structural* schemas: no references, no `anyOf` with null, no `const`, integers with a format. A
default that is itself a map becomes `{}`, since the defaults inside it apply on their own; an empty list needs no
default at all, and a field that the release before does not know gets none (`schema.UNWRITTEN`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from penstock_api import schema
from penstock_api.resources import base
from penstock_api.resources.broker import Broker
from penstock_api.resources.exchange import Exchange
from penstock_api.resources.queue import Queue
from penstock_api.resources.subscription import Subscription
from penstock_api.schema import UNWRITTEN

__all__ = ["KINDS", "PrinterColumn", "ResourceKind", "definition"]

Schema = dict[str, object]

_DROPPED: Final = frozenset({"title", "$defs", "discriminator", "propertyNames", "const"})
"""Keywords of JSON Schema that a structural schema must not have."""


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """One column of `kubectl get`."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0
    """0 is always shown, 1 with `-o wide`."""

    def to_dict(self) -> Schema:
        """As the CRD has it."""
        shown: Schema = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return {**shown, "priority": self.priority} if self.priority else shown


def _ready(*, wide: bool = False) -> tuple[PrinterColumn, PrinterColumn]:
    path = '.status.conditions[?(@.type=="Ready")]'
    return PrinterColumn("Ready", f"{path}.status"), PrinterColumn("Reason", f"{path}.reason", priority=int(wide))


_AGE: Final = PrinterColumn("Age", ".metadata.creationTimestamp", "date")


_LAG_WIDE: Final = (
    *(
        PrinterColumn(name, f".status.lag.{field}", "integer", priority=1)
        for name, field in (
            ("Consumers", "consumers"),
            ("Suggested", "suggestedConsumers"),
            ("Arrival", "arrivalPerMinute"),
            ("Settled", "settledPerMinute"),
            ("Velocity", "velocityPerMinute"),
            ("Drain", "drainSeconds"),
            ("P95", "sojournP95Millis"),
            ("Redelivery", "redeliveryPercent"),
            ("Lost", "lost"),
        )
    ),
    PrinterColumn("Source", ".status.lag.source", priority=1),
    PrinterColumn("Run", ".status.lag.runName", priority=1),
)
"""What `kubectl get psub -o wide` and `pq` show of the lag, besides its state and size."""
_LAG: Final = (
    PrinterColumn("State", ".status.lag.state"),
    PrinterColumn("Lag", ".status.lag.waiting", "integer"),
    PrinterColumn("Oldest", ".status.lag.oldestAgeSeconds", "integer"),
    PrinterColumn("Fresh", '.status.conditions[?(@.type=="LagFresh")].status'),
)
"""What they always show of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceKind:
    """What a CRD contains besides its schema."""

    model: type[base.Resource]
    plural: str
    short_name: str
    columns: tuple[PrinterColumn, ...]
    selectable: tuple[str, ...] = ()
    """Fields that `--field-selector` takes."""
    scalable: bool = False
    """Has the scale subresource."""

    @property
    def kind(self) -> str:
        """CamelCase name."""
        return self.model.__name__


KINDS: Final = (
    ResourceKind(
        model=Broker,
        plural="brokers",
        short_name="pbroker",
        scalable=True,
        columns=(
            PrinterColumn("Replicas", ".spec.replicas", "integer"),
            PrinterColumn("Version", ".status.version"),
            PrinterColumn("Operator", ".status.operator", priority=1),
            PrinterColumn("Exchanges", ".status.exchanges", "integer"),
            PrinterColumn("Subscriptions", ".status.subscriptions", "integer"),
            PrinterColumn("Queues", ".status.queues", "integer", priority=1),
            *_ready(),
            _AGE,
            PrinterColumn("Image", ".status.image", priority=1),
            PrinterColumn("Address", ".status.address", priority=1),
        ),
    ),
    ResourceKind(
        model=Exchange,
        plural="exchanges",
        short_name="pex",
        selectable=(".spec.brokerRef.name", ".spec.brokerRef.namespace"),
        columns=(
            PrinterColumn("Broker", ".spec.brokerRef.name"),
            PrinterColumn("Type", ".spec.type"),
            PrinterColumn("Bound", ".status.boundSubscriptions", "integer"),
            *_ready(),
            _AGE,
            PrinterColumn("Address", ".status.address", priority=1),
        ),
    ),
    ResourceKind(
        model=Subscription,
        plural="subscriptions",
        short_name="psub",
        selectable=(
            ".spec.brokerRef.name",
            ".spec.brokerRef.namespace",
            ".spec.exchangeRef.name",
            ".spec.exchangeRef.namespace",
        ),
        columns=(
            PrinterColumn("Exchange", ".spec.exchangeRef.name"),
            *_LAG,
            *_ready(),
            _AGE,
            *_LAG_WIDE,
            PrinterColumn("Broker", ".spec.brokerRef.name", priority=1),
            PrinterColumn("Scope", ".spec.scope", priority=1),
            PrinterColumn("Sharing", ".spec.sharing", priority=1),
            PrinterColumn("Durability", ".spec.durability", priority=1),
        ),
    ),
    ResourceKind(
        model=Queue,
        plural="queues",
        short_name="pq",
        selectable=(".spec.brokerRef.name", ".spec.brokerRef.namespace"),
        columns=(
            PrinterColumn("Broker", ".spec.brokerRef.name"),
            *_LAG,
            *_ready(),
            _AGE,
            *_LAG_WIDE,
            PrinterColumn("Durability", ".spec.durability", priority=1),
            PrinterColumn("Address", ".status.address", priority=1),
        ),
    ),
)
"""The kinds, in the order in which they are made."""


def definition(kind: ResourceKind) -> Schema:
    """The CustomResourceDefinition of one kind."""
    subresources: Schema = {"status": {}}
    if kind.scalable:
        subresources["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    version: Schema = {
        "name": base.VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _root(kind.model)},
        "subresources": subresources,
        "additionalPrinterColumns": [column.to_dict() for column in kind.columns],
    }
    if kind.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in kind.selectable]
    names: Schema = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
        "shortNames": [kind.short_name],
        "categories": ["messaging"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{base.GROUP}"},
        "spec": {"group": base.GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def _root(model: type[base.Resource]) -> Schema:
    raw = cast(Schema, model.model_json_schema(by_alias=True))
    definitions = cast(Schema, raw.get("$defs", {}))
    properties = cast(Schema, raw["properties"])
    status = _structural(properties["status"], definitions)
    root: Schema = {
        "type": "object",
        "description": raw["description"],
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _structural(properties["spec"], definitions),
            "status": {**status, "default": base.PENDING_STATUS},
        },
    }
    if schema.VALIDATIONS in raw:
        root[schema.VALIDATIONS] = raw[schema.VALIDATIONS]
    return root


def _structural(node: object, definitions: Schema) -> Schema:
    """A schema node with references inlined, null removed and defaults reduced."""
    schema = dict(cast(Mapping[str, object], node))
    if "$ref" in schema:
        target = cast(Schema, definitions[str(schema.pop("$ref")).rsplit("/", 1)[1]])
        schema = {**target, **schema}
    if "anyOf" in schema:
        branches = cast(list[Schema], schema.pop("anyOf"))
        (branch,) = (branch for branch in branches if branch.get("type") != "null")
        return _structural({**branch, **schema}, definitions)
    if "const" in schema:
        schema["enum"] = [schema["const"]]
    is_unwritten = schema.keys() >= UNWRITTEN.keys()
    dropped = _DROPPED | UNWRITTEN.keys() | {"default"} if is_unwritten else _DROPPED
    result: Schema = {key: value for key, value in schema.items() if key not in dropped}
    if "additionalProperties" in result:
        _set_additional(result, definitions)
    if "properties" in result:
        properties = cast(Schema, result["properties"])
        result["properties"] = {name: _structural(field, definitions) for name, field in properties.items()}
    if "items" in result:
        result["items"] = _structural(result["items"], definitions)
    if result.get("type") == "integer":
        result["format"] = "int64"
    if "description" in result:
        result["description"] = " ".join(str(result["description"]).split())
    _reduce_default(result)
    return result


def _set_additional(schema: Schema, definitions: Schema) -> None:
    """A map's value schema stays; `additionalProperties: false` goes, since the API server prunes on its own."""
    values = schema.pop("additionalProperties")
    if isinstance(values, Mapping):
        schema["additionalProperties"] = _structural(cast(Schema, values), definitions)


def _reduce_default(schema: Schema) -> None:
    match schema.get("default"):
        case None | []:
            schema.pop("default", None)
        case dict():
            schema["default"] = {}
        case _:
            pass
