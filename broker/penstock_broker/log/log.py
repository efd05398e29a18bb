"""The log: the broker's database. Append-only segments that hold topology and messages in one order.

The format is in docs/log-format.md.

Written for speed: `put`, `ack` and `write` are flat. It decides nothing about messages and must not know AMQP; it is
called from one thread, and only `request_sync` leads to work elsewhere.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock_broker.log.files import Buffer, FileLayer, RealFiles, write_all
from penstock_broker.log.format import (
    BLOCK_HEADER,
    PUT,
    PUT_FIXED,
    SEGMENT_START,
    BlockFlag,
    BlockHeader,
    Outcome,
    RecordType,
    SegmentHeader,
    ack_record,
    checkpoint_records,
    closed_record,
    count_record,
    deleted_record,
    document_record,
    encode_segment_header,
    mark_record,
    padded,
    route_record,
    seal_block,
    seed_of,
    start_record,
)
from penstock_broker.log.living import Segment
from penstock_broker.log.locking import lock_folder
from penstock_broker.log.recovering import Recovered, Restored, recover
from penstock_broker.log.spares import Spares, segment_name
from penstock_broker.log.splitting import split_records
from penstock_broker.log.syncing import SyncChoice, Syncer, choose

LOGGER = logging.getLogger(__name__)

MESSAGE_WINDOW = 1 << 32  # numbers reserved per start record; a crash skips what was left of them
INCARNATION_WINDOW = 1 << 20
_HEADER_SPACE = bytes(BLOCK_HEADER.size)
_SEAL = BLOCK_HEADER.size
_PUT = int(RecordType.PUT)
_FILL_TOKEN = -1


class RecordTooLarge(Exception):
    """A record that no segment can hold: raise segmentBytes, or refuse such messages."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`reserve`: segments that only acks, topology and compaction may use. `spare`: segments kept ready beyond them."""

    segment_bytes: int = 64 * 1024 * 1024
    reserve: int = 2
    spare: int = 1
    sync: SyncChoice = SyncChoice.AUTO


