"""How full the broker's volume is, in words, and what follows from it for producers.

Three thresholds divide the volume below its end. From the first two on, people are told; from the third on, producers
get little credit, and less the fuller the volume is. A level is left only some way below the point at which it was
entered, so that a volume which stands at a threshold does not change its level with each reading. Pure: shares and the
level before come in as arguments. Source: docs/decisions/076-nothing-lost-by-default.md.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["StorageLevel", "credits_per_tick", "held_back_from", "level_of"]

HYSTERESIS: Final = 0.03
"""A level is left this share of the volume below the point at which it begins."""

HELD_BACK_SHARE: Final = 0.10
HELD_BACK_BYTES: Final = 4 * 1024**3
"""Producers are held back when less than this share of the volume and less than these bytes are left. A large disk
that a broker shares with other programs is rarely less than 90 % full, and has room for long nevertheless."""
HELD_BACK_HYSTERESIS: Final = 0.3
"""They are let go when so much more is left, as a share of the room in which they are held back."""

MOST_CREDITS: Final = 100
"""Messages that all producers which are held back together may send per tick, at the threshold where that begins."""


class StorageLevel(Enum):
    """How full the volume is. Values are words of `storageLevel` in a broker's state (docs/reference/management.md)."""

    OK = "Ok"
    HIGH = "High"
    """From 70 %: somebody should look at it this week."""
    CRITICAL = "Critical"
    """From 85 %: somebody should look at it now."""
    HELD_BACK = "HeldBack"
    """From 90 %, if less than 4 GiB are left: producers of durable messages get little credit."""
    FULL = "Full"
    """Durable messages are refused."""

    @property
    def holds_back(self) -> bool:
        """Producers of durable messages get little credit."""
        return self in (StorageLevel.HELD_BACK, StorageLevel.FULL)

    @property
    def rank(self) -> int:
        """0 for `OK`; higher for each fuller level."""
        return _ORDER.index(self)


_ORDER: Final = tuple(StorageLevel)
_THRESHOLDS: Final = ((0.85, StorageLevel.CRITICAL), (0.70, StorageLevel.HIGH))


def held_back_from(total_bytes: int) -> float:
    """The share of a volume of this size (0: not known) from which producers are held back: 0.9, or more."""
    return 1.0 - min(HELD_BACK_SHARE, HELD_BACK_BYTES / max(total_bytes, 1))


def level_of(used: float, before: StorageLevel, held_from: float, *, refuses: bool) -> StorageLevel:
    """The level of a volume of which the share `used` (0 to 1) is in use, if it was `before` at the last reading.

    `held_from`: see `held_back_from`. `refuses`: durable messages are refused now. That is a fact of the log, not of
    the share: a log that can make no whole segment any more is full, however much of a small volume is left.
    """
    if refuses:
        return StorageLevel.FULL
    if used >= held_from - (HELD_BACK_HYSTERESIS * (1.0 - held_from) if before.holds_back else 0.0):
        return StorageLevel.HELD_BACK
    for threshold, level in _THRESHOLDS:
        if used >= threshold - (HYSTERESIS if before.rank >= level.rank else 0.0):
            return level
    return StorageLevel.OK


def credits_per_tick(used: float, held_from: float) -> int:
    """Messages that all producers which are held back together may send until the next tick: from `MOST_CREDITS` at the
    threshold down to 1 at the end of the volume.

    Never 0: an application that has to publish before it can settle what it consumes would wait for itself otherwise,
    and a producer that waits for ever is not told why.
    """
    left = (1.0 - used) / (1.0 - held_from)
    return max(1, min(MOST_CREDITS, round(MOST_CREDITS * left)))
