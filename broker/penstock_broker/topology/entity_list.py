"""The entities of one kind as QUERY lists them: in the order of their names, and by their last change.

Lists are asked for page by page, and the operator asks every few seconds what changed. So the names are kept in order,
and the entities in the order of their revisions: a page costs by its rows, and a question by what changed. Must not
know requests. Source: docs/reference/management.md (QUERY with `changedSince`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from operator import itemgetter
from typing import Final, Generic, Protocol, TypeVar

from penstock_broker.topology.removals import Removals

__all__ = ["EntityList", "Revised"]

SORTED_AT_ONCE: Final = 500
"""So many changed entities are put in order for one answer: about a quarter of a millisecond."""


class Revised(Protocol):
    """An exchange, a subscription or a queue."""

    revision: int


T = TypeVar("T", bound=Revised)


class EntityList(Generic[T]):
    """The entities of one kind that are there, and the names of those that were removed."""

    __slots__ = ("_by_change", "_names", "_removals")

    def __init__(self) -> None:
        self._by_change: dict[str, T] = {}
        """By name, in the order of their revisions."""
        self._names: list[str] = []
        """Ascending."""
        self._removals = Removals()

    def __len__(self) -> int:
        return len(self._names)

    def revise(self, name: str, entity: T, revision: int) -> None:
        """The entity is there and gets this revision, the highest so far: it is new, or its declaration changed."""
        if self._by_change.pop(name, None) is None:
            insort(self._names, name)
        self._by_change[name] = entity
        entity.revision = revision

    def remove(self, name: str, revision: int) -> None:
        """The entity is removed with this revision, the highest so far. KeyError if it is not there."""
        del self._by_change[name]
        del self._names[bisect_left(self._names, name)]
        self._removals.note(name, revision)

    def get(self, name: str) -> T | None:
        """The entity of this name; None if there is none."""
        return self._by_change.get(name)

    def names(self, after: str = "") -> list[str]:
        """The names behind this one in their order; all behind the empty one."""
        return self._names[bisect_right(self._names, after) :]

    def page(self, begin: int, end: int, after: str = "") -> list[T]:
        """Of the entities whose names come behind this one, those from the one place to before the other, in the order
        of their names.
        """
        first = bisect_right(self._names, after)
        return [self._by_change[name] for name in self._names[first + begin : first + end]]

    def changed_after(self, revision: int, after: str = "") -> list[T] | None:
        """The entities with a higher revision whose names come behind this one, in the order of their names; None if
        more than `SORTED_AT_ONCE` have changed: then whoever wants to know goes through all names in slices.
        """
        changed: list[tuple[str, T]] = []
        for count, (name, entity) in enumerate(reversed(self._by_change.items())):
            if entity.revision <= revision:
                break
            if count == SORTED_AT_ONCE:
                return None
            if name > after:
                changed.append((name, entity))
        changed.sort(key=itemgetter(0))
        return [entity for _, entity in changed]

    def removed_after(self, revision: int) -> list[str] | None:
        """The names that were removed after a revision; None: not all of them are known. See `Removals.since`."""
        return self._removals.since(revision)
