"""Which subscriptions changed since a reader asked last, so that a poll costs by what changed.

Each subscription that changed gets a version; the versions ascend, and the names are kept in their order. A queue is
told of this record only while its last change has a version: with its next change it enters itself in `changed`, and
the forwarding path looks at one field per batch, however often anybody polls. `number` then gives versions to those
that are entered, in slices and generation by generation: what is entered while a generation is numbered belongs to the
next one. A subscription that ended has a version, too, under which its name is removed; only the last `KEPT` of these
are known, and who asks for an older version has to read everything again.

Versions count from 1 in every process, so they mean nothing in another one. Must not know requests. Source:
docs/reference/management.md, "States that changed".
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import islice
from typing import Final

from penstock_broker.queue.queue import Queue

__all__ = ["KEPT", "Changes", "StateChanges"]

KEPT: Final = 10_000
"""So many names of subscriptions that ended are known."""

WALKED: Final = 500
"""So many changes are looked at one by one; what reaches further back is found by copying all names and versions."""


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

    __slots__ = ("_changed", "_ended", "_forgotten", "_generations", "_older", "_order", "_version")

    def __init__(self) -> None:
        self._version = 0
        self._changed: dict[Queue, None] = {}
        """Queues that changed and have no version for that yet; they enter themselves (`Queue.note_change`)."""
        self._older: dict[Queue, None] = {}
        """Those of the generation that is being numbered."""
        self._generations = 0
        """So many are numbered."""
        self._order: dict[str, int] = {}
        """Version of the last change by name, ascending."""
        self._ended: dict[str, int] = {}
        """Version of the end by name, ascending; none of them is there."""
        self._forgotten = 0
        """Ends up to this version are not known any more."""

    @property
    def pending(self) -> int:
        """Subscriptions that changed and have no version for that yet."""
        return len(self._changed) + len(self._older)

    def watch(self, queue: Queue) -> None:
        """A subscription has this queue from now on."""
        self._ended.pop(queue.name, None)
        self._changed[queue] = None

    def unwatch(self, queue: Queue) -> None:
        """The queue's life is over."""
        self._changed.pop(queue, None)
        self._older.pop(queue, None)
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

    @property
    def version(self) -> int:
        """The last version that was given."""
        return self._version

    @property
    def generation(self) -> int:
        """The last generation of what has changed by now, for `number`."""
        return self._generations + (2 if self._older else 1)

    def number(self, generation: int, most: int) -> bool:
        """Give versions to the next queues, `most` at most; True if this generation is numbered."""
        if self._generations >= generation:
            return True
        changed, older = self._changed, self._older
        if not older:
            older = self._older = changed.copy()  # the queues know the other one
            changed.clear()
        order = self._order
        for queue in list(islice(older, most)):
            del older[queue]
            self._version += 1
            order.pop(queue.name, None)
            order[queue.name] = self._version
            queue.changes = changed
        if not older:
            self._generations += 1
        return self._generations >= generation

    def since(self, version: int, most: int, until: int) -> Changes:
        """What changed after a version that is known, 0 for everything, and up to another; `most`: how many states.

        It costs by what changed after that version, and if that is much, by the copying of all names. `number` is to be
        called before.
        """
        names, versions = _after(self._order, version)
        found = bisect_right(versions, until)
        chosen = min(found, most)
        left = found - chosen
        return Changes(
            states=tuple(names[:chosen]),
            removed=tuple(_after(self._ended, version)[0]),
            version=versions[chosen - 1] if left else until,
            left=left,
        )


def _after(record: dict[str, int], version: int) -> tuple[list[str], list[int]]:
    """The names whose versions are higher, and these, ascending as in `record`."""
    last = list(islice(reversed(record.items()), WALKED))
    if len(last) < WALKED or last[-1][1] <= version:
        found = [each for each in reversed(last) if each[1] > version]
        return [name for name, _ in found], [each for _, each in found]
    names, versions = list(record), list(record.values())
    first = bisect_right(versions, version)
    return names[first:], versions[first:]
