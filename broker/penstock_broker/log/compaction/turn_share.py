"""How much of a turn the idle work of the log gets: more, the further the log is above its bound. Pure.

With a fixed share a load could write segments faster than compaction gives them back, for as long as it goes on.
Source: docs/decisions/081-compaction-of-messages.md.
"""

from typing import Final

__all__ = ["LEAST_MS", "MOST_MS", "NORMAL_SEGMENTS", "TURN_MS", "share_ms"]

LEAST_MS: Final = 1.0
MOST_MS: Final = 3.0
TURN_MS: Final = 5.0
"""Milliseconds that a turn may take with all that it does."""
NORMAL_SEGMENTS: Final = 4
"""Segments beside twice what is alive that are in use while compaction keeps up."""
SEGMENTS_PER_MS: Final = 4
"""So many segments more give it a millisecond more."""


def share_ms(segments: int, alive: float, spent_ms: float, *, is_full: bool) -> float:
    """Milliseconds of this turn, from `LEAST_MS` to `MOST_MS`.

    `segments`: how many are in use; `alive`: how many what is alive would fill. `spent_ms`: what the turn has taken
    already. `is_full`: the disk is full, so that publishers may be waiting. With the least share a turn may take longer
    than `TURN_MS`, if it already has.
    """
    behind = segments - 2 * alive - NORMAL_SEGMENTS
    wanted = MOST_MS if is_full else min(LEAST_MS + behind / SEGMENTS_PER_MS, MOST_MS)
    return max(LEAST_MS, min(wanted, TURN_MS - spent_ms))
