"""Who gets which message of a queue: priorities, groups, consumers that come first.

Source: AMQP 1.0 part 3, 3.2.1 (priority) and 3.2.4 (group-id, group-sequence); JMS 2.0, 3.4.10 and 3.5.10
(JMSXGroupID, JMSXGroupSeq); section 4 of the design.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["HIGHEST_LEVEL", "NORMAL_LEVEL", "closes_group", "level_of", "tiers"]

NORMAL_LEVEL: Final = 4
"""The priority of a message whose header says none."""

HIGHEST_LEVEL: Final = 9
"""JMS has ten levels; AMQP lets a header say more, which then count as the highest."""

_CLOSING: Final = 0xFFFF_FFFF


def level_of(priority: int) -> int:
    """The level, 0 to 9, at which a message of this priority waits."""
    return min(priority, HIGHEST_LEVEL)


def closes_group(sequence: int | None) -> bool:
    """True if the message is the last of its group, which is then anybody's again.

    The convention of Artemis and ActiveMQ: JMSXGroupSeq is -1, which JMS clients write as the highest group-sequence.
    """
    return sequence == _CLOSING


def tiers(priorities: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Put consumers, given by their priorities in the order in which they came, into tiers of equal priority.

    The highest first; within a tier in the order in which they came. Of an exclusive queue the first of all is the one
    that gets the messages, and nobody takes its place while it stays, whatever the priority of who comes later.
    """
    by_priority: dict[int, list[int]] = {}
    for index, priority in enumerate(priorities):
        by_priority.setdefault(priority, []).append(index)
    return tuple(tuple(by_priority[priority]) for priority in sorted(by_priority, reverse=True))