class Log:
    """Append with `put`, `ack`, `topology`...; `write` once a turn; promise only what `synced` has reached.

    Nothing that depends on a record may leave the broker before `synced >= ` the sequence that `write` returned for it.
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
        self._folder, self._files, self._settings, self._clock = folder, files, settings, clock
        self._log_id = restored.log_id or entropy(16)
        self._seed = seed_of(self._log_id)
        self.epoch = restored.recovered.epoch + 1
        self.sequence = restored.sequence  # of the last block written
        self.synced = restored.sequence  # every block up to this one survives a crash of the machine
        self.failed: str | None = None
        self._next_message = max(replay.message_ceiling, replay.highest_message + 1)
        self._next_incarnation = replay.incarnation_ceiling
        self._message_ceiling = self._incarnation_ceiling = 0
        self._largest = settings.segment_bytes - SEGMENT_START - 2 * BLOCK_HEADER.size - PUT.size - 64 * 1024
        # Topology, each with its record, so that a checkpoint is one join.
        self._documents: dict[tuple[str, str], tuple[int, bytes]] = {
            (item.kind, item.key): (
                item.incarnation,
                document_record(item.kind, item.key, item.incarnation, item.payload),
            )
            for item in restored.recovered.documents
        }
        self._marks = {key: mark for key, mark in replay.marks.items() if key in self._living.queues}
        self._counts = {key: count for key, count in replay.counts.items() if key[0] in self._living.queues}
        self._route_numbers: dict[tuple[int, ...], int] = {}
        self._routes: dict[int, tuple[int, ...]] = {}
        self._next_route = replay.highest_route + 1
        # Appended since the last write.
        self._records: list[Buffer] = []
        self._puts: dict[int, int] = {}  # route set -> messages
        self._acks: dict[tuple[int, Outcome], list[int]] = {}
        self._new_marks: dict[int, int] = {}
        self._new_counts: dict[tuple[int, int], int] = {}
        self._first_message = self._next_message
        # Checkpoints: (last block, segment) of those not known synced; segments below `_kept_from` hold no needed
        # topology.
        self._checkpoints: list[tuple[int, int]] = []
        self._kept_from = replay.checkpoint
        self._since_checkpoint = 0
        self._checkpointing = False
        self._dirty: set[int] = set()
        self._in_flight = 0  # sequence that the fdatasync under way covers; 0: none
        self._filling = False
        self._fill_again = 0
        self._lock = -1
        self._spares = Spares(files, folder, settings.segment_bytes, settings.reserve + settings.spare)
        self._syncer: Syncer
        self.descriptor = -1  # readable when `collect` has something

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        files: FileLayer | None = None,
        settings: Settings | None = None,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> tuple["Log", Recovered]:
        """Lock and recover the folder (made if missing), begin a new epoch, and sync it.

        Raises FolderLocked, NewerFormat, ForeignSegment, or OSError. `clock` gives milliseconds since 1970.
        """
        files = files or RealFiles()
        settings = settings or Settings()
        lock = lock_folder(folder)
        try:
            restored = recover(files, folder)
            log = cls(folder, restored, files=files, settings=settings, clock=clock, entropy=entropy)
            log._begin()
        except BaseException:
            os.close(lock)
            raise
        log._lock = lock
        return log, restored.recovered

    # The forwarding path ----------------------------------------------------------------------------------------------

    def next_message(self) -> int:
        """A number for a message that is not logged, from the same row: never given twice, also over restarts."""
        number = self._next_message
        self._next_message = number + 1
        return number

    def put(self, route_set: int, payload: Buffer, time_ms: int, flags: int = 0) -> int:
        """Append one message for all queues of `route_set`; its number. `flags` (0 to 255) come back at recovery.

        Raises RecordTooLarge. Ask `accepts_publishing` before; `payload` must not change before `write`.
        """
        length = len(payload)
        if length > self._largest:
            raise RecordTooLarge(f"{length} bytes do not fit into a log segment of {self._settings.segment_bytes}")
        number = self._next_message
        self._next_message = number + 1
        records = self._records
        records.append(PUT.pack(_PUT, flags, 0, PUT_FIXED + length, route_set, 0, number, time_ms))
        records.append(payload)
        self._puts[route_set] = self._puts.get(route_set, 0) + 1
        return number

    def ack(self, incarnation: int, message: int, outcome: Outcome = Outcome.ACCEPTED) -> None:
        """The message has left this queue for good.

        Exactly once per queue and message; unknown incarnations are ignored.
        """
        try:
            self._acks[incarnation, outcome].append(message)
        except KeyError:
            self._acks[incarnation, outcome] = [message]

    def delivered_up_to(self, incarnation: int, message: int) -> None:
        """Messages up to this number may be seen by a consumer once this turn's transfers leave."""
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
            self._routes[number] = incarnations
            self._next_route += 1
        return number

    def topology(self, kind: str, key: str, payload: bytes, incarnation: int = 0) -> None:
        """Set the state of one document.

        Another incarnation than before drops the messages of the former, in one record.
        """
        self._end_incarnation((kind, key), incarnation)
        record = document_record(kind, key, incarnation, payload)
        if len(record) > self._largest:
            raise RecordTooLarge(f"{kind} {key} takes {len(record)} bytes, more than a log segment holds")
        self._documents[kind, key] = (incarnation, record)
        if incarnation:
            self._living.queues.setdefault(incarnation, {})
        self._records.append(record)

    def delete(self, kind: str, key: str) -> None:
        """Remove a document, and with its incarnation all messages of that queue. Unknown ones are ignored."""
        if (kind, key) in self._documents:
            self._end_incarnation((kind, key), 0)
            del self._documents[kind, key]
            self._records.append(deleted_record(kind, key))

    def _end_incarnation(self, key: tuple[str, str], following: int) -> None:
        before, _ = self._documents.get(key, (0, b""))
        if before in (0, following):
            return
        self._living.end(before, self.sequence + 1)
        self._marks.pop(before, None)
        self._counts = {pair: count for pair, count in self._counts.items() if pair[0] != before}
        for incarnations in [incarnations for incarnations in self._route_numbers if before in incarnations]:
            del self._route_numbers[incarnations]

    # Once a turn ------------------------------------------------------------------------------------------------------

    def write(self) -> int:
        """Write everything appended as one block; the sequence on which a promise about it depends.

        After a failure nothing is written, and the sequence returned is one that `synced` never reaches.
        """
        if self.failed is not None:
            self._forget()
            return self.sequence + 1
        acks = self._encode_queues()
        if not self._records:
            return self.sequence
        records, puts = self._records, self._puts
        self._records, self._puts = [], {}
        try:
            touched = self._place(records, puts, self._first_message)
        except OSError as error:
            self._fail(f"writing failed: {error}")
            self._forget()
            return self.sequence + 1
        self._first_message = self._next_message
        for incarnation, messages in acks:
            named = self._living.ack(incarnation, messages, self.sequence)
            for segment in touched:
                segment.names |= named - {segment.number}
        return self.sequence

    def _encode_queues(self) -> list[tuple[int, list[int]]]:
        """Turn the pending acks, marks and counts into records; the acks of queues that still exist."""
        queues, records = self._living.queues, self._records
        acks: list[tuple[int, list[int]]] = []
        for (incarnation, outcome), messages in self._acks.items():
            if incarnation in queues:
                messages.sort()
                records.append(ack_record(incarnation, messages, outcome))
                acks.append((incarnation, messages))
                if self._counts:
                    for message in messages:
                        self._counts.pop((incarnation, message), None)
        self._acks.clear()
        if self._new_marks:
            marks = [(key, mark) for key, mark in self._new_marks.items() if key in queues]
            self._new_marks.clear()
            if marks:
                records.append(mark_record(marks))
                self._marks.update(marks)
        if self._new_counts:
            counts = {pair: count for pair, count in self._new_counts.items() if pair[0] in queues}
            self._new_counts.clear()
            if counts:
                records.append(count_record([(*pair, count) for pair, count in counts.items()]))
                self._counts.update(counts)
        messages_left = self._message_ceiling - self._next_message
        incarnations_left = self._incarnation_ceiling - self._next_incarnation
        if messages_left < MESSAGE_WINDOW // 2 or incarnations_left < INCARNATION_WINDOW // 2:
            records.append(self._reserve_numbers())
        return acks

    def _forget(self) -> None:
        for pending in (self._records, self._puts, self._acks, self._new_marks, self._new_counts):
            pending.clear()

    def request_sync(self) -> None:
        """Start an fdatasync of what is written unless one is under way or nothing is new; `descriptor` tells its end."""
        if self._in_flight or self.synced == self.sequence or self.failed is not None:
            return
        self._in_flight = self.sequence
        handles = tuple(self._dirty)
        self._dirty.clear()
        self._syncer.submit(self.sequence, handles)

    def collect(self) -> int:
        """Take note of what has been synced (call when `descriptor` is readable); the highest synced sequence."""
        self._take(self._syncer.done())
        return self.synced

    def _take(self, done: Sequence[tuple[int, OSError | None]]) -> None:
        for token, error in done:
            if token == _FILL_TOKEN:
                self._filling = False
            else:
                self._in_flight = 0
            if error is not None:
                self._fail(f"fdatasync failed: {error}")
            elif token != _FILL_TOKEN and self.failed is None:
                self.synced = token
        while self._checkpoints and self._checkpoints[0][0] <= self.synced:
            self._kept_from = self._checkpoints.pop(0)[1]

    def _fail(self, reason: str) -> None:
        if self.failed is None:
            self.failed = reason
            LOGGER.critical("the log has failed and takes no durable work until the broker is restarted: %s", reason)

    # Space ------------------------------------------------------------------------------------------------------------

    def accepts_publishing(self) -> bool:
        """False when the disk is full but for the reserve, which is kept for draining, and after a failure."""
        if self.failed is not None:
            return False
        if not self._spares.full or len(self._spares) > self._settings.reserve:
            return True
        current = self._living.segments[-1]
        return len(self._spares) == self._settings.reserve and current.end < current.size - current.size // 8

    @property
    def full(self) -> bool:
        """Whether the last attempt to get more space failed."""
        return self._spares.full

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
                self._dirty.discard(dead.handle)
                self._spares.recycle(dead.path, dead.handle, dead.size)
                return
            deadline = time.perf_counter() + budget_ms / 1000
            handle = self._spares.fill(lambda: time.perf_counter() < deadline)
        except OSError as error:
            self._fail(f"preparing segments failed: {error}")
            return
        self._fill_again = self._clock() + 1000
        if handle is not None:
            self._filling = True
            self._syncer.submit(_FILL_TOKEN, (handle,))

    def _dead(self) -> Segment | None:
        return self._living.dead(self._kept_from, self.synced)

    # Blocks and segments ----------------------------------------------------------------------------------------------

    def _place(self, records: list[Buffer], puts: dict[int, int], first_message: int) -> list[Segment]:
        """Write records as one block, as several if no segment could hold them; returns the segments written to."""
        segment = self._living.segments[-1]
        block = self._join(segment, records, puts)
        if not segment.fits(padded(len(block)), _SEAL):
            segment = self._rotate(first_message)
            block = self._join(segment, records, puts)
            if not segment.fits(padded(len(block)), _SEAL):
                return self._place_parts(records, first_message)
        self._write_block(segment, block, BlockFlag.NONE)
        segment.routes.update(puts)
        for route_set, count in puts.items():
            self._living.put(segment, self._routes[route_set], count)
        return [segment]

    def _place_parts(self, records: list[Buffer], first_message: int) -> list[Segment]:
        touched: list[Segment] = []
        for part in split_records(records, self._largest + PUT.size):
            touched += self._place(part.records, part.puts, part.first_message or first_message)
        return touched

    def _join(self, segment: Segment, records: list[Buffer], puts: dict[int, int]) -> bytearray:
        routes = [route_record(number, self._routes[number]) for number in puts if number not in segment.routes]
        return bytearray().join([_HEADER_SPACE, *routes, *records])

    def _write_block(self, segment: Segment, block: bytearray, flags: BlockFlag) -> None:
        sequence = self.sequence + 1
        length = len(block) - BLOCK_HEADER.size
        order = (self.epoch, sequence, self.synced, self._clock())
        seal_block(block, self._seed, BlockHeader(segment.number, segment.end, length, flags, *order))
        write_all(self._files, segment.handle, block, segment.end)
        self.sequence = sequence
        self._since_checkpoint += len(block)
        self._dirty.add(segment.handle)
        segment.end += len(block)

    def _rotate(self, first_message: int) -> Segment:
        """Seal the segment being written and begin the next, with a checkpoint at its head if one is due."""
        current = self._living.segments[-1]
        self._write_block(current, bytearray(_HEADER_SPACE), BlockFlag.SEAL)
        segment = self._begin_segment(current.number + 1, first_message)
        if not self._checkpointing:
            self._checkpoint_if_due(segment)
        return self._living.segments[-1]

    def _begin_segment(self, number: int, first_message: int) -> Segment:
        if not self._spares.full and len(self._spares) <= self._settings.reserve:
            self._spares.fill_one()
        spare = self._spares.take()
        if spare is None:
            raise OSError("no segment is left for acknowledgements and topology: give the volume more space")
        size = self._settings.segment_bytes
        header = SegmentHeader(number, size, self._log_id, self._clock())
        write_all(self._files, spare.handle, encode_segment_header(header), 0)
        path = self._folder / segment_name(number)
        self._files.rename(spare.path, path)
        self._files.fsync_folder(self._folder)
        segment = Segment(number, path, spare.handle, size, SEGMENT_START, first_message)
        self._living.add_segment(segment)
        return segment

    def _checkpoint_if_due(self, segment: Segment) -> None:
        """Restate all topology, if that takes at most an eighth of what was written since the last time (half if full)."""
        records = [self._reserve_numbers(), *(record for _, record in self._documents.values())]
        if self._marks:
            records.append(mark_record(self._marks.items()))
        if self._counts:
            records.append(count_record([(*pair, count) for pair, count in self._counts.items()]))
        size = sum(map(len, records))
        if size * (2 if self._spares.full else 8) > self._since_checkpoint:
            return
        self._routes = {number: route for route, number in self._route_numbers.items()} | {
            number: self._routes[number] for number in self._puts
        }
        self._checkpointing = True
        self._place(list[Buffer](checkpoint_records(self.sequence + 1, records)), {}, segment.first_message)
        self._checkpointing = False
        self._since_checkpoint = 0
        self._checkpoints.append((self.sequence, segment.number))

    def _reserve_numbers(self) -> bytes:
        self._message_ceiling = self._next_message + MESSAGE_WINDOW
        self._incarnation_ceiling = self._next_incarnation + INCARNATION_WINDOW
        return start_record(self._files.boot_id(), self._message_ceiling, self._incarnation_ceiling)

    # Beginning and end ------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        names = self._files.names(self._folder)
        self._spares.adopt([name for name in names if name.startswith("spare-")])
        if not self._living.segments:
            self._begin_segment(1, self._next_message)
        while self._spares.lacking and self._spares.fill_one():
            pass
        current = self._living.segments[-1]
        self._syncer = choose(self._files, current.handle, self._settings.sync)
        self.descriptor = self._syncer.descriptor
        LOGGER.info("log %s: epoch %d, synced by %s", self._folder, self.epoch, self._syncer.name)
        self._records.append(self._reserve_numbers())
        self.write()
        self.sync()

    def sync(self) -> None:
        """Wait until all that is written is synced, or the log has failed. For the beginning, the end and tools."""
        while self.synced < self.sequence and self.failed is None:
            self.request_sync()
            self._take(self._syncer.wait())

    def close(self) -> None:
        """Write and sync what is pending, mark the log as closed in order, and give the folder free."""
        if self.failed is None:
            self._encode_queues()
            self._records.append(closed_record())
            self.write()
            self.sync()
        self._syncer.close()
        for segment in self._living.segments:
            self._files.close(segment.handle)
        self._spares.close()
        os.close(self._lock)
