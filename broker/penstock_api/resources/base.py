"""What the kinds of resource have in common: metadata, conditions, status, and rules about what never changes.

Rules with `oldSelf` exist as CEL only: a manifest in a file has no earlier version. tests/api/bad_manifests.yaml
holds manifests that both the API server and the validators must refuse.
Source: docs/decisions/049-immutable-fields.md, docs/decisions/056-conditions.md; Kubernetes API conventions.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

from penstock_api import descriptions, page_login
from penstock_api.schema import LIST_KEYS, LIST_TYPE, cel, validations

__all__ = [
    "API_VERSION",
    "GROUP",
    "PENDING_STATUS",
    "VERSION",
    "CommonStatus",
    "Condition",
    "ObjectMeta",
    "Resource",
    "Status",
    "immutable",
    "paired",
]

GROUP: Final = page_login.API_GROUP
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

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


def immutable(field: str, *others: JsonDict) -> JsonDict:
    """Rule for a required or defaulted field. `others`: the rules of its type, because the rules of a field replace
    those.

    An optional field needs `paired` on its parent too, or it could be added later.
    """
    return validations(
        *others, cel("self == oldSelf", f"`{field}` is immutable; delete the resource and create it again to change it")
    )


def paired(field: str) -> JsonDict:
    """Rule for the parent of an optional immutable field: it can be neither added nor removed."""
    return cel(
        f"has(self.{field}) == has(oldSelf.{field})", f"`{field}` is immutable; it can be neither added nor removed"
    )


class Status(BaseModel):
    """Base of everything the operator writes; unknown fields are ignored, since a later operator may have written
    them.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="ignore",
        frozen=True,
        use_attribute_docstrings=descriptions.wanted,
    )


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
    """One condition, as the Kubernetes API conventions define it."""

    type: Annotated[str, Field(min_length=1, max_length=64, pattern="^[A-Z][A-Za-z]*$")]
    """What the condition is about."""
    status: Literal["True", "False", "Unknown"]
    """Whether the condition is true."""
    reason: Annotated[str, Field(min_length=1, max_length=128, pattern="^[A-Z][A-Za-z0-9]*$")]
    """Why, in one word of a closed list (docs/reference/operator.md)."""
    message: Annotated[str, Field(max_length=4096)] = ""
    """Why, for a person: cause and cure."""
    last_transition_time: AwareDatetime
    """When `status` last changed."""
    observed_generation: Annotated[int, Field(ge=-1)] | None = None
    """Generation of the resource for which the condition was determined."""


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
    """Base of the kinds."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    api_version: Literal["penstock.dev/v1alpha1"]
    metadata: ObjectMeta

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.metadata.namespace}/{self.metadata.name}"
