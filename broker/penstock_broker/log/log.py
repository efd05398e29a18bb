"""The log: the broker's database. Append-only segments that hold topology and messages in one order (docs/log-
format.md).

Written for speed: `put` and `ack` are flat, `write` encodes per block. Measured cost stands in docs/performance.md,
about 0.4 us per put, 0.15 us per ack, and per message in a block of 100 about 0.2 us for the write. It decides
nothing about messages and must not know AMQP. It is called from one thread; only `request_sync` and `maintain` lead
to work elsewhere.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from penstock_broker.log.files import Buffer, FileLayer, RealFiles
from penstock_broker.log.living import Segment
from penstock_broker.log.locking import lock_folder
from penstock_broker.log.records import (
    PUT,
    PUT_FIXED,
    Outcome,
    RecordType,
    ack_record,
    checkpoint_records,
    closed_record,
    deleted_record,
    document_record,
)
from penstock_broker.log.recovering import Recovered, Restored, recover
from penstock_broker.log.spares import Spares
from penstock_broker.log.state import State, parts
from penstock_broker.log.syncing import Done, SyncChoice, Syncer, choose
from penstock_broker.log.writing import Writer

LOGGER = logging.getLogger(__name__)

SMALLEST_SEGMENT = 16 * 1024
_PUT = int(RecordType.PUT)
_FILL_TOKEN = -1
_FULL_RETRY_MS = 1000


class RecordTooLarge(Exception):
    """A record larger than half a segment: raise the segment size, or refuse such messages."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`reserve`: segments that only acks, topology and compaction may use. `spare`: segments kept ready beyond them."""

    segment_bytes: int = 64 * 1024 * 1024
    reserve: int = 2
    spare: int = 1
    sync: SyncChoice = SyncChoice.AUTO

    def __post_init__(self) -> None:
        if self.segment_bytes < SMALLEST_SEGMENT or self.segment_bytes % 4096:
            raise ValueError(
                f"segment_bytes is a multiple of 4096 from {SMALLEST_SEGMENT} on, not {self.segment_bytes}"
            )


