"""What a broker makes when a client names it for the first time, and when queues that were made so are deleted again.

Source: docs/reference/configuration.md, "autoCreate"; docs/decisions/019-auto-creation.md.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from penstock_api import schema
from penstock_core.auto_creation import ANYTHING, NOTHING, AutoCreation, CreationRule

__all__ = [
    "AutoCreate",
    "AutoCreateSpec",
    "CreatedNodes",
    "CreatedNodesSpec",
    "CreatedQueues",
    "CreatedQueuesSpec",
    "creation_of",
    "creation_settings",
    "unused_queue_seconds",
]


class CreatedNodes(schema.Spec):
    """Nodes of one kind that are made when a client first names them."""

    names: tuple[str, ...] = ("*",)
    """Patterns of names; `*` stands for any characters."""
    limit: Annotated[int, Field(ge=0)] = 10_000
    """Largest number of such nodes that exist at a time."""

    def rule(self) -> CreationRule:
        """The same as a rule of `penstock_core`."""
        return CreationRule(self.names, self.limit)


class CreatedQueues(CreatedNodes):
    """Queues that are made when a client first names them."""

    delete_unused_seconds: Annotated[int, Field(ge=1)] | None = None
    """Seconds after which an empty queue that no client uses is deleted; left out: never."""


class AutoCreate(schema.Spec):
    """What is made when a client first names it. The configuration file may also say true (any name) or false."""

    queues: bool | CreatedQueues = False
    topics: bool | CreatedNodes = False


class CreatedNodesSpec(CreatedNodes):
    """Nodes of one kind that are made when a client first names them."""

    names: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=255)], ...],
        Field(min_length=1, max_length=64, json_schema_extra={schema.LIST_TYPE: "set"}),
        AfterValidator(schema.check_unique),
    ] = ("*",)
    limit: Annotated[int, Field(ge=0, le=1_000_000)] = 10_000


class CreatedQueuesSpec(CreatedNodesSpec, CreatedQueues):
    """Queues that are made when a client first names them."""

    delete_unused_seconds: Annotated[int, Field(ge=1, le=2**31)] | None = None


class AutoCreateSpec(schema.Spec):
    """What is made when a client first names it; any other unknown name is refused as not-found."""

    queues: CreatedQueuesSpec | None = None
    """Queues; left out: none."""
    topics: CreatedNodesSpec | None = None
    """Topic exchanges; left out: none."""


def creation_settings(auto_create: AutoCreateSpec) -> dict[str, object]:
    """The settings in the broker's configuration file."""
    return auto_create.model_dump(mode="json", by_alias=True, exclude_none=True)


def creation_of(given: bool | AutoCreate) -> AutoCreation:
    """The setting `autoCreate` of the configuration file as a rule of `penstock_core`."""
    if isinstance(given, bool):
        return ANYTHING if given else NOTHING
    return AutoCreation(_rule(given.queues), _rule(given.topics))


def unused_queue_seconds(given: bool | AutoCreate) -> int | None:
    """Seconds without use after which a queue that was made by its name is deleted; None: never."""
    queues = given.queues if isinstance(given, AutoCreate) else None
    return queues.delete_unused_seconds if isinstance(queues, CreatedQueues) else None


def _rule(given: bool | CreatedNodes) -> CreationRule:
    if isinstance(given, CreatedNodes):
        return given.rule()
    return CreationRule(("*",)) if given else CreationRule()
