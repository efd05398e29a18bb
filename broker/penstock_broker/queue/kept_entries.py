"""Messages by number, in blocks of numbers: a table of a million takes some forty milliseconds at once when it grows.

Written for speed: `put` runs for every batch that comes to a deep queue and stays in memory. Source:
docs/decisions/082-paging.md; docs/decisions/023-bounded-turns.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from penstock_amqp.endpoint.events import NUMBER, Entry

__all__ = ["KeptEntries"]

_BLOCK_BITS: Final = 12
"""A block has the numbers that are the same but for so many bits: 4,096, which takes 0.1 ms when it grows."""


class KeptEntries:
    """Those of one queue that stay in memory behind its window, in no order."""

    __slots__ = ("_blocks", "_count")

    def __init__(self) -> None:
        self._blocks: dict[int, dict[int, Entry]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, number: int) -> bool:
        return number in self._blocks.get(number >> _BLOCK_BITS, ())

    def get(self, number: int) -> Entry | None:
        """The message with this number, if it is here."""
        block = self._blocks.get(number >> _BLOCK_BITS)
        return None if block is None else block.get(number)

    def put(self, entries: Iterable[Entry]) -> None:
        """Keep messages; one that is here already is kept once."""
        blocks, at, before = self._blocks, -1, 0
        block: dict[int, Entry] = {}
        for entry in entries:
            number = entry[NUMBER]
            if number >> _BLOCK_BITS != at:
                self._count += len(block) - before
                at = number >> _BLOCK_BITS
                block = blocks.setdefault(at, {})
                before = len(block)
            block[number] = entry
        self._count += len(block) - before

    def pop(self, number: int) -> Entry | None:
        """Take out the message with this number, if it is here."""
        block = self._blocks.get(number >> _BLOCK_BITS)
        if block is None or (entry := block.pop(number, None)) is None:
            return None
        self._count -= 1
        if not block:
            del self._blocks[number >> _BLOCK_BITS]
        return entry

    def values(self) -> Iterator[Entry]:
        """All messages; nothing may change meanwhile."""
        return chain.from_iterable(block.values() for block in self._blocks.values())

    def take_all(self) -> list[dict[int, Entry]]:
        """Hand over all messages; none is here any more."""
        taken = list(self._blocks.values())
        self._blocks, self._count = {}, 0
        return taken
