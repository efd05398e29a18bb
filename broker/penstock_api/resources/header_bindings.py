"""Bindings to a Headers exchange as people write them: which application properties a message must have.

A value is a string, an integer or a boolean. Each type has a field of its own, because a Kubernetes schema can't say
"one of these types". Source: docs/reference/addresses.md, "Headers".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self, cast

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from penstock_api import management, schema

__all__ = ["HeaderBindingSpec", "HeaderBindings", "HeaderSpec", "as_declared", "as_text"]

_ONE_VALUE: Final = schema.cel(
    "[has(self.string), has(self.integer), has(self.boolean)].filter(it, it).size() <= 1",
    "a header has at most one of `string`, `integer` and `boolean`; without any of them it must only be present",
)


class HeaderSpec(schema.Spec):
    """One application property that a message must have."""

    model_config = ConfigDict(json_schema_extra=schema.validations(_ONE_VALUE))

    name: Annotated[str, Field(min_length=1, max_length=255)]
    """Name of the property."""
    string: Annotated[str, Field(max_length=1024)] | None = None
    """It must be this string."""
    integer: Annotated[int, Field(ge=-(2**53), le=2**53)] | None = None
    """It must be this number, of whatever type."""
    boolean: bool | None = None
    """It must be this boolean."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if sum(value is not None for value in (self.string, self.integer, self.boolean)) > 1:
            raise ValueError(str(_ONE_VALUE["message"]))
        return self

    @property
    def value(self) -> bool | int | str | None:
        """What it must be; None: anything."""
        return next((value for value in (self.string, self.integer, self.boolean) if value is not None), None)


def _check_names(headers: tuple[HeaderSpec, ...]) -> tuple[HeaderSpec, ...]:
    schema.check_unique(tuple(header.name for header in headers))
    return headers


class HeaderBindingSpec(schema.Spec):
    """One binding: a message matches if it has all, or any, of these."""

    match: Literal["All", "Any"] = "All"
    """Whether a message must have all of them, or any."""
    headers: Annotated[
        tuple[HeaderSpec, ...],
        Field(min_length=1, max_length=32, json_schema_extra={schema.LIST_TYPE: "map", schema.LIST_KEYS: ["name"]}),
        AfterValidator(_check_names),
    ]
    """Application properties."""


HeaderBindings = Annotated[tuple[HeaderBindingSpec, ...], Field(max_length=32)]


def as_declared(binding: HeaderBindingSpec) -> management.HeaderBindingDocument:
    """The binding as it is declared on the broker."""
    return management.HeaderBindingDocument(
        match=binding.match, headers={header.name: header.value for header in binding.headers}
    )


def as_text(binding: Mapping[str, object]) -> str:
    """A binding that the broker reported, as text for a person: ``All: amount = 5, region = 'eu'``.

    A client's binding may have values of any AMQP type, so their types are not checked.
    """
    found = binding.get("headers")
    headers = dict(cast(Mapping[object, object], found)) if isinstance(found, Mapping) else {}
    tests = sorted(str(name) if value is None else f"{name} = {value!r}" for name, value in headers.items())
    return f"{binding.get('match', 'All')}: {', '.join(tests) or 'every message'}"[:2048]
