"""How fast messages may come for a queue to which the broker itself can't keep up giving them out.

Pure: what waits, for how long, and what consumers got in a turn come in as arguments. Source:
docs/decisions/090-intake-pace.md.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["BEHIND_US", "FEW", "LEAST_GRANT", "UNWANTED_US", "QueueProgress", "credit_for", "progress"]

FEW: Final = 64
"""Messages that never count as a backlog, however long they have waited: consumers get so many at once."""

BEHIND_US: Final = 8_000
"""Microseconds that the first message has waited, from which on producers are paced: some turns."""

CAUGHT_UP_US: Final = 4_000
"""With so many left, the broker has caught up."""

UNWANTED_US: Final = 4_000
"""Microseconds without a consumer that would take more, after which a queue that was behind is left to its consumers. A
fast one is without credit for a moment again and again: while its next credit is on the way."""

LEAST_GRANT: Final = 64
"""Messages that a producer is given at least, unless it is owed less: fewer are not worth a frame."""


class QueueProgress(Enum):
    """How a queue stands after consumers got their part of a turn."""

    BEHIND = "behind"
    """Messages wait for the broker."""
    CAUGHT_UP = "caught up"
    """Messages wait for nothing, or for a moment."""
    LEFT_TO_CONSUMERS = "left to consumers"
    """Messages wait for consumers: nobody would take more now."""


def progress(waiting: int, waited_us: int, *, was_behind: bool, unwanted_us: int) -> QueueProgress:
    """Whom the messages of a queue wait for. `waited_us`: how long the first has waited.

    `unwanted_us`: for how long there was no consumer that would take more: one that has credit, and whose socket takes
    bytes. 0 if there is one now. Without one a backlog builds as fast as messages come: that is what a queue is for.
    """
    if waiting and unwanted_us > (UNWANTED_US if was_behind else 0):
        return QueueProgress.LEFT_TO_CONSUMERS
    if waiting > FEW and waited_us > (CAUGHT_UP_US if was_behind else BEHIND_US):
        return QueueProgress.BEHIND
    return QueueProgress.CAUGHT_UP


def credit_for(delivered: int, *, is_behind: bool) -> int:
    """Messages that the producers which wait for a queue may send more, all together, after consumers got `delivered`
    of it in a turn.

    Half as much while it is behind, so that what waits becomes less however many producers there are; twice as much
    once it has caught up, so that they do not come back all at once. Never 0: a queue may be behind for long, because a
    consumer has come to a deep backlog.
    """
    return max(delivered // 2, 1) if is_behind else 2 * delivered + LEAST_GRANT
