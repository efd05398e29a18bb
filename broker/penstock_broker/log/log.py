"""The log: the broker's database, append-only segments that hold topology and messages in one order.

The format is described in docs/reference/log-format.md. `Log` puts the parts together and is all that the broker sees:
`append` gathers a turn's records, `commit` makes transactions of them, `body_writer` takes bodies that come in parts,
`turn` and `writer` put blocks into segments, `sync` has them synced, `space` makes room. Measured cost of writing a
block of 100 messages (docs/reference/performance.md): about 0.2 us per message. It is called from one thread; only
syncs may run elsewhere.

Sources: docs/decisions/036-what-is-durable.md, 037-answer-after-sync.md, 044-private-log-format.md.
"""

import logging
import os
import time
from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path

from penstock_broker.log.append.appender import Appender
from penstock_broker.log.append.body_writer import BodyWriter
from penstock_broker.log.append.commit import CommitAck, CommitPut, Commits
from penstock_broker.log.append.digest_writer import DigestWriter
from penstock_broker.log.append.space import Space
from penstock_broker.log.append.turn import TurnWriter
from penstock_broker.log.compaction.ack_compaction import AckCompaction
from penstock_broker.log.disk.files import Buffer, FileLayer, RealFiles, lock_folder
from penstock_broker.log.disk.spare_segments import SpareSegments
from penstock_broker.log.disk.syncers import Syncer, choose
from penstock_broker.log.format.record_codec import closed_record, most_entries
from penstock_broker.log.format.route_sets import RouteSets
from penstock_broker.log.options import LogOptions
from penstock_broker.log.recovery.bodies import StagedBody
from penstock_broker.log.recovery.live_puts import Pageable
from penstock_broker.log.recovery.record_reader import Progress, no_progress
from penstock_broker.log.recovery.recover import FirstRecords, Recovered, Restored, first_records, recover
from penstock_broker.log.scan.segment_files import names_of
from penstock_broker.log.segments.message_reader import MessageReader
from penstock_broker.log.segments.put_block import Reading
from penstock_broker.log.write.checkpoint import Checkpoint, CheckpointSchedule, Numbers
from penstock_broker.log.write.sync import Sync
from penstock_broker.log.write.writer import SegmentWriter

LOGGER = logging.getLogger(__name__)


