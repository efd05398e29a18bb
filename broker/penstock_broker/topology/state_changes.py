"""Which subscriptions changed since a reader asked last, so that a poll costs by what changed.

Each subscription that changed gets a version; the versions ascend, and the names are kept in their order. A queue is
told of this record only while its last change has a version: with its next change it enters itself in `changed`, and
the forwarding path looks at one field per batch, however often anybody polls. `number` then gives versions to all that
are entered. A subscription that ended has a version, too, under which its name is removed; only the last `KEPT` of
these are known, and who asks for an older version has to read everything again.

Versions count from 1 in every process, so they mean nothing in another one. Must not know requests. Source:
docs/reference/management.md, "States that changed".
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Final

from penstock_broker.queue.queue import Queue

__all__ = ["KEPT", "Changes", "StateChanges"]

KEPT: Final = 10_000
"""So many names of subscriptions that ended are known."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed after a version."""

    states: tuple[str, ...]
    """Names of the subscriptions that changed and are there, in the order of their last change."""
    removed: tuple[str, ...]
    """Names of subscriptions that ended and are not there again, in the order of their end."""
    version: int
    """Up to which version all changes are among these."""
    left: int
    """So many more subscriptions changed after that version."""


class StateChanges:
    """The subscriptions of one broker by their last change."""

    __slots__ = ("_changed", "_ended", "_forgotten", "_order", "_version")

    def __init__(self) -> None:
        self._version = 0
        self._changed: dict[Queue, None] = {}
        """Queues that changed and have no version for that yet; they enter themselves (`Queue.note_change`)."""
        self._order: dict[str, int] = {}
        """Version of the last change by name, ascending."""
        self._ended: dict[str, int] = {}
        """Version of the end by name, ascending; none of them is there."""
        self._forgotten = 0
        """Ends up to this version are not known any more."""

    @property
    def pending(self) -> int:
        """Subscriptions that changed and have no version for that yet."""
        return len(self._changed)

    def watch(self, queue: Queue) -> None:
        """A subscription has this queue from now on."""
        self._ended.pop(queue.name, None)
        self._changed[queue] = None

    def unwatch(self, queue: Queue) -> None:
        """The queue's life is over."""
        self._changed.pop(queue, None)
        queue.changes = None

    def end(self, name: str) -> None:
        """The subscription with this queue name is gone."""
        self._order.pop(name, None)
        self._version += 1
        self._ended[name] = self._version
        if len(self._ended) > KEPT:
            oldest = next(iter(self._ended))
            self._forgotten = self._ended.pop(oldest)

    def knows(self, version: int) -> bool:
        """True if all is known that happened after a version."""
        return self._forgotten <= version <= self._version

    def number(self, most: int) -> None:
        """Give versions to what changed since the last call, to so many subscriptions at most: `since` counts the
        others as left."""
        order, changed = self._order, self._changed
        for queue in list(islice(changed, most)):
            self._version += 1
            order.pop(queue.name, None)
            order[queue.name] = self._version
            queue.changes = changed
            del changed[queue]

    def since(self, version: int, most: int) -> Changes:
        """What changed after a version that is known, 0 for everything; `most`: how many states at most.

        It costs by what changed after that version. `number` is to be called before.
        """
        later = takewhile(lambda each: each[1] > version, reversed(self._order.items()))
        found = list(later)
        found.reverse()
        chosen = found[:most]
        left = len(found) - len(chosen)
        removed = takewhile(lambda each: each[1] > version, reversed(self._ended.items()))
        return Changes(
            states=tuple(name for name, _ in chosen),
            removed=tuple(name for name, _ in removed)[::-1],
            version=chosen[-1][1] if left else self._version,
            left=left + len(self._changed),
        )