class Log:
    """Append with `put`, `ack`, `topology`...; `write` once a turn; promise only what `synced` has reached.

    Nothing that depends on a record may leave the broker before `synced` has reached what `write` returned for it.
    """

    def __init__(
        self,
        folder: Path,
        restored: Restored,
        *,
        files: FileLayer,
        settings: Settings,
        clock: Callable[[], int],
        entropy: Callable[[int], bytes],
    ) -> None:
        """Use `open`."""
        replay, self._living = restored.replay, restored.living
        self._folder, self._files, self._clock = folder, files, clock
        self._spares = Spares(files, folder, settings.segment_bytes, settings.reserve + settings.spare)
        self._writer = Writer(
            files, folder, self._living, self._spares, log_id=restored.log_id or entropy(16), clock=clock
        )
        self._writer.epoch = restored.recovered.epoch + 1
        self._writer.sequence = self._writer.synced = restored.sequence
        self._writer.segment_bytes, self._writer.reserve = settings.segment_bytes, settings.reserve
        self._writer.kept_from = replay.checkpoint
        self._writer.checkpoint = self._checkpoint
        self._reserve, self._syncer_choice = settings.reserve, settings.sync
        self._largest = self._writer.capacity // 2
        self._longest = min(1 << 16, self._largest // 32)  # entries of one record of acks, marks or counts
        self.failed: str | None = None
        self._next_message = max(replay.message_ceiling, replay.highest_message + 1)
        self._next_incarnation = replay.incarnation_ceiling
        self._state = State(
            replay, restored.recovered.documents, self._living.queues.keys(), self._longest, files.boot_id()
        )
        self._route_numbers: dict[tuple[int, ...], int] = {}
        self._next_route = replay.highest_route + 1
        # Appended since the last write.
        self._records: list[Buffer] = []
        self._puts: dict[int, list[int]] = {}  # route set -> messages
        self._acks: dict[tuple[int, Outcome], list[int]] = {}
        self._new_marks: dict[int, int] = {}
        self._new_counts: dict[tuple[int, int], int] = {}
        self._first_message = self._next_message
        self._in_flight = False
        self._filling = False
        self._fill_again = 0
        self._lock = -1
        self._syncer: Syncer
        self.descriptor = -1  # readable when `collect` has something to take note of

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        files: FileLayer | None = None,
        settings: Settings | None = None,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        entropy: Callable[[int], bytes] = os.urandom,
        syncer: Callable[[FileLayer], Syncer] | None = None,
    ) -> tuple["Log", Recovered]:
        """Lock and recover the folder (made if missing), begin a new epoch, and sync it.

        Raises FolderLocked, NewerFormat, ForeignSegment, or OSError. `clock` gives milliseconds since 1970.
        `syncer` makes a back end of the caller's own in the place of `settings.sync`.
        """
        files = files or RealFiles()
        lock = lock_folder(folder)
        try:
            restored = recover(files, folder)
            log = cls(folder, restored, files=files, settings=settings or Settings(), clock=clock, entropy=entropy)
            log._begin(syncer)
        except BaseException:
            os.close(lock)
            raise
        log._lock = lock
        return log, restored.recovered

    @property
    def epoch(self) -> int:
        """How often this log has been opened."""
        return self._writer.epoch

    @property
    def sequence(self) -> int:
        """The last block written."""
        return self._writer.sequence

    @property
    def synced(self) -> int:
        """Every block up to this one survives a crash of the machine."""
        return self._writer.synced

    # The forwarding path ----------------------------------------------------------------------------------------------

    def next_message(self) -> int:
        """A number for a message that is not logged, from the same row: never given twice, also over restarts."""
        return self.next_messages(1)

    def next_messages(self, count: int) -> int:
        """The first of `count` consecutive numbers for messages that are not logged."""
        number = self._next_message
        self._next_message = number + count
        return number

    def put(self, route_set: int, payload: Buffer, arrival: int, flags: int = 0) -> int:
        """Append one message for all queues of `route_set`; its number.

        `arrival` (64 bits) and `flags` (0 to 255) come back at recovery. Raises RecordTooLarge. Ask
        `accepts_publishing` before; `payload` must not change before `write`.
        """
        length = len(payload)
        if length > self._largest:
            raise RecordTooLarge(f"{length} bytes are more than half a log segment ({self._largest})")
        number = self._next_message
        self._next_message = number + 1
        records = self._records
        records.append(PUT.pack(_PUT, flags, 0, PUT_FIXED + length, route_set, 0, number, arrival))
        records.append(payload)
        try:
            self._puts[route_set].append(number)
        except KeyError:
            self._puts[route_set] = [number]
        return number

    def ack(self, incarnation: int, message: int, outcome: Outcome = Outcome.ACCEPTED) -> None:
        """The message has left this queue for good.

        Exactly once per queue and message; unknown incarnations are ignored.
        """
        try:
            self._acks[incarnation, outcome].append(message)
        except KeyError:
            self._acks[incarnation, outcome] = [message]

    def ack_many(self, incarnation: int, messages: Iterable[int], outcome: Outcome = Outcome.ACCEPTED) -> None:
        """`ack` for several messages of one queue."""
        try:
            self._acks[incarnation, outcome] += messages
        except KeyError:
            self._acks[incarnation, outcome] = list(messages)

    def delivered_up_to(self, incarnation: int, message: int) -> None:
        """Messages up to this number may be seen by a consumer once this turn's transfers leave."""
        if message > self._new_marks.get(incarnation, 0):
            self._new_marks[incarnation] = message

    def delivery_count(self, incarnation: int, message: int, count: int) -> None:
        """`count` unsuccessful deliveries of this message count against its limit."""
        self._new_counts[incarnation, message] = count

    # Topology ---------------------------------------------------------------------------------------------------------

    def next_incarnation(self) -> int:
        """A number for one life of a queue: never given twice, also over restarts."""
        number = self._next_incarnation
        self._next_incarnation = number + 1
        return number

    def route_set(self, incarnations: tuple[int, ...]) -> int:
        """The number that stands for these queues in `put`. Ask again after one of them has ended."""
        number = self._route_numbers.get(incarnations)
        if number is None:
            number = self._route_numbers[incarnations] = self._next_route
            self._writer.routes[number] = incarnations
            self._next_route += 1
        return number

    def topology(self, kind: str, key: str, payload: bytes, incarnation: int = 0) -> None:
        """Set the state of one document.

        Another incarnation than before drops the messages of the former, in one record. Raises RecordTooLarge.
        """
        record = document_record(kind, key, incarnation, payload)
        if len(record) > self._largest:
            raise RecordTooLarge(f"{kind} {key} takes {len(record)} bytes, more than half a log segment")
        self._end_incarnation((kind, key), incarnation)
        self._state.set((kind, key), incarnation, record)
        if incarnation:
            self._living.begin(incarnation)
        self._records.append(record)

    def delete(self, kind: str, key: str) -> None:
        """Remove a document, and with its incarnation all messages of that queue. Unknown ones are ignored."""
        if (kind, key) in self._state:
            self._end_incarnation((kind, key), 0)
            self._state.remove((kind, key))
            self._records.append(deleted_record(kind, key))

    def _end_incarnation(self, key: tuple[str, str], following: int) -> None:
        before = self._state.incarnation_of(key)
        if before in (0, following):
            return
        self._living.end(before, self._writer.sequence + 1)
        self._state.end(before)
        for incarnations in [incarnations for incarnations in self._route_numbers if before in incarnations]:
            del self._route_numbers[incarnations]

    # Once a turn ------------------------------------------------------------------------------------------------------

    def write(self) -> int:
        """Write everything appended as one block; the sequence on which a promise about it depends.

        After a failure nothing is written, and the sequence returned is one that `synced` never reaches.
        """
        if self.failed is not None:
            self._forget()
            return self._writer.sequence + 1
        acks = self._encode_acks()
        if self._new_marks:
            self._records += self._state.mark(self._new_marks)
            self._new_marks.clear()
        if self._new_counts:
            self._records += self._state.count(self._new_counts)
            self._new_counts.clear()
        if self._state.lacks_numbers(self._next_message, self._next_incarnation):
            self._records.append(self._reserve_numbers())
        if not self._records:
            return self._writer.sequence
        try:
            touched = self._writer.place(self._records, self._puts, self._first_message)
        except OSError as error:
            self._fail(f"writing failed: {error}")
            self._forget()
            return self._writer.sequence + 1
        sequence = self._writer.sequence
        self._records, self._puts = [], {}
        self._first_message = self._next_message
        for incarnation, messages in acks:
            named = self._living.ack(incarnation, messages, sequence)
            for segment in touched:
                segment.names |= named - {segment.number}
        self._write_checkpoint()
        return sequence

    def _write_checkpoint(self) -> None:
        try:
            self._writer.write_checkpoint(self._first_message)
        except OSError as error:
            self._fail(f"writing failed: {error}")

    def _encode_acks(self) -> list[tuple[int, list[int]]]:
        """Append the records of pending acks; the acks of queues that still exist."""
        acks: list[tuple[int, list[int]]] = []
        for (incarnation, outcome), messages in self._acks.items():
            if incarnation not in self._living.queues:
                continue
            messages.sort()
            self._records += [ack_record(incarnation, part, outcome) for part in parts(messages, self._longest)]
            acks.append((incarnation, messages))
            self._state.acked(incarnation, messages)
        self._acks.clear()
        return acks

    def _reserve_numbers(self) -> bytes:
        return self._state.reserve_numbers(self._next_message, self._next_incarnation)

    def _checkpoint(self, written: int) -> list[Buffer] | None:
        """All topology, if it takes at most an eighth of what was `written` since the last time (half when full)."""
        records = [self._reserve_numbers(), *self._state.restated()]
        if sum(map(len, records)) * (2 if self._spares.full else 8) > written:
            return None
        self._writer.routes = {number: queues for queues, number in self._route_numbers.items()}
        return list[Buffer](checkpoint_records(self._writer.sequence + 1, records))

    def _forget(self) -> None:
        for pending in (self._records, self._puts, self._acks, self._new_marks, self._new_counts):
            pending.clear()

    def request_sync(self) -> None:
        """Start an fdatasync of what is written, unless one is under way or nothing is new.

        `descriptor` becomes readable when it has ended.
        """
        writer = self._writer
        if self._in_flight or writer.synced == writer.sequence or self.failed is not None:
            return
        self._in_flight = True
        handles = tuple(writer.dirty)
        writer.dirty.clear()
        self._syncer.submit(writer.sequence, handles)

    def collect(self) -> int:
        """Take note of what has been synced (call when `descriptor` is readable); the highest synced sequence."""
        self._take(self._syncer.done())
        return self._writer.synced

    def _take(self, done: Done) -> None:
        for token, error in done:
            if token == _FILL_TOKEN:
                self._filling = False
            else:
                self._in_flight = False
            if error is not None:
                self._fail(f"fdatasync failed: {error}")
            elif token != _FILL_TOKEN and self.failed is None:
                self._writer.note_synced(token)

    def _fail(self, reason: str) -> None:
        if self.failed is None:
            self.failed = reason
            LOGGER.critical("the log has failed and takes no durable work until the broker is restarted: %s", reason)

    # Space ------------------------------------------------------------------------------------------------------------

    def accepts_publishing(self) -> bool:
        """False when the disk is full but for the reserve, which is kept for draining, and after a failure."""
        if self.failed is not None:
            return False
        if not self._spares.full or len(self._spares) > self._reserve:
            return True
        current = self._living.segments[-1]
        return len(self._spares) == self._reserve and current.end < current.size - current.size // 8

    @property
    def full(self) -> bool:
        """Whether the last attempt to get more space failed."""
        return self._spares.full

    @property
    def segments(self) -> int:
        """Segments that hold records, the one being written included."""
        return len(self._living.segments)

    @property
    def wants_maintenance(self) -> bool:
        """Whether `maintain` has something to do now."""
        if self.failed is not None or self._filling:
            return False
        if self._dead() is not None:
            return True
        return self._spares.lacking and (not self._spares.full or self._clock() >= self._fill_again)

    def maintain(self, budget_ms: float) -> None:
        """Idle work for about `budget_ms`: recycle one dead segment, or fill a spare ahead of need by a slice."""
        if not self.wants_maintenance:
            return
        try:
            dead = self._dead()
            if dead is not None:
                self._living.remove_segment(dead)
                self._spares.recycle(dead.path, dead.handle, dead.size)
                return
            deadline = time.perf_counter() + budget_ms / 1000
            handle = self._spares.fill(lambda: time.perf_counter() < deadline)
        except OSError as error:
            self._fail(f"preparing segments failed: {error}")
            return
        self._fill_again = self._clock() + _FULL_RETRY_MS
        if handle is not None:
            self._filling = True
            self._syncer.submit(_FILL_TOKEN, (handle,))

    def _dead(self) -> Segment | None:
        return self._living.dead(self._writer.kept_from, self._writer.synced)

    # Beginning and end ------------------------------------------------------------------------------------------------

    def _begin(self, syncer: Callable[[FileLayer], Syncer] | None) -> None:
        names = self._files.names(self._folder)
        self._spares.adopt([name for name in names if name.startswith("spare-")])
        if not self._living.segments:
            self._writer.begin_segment(1, self._next_message)
        if syncer is not None:
            self._syncer = syncer(self._files)
        else:
            self._syncer = choose(self._files, self._living.segments[-1].handle, self._syncer_choice)
        self.descriptor = self._syncer.descriptor
        LOGGER.info("log %s: epoch %d, synced by %s", self._folder, self.epoch, self._syncer.name)
        self._records.append(self._reserve_numbers())
        self.write()
        self.sync()

    def sync(self) -> None:
        """Wait until all that is written is synced, or the log has failed. For the beginning, the end and tools."""
        while self._writer.synced < self._writer.sequence and self.failed is None:
            self.request_sync()
            self._take(self._syncer.wait())

    def close(self) -> None:
        """Write and sync what is pending, mark the log as closed in order, and give the folder free."""
        if self.failed is None:
            self.write()
            self._writer.checkpoint = lambda written: None  # nothing may follow the last record
            self._records.append(closed_record())
            self.write()
            self.sync()
        self._syncer.close()
        for segment in self._living.segments:
            self._files.close(segment.handle)
        self._spares.close()
        os.close(self._lock)
