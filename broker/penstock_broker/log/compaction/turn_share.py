"""How much of a turn the idle work of the log gets: more, the further the log is above its bound. Pure.

With a fixed share a load could write segments faster than compaction gives them back, for as long as it goes on.
Source: docs/decisions/081-compaction-of-messages.md.
"""

from typing import Final

__all__ = ["LEAST_MS", "MOST_MS", "NORMAL_SEGMENTS", "TURN_MS", "share_ms"]

LEAST_MS: Final = 1.0
MOST_MS: Final = 3.0
"""Of a turn that is not longer than it may be."""
TURN_MS: Final = 5.0
"""Milliseconds that a turn may take with all that it does."""
NORMAL_SEGMENTS: Final = 4
"""Segments beside twice what is alive that are in use while compaction keeps up."""
SEGMENTS_PER_MS: Final = 4
"""So many segments more give it a millisecond more, of a turn that is not longer than it may be."""


def share_ms(segments: int, alive: float, spent_ms: float, *, is_full: bool) -> float:
    """Milliseconds of this turn, at least `LEAST_MS`.

    `segments`: how many are in use; `alive`: how many what is alive would fill. `spent_ms`: what the turn has taken
    already. `is_full`: the disk is full, so that publishers may be waiting. With the least share a turn may take longer
    than `TURN_MS`. One that already has gives in proportion to its length, up to half as much as it has taken: on a
    machine with too much to do turns are long and few, and as much as of a short turn would let the log grow for as
    long as that lasts.
    """
    behind = segments - 2 * alive - NORMAL_SEGMENTS
    wanted = LEAST_MS + behind / SEGMENTS_PER_MS
    if spent_ms < TURN_MS:
        most = min(MOST_MS, TURN_MS - spent_ms)
    else:
        wanted *= spent_ms / TURN_MS
        most = spent_ms / 2
    return max(LEAST_MS, most if is_full else min(wanted, most))
