"""What the three kinds have in common: metadata, references, sizes, conditions, and how a CEL rule sits beside a
validator.

Every rule that the API server can check is written twice, once as CEL (it goes into the CRD) and once as a validator
(for ``penstock up`` and as the operator's second line); tests/api/bad_manifests.yaml holds manifests that both
must refuse. Rules with `oldSelf` exist as CEL only: a file has no past. Docstrings of fields become the descriptions
of the CRD. Source: section 5 of the design; Kubernetes API conventions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

__all__ = [
    "API_VERSION",
    "GROUP",
    "PENDING_STATUS",
    "VERSION",
    "BrokerRef",
    "Condition",
    "DnsLabel",
    "ExchangeRef",
    "LocalRef",
    "NamespacePattern",
    "ObjectMeta",
    "Quantity",
    "Resource",
    "Spec",
    "Status",
    "cel",
    "immutable",
    "quantity_bytes",
]

GROUP: Final = "penstock.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

VALIDATIONS: Final = "x-kubernetes-validations"
LIST_TYPE: Final = "x-kubernetes-list-type"
LIST_KEYS: Final = "x-kubernetes-list-map-keys"

DNS_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
"""RFC 1123 label, the shape of namespace names."""

PENDING_STATUS: Final[dict[str, JsonValue]] = {
    "observedGeneration": -1,
    "conditions": [
        {
            "type": "Ready",
            "status": "Unknown",
            "reason": "Pending",
            "message": "Waiting for the operator.",
            "lastTransitionTime": "1970-01-01T00:00:00Z",
        }
    ],
}
"""The CRD's default of `status`: an object that no operator has seen is in progress, not current, for kstatus and
`kubectl wait`.
"""


def cel(rule: str, message: str) -> JsonDict:
    """One CEL rule as the API server wants it."""
    return {"rule": rule, "message": message}


def validations(*rules: JsonDict) -> JsonDict:
    """The schema extension that carries `rules`."""
    return {VALIDATIONS: list(rules)}


def immutable(field: str, *others: JsonDict) -> JsonDict:
    """Rule for a required or defaulted field; `others` are those of its type, which these would otherwise replace.

    An optional field needs `paired` on its parent too, or it could be added later.
    """
    return validations(
        *others, cel("self == oldSelf", f"`{field}` is immutable; delete the resource and make it anew to change it")
    )


def paired(field: str) -> JsonDict:
    """Rule for the parent of an optional immutable field: it can be neither added nor removed."""
    return cel(
        f"has(self.{field}) == has(oldSelf.{field})", f"`{field}` is immutable; it can be neither added nor removed"
    )


class Spec(BaseModel):
    """Base of everything a person writes: camelCase, unknown fields refused, immutable."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )


class Status(BaseModel):
    """Base of everything the operator writes; unknown fields are ignored, since a later operator may have written
    them.
    """

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True, use_attribute_docstrings=True
    )


