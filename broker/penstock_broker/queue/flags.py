"""What an entry's flags say of the order of its message: its priority, and whether it belongs to a group.

The bits are read once per message, when it comes in, so that queues need not look into it. A message of normal priority
without a group has none of them. Part of the forwarding path. Source: AMQP 1.0 part 3, 3.2.1 and 3.2.4.
"""

from __future__ import annotations

from typing import Final

from penstock_amqp.endpoint.events import DATA, FLAGS, Entry
from penstock_amqp.errors import DecodeError
from penstock_amqp.messages.fields import Field, group_fields, properties_field
from penstock_amqp.messages.message_head import Head
from penstock_core.dispatch_order import NORMAL_LEVEL, closes_group, level_of

__all__ = [
    "GROUPED",
    "LOGGED",
    "LOOK_INSIDE",
    "MAX_UNGROUPED",
    "ORDERED",
    "SCHEDULED",
    "SPILLED",
    "group_flag",
    "group_of",
    "level_flags",
    "outlives",
    "priority_of",
    "properties_count",
]

SCHEDULED: Final = 2
"""Flag of an entry, and of its record in the log: the message says when it may be delivered at the earliest."""

LOGGED: Final = 1
"""Flag of an entry: it was put into the log, so its end has to be."""

SPILLED: Final = 256
"""Flag of an entry that is `LOGGED`: only because memory was short. It ends with the process."""

GROUPED: Final = 8
"""Flag of an entry: its message belongs to a group."""

MAX_UNGROUPED: Final = int(Field.GROUP_ID)
"""A properties section with no more fields than this names no group."""

LOOK_INSIDE: Final = (0, 1)
"""No prefix is known, and the byte compared is always too high: each message is looked into."""

_LEVEL_SHIFT: Final = 4

_LEVEL_BITS: Final = 15

ORDERED: Final = GROUPED | _LEVEL_BITS << _LEVEL_SHIFT
"""All flags that say something about order."""


def outlives(flags: int) -> bool:
    """Whether the entry with these flags is in the log to outlive the process."""
    return flags & (LOGGED | SPILLED) == LOGGED


def level_flags(head: Head) -> int:
    """The flags for the priority: 0 for the normal priority."""
    return (level_of(head.priority) ^ NORMAL_LEVEL) << _LEVEL_SHIFT


def properties_count(data: bytes, at: int) -> tuple[int, int]:
    """Where to check quickly that a message has no group. `at` is the offset behind header and delivery-annotations.

    Returned are an offset, and where the count of its properties is (the low byte): a message that has the same bytes
    before the first and at most `MAX_UNGROUPED` at the second has no group. Messages of one sender mostly differ behind
    that only. The count of a message without properties is its first byte, a zero. `LOOK_INSIDE` if it can't be told.
    """
    code = data[at + 2 : at + 3]
    if code == b"\x72" and data[at : at + 2] == b"\x00\x53":
        if data[at + 3 : at + 4] != b"\xc1" or len(data) < at + 5:
            return LOOK_INSIDE
        at += 5 + data[at + 4]
        code = data[at + 2 : at + 3]
    if data[at : at + 2] != b"\x00\x53":
        return LOOK_INSIDE
    if code != b"\x73":
        return at + 3, 0
    match data[at + 3 : at + 4]:
        case b"\xc0" if len(data) > at + 5:
            return at + 4, at + 5
        case b"\xd0" if len(data) > at + 11:
            return at + 4, at + 11
        case b"\x45":
            return at + 4, 0
        case _:
            return LOOK_INSIDE


def group_flag(data: bytes, at: int) -> int:
    """The flag for a message that belongs to a group; 0 also if its properties can't be read."""
    try:
        return GROUPED if properties_field(data, at, Field.GROUP_ID) else 0
    except DecodeError:
        return 0


def priority_of(entry: Entry) -> int:
    """The level at which an entry waits."""
    return entry[FLAGS] >> _LEVEL_SHIFT & _LEVEL_BITS ^ NORMAL_LEVEL


def group_of(entry: Entry, head: Head) -> tuple[str, bool]:
    """The group of an entry that is `GROUPED`, and whether its message closes the group."""
    name, sequence = group_fields(entry[DATA], head.start)
    return str(name), closes_group(sequence if isinstance(sequence, int) else None)
