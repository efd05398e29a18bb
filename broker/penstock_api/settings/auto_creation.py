"""What a Broker makes when a client names it for the first time, as people write it in its spec.

Source: docs/broker.md, "autoCreate".
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from penstock_api.resources import base

__all__ = ["AutoCreateSpec", "CreatedNodesSpec", "CreatedQueuesSpec", "creation_settings"]


class CreatedNodesSpec(base.Spec):
    """Nodes of one kind that are made when a client first names them."""

    names: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=255)], ...],
        Field(min_length=1, max_length=64, json_schema_extra={base.LIST_TYPE: "set"}),
        AfterValidator(base.check_unique),
    ] = ("*",)
    """Patterns of names; `*` stands for any characters."""
    limit: Annotated[int, Field(ge=0, le=1_000_000)] = 10_000
    """So many are there at most that were made in this way."""


class CreatedQueuesSpec(CreatedNodesSpec):
    """The same for queues, which can go again by themselves."""

    delete_unused_seconds: Annotated[int, Field(ge=1, le=2**31)] | None = None
    """One that is empty and that no client has used for so long is deleted; left out: never."""


class AutoCreateSpec(base.Spec):
    """What is made when a client first names it; any other unknown name is not-found."""

    queues: CreatedQueuesSpec | None = None
    """Queues; left out: none."""
    topics: CreatedNodesSpec | None = None
    """Topic exchanges; left out: none."""


def creation_settings(auto_create: AutoCreateSpec) -> dict[str, object]:
    """As the broker's configuration file has it."""
    return auto_create.model_dump(mode="json", by_alias=True, exclude_none=True)
