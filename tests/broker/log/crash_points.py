"""The points of the log's work at which a crash is tried, by name, and a workload that passes all of them.

A point is one change of a file, named by what is changed: `put` is the write of a block with puts, `recycled` the
rename of a segment to a spare. The names come from the bytes and file names that pass the file layer, so the log
itself has no hooks for them. Each point is met before the change, in the middle of a write, and behind the change.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Final

from penstock_broker.log import CommitAck, CommitPut, FileLayer, Log, LogOptions, Recovered, SyncChoice
from penstock_broker.log.disk.files import Buffer
from penstock_broker.log.format.blocks import BLOCK_HEADER, BLOCK_MAGIC, SEGMENT_MAGIC, BlockFlag
from penstock_broker.log.format.record_codec import PUT_TYPES, RecordType, split

_MESSAGE = Struct("<8xQ")  # in the body of a put

BEFORE, WITHIN, BEHIND = "before", "within", "behind"

OPTIONS: Final = LogOptions(segment_bytes=16384, inline_bytes=2000, sync=SyncChoice.INLINE)

Reached = Callable[[str, str], None]
"""Is told the point and when."""

_BY_RECORD: Final = (
    (RecordType.CHECKPOINT_BEGIN, "checkpoint"),
    (RecordType.CLOSED, "closed"),
    (RecordType.COMMIT, "commit"),
    (RecordType.MOVED_PART, "moved part"),
    (RecordType.STAGED_PUT, "staged put"),
    (RecordType.PART, "part"),
    (RecordType.PUT, "put"),
    (RecordType.VOLATILE_PUT, "volatile put"),
    (RecordType.ACK, "ack"),
    (RecordType.ACK_RANGE, "ack"),
    (RecordType.DOCUMENT, "topology"),
    (RecordType.START, "epoch"),
    (RecordType.SEGMENT_STATE, "segment over"),
)
"""A block is named by the first of these that is in it."""


def point_of_write(path: Path, data: bytes, offset: int) -> str:
    """The name of the point at which `data` is written."""
    if path.parent.name == "damaged":
        return "copy of damage"
    if data.startswith(SEGMENT_MAGIC) and offset == 0:
        return "segment header"
    if data.startswith(BLOCK_MAGIC):
        fields = BLOCK_HEADER.unpack_from(data)
        if fields[2] & BlockFlag.SEAL:
            return "seal"
        types = {kind for kind, _, _, _ in split(memoryview(data)[BLOCK_HEADER.size : BLOCK_HEADER.size + fields[3]])}
        return next((name for kind, name in _BY_RECORD if kind in types), f"records {sorted(types)}")
    return "spare filled" if path.name.startswith("spare-") else "tail wiped"


class _Copies:
    """Tells blocks with copies of puts, which compaction writes, from those with puts."""

    def __init__(self) -> None:
        self._highest = 0
        self._places: set[tuple[int, int]] = set()

    def is_copy(self, block: bytes) -> bool:
        """Whether all messages in it were put before. A block that recovery writes once more has none."""
        fields = BLOCK_HEADER.unpack_from(block)
        records = memoryview(block)[BLOCK_HEADER.size : BLOCK_HEADER.size + fields[3]]
        place = fields[5], fields[6]  # segment and offset
        is_again = place in self._places
        self._places.add(place)
        messages = [_MESSAGE.unpack_from(body)[0] for kind, _, body, _ in split(records) if kind in PUT_TYPES]
        is_copy = max(messages) <= self._highest
        self._highest = max(self._highest, *messages)
        return is_copy and not is_again


class PointFiles:
    """A file layer over another, which tells each point that is passed."""

    def __init__(self, inner: FileLayer, reached: Reached) -> None:
        self._inner, self._reached = inner, reached
        self._paths: dict[int, Path] = {}
        self._copies = _Copies()

    def names(self, folder: Path) -> list[str]:
        return self._inner.names(folder)

    def open(self, path: Path, *, create: bool) -> int:
        handle = self._inner.open(path, create=create)
        self._paths[handle] = path
        return handle

    def close(self, handle: int) -> None:
        self._inner.close(handle)

    def size(self, handle: int) -> int:
        return self._inner.size(handle)

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        return self._inner.pread(handle, length, offset)

    def pwrite(self, handle: int, data: Buffer, offset: int) -> int:
        content = bytes(data)
        point = point_of_write(self._paths[handle], content, offset)
        if point in ("put", "staged put") and self._copies.is_copy(content):
            point = "copy"
        self._reached(point, BEFORE)
        half = len(content) // 2
        self._inner.pwrite(handle, content[:half], offset)
        self._reached(point, WITHIN)
        self._inner.pwrite(handle, content[half:], offset + half)
        self._reached(point, BEHIND)
        return len(content)

    def fdatasync(self, handle: int) -> None:
        kind = "spare synced" if self._paths[handle].name.startswith("spare-") else "synced"
        self._reached(kind, BEFORE)
        self._inner.fdatasync(handle)
        self._reached(kind, BEHIND)

    def rename(self, old: Path, new: Path) -> None:
        point = "named" if new.name.startswith("segment-") else "recycled"
        self._reached(point, BEFORE)
        self._inner.rename(old, new)
        for handle, path in self._paths.items():
            if path == old:
                self._paths[handle] = new
        self._reached(point, BEHIND)

    def link(self, old: Path, new: Path) -> None:
        self._inner.link(old, new)

    def unlink(self, path: Path) -> None:
        self._reached("deleted", BEFORE)
        self._inner.unlink(path)
        self._reached("deleted", BEHIND)

    def fsync_folder(self, folder: Path) -> None:
        self._reached("names synced", BEFORE)
        self._inner.fsync_folder(folder)
        self._reached("names synced", BEHIND)

    def boot_id(self) -> bytes:
        return self._inner.boot_id()

    def descriptor(self, handle: int) -> int | None:
        return None


@dataclass(frozen=True, slots=True)
class Step:
    """Something that the log was asked to do as a whole: puts as (message, size), acks as messages."""

    puts: tuple[tuple[int, int], ...] = ()
    acks: tuple[int, ...] = ()


@dataclass
class Books:
    """What the log was asked for, in order, and how many of these steps it has promised."""

    steps: list[Step] = field(default_factory=list[Step])
    promised: int = 0

    def possible(self, after: int) -> dict[int, int]:
        """The live messages, with their sizes, if the first `after` steps count."""
        live: dict[int, int] = {}
        for step in self.steps[:after]:
            live.update(step.puts)
            for message in step.acks:
                del live[message]
        return live

    def is_explained(self, live: dict[int, int]) -> bool:
        """Whether these messages are what some first part of the steps left, which has all that was promised."""
        return any(live == self.possible(after) for after in range(self.promised, len(self.steps) + 1))


Tell = Callable[[Step | None], None]
"""Is told each step before the log is asked for it, and None when all steps so far are promised."""


def opened(folder: Path, files: FileLayer) -> tuple[Log, Recovered]:
    """The log with small segments, by a clock that stands still."""
    return Log.open(folder, files=files, options=OPTIONS, clock=lambda: 1, entropy=lambda size: b"\7" * size)


def work(folder: Path, files: FileLayer, tell: Tell) -> None:
    """Fill and empty one queue so that every point is passed: two lives, the first of which ends without a close."""
    log, _ = opened(folder, files)
    queue = log.next_incarnation()
    waiting: list[int] = []
    with _given_back(log):
        log.topology("queue", "q", b"", queue)
        _promise(log, tell)
        for turn in range(16):
            _turn(log, queue, turn, waiting, tell)
        log.crash()
    log, _ = opened(folder, files)
    with _given_back(log):
        for turn in range(16, 26):
            _turn(log, queue, turn, waiting, tell)
        for _ in range(9):
            _sparse_turn(log, queue, tell)
        log.close()


@contextmanager
def _given_back(log: Log) -> Generator[None, None, None]:
    """After a power failure or an error in the block another log can be opened in the folder, as after the end of the
    process.
    """
    try:
        yield
    except BaseException:
        log.crash()
        raise


def _turn(log: Log, queue: int, turn: int, waiting: list[int], tell: Tell) -> None:
    route = log.route_set((queue,))
    if turn % 5 == 2:
        body = log.stage()
        log.append(body, bytes([turn]) * 9000)
        first = log.next_messages(2)
        acks = tuple(waiting[:1])
        del waiting[:1]
        tell(Step(((first, 9000), (first + 1, 300)), acks))
        puts = [CommitPut(first, route, body, 0), CommitPut(first + 1, route, bytes(300), 0)]
        log.commit(puts, [CommitAck(queue, list(acks))])
        waiting += (first, first + 1)
    elif turn % 5 == 4:
        body = log.stage()
        log.append(body, bytes([turn]) * 7000)
        message = log.put(route, log.payload_of(body, b"", 0), 0)
        tell(Step(((message, 7000),)))
        waiting.append(message)
    elif turn % 5 == 0:
        gone = waiting[: len(waiting) - 1]
        del waiting[: len(gone)]
        tell(Step(acks=tuple(gone)))
        if gone:
            log.ack_many(queue, gone)
    else:
        message = log.put(route, bytes([turn]) * 1500, 0)
        tell(Step(((message, 1500),)))
        waiting.append(message)
    _promise(log, tell)
    log.put_volatile(route, bytes(40), 0)  # stays for as long as the process; no start may find it
    log.write()
    while log.wants_maintenance:
        log.maintain(1000)
        log.request_sync()
        log.collect()


def _sparse_turn(log: Log, queue: int, tell: Tell) -> None:
    """Fill most of a segment, and leave one message of it in the queue: then the others are compacted."""
    route = log.route_set((queue,))
    messages = [log.put(route, bytes(1500), 0) for _ in range(6)]
    tell(Step(tuple((message, 1500) for message in messages)))
    _promise(log, tell)
    tell(Step(acks=tuple(messages[1:])))
    log.ack_many(queue, messages[1:])
    _promise(log, tell)
    while log.wants_maintenance:
        log.maintain(1000)
        log.request_sync()
        log.collect()


def _promise(log: Log, tell: Tell) -> None:
    sequence = log.write()
    log.request_sync()
    log.collect()
    assert log.synced >= sequence
    tell(None)


def live(recovered: Recovered) -> dict[int, int]:
    """The recovered messages of all queues, with their sizes."""
    return {message.number: len(message.payload) for queue in recovered.messages.values() for message in queue}
