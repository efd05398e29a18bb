"""The names of entities that were removed, by the revision of their removal: for readers who ask what changed since.

Only the last `KEPT` are known. Who asks for an earlier revision has to read everything again. Revisions count anew in
every process. Source: docs/reference/management.md (QUERY with `changedSince`).
"""

from __future__ import annotations

from typing import Final

__all__ = ["KEPT", "Removals"]

KEPT: Final = 2_500
"""So many removed names are known: what five hundred clients with a temporary subscription each leave in a second, in
the five seconds between two questions of the operator. They take half a megabyte."""


class Removals:
    """What was removed of one kind of entity."""

    __slots__ = ("_forgotten", "_revisions")

    def __init__(self) -> None:
        self._revisions: dict[str, int] = {}
        """By name, ascending."""
        self._forgotten = 0
        """Removals up to this revision are not known any more."""

    def note(self, name: str, revision: int) -> None:
        """An entity is removed with this revision, the highest so far."""
        self._revisions.pop(name, None)
        self._revisions[name] = revision
        if len(self._revisions) > KEPT:
            oldest = next(iter(self._revisions))
            self._forgotten = self._revisions.pop(oldest)

    def since(self, revision: int) -> list[str] | None:
        """The names that were removed after a revision, the last first; an entity of such a name may be there again.
        None: not all of them are known.
        """
        if revision < self._forgotten:
            return None
        found: list[str] = []
        for name, removed in reversed(self._revisions.items()):
            if removed <= revision:
                break
            found.append(name)
        return found