class Log:
    """Append with `put`, `ack`, `topology` and so on; `write` once a turn; promise only what `synced` has reached.

    Nothing that depends on a record may leave the broker before `synced` has reached what `write` returned for it.
    """

    def __init__(
        self,
        folder: Path,
        lock: int,
        restored: Restored,
        *,
        files: FileLayer,
        options: LogOptions,
        clock: Callable[[], int],
        entropy: Callable[[int], bytes],
        syncer: Callable[[FileLayer], Syncer] | None,
        timer: Callable[[], float],
    ) -> None:
        """Use `open`."""
        replay, usage, recovered = restored.replay, restored.usage, restored.recovered
        self._lock, self._files, self._usage = lock, files, usage
        self._first_records = FirstRecords([], [])
        self._spares = SpareSegments(files, folder, options.segment_bytes, options.reserve, options.spare)
        kept_from = replay.checkpoint
        since_checkpoint = sum(each.end for each in usage.segments if each.number >= kept_from)
        self._writer = SegmentWriter(
            files,
            folder,
            usage,
            self._spares,
            CheckpointSchedule(kept_from, since_checkpoint, options.segment_bytes),
            RouteSets(replay.highest_route + 1, usage.defined_route_sets),
            log_id=restored.log_id or entropy(16),
            segment_bytes=options.segment_bytes,
            epoch=recovered.epoch + 1,
            sequence=recovered.sequence,
            clock=clock,
        )
        self.failure_file = self._writer.failure_file
        """Whether the next start will know that the log failed. While it `is_missing`, deliver nothing of the log."""
        self._numbers = Numbers(replay, files.boot_id())
        self._spares.adopt(names_of("spare", files.names(folder)))
        if not usage.segments:
            self._writer.begin_segment(1, self._numbers.message)
        back_end = choose(files, usage.segments[-1].handle, options.sync) if syncer is None else syncer(files)
        LOGGER.info("log %s: epoch %d, synced by %s", folder, self.epoch, back_end.name)
        self._sync = Sync(self._writer, self._spares, back_end)
        most = most_entries(self._writer.capacity)
        acks = AckCompaction(files, usage, self._writer.seed, most)
        digests = DigestWriter(files, self._writer, restored.pageable, options.digest_after_ms, clock)
        self._space = Space(files, self._writer, self._spares, acks, self._sync, digests, clock, timer)
        self._messages = MessageReader(files, usage, self._writer.seed, self._writer.routes, clock, self.epoch)
        self._bodies = BodyWriter(files, usage, self._writer, self._numbers, self._space, options.inline_bytes)
        checkpoint = Checkpoint(replay, recovered.documents, usage.queues.keys(), most)
        self._appender = Appender(self._numbers, checkpoint, usage, self._writer, self._bodies, options.inline_bytes)
        self._turns = TurnWriter(self._appender, self._writer, usage, self._numbers, checkpoint, self._spares)
        self._turns.keep_room()
        self._commits = Commits(self._appender, self._bodies, usage, self._writer, self._space)
        # What runs once per message is called on its part at once, without a method of this class between them.
        self.put, self.put_volatile = self._appender.put, self._appender.put_volatile
        self.put_many, self.longest_plain = self._appender.put_many, self._appender.longest_plain
        self.longest_volatile = self._appender.longest_volatile  # bytes of a payload that `put_volatile` takes
        # Messages may be put into queues that a document holds, or that end with the process and were named to the log.
        self.holds, self.hold_volatile = usage.queues.__contains__, usage.begin_queue
        self.end_volatile, self.takes_route_set = self._appender.end_volatile, self._commits.takes_route_set
        self.ack, self.ack_many = self._appender.ack, self._appender.ack_many
        self.delivered_up_to = self._appender.delivered_up_to
        self.accepts_publishing, self.makes_room = self._space.accepts_publishing, self._space.makes_room
        self.takes_topology = self._space.takes_topology
        self.maintenance_ms = self._space.share_ms  # of a turn that has taken so many milliseconds
        self.next_message, self.next_messages = self._numbers.next_message, self._numbers.next_messages
        self.numbers = self._numbers  # `numbers.message` is the next one, without the call of a property
        # And what runs once per turn.
        self.write, self.request_sync, self.collect = self._turns.write, self._sync.request, self._sync.collect
        self.waits_for_syncs = back_end.is_immediate  # `request_sync` returns once the sync is done

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        files: FileLayer | None = None,
        options: LogOptions | None = None,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        entropy: Callable[[int], bytes] = os.urandom,
        syncer: Callable[[FileLayer], Syncer] | None = None,
        progress: Progress = no_progress,
        pageable: Pageable | None = None,
        begins: bool = True,
        timer: Callable[[], float] = time.perf_counter,
    ) -> tuple["Log", Recovered]:
        """Lock and recover the folder (created if it does not exist), begin a new epoch, and sync it. Without `begins`
        the last two are left to `begin`, so that a start that fails before leaves the log as the last run did.

        Raises FolderLocked, NewerFormat, ForeignSegment, Unreadable, or OSError. `clock` gives milliseconds since 1970.
        `syncer` makes another back end than the one that `options.sync` chooses. `progress` is told, in between, how
        far recovery is. `pageable` says which bodies may be left in the log if there are many. `timer`: seconds.
        """
        files, options = files or RealFiles(), options or LogOptions()
        lock = lock_folder(folder)
        try:
            restored = recover(files, folder, options.inline_bytes, progress, pageable, options.kept_bytes)
            log = cls(folder, lock, restored, files=files, options=options, clock=clock, entropy=entropy, syncer=syncer,
                      timer=timer)  # fmt: skip
            log._first_records = first_records(restored, most_entries(log._writer.capacity))
            if begins:
                log.begin()
        except BaseException:
            os.close(lock)
            raise
        return log, restored.recovered

    def begin(self) -> None:
        """Begin the epoch: write its first block, with what was appended so far, and sync it. Once, before `write`."""
        first = self._first_records
        self._first_records = FirstRecords([], [])
        records = self._appender.pending.records
        records[:0] = [self._numbers.reserve(), *first.acks, *first.segments]
        queues = self._usage.queues  # the caller may have ended some meanwhile
        self.delivered_up_to({incarnation: number for incarnation, number in first.delivered if incarnation in queues})
        newest = self._usage.segments[-1].number
        self.write()
        first.note_acks(self._usage, newest)
        if first.asks_for_checkpoint and self.failed is None:
            self._turns.write_checkpoint_if(self._space.has_room)
        self.sync()
        if self.failed is None:
            self.failure_file.remove()

    # State ------------------------------------------------------------------------------------------------------------

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

    @property
    def failed(self) -> str | None:
        """Why the log takes nothing more until the next start, or None."""
        return self._writer.failed

    @property
    def segments(self) -> int:
        """How many segments hold records, the one being written included."""
        return len(self._usage.segments)

    @property
    def descriptor(self) -> int:
        """Becomes readable when `collect` has something to take note of."""
        return self._sync.descriptor

    @property
    def full(self) -> bool:
        """Whether the last attempt to get more space from the disk failed."""
        return self._space.full

    @property
    def prepared_bytes(self) -> int:
        """Bytes that publishers may still fill without more space from the disk, from which they are taken already."""
        return self._space.prepared_bytes

    @property
    def next_number(self) -> int:
        """The number that the next message gets."""
        return self._numbers.message

    # What a turn appends ----------------------------------------------------------------------------------------------

    def delivery_count(self, incarnation: int, message: int, count: int) -> None:
        """`count` unsuccessful deliveries of this message count against its limit."""
        self._appender.delivery_count(incarnation, message, count)

    def remark(self, incarnation: int, message: int, text: bytes) -> bool:
        """Keep a remark about a message in one queue; False if it is too long. See `Appender.remark`."""
        return self._appender.remark(incarnation, message, text)

    @property
    def wants_sync(self) -> bool:
        """Whether something that is to outlive the process was written and is not synced."""
        return self._writer.lasting > self._writer.synced

    def put_this_turn(self) -> dict[int, set[int]]:
        """The messages that were put and are not written yet, by incarnation."""
        return self._appender.put_this_turn()

    def acked_this_turn(self) -> dict[int, set[int]]:
        """The messages that have left their queues for good in this turn, by incarnation."""
        return self._appender.acked_this_turn()

    def next_incarnation(self) -> int:
        """A number for one life of a queue: never given twice, also over restarts."""
        return self._numbers.next_incarnation()

    def route_set(self, incarnations: tuple[int, ...]) -> int:
        """The number that stands for these queues in `put`. Give it back with `release_route_set`."""
        return self._writer.routes.number(incarnations)

    def release_route_set(self, number: int) -> None:
        """No put will name this route set after this turn, unless others have asked for it, too."""
        self._writer.routes.release(number)

    def topology(self, kind: str, key: str, payload: bytes, incarnation: int = 0) -> None:
        """Set the state of one document. Raises RecordTooLarge. See `Appender.topology`."""
        self._appender.topology(kind, key, payload, incarnation)

    @property
    def longest_document(self) -> int:
        """Bytes that the record of one document may take."""
        return self._appender.largest

    def delete(self, kind: str, key: str) -> None:
        """Remove a document, and with its incarnation all messages of that queue. Unknown ones are ignored."""
        self._appender.delete(kind, key)

    # Messages that are read back --------------------------------------------------------------------------------------

    @property
    def first_unwritten(self) -> int:
        """Messages with lower numbers that were put are in segments, and can be read."""
        return self._numbers.first_unwritten

    def read(self, incarnation: int, first: int, last: int, most: int, most_bytes: int) -> Reading:
        """Read messages of one queue back, by number. Raises OSError. See `MessageReader.read`."""
        return self._messages.read(incarnation, first, last, most, most_bytes)

    @property
    def in_parts(self) -> Container[int]:
        """The messages that `read` will not find although they were written: their payloads are in parts."""
        return self._usage.in_parts

    # Bodies that come in parts: stage, append, then a put or a commit -------------------------------------------------

    @property
    def longest_head(self) -> int:
        """Bytes that may be in memory of a payload whose rest is in the log: they are part of its record."""
        return self._appender.largest // 2

    @property
    def unsynced_body_bytes(self) -> int:
        """Bytes of bodies that were taken in and would be lost if the machine crashed now."""
        return self._bodies.unsynced_bytes

    def stage(self) -> StagedBody:
        """A body whose bytes come in parts.

        It is released with its last reference, and gone after a restart, unless a put names it.
        """
        return self._bodies.stage()

    def append(self, body: StagedBody, data: Buffer) -> None:
        """Take in the body's next bytes, which must not change any more; they may be written now. Raises NoRoom."""
        self._bodies.append(body, data)

    def discard(self, body: StagedBody) -> None:
        """The body is no longer needed, even if it is still referred to."""
        self._bodies.discard(body)

    def payload_of(self, body: StagedBody, head: bytes, offset: int) -> bytes:
        """The payload that begins with `head` and goes on with `body` from `offset` on. Raises NoRoom.

        Up to `LogOptions.inline_bytes` it is plain bytes, else a LargePayload that keeps the body.
        """
        return self._bodies.payload_of(body, head, offset)

    # Transactions: begin_unit, any puts and acks, then end_unit; or commit at once ------------------------------------

    def check_unit(
        self,
        puts: Iterable[Sequence[Buffer]],
        acks: int,
        route_sets: Iterable[int] = (),
        *,
        growing: Iterable[tuple[Buffer, int]] = (),
    ) -> None:
        """Whether a unit of these puts and acks will be taken. Raises RecordTooLarge or NoRoom. See `Commits`."""
        self._commits.check_unit(puts, acks, route_sets, growing=growing)

    def begin_unit(self) -> None:
        """What is put and acknowledged from now on, in this turn, happens as a whole."""
        self._commits.begin_unit()

    def end_unit(self) -> None:
        """Append the unit as one record. Raises RecordTooLarge, if `check_unit` was not called before."""
        self._commits.end_unit()

    def abandon_unit(self) -> None:
        """Nothing of the unit happens, except for changes of topology."""
        self._commits.abandon_unit()

    def commit(self, puts: Sequence[CommitPut], acks: Sequence[CommitAck]) -> None:
        """Append one record of all these puts and acks. Raises RecordTooLarge. Ask `accepts_publishing` before."""
        self._commits.commit(puts, acks)

    # Once a turn ------------------------------------------------------------------------------------------------------

    @property
    def sync_may_have_ended(self) -> bool:
        """`collect` may have something to take note of, as far as can be seen without a call of the kernel."""
        return self._sync.may_have_ended

    # Idle work --------------------------------------------------------------------------------------------------------

    @property
    def wants_maintenance(self) -> bool:
        """Whether `maintain` has something to do now."""
        return self._space.wants_work()

    @property
    def is_filling_spare(self) -> bool:
        """Whether `maintain` waits for the zeros of a spare segment to be synced."""
        return self._sync.is_filling_spare

    def maintain(self, budget_ms: float) -> None:
        """Idle work for about `budget_ms`: recycle a segment, compact acks, or fill a slice of a spare segment."""
        self._space.work(budget_ms, self._numbers.first_unwritten)

    # The end ----------------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Wait until all that is written is synced, or the log has failed. For the beginning, the end and tools."""
        self._sync.wait()

    def close(self) -> None:
        """Write and sync what is pending, note that the log was closed in order, and give the folder free."""
        if self.failed is None:
            self.write()
        if self.failed is None:
            self._appender.pending.records.append(closed_record())
            self._turns.write_records()  # nothing may follow the last record, so there is no checkpoint behind it
            self.sync()
        self._release()

    def crash(self) -> None:
        """Give the folder free as a kill would, without writing or syncing: for starts that fail before `begin`."""
        self._release()

    def _release(self) -> None:
        self._sync.close()
        for segment in self._usage.segments:
            self._files.close(segment.handle)
        self._space.close()
        os.close(self._lock)
