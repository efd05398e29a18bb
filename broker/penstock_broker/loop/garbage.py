"""Garbage collection in slices: young objects are looked at once, and then never again.

Python's own policy looks at all objects from time to time, which takes a tenth of a second with a million messages. So
it is off while the broker serves. What lives per connection, link or queue has no reference cycles (a test collects
them with `gc.DEBUG_SAVEALL`), and is freed with its last reference. What is left are short-lived cycles, as those of an
exception that is handled: they are among the objects made since the last collection, and a collection looks at these
alone. What survives one is frozen, that is, no later one looks at it.

A start makes objects that stay. To look at them again and again while they are made took two thirds of the time in
which ten thousand subscriptions are put in place, and to look at them once more at its end 0.4 s, in which clients
waited already. So it collects once, when the log is read, and what it makes of that is frozen as it is.

Source: docs/decisions/023-bounded-turns.md.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

__all__ = ["YOUNG_MESSAGES", "YOUNG_OBJECTS", "YoungCollection", "collect_remains", "start_without_collection"]

YOUNG_OBJECTS: Final = 8_000
"""Objects, made and not freed since the last collection, with which the next one is due. It takes about half a
millisecond."""

YOUNG_MESSAGES: Final = 8_000
"""The same in messages that were given a number. In a queue that stays as long as it is, as many old messages leave as
new ones come, and the count of objects made and not freed does not grow."""


@contextmanager
def start_without_collection() -> Generator[None]:
    """Collect nothing within this, and have no later collection look at what it makes, unless it fails."""
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


def collect_remains() -> None:
    """Free what the reading of a log may have left in cycles, such as those of an exception, with the bytes that these
    hold.
    """
    gc.collect()


class YoungCollection:
    """The collections of one process that serves a broker."""

    __slots__ = ("_numbered",)

    def __init__(self) -> None:
        self._numbered = 0

    def begin(self) -> None:
        """Collect everything once, and have no later collection look at what there is now."""
        gc.collect()
        gc.freeze()
        gc.disable()

    def step(self, next_number: int) -> None:
        """Collect if enough is young; `next_number`: the number that the next message gets."""
        if gc.get_count()[0] < YOUNG_OBJECTS and next_number - self._numbered < YOUNG_MESSAGES:
            return
        self._numbered = next_number
        gc.collect(0)
        gc.freeze()

    def end(self) -> None:
        """Leave collections to Python again."""
        gc.unfreeze()
        gc.enable()
