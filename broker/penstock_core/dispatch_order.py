"""Which consumer gets which message of a queue: message priorities, message groups, and the ranks of consumers.

Source: AMQP 1.0 part 3, 3.2.1 (priority) and 3.2.4 (group-id, group-sequence); JMS 2.0, 3.4.10 and 3.5.10
(JMSXGroupID, JMSXGroupSeq); docs/decisions/031-queue-order.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

__all__ = [
    "HIGHEST_LEVEL",
    "NORMAL_LEVEL",
    "PRIORITY_PROPERTY",
    "closes_group",
    "consumer_priority",
    "level_of",
    "split_priority",
    "tiers",
]

NORMAL_LEVEL: Final = 4
"""The priority of a message whose header says none."""

HIGHEST_LEVEL: Final = 9
"""JMS has ten levels; AMQP lets a header say more, which then count as the highest."""

_CLOSING: Final = 0xFFFF_FFFF

PRIORITY_PROPERTY: Final = "priority"
"""The property of an attach that says how a consumer ranks: Artemis' and Broker-J's name for it."""

_PRIORITY_PROPERTIES: Final = (PRIORITY_PROPERTY, "rabbitmq:priority", "x-priority")

_PRIORITY_OPTION: Final = "?consumer-priority="
"""Behind an address, for clients that can't set properties of a link, such as JMS ones; Artemis' spelling."""


def level_of(priority: int) -> int:
    """The level, 0 to 9, at which a message of this priority waits."""
    return min(priority, HIGHEST_LEVEL)


def closes_group(sequence: int | None) -> bool:
    """True if the message is the last of its group, which is then anybody's again.

    The convention of Artemis and ActiveMQ: JMSXGroupSeq is -1, which JMS clients write as the highest group-sequence.
    """
    return sequence == _CLOSING


def consumer_priority(properties: Iterable[tuple[str, object]]) -> int:
    """How a consumer ranks by the properties of its attach; 0 if they don't say so by a whole number."""
    by_name = dict(properties)
    for name in _PRIORITY_PROPERTIES:
        priority = by_name.get(name)
        if isinstance(priority, int) and not isinstance(priority, bool):
            return int(priority)
    return 0


def split_priority(address: str) -> tuple[str, int] | None:
    """The address without its option ``?consumer-priority=N``, and N; None if it has no such option."""
    name, option, number = address.partition(_PRIORITY_OPTION)
    if not option or not name or not number.removeprefix("-").isdecimal() or len(number) > 10:
        return None
    return name, int(number)


def tiers(priorities: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Put consumers, given by their priorities in the order in which they came, into tiers of equal priority.

    The highest first; within a tier in the order in which they came. Of an exclusive queue the first of all is the one
    that gets the messages, and nobody takes its place while it stays, whatever the priority of who comes later.
    """
    by_priority: dict[int, list[int]] = {}
    for index, priority in enumerate(priorities):
        by_priority.setdefault(priority, []).append(index)
    return tuple(tuple(by_priority[priority]) for priority in sorted(by_priority, reverse=True))
