"""What waits in a tail, as it is at one time, read from the log a little at a time.

It goes on where it was after a read that failed, so who goes through it may simply ask again. Source:
docs/decisions/082-paging.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from penstock_amqp.endpoint.events import EXPIRES, NUMBER, Entry
from penstock_broker.queue.run import Run
from penstock_broker.queue.tail_pieces import MemoryPart

__all__ = ["READ_BYTES", "READ_MESSAGES", "Source", "Stretch", "TailSnapshot"]

READ_MESSAGES: Final = 256
"""What is read at a time where messages are looked through."""

READ_BYTES: Final = 256 * 1024


class Stretch(NamedTuple):
    """Entries that were read, by number, and the number at which to go on."""

    entries: list[Entry]
    following: int
    bytes: int
    """Of their bodies."""


class Source(Protocol):
    """Reads entries of one queue from the log."""

    def __call__(self, first: int, last: int, most: int, most_bytes: int) -> Stretch:
        """Those numbered `first` to `last`, about `most`, of about `most_bytes` in all. Raises OSError."""
        ...


class RunPart:
    """What a run holds now, from one number on and below another."""

    __slots__ = ("expires", "first", "last", "run")

    def __init__(self, run: Run, first: int, below: int) -> None:
        self.run, self.first, self.last = run, first, min(run.last, below - 1)
        self.expires = 0
        """When the first of those seen expires that are not due; 0: none does."""

    def copy(self) -> RunPart:
        """Another one that is as far as this."""
        made = RunPart(self.run, self.first, self.last + 1)
        made.last, made.expires = self.last, self.expires
        return made


class TailSnapshot:
    """An iterator. Each step may raise OSError; the next step then tries again."""

    __slots__ = ("_due_us", "_parts", "_read", "_read_of", "_source")

    def __init__(self, source: Source, parts: Iterable[RunPart | MemoryPart | list[Entry]], due_us: int = 0) -> None:
        """`due_us`: who goes through it takes out all that expire up to then; 0: it does not look at that."""
        self._source, self._due_us = source, due_us
        self._parts = deque(parts)
        self._read: deque[Entry] = deque()
        self._read_of: RunPart | None = None
        """Of what these are, if they can be read again."""

    def __iter__(self) -> TailSnapshot:
        return self

    def __next__(self) -> Entry:
        while not self._read:
            if not self._parts:
                raise StopIteration
            part = self._parts[0]
            self._read_of = None
            if isinstance(part, list):
                self._read.extend(part)
                self._parts.popleft()
            elif isinstance(part, MemoryPart):
                self._read.extend(part.take())
                self._parts.popleft()
            else:
                self._read_more(part)
        return self._read.popleft()

    def _read_more(self, part: RunPart) -> None:
        run = part.run
        begin, end = run.near(part.first)
        entries, following, _ = self._source(begin, min(end, part.last), READ_MESSAGES, READ_BYTES)
        own = run.own(entries)
        self._read.extend(own)
        self._read_of, part.first = part, following
        if self._due_us:
            for entry in own:
                if entry[EXPIRES] > self._due_us and (not part.expires or entry[EXPIRES] < part.expires):
                    part.expires = entry[EXPIRES]
        if following > part.last or following > run.last:
            self._parts.popleft()
            if self._due_us and run.last == part.last:
                run.expires = part.expires  # so that it is not read again before that

    def give_back(self) -> None:
        """Keep nothing that was read and can be read again when it is needed."""
        part = self._read_of
        if not self._read or part is None:
            return
        part.first = self._read[0][NUMBER]
        if not self._parts or self._parts[0] is not part:
            self._parts.appendleft(part)
        self._read.clear()

    def copy(self) -> TailSnapshot:
        """Another one that is as far as this."""
        made = TailSnapshot(self._source, (), self._due_us)
        for part in self._parts:
            if isinstance(part, list):
                made._parts.append(part)
            elif isinstance(part, MemoryPart):
                made._parts.append(part.copy())
            else:
                made._parts.append(part.copy())
        made._read.extend(self._read)
        if self._read_of is not None:
            is_next = bool(self._parts) and self._parts[0] is self._read_of
            again = made._parts[0] if is_next else self._read_of.copy()
            made._read_of = again if isinstance(again, RunPart) else None
        return made


def read_all(source: Source, run: Run, first: int) -> list[Entry]:
    """All of a run from one number on. Raises OSError."""
    return list(TailSnapshot(source, [RunPart(run, first, run.last + 1)]))


def behind(entries: Iterable[Entry], number: int) -> list[Entry]:
    """Those with higher numbers."""
    return [entry for entry in entries if entry[NUMBER] > number]
