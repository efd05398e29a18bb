"""Makes entries of messages as they stand in the log. Each costs one comparison if it begins like the one before."""

from __future__ import annotations

from typing import Any, Final

import penstock_native
from penstock_amqp.endpoint.events import Entry
from penstock_amqp.messages.message_head import read_head
from penstock_broker.log import VOLATILE, Put, PutBlock, Reading, put_at
from penstock_broker.messages.due_times import requested_times_of
from penstock_broker.queue.flags import LOGGED, SCHEDULED, SPILLED
from penstock_broker.queue.message_prefix import NO_TIMES, UNKNOWN, MessagePrefix
from penstock_core.message_times import available_at, expires_at

__all__ = ["RecordedEntries"]

_native: Any = penstock_native.messages
_plain_entries: Any = _native and _native.plain_entries
_stretch_entries: Any = _native and _native.stretch_entries

_SPECIAL: Final = VOLATILE | SCHEDULED
"""Flags of a record that say more than the message does."""


class RecordedEntries:
    """Remembers how the last message began."""

    __slots__ = ("_beginning", "delayed_came_us")

    def __init__(self) -> None:
        self._beginning = UNKNOWN
        self.delayed_came_us: dict[int, int] = {}
        """When those delayed messages came that `all_of` has made last, by number; the entry says when it was due."""

    def of(self, number: int, data: bytes, arrival_us: int, flags: int) -> Entry:
        """The entry as it was when the message came; `arrival_us` and `flags` are those of its record.

        The longest time to live of a queue is not taken into account.
        """
        beginning = self._beginning
        if not data.startswith(beginning.prefix):
            beginning = self._beginning = MessagePrefix(data, read_head(data))
        absolute, entry_flags = beginning.look_safely(data)
        if flags & VOLATILE:
            entry_flags |= SPILLED
        expires = expires_at(arrival_us, beginning.ttl_us // 1000, absolute)
        available = arrival_us
        if flags & SCHEDULED:
            entry_flags |= SCHEDULED
            available = available_at(arrival_us, requested_times_of(data, beginning.head))
        return number, data, available, expires, entry_flags | LOGGED

    def all_of(self, reading: Reading) -> list[Entry]:
        """The same for all that was read of a deep backlog: most cost no further call."""
        found: list[Entry] = []
        self.delayed_came_us = {}
        for part in reading.parts:
            if isinstance(part, list):
                self._add_puts(part, found)
            elif part.made is not None:
                found += part.made
            else:
                self._add_block(part, found)
        return found

    def _add_block(self, block: PutBlock, found: list[Entry]) -> None:
        """Entries of all puts of a block; queues that read the same messages share them."""
        data, at, end = block.data, block.begin, block.upto
        if _stretch_entries is None or data is None or block.flags & _SPECIAL:
            self._add_puts(block.puts() or [], found)
            return
        made: list[Entry] = []
        while at < end:
            one = self._beginning
            entry_flags = one.flags | LOGGED
            at = _stretch_entries(data, at, end, one.prefix, one.count_at, one.is_narrow, one.ttl_us, entry_flags, made)
            if at < end:
                put, at = put_at(data, at)
                made.append(self.of(put.message, put.payload, put.arrival, put.flags))
        block.keep(made)
        found += made

    def _add_puts(self, puts: list[Put], found: list[Entry]) -> None:
        if _plain_entries is not None:
            self._add_runs(puts, found)
            return
        beginning = self._beginning
        prefix, count_at, ttl_us = beginning.prefix, beginning.count_at, beginning.ttl_us
        for _, number, arrival_us, data, flags in puts:
            if not flags & _SPECIAL and len(data) > count_at and data[count_at] <= NO_TIMES and data.startswith(prefix):
                expires = arrival_us + ttl_us if ttl_us else 0
                found.append((number, data, arrival_us, expires, beginning.flags | LOGGED))
                continue
            found.append(self._special(number, data, arrival_us, flags))
            beginning = self._beginning
            prefix, count_at, ttl_us = beginning.prefix, beginning.count_at, beginning.ttl_us

    def _add_runs(self, puts: list[Put], found: list[Entry]) -> None:
        """The same, run by run in compiled code."""
        at = 0
        while at < len(puts):
            one = self._beginning
            entry_flags = one.flags | LOGGED
            taken: int = _plain_entries(
                puts, at, one.prefix, one.count_at, one.is_narrow, _SPECIAL, one.ttl_us, entry_flags, found
            )
            at += taken
            if at < len(puts):
                _, number, arrival_us, data, flags = puts[at]
                found.append(self._special(number, data, arrival_us, flags))
                at += 1

    def _special(self, number: int, data: bytes, arrival_us: int, flags: int) -> Entry:
        if flags & SCHEDULED:
            self.delayed_came_us[number] = arrival_us
        return self.of(number, data, arrival_us, flags)
