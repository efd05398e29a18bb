"""How much memory messages may take, how much they take, in words, and what follows from it.

Three thresholds divide what messages may take. They turn memory into credit, then into disk, then into refusals, in
this order. A level is left only some way below the threshold at which it was entered. Pure: sizes and the level before
come in as arguments. Source: docs/decisions/084-memory.md.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["PROCESS_BYTES", "MemoryLevel", "default_budget", "level_of", "messages_per_tick", "used_share"]

PROCESS_BYTES: Final = 64 * 1024 * 1024
"""What the process needs without messages: measured, about 50 MiB, and some connections."""

LEAST_BUDGET: Final = 16 * 1024 * 1024
"""Messages always get so much."""

HYSTERESIS: Final = 0.05
"""A level is left this share below the threshold at which it begins."""

MOST_PER_TICK: Final = 100_000
"""Messages that all producers together may send per tick while they are held back."""


class MemoryLevel(Enum):
    """How much of their budget messages take. Values are words of `memoryLevel` in a broker's state
    (docs/reference/management.md).
    """

    OK = "Ok"
    HELD_BACK = "HeldBack"
    """From 70 %: producers get credit only for what there is room for."""
    SPILLING = "Spilling"
    """From 80 %: volatile messages go to the log, too, as far as queues have many."""
    FULL = "Full"
    """From 95 %: messages are refused."""

    @property
    def rank(self) -> int:
        """0 for `OK`; higher for each level that takes more."""
        return _ORDER.index(self)


_ORDER: Final = tuple(MemoryLevel)
_THRESHOLDS: Final = ((0.95, MemoryLevel.FULL), (0.80, MemoryLevel.SPILLING), (0.70, MemoryLevel.HELD_BACK))


def default_budget(limit: int) -> int:
    """Bytes that messages may take in a process that may take `limit`: half of what it does not need otherwise.

    The other half is for what no account shows: memory that was freed and is in pieces, and the pages of files that the
    system counts until they are written.
    """
    return max((limit - PROCESS_BYTES) // 2, LEAST_BUDGET)


def used_share(used: int, budget: int, resident: int, limit: int) -> float:
    """The share of its memory that the broker uses: what messages take of their budget or, if that is more, what the
    process has of all that it may have. `limit`: 0 if the process has none.
    """
    of_budget = used / budget
    return max(of_budget, resident / limit) if limit else of_budget


def level_of(used: float, before: MemoryLevel) -> MemoryLevel:
    """The level at which the share `used` is in use (0 to 1, or more), if it was `before` at the last look."""
    for threshold, level in _THRESHOLDS:
        if used >= threshold - (HYSTERESIS if before.rank >= level.rank else 0.0):
            return level
    return MemoryLevel.OK


def messages_per_tick(used: float, budget: int, mean: int) -> int:
    """Messages that all producers together may send until the next tick: half of what there is room for.

    `mean`: bytes that a message takes, of those that came last. Never 0: an application may have to publish before it
    can settle.
    """
    room = (1.0 - used) * budget / 2
    return max(1, min(MOST_PER_TICK, round(room / max(mean, 1))))
