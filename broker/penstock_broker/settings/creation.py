"""The part of the settings that says what is made when a client names it, and when queues so made go again."""

from __future__ import annotations

from pydantic import Field

from penstock_broker.settings.security import Model
from penstock_core.auto_creation import ANYTHING, NOTHING, AutoCreation, CreationRule

__all__ = ["AutoCreate", "CreatedNodes", "CreatedQueues", "creation_of", "unused_queue_seconds"]


class CreatedNodes(Model):
    """Nodes of one kind that are made when they are first named."""

    names: tuple[str, ...] = ("*",)
    """Patterns of names; `*` stands for any characters."""
    limit: int = Field(default=10_000, ge=0)
    """So many are there at most that were made in this way."""

    def rule(self) -> CreationRule:
        """As the rules know it."""
        return CreationRule(self.names, self.limit)


class CreatedQueues(CreatedNodes):
    """The same for queues, which can go again by themselves."""

    delete_unused_seconds: int | None = Field(default=None, ge=1)
    """Delete one that is empty and that no link has used for so long; absent: never."""


class AutoCreate(Model):
    """What is made when a client names it."""

    queues: bool | CreatedQueues = False
    topics: bool | CreatedNodes = False


def creation_of(given: bool | AutoCreate) -> AutoCreation:
    """The setting as the rules know it."""
    if isinstance(given, bool):
        return ANYTHING if given else NOTHING
    return AutoCreation(_rule(given.queues), _rule(given.topics))


def unused_queue_seconds(given: bool | AutoCreate) -> int | None:
    """After which time without use queues that were made by their name go again; None: never."""
    queues = given.queues if isinstance(given, AutoCreate) else None
    return queues.delete_unused_seconds if isinstance(queues, CreatedQueues) else None


def _rule(given: bool | CreatedNodes) -> CreationRule:
    if isinstance(given, CreatedNodes):
        return given.rule()
    return CreationRule(("*",)) if given else CreationRule()
