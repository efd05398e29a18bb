"""What waits behind the first messages of a queue that holds too many for memory: their numbers, not their bodies.

A *run* says of messages that were put into the log one after the other: the first number, the last, how many of them
are this queue's, and when the first of them expires. However many messages a run stands for, it takes the same memory.
Messages that the log does not hold, or that say more than a run can, stay in memory, in their place between the runs.

Messages leave at the front, a window at a time (`pull`), and from the middle (`remove`): those numbers are remembered
until the run has been read. Must not know links or the log: `Source` reads. Source: docs/decisions/082-paging.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from penstock_amqp.endpoint.events import FLAGS, NUMBER, Entry
from penstock_broker.queue.flags import LOGGED
from penstock_broker.queue.kept_entries import KeptEntries
from penstock_broker.queue.run import Run
from penstock_broker.queue.tail_pieces import (
    MOST_KEPT,
    MemoryPart,
    MemoryPiece,
    MemorySweep,
    PageableCount,
    Piece,
    ceiling_of,
    key_of,
    take_chosen,
    tally,
)
from penstock_broker.queue.tail_snapshot import READ_MESSAGES, RunPart, Source, Stretch, TailSnapshot, behind, read_all

__all__ = ["PagedTail"]

_NO_LIMIT: Final = (1 << 64) - 1
"""All numbers of messages are lower."""


class PagedTail:
    """Runs and messages in memory, in the order of hand-out, and behind them what has just come."""

    __slots__ = ("_in_memory", "_lost", "_pieces", "_source", "_sweep", "arrivals", "bytes", "runs_count", "volatile")

    def __init__(self, source: Source, lost: Callable[[int, int], None]) -> None:
        """`lost` is told how many messages, of how many bytes, are gone because the log is damaged."""
        self._source, self._lost = source, lost
        self._pieces: list[Piece] = []
        self._in_memory = KeptEntries()
        self._sweep = MemorySweep()
        self.arrivals: deque[Entry] = deque()
        """What came last; it is taken in once the log has written it."""
        self.runs_count = 0
        """Messages that are in no memory."""
        self.bytes = 0
        """Of these messages."""
        self.volatile = 0
        """How many of these end with the process."""

    def __len__(self) -> int:
        return self.runs_count + len(self._in_memory) + len(self.arrivals)

    @property
    def held(self) -> int:
        """Messages behind the window, without those that came last."""
        return self.runs_count + len(self._in_memory)

    # -- coming in --------------------------------------------------------------------------------------------------

    def adopt(self, runs: Iterable[Run], place: Callable[[Entry], int]) -> None:
        """Begin with messages of the log, by ascending number; what has come in meanwhile takes its place among them.

        `place`: an entry comes before the messages from this number on. The tail must be new.
        """
        entries = deque(sorted(self.arrivals, key=place))
        waiting = deque(runs)
        self.runs_count = sum(run.count for run in waiting)
        self.bytes = sum(run.bytes for run in waiting)
        pieces = self._pieces
        while waiting:
            run = waiting.popleft()
            at = place(entries[0]) if entries else run.last + 1
            if at <= run.first:
                self._keep([entries.popleft()], pieces)
                waiting.appendleft(run)
                continue
            rest = run.split(at)
            pieces.append(run)
            if rest is not None:
                waiting.appendleft(rest)
        self.arrivals.clear()
        self.arrivals.extend(entries)

    def take_in(self, pageable: PageableCount, written_below: int, most: int) -> None:
        """Forget the bodies of what came last, as far as the log has written it: of `most` messages at most.

        `pageable`: which messages the log gives back.
        """
        arrivals = self.arrivals
        entries = list(islice(arrivals, most))
        count = self._place(entries, self._pieces, pageable, unwritten=written_below)
        if count == len(arrivals):
            arrivals.clear()
            return
        for _ in range(count):
            arrivals.popleft()

    def take_back(self, window: deque[Entry], keep: int, pageable: PageableCount, most: int) -> None:
        """Take messages, `most` at most, over from the end of the window, until `keep` are left there."""
        pieces = self._pieces
        floor = key_of(pieces[0]) if pieces else _NO_LIMIT
        added: list[Piece] = []
        self._place(self._last_of(window, min(most, len(window) - keep)), added, pageable, floor=floor)
        key = next((key_of(piece) for piece in added if key_of(piece)), floor if pieces else 0)
        for piece in added:
            if isinstance(piece, Run) or piece.key:
                break
            piece.key = key
        pieces[0:0] = added

    def _last_of(self, window: deque[Entry], count: int) -> list[Entry]:
        """The last `count` entries of the window, which are taken out of it."""
        return [window.pop() for _ in range(count)][::-1]

    def _place(
        self,
        entries: list[Entry],
        pieces: list[Piece],
        pageable: PageableCount,
        *,
        unwritten: int = _NO_LIMIT,
        floor: int = _NO_LIMIT,
    ) -> int:
        """The messages come behind these pieces, up to the first that the log has not written; how many they are.

        `unwritten`: from this number on it has written none; `floor`: messages from this number on stay in memory.
        """
        at, ceiling = 0, ceiling_of(pieces)
        limit = min(unwritten, floor)
        while at < len(entries):
            count = pageable(entries, at, ceiling, limit)
            if count:
                self._forget(entries if count == len(entries) else entries[at : at + count], pieces)
                at += count
                ceiling = entries[at - 1][NUMBER] + 1
            elif entries[at][NUMBER] >= unwritten and pageable(entries[at : at + 1], 0, ceiling, floor):
                break
            else:
                upto = at + 1
                while upto < len(entries) and not entries[upto][FLAGS] & LOGGED:
                    upto += 1  # one that the log does not have, as most that come here
                self._keep(entries[at:upto], pieces)
                at = upto
        return at

    def _forget(self, entries: list[Entry], pieces: list[Piece]) -> None:
        """The messages, by ascending number, come behind these pieces, and the log alone has their bodies."""
        first, end = entries[0], entries[-1][NUMBER]
        size, expiring, spilled = tally(entries)
        last = pieces[-1] if pieces else None
        are_consecutive = end - first[NUMBER] + 1 == len(entries)
        if are_consecutive and isinstance(last, Run) and not expiring and last.follows(first):
            last.extend(end, len(entries), size)
        else:
            for entry in entries:
                last = pieces[-1] if pieces else None
                if isinstance(last, Run) and last.takes(entry):
                    last.add(entry)
                else:
                    pieces.append(Run(entry))
        self.runs_count += len(entries)
        self.bytes += size
        self.volatile += spilled

    def _keep(self, entries: list[Entry], pieces: list[Piece]) -> None:
        """The messages come behind these pieces, and stay in memory."""
        self._sweep.came(self._pieces, self._in_memory, len(entries))
        numbers, at = [entry[NUMBER] for entry in entries], 0
        while at < len(numbers):
            last = pieces[-1] if pieces else None
            if not isinstance(last, MemoryPiece) or len(last.numbers) >= MOST_KEPT:
                last = MemoryPiece(ceiling_of(pieces))
                pieces.append(last)
            upto = at + MOST_KEPT - len(last.numbers)
            last.add(numbers[at:upto])
            at = upto
        self._in_memory.put(entries)  # when snapshots have what the pieces held before

    # -- going out --------------------------------------------------------------------------------------------------

    def pull(self, most: int, most_bytes: int) -> list[Entry]:
        """Take out the first messages: about `most`, of about `most_bytes`.

        What can't be read stays where it is, also for later calls. Raises OSError if nothing can be read.
        """
        taken: list[Entry] = []
        count = size = 0
        pieces = self._pieces
        while pieces and count < most and size < most_bytes:
            piece = pieces[0]
            if isinstance(piece, Run):
                try:
                    entries, read_count, read_bytes = self._read_first(piece, most - count, most_bytes - size)
                except OSError:
                    if taken:
                        return taken
                    raise
            else:
                piece.changes()
                numbers = (piece.numbers.popleft() for _ in range(min(most - count, len(piece.numbers))))
                entries = [each for number in numbers if (each := self._in_memory.pop(number)) is not None]
                read_count, (read_bytes, *_) = len(entries), tally(entries)
                if not piece.numbers:
                    del pieces[0]
            taken += entries
            count += read_count
            size += read_bytes
        return taken

    def _read_first(self, run: Run, most: int, most_bytes: int) -> tuple[list[Entry], int, int]:
        """What was read that is the run's; how many messages were read, and their bytes."""
        begin, end = run.near(run.first)
        found, following, read_bytes = self._source(begin, end, most, most_bytes)
        entries, size, spilled = run.own(found), read_bytes, 0
        if entries is not found or self.volatile:
            size, _, spilled = tally(entries)
        self._leave(run, len(entries), size, spilled)
        if following > run.last or run.count <= 0:
            self._end(run)
            del self._pieces[0]
        else:
            run.first = following
        return entries, len(found), read_bytes

    def _end(self, run: Run) -> None:
        """The run has been read: what has not come is lost."""
        if run.count > 0:
            self._lost(run.count, run.bytes)
            self._shrink(run, run.count, run.bytes)

    def _leave(self, run: Run, count: int, size: int, spilled: int) -> None:
        """So many are not the run's any more."""
        self._shrink(run, count, size)
        if self.volatile:
            self.volatile -= spilled

    def _shrink(self, run: Run, count: int, size: int) -> None:
        run.count -= count
        run.bytes -= size
        self.runs_count -= count
        self.bytes -= size

    def remove_all(self, entries: Iterable[Entry]) -> list[Entry]:
        """Take messages out of the middle; those that were here."""
        wanted = {entry[NUMBER]: entry for entry in entries}
        taken = take_chosen(self.arrivals, wanted)
        for entry in taken:
            del wanted[entry[NUMBER]]
        return taken + [found for entry in wanted.values() if (found := self.remove(entry)) is not None]

    def remove(self, entry: Entry) -> Entry | None:
        """Take a message out of the middle; None if it is not here. Costs the logarithm of the number of runs."""
        number = entry[NUMBER]
        kept = self._in_memory.pop(number)
        if kept is not None:
            return kept
        at = self._run_of(number)
        if at is None:
            return None
        run = self._pieces[at]
        assert isinstance(run, Run)
        run.remove(number)
        size, _, spilled = tally([entry])
        self._leave(run, 1, size, spilled)
        if not run.count:
            del self._pieces[at]
        return entry

    def _run_of(self, number: int) -> int | None:
        """Where the run is that holds the message; None if none does."""
        at = self._at(number)
        return at if at is not None and isinstance(run := self._pieces[at], Run) and run.holds(number) else None

    def _at(self, number: int) -> int | None:
        """Where the run is that may hold the message; all behind it hold higher numbers, or none that runs hold."""
        pieces = self._pieces
        at = bisect_right(pieces, number, key=key_of) - 1
        while at >= 0 and not isinstance(pieces[at], Run):
            at -= 1
        return at if at >= 0 else None

    def pop_newest(self) -> Entry | None:
        """Take out the message that came last. Raises OSError."""
        if self.arrivals:
            return self.arrivals.pop()
        pieces = self._pieces
        while pieces:
            piece = pieces[-1]
            if isinstance(piece, MemoryPiece):
                piece.changes()
                while piece.numbers:
                    entry = self._in_memory.pop(piece.numbers.pop())
                    if entry is not None:
                        return entry
                pieces.pop()
                continue
            self._bring_back(piece)
        return None

    def _bring_back(self, run: Run) -> None:
        """Read the end of the last run into memory."""
        span = READ_MESSAGES
        while True:
            first = max(run.first, run.last - span + 1)
            entries = read_all(self._source, run, first)
            if entries or first == run.first:
                break
            span *= 4
        kept = MemoryPiece(first)
        for entry in entries:
            kept.add((entry[NUMBER],))
        self._in_memory.put(entries)
        size, _, spilled = tally(entries)
        self._leave(run, len(entries), size, spilled)
        if first == run.first:
            self._end(run)
            self._pieces[-1] = kept
        else:
            run.end_before(first)
            self._pieces.append(kept)

    def take_runs(self) -> list[Run]:
        """Hand over all that is in no memory, to somebody who needs only the numbers."""
        runs = [piece for piece in self._pieces if isinstance(piece, Run)]
        self._pieces = [piece for piece in self._pieces if isinstance(piece, MemoryPiece)]
        self.runs_count = self.bytes = self.volatile = 0
        return runs

    def take_all(self) -> list[deque[Entry] | dict[int, Entry]]:
        """Hand over what is in memory; nothing is here any more."""
        taken: list[deque[Entry] | dict[int, Entry]] = [self.arrivals, *self._in_memory.take_all()]
        self.arrivals = deque()
        self._pieces.clear()
        self.runs_count = self.bytes = self.volatile = 0
        self._source = _nothing  # also for snapshots that are still gone through
        return taken

    # -- looking through --------------------------------------------------------------------------------------------

    def snapshot(self, due_us: int = 0, after: int = -1, below: int = _NO_LIMIT) -> TailSnapshot:
        """All that is here now, whatever changes while it is gone through; what is in the log is read on the way.

        `due_us`: leave out runs of which no message expires up to then, the others are taken out on the way; 0: leave
        out none. `after`: leave out messages whose numbers are not higher; `below`: and runs that are not lower.
        """
        parts: list[RunPart | MemoryPart | list[Entry]] = []
        for piece in self._pieces[self._at(after) or 0 :]:
            if isinstance(piece, MemoryPiece):
                parts.append(MemoryPart(piece, self._in_memory, after))
            elif piece.first >= below:
                break
            elif piece.last > after and (not due_us or 0 < piece.expires <= due_us):
                parts.append(RunPart(piece, max(piece.first, after + 1), below))
        parts.append(behind(self.arrivals, after))
        return TailSnapshot(self._from_log, parts, due_us)

    def _from_log(self, first: int, last: int, most: int, most_bytes: int) -> Stretch:
        return self._source(first, last, most, most_bytes)

    def holds(self, entry: Entry) -> bool:
        """Whether the message is here."""
        number = entry[NUMBER]
        return number in self._in_memory or self._run_of(number) is not None or entry in self.arrivals

    def highest(self) -> int:
        """No message here has a higher number; -1 if there is none."""
        numbers = [entry[NUMBER] for entry in self.arrivals]
        numbers += (-1, ceiling_of(self._pieces) - 1)
        for piece in reversed(self._pieces):
            if isinstance(piece, Run):
                break
            numbers.append(piece.highest)
        return max(numbers)

    def next_expiry(self, due_us: int) -> int:
        """When the first message expires of those runs that `snapshot` leaves out; 0: none does."""
        expiries = [piece.expires for piece in self._pieces if isinstance(piece, Run) and piece.expires > due_us]
        return min(expiries, default=0)

    def in_memory(self) -> Iterator[Entry]:
        """The messages whose bodies are in memory; nothing may change meanwhile."""
        yield from self._in_memory.values()
        yield from self.arrivals


def _nothing(first: int, last: int, most: int, most_bytes: int) -> Stretch:
    return Stretch([], last + 1, 0)