_QUANTITY: Final = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]+))?")
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def parse_quantity(text: str) -> Decimal:
    """The value of a Kubernetes quantity such as ``10Gi`` or ``250m``.

    Raises:
        ValueError: the text isn't a quantity.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity; write a number with an optional unit, such as 512Mi or 10Gi")
    number, suffix, exponent = Decimal(match[1]), match[2], match[3]
    if exponent is not None:
        return number.scaleb(int(exponent))
    if suffix is None:
        return number
    return number * 2 ** _BINARY[suffix] if suffix in _BINARY else number.scaleb(_DECIMAL[suffix])


def quantity_bytes(text: str) -> int:
    """A size in bytes, rounded up.

    Raises:
        ValueError: the text isn't a quantity.
    """
    return math.ceil(parse_quantity(text))


def _check_quantity(text: str) -> str:
    if parse_quantity(text) <= 0:
        raise ValueError(f"{text!r} must be greater than zero")
    return text


IS_QUANTITY: Final = cel(
    "isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))",
    "must be a quantity greater than zero, such as 512Mi",
)

Quantity = Annotated[
    str, Field(max_length=32, json_schema_extra=validations(IS_QUANTITY)), AfterValidator(_check_quantity)
]
"""A size as Kubernetes writes it; a string on purpose, so that `1Gi` and `1073741824` are both legal and no float
enters.
"""


def bounded_quantity(told: str, least: str, most: str | None = None) -> Callable[[str], str]:
    """The check of a `Quantity` for `least` and `most`; `told`: what it must be. Its twin is `bounds_of_quantity`."""
    lowest = quantity_bytes(least)
    highest = None if most is None else quantity_bytes(most)

    def check(text: str) -> str:
        size = quantity_bytes(text)
        if size < lowest or (highest is not None and size > highest):
            raise ValueError(f"{text!r} {told}")
        return text

    return check


def bounds_of_quantity(told: str, least: str, most: str | None = None) -> JsonDict:
    """The same for the API server, with the rules of every `Quantity`, which it would otherwise replace."""
    within = f"quantity(self).compareTo(quantity('{least}')) >= 0"
    if most is not None:
        within = f"({within} && quantity(self).compareTo(quantity('{most}')) <= 0)"
    return validations(IS_QUANTITY, cel(f"!isQuantity(self) || {within}", told))


DnsLabel = Annotated[str, Field(min_length=1, max_length=63, pattern=rf"^{DNS_LABEL}$")]
NamespacePattern = Annotated[str, Field(min_length=1, max_length=63, pattern=rf"^(\*|{DNS_LABEL})$")]
ResourceName = Annotated[str, Field(min_length=1, max_length=253, pattern=rf"^{DNS_LABEL}(\.{DNS_LABEL})*$")]


class LocalRef(Spec):
    """Names an object of the same namespace."""

    name: ResourceName
    """Name of the object."""


class BrokerRef(Spec):
    """Names the Broker."""

    name: Annotated[str, Field(min_length=1, max_length=30, pattern=rf"^{DNS_LABEL}$")]
    """Name of the Broker."""
    namespace: DnsLabel | None = None
    """Namespace of the Broker; left out: that of this resource. Another one must be allowed by the Broker's
    `allowedNamespaces`.
    """


class ExchangeRef(Spec):
    """Names the Exchange."""

    name: Annotated[str, Field(min_length=1, max_length=61, pattern=rf"^{DNS_LABEL}$")]
    """Name of the Exchange resource."""
    namespace: DnsLabel | None = None
    """Namespace of the Exchange; left out: that of this resource. Another one must be allowed by the Exchange's and
    the Broker's `allowedNamespaces`.
    """


def check_unique(values: tuple[str, ...]) -> tuple[str, ...]:
    """The same as `x-kubernetes-list-type: set`."""
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{value!r} is there twice")
    return values


AllowedNamespaces = Annotated[
    tuple[NamespacePattern, ...],
    Field(max_length=256, json_schema_extra={LIST_TYPE: "set"}),
    AfterValidator(check_unique),
]


class ObjectMeta(Status):
    """The part of Kubernetes metadata that decisions use; a file without a cluster has name and perhaps namespace
    only.
    """

    name: Annotated[str, Field(min_length=1, max_length=253)]
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: AwareDatetime | None = None
    deletion_timestamp: AwareDatetime | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    finalizers: tuple[str, ...] = ()


class Condition(Status):
    """One condition, as the Kubernetes API conventions have it."""

    type: Annotated[str, Field(min_length=1, max_length=64, pattern="^[A-Z][A-Za-z]*$")]
    """What is true or not."""
    status: Literal["True", "False", "Unknown"]
    """Whether it is."""
    reason: Annotated[str, Field(min_length=1, max_length=128, pattern="^[A-Z][A-Za-z0-9]*$")]
    """Why, in one word of a closed list (docs/operator.md)."""
    message: Annotated[str, Field(max_length=4096)] = ""
    """Why, for a person: cause and cure."""
    last_transition_time: AwareDatetime
    """When `status` last changed."""
    observed_generation: Annotated[int, Field(ge=-1)] | None = None
    """Generation of the resource that this says something about."""


Conditions = Annotated[
    tuple[Condition, ...],
    Field(max_length=16, json_schema_extra={LIST_TYPE: "map", LIST_KEYS: ["type"]}),
]


class CommonStatus(Status):
    """What every status has."""

    observed_generation: int | None = None
    """Newest generation that the operator acted upon, also if it failed."""
    conditions: Conditions = ()
    """Ready, the conditions behind it, and Stalled if a person must act."""


class Resource(BaseModel):
    """Base of the three kinds."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    api_version: Literal["penstock.dev/v1alpha1"]
    metadata: ObjectMeta

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.metadata.namespace}/{self.metadata.name}"
