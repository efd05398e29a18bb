"""Models whose schema becomes part of a CustomResourceDefinition: a rule in CEL stands beside a validator in Python.

Every rule that the API server can check is written twice, once as CEL (it goes into the CRD) and once as a validator
(for ``penstock up`` and as the operator's second check). Docstrings of fields become the descriptions of the CRD.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

from penstock_api import descriptions

__all__ = ["LIST_KEYS", "LIST_TYPE", "UNWRITTEN", "VALIDATIONS", "Spec", "cel", "check_unique", "validations"]

VALIDATIONS: Final = "x-kubernetes-validations"
LIST_TYPE: Final = "x-kubernetes-list-type"
LIST_KEYS: Final = "x-kubernetes-list-map-keys"

UNWRITTEN: Final[JsonDict] = {"x-penstock-unwritten-default": True}
"""For `json_schema_extra` of a field that the release before does not know: the CRD has no default for it. The API
server writes the defaults of a CRD into each resource that it stores, and after a rollback the older operator would
refuse them all.
"""


class Spec(BaseModel):
    """Base of everything that a person writes: keys in camelCase, unknown keys refused, immutable.

    A field that a subclass only bounds keeps its description unless the subclass gives another one.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=descriptions.wanted,
        defer_build=True,  # a part is built with the whole, when that is first read
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Give each field that has no description the one of the class which it overrides."""
        if not descriptions.wanted:
            return
        undescribed = {name for name, field in cls.model_fields.items() if field.description is None}
        for parent in cls.__mro__[1:]:
            if issubclass(parent, Spec):
                for name in undescribed & parent.model_fields.keys():
                    cls.model_fields[name].description = parent.model_fields[name].description
        if any(cls.model_fields[name].description is not None for name in undescribed):
            cls.model_rebuild(force=True)


def cel(rule: str, message: str) -> JsonDict:
    """One CEL rule in the form that the API server expects."""
    return {"rule": rule, "message": message}


def validations(*rules: JsonDict) -> JsonDict:
    """The schema extension that carries `rules`."""
    return {VALIDATIONS: list(rules)}


def check_unique(values: tuple[str, ...]) -> tuple[str, ...]:
    """The same as `x-kubernetes-list-type: set`. Raises ValueError for a value that is listed twice."""
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{value!r} is listed twice")
    return values
