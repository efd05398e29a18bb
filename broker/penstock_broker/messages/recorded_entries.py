"""Makes entries of messages as they stand in the log. Each costs one comparison if it begins like the one before."""

from __future__ import annotations

from typing import Any, Final

import penstock_native
from penstock_amqp.endpoint.events import Entry
from penstock_amqp.messages.message_head import read_head
from penstock_broker.log import VOLATILE, Put, Reading
from penstock_broker.messages.due_times import wishes_of
from penstock_broker.queue.flags import LOGGED, SCHEDULED, SPILLED
from penstock_broker.queue.message_prefix import NO_TIMES, UNKNOWN, MessagePrefix
from penstock_core.message_times import available_at, expires_at

__all__ = ["RecordedEntries"]

_plain_entries: Any = penstock_native.messages and penstock_native.messages.plain_entries

_SPECIAL: Final = VOLATILE | SCHEDULED
"""Flags of a record that say more than the message does."""


class RecordedEntries:
    """Remembers how the last message began."""

    __slots__ = ("_beginning",)

    def __init__(self) -> None:
        self._beginning = UNKNOWN

    def of(self, number: int, data: bytes, arrival_us: int, flags: int) -> Entry:
        """The entry as it was when the message came; `arrival_us` and `flags` are those of its record.

        The longest time to live of a queue is not taken into account.
        """
        beginning = self._beginning
        if not data.startswith(beginning.prefix):
            beginning = self._beginning = MessagePrefix(data, read_head(data))
        absolute, marks = beginning.look_safely(data)
        if flags & VOLATILE:
            marks |= SPILLED
        expires = expires_at(arrival_us, beginning.ttl_us // 1000, absolute)
        available = arrival_us
        if flags & SCHEDULED:
            marks |= SCHEDULED
            available = available_at(arrival_us, wishes_of(data, beginning.head))
        return number, data, available, expires, marks | LOGGED

    def all_of(self, reading: Reading) -> list[Entry]:
        """The same for all that was read of a deep backlog: most cost no further call."""
        found: list[Entry] = []
        beginning = self._beginning
        if _plain_entries is not None:
            return self._runs_of(reading.puts, found)
        prefix, count_at, marks, ttl_us = beginning.prefix, beginning.count_at, beginning.flags, beginning.ttl_us
        for _, number, arrival_us, data, flags in reading.puts:
            if not flags & _SPECIAL and len(data) > count_at and data[count_at] <= NO_TIMES and data.startswith(prefix):
                expires = arrival_us + ttl_us if ttl_us else 0
                found.append((number, data, arrival_us, expires, marks | LOGGED))
                continue
            found.append(self.of(number, data, arrival_us, flags))
            beginning = self._beginning
            prefix, count_at, marks, ttl_us = beginning.prefix, beginning.count_at, beginning.flags, beginning.ttl_us
        return found

    def _runs_of(self, puts: list[Put], found: list[Entry]) -> list[Entry]:
        """The same, run by run in compiled code."""
        at = 0
        while at < len(puts):
            one = self._beginning
            marks = one.flags | LOGGED
            taken: int = _plain_entries(
                puts, at, one.prefix, one.count_at, one.is_narrow, _SPECIAL, one.ttl_us, marks, found
            )
            at += taken
            if at < len(puts):
                _, number, arrival_us, data, flags = puts[at]
                found.append(self.of(number, data, arrival_us, flags))
                at += 1
        return found
