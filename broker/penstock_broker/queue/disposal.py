"""What ended queues held, freed in slices: to free a million messages in one turn would hold up every client.

Nobody can reach these messages any more: one record of the log has ended them, and their queue is empty. So nothing is
to be done for each of them but to free its memory. Must not know queues or the log. Source:
docs/decisions/023-bounded-turns.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from penstock_amqp.endpoint.buffers import Ptr
from penstock_amqp.endpoint.events import Entry

__all__ = ["FREED_PER_TURN", "Disposal", "Pile"]

FREED_PER_TURN: Final = 4000
"""Messages, or message numbers, that are freed in one turn: about a millisecond."""

Pile: TypeAlias = (
    deque[Entry]
    | list[list[Entry]]
    | list[list[tuple[int, Entry]]]
    | set[int]
    | Mapping[int, object]
    | Mapping[str | bytes, object]
    | Mapping[Ptr, object]
    | Iterator[object]
)
"""Messages one by one or in blocks, or what was remembered of them; an iterator must free each item that it yields."""


class Disposal:
    """Piles to be freed, oldest first; true while there is anything."""

    __slots__ = ("piles",)

    def __init__(self) -> None:
        self.piles: deque[Iterator[int]] = deque()
        """Not empty while there is anything: each turn asks for that more than once."""

    def __bool__(self) -> bool:
        return bool(self.piles)

    def add(self, *piles: Pile) -> None:
        """Take over piles that nobody else refers to."""
        self.piles.extend(map(_emptied, piles))

    def free_slice(self) -> None:
        """Free the next slice."""
        left = FREED_PER_TURN
        while self.piles and left > 0:
            freed = next(self.piles[0], 0)
            if not freed:
                self.piles.popleft()
            left -= freed or 1


def _emptied(pile: Pile) -> Iterator[int]:
    """Empty a pile piece by piece; yields how many messages each piece had."""
    match pile:
        case deque() | set():
            while pile:
                pile.pop()
                yield 1
        case dict():
            while pile:
                pile.popitem()
                yield 1
        case list():
            while pile:
                yield len(pile.pop())
        case Iterator():
            for _ in pile:
                yield 1
        case _:
            raise AssertionError(pile)
