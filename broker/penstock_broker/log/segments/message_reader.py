"""Reads messages back from segments, by queue and number, for queues that keep only the first of them in memory.

Blocks are checked by their checksum whenever they are read. The blocks read last are kept, decoded, for a moment:
queues that read the same messages then share the bytes of their bodies. Source: docs/decisions/082-paging.md.
"""

import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Final, TypeAlias

from penstock_broker.log.disk.files import FileLayer, read_file
from penstock_broker.log.format.blocks import (
    BLOCK_HEADER,
    BLOCK_LENGTH,
    BlockFlag,
    padded,
    records_of_block,
)
from penstock_broker.log.format.puts import puts_in
from penstock_broker.log.format.record_codec import Malformed, decode_records
from penstock_broker.log.format.records import Put, Record, RouteDifference, RouteSet
from penstock_broker.log.format.route_sets import KnownRouteSets, RouteSets
from penstock_broker.log.segments.block_index import Start
from penstock_broker.log.segments.put_block import Gathering, PutBlock, Reading
from penstock_broker.log.segments.segment import Segment
from penstock_broker.log.segments.segment_digest import PlacedRecords, decode_digest, digest_name
from penstock_broker.log.segments.segment_reader import behind_damage
from penstock_broker.log.segments.segment_usage import SegmentUsage

__all__ = ["MessageReader"]

LOGGER = logging.getLogger(__name__)

READ_BYTES: Final = 256 * 1024
"""Bytes that one system call reads, if no single block is longer."""
KEPT_BYTES: Final = 4 * 1024 * 1024
"""Bytes of blocks that are kept decoded."""

AHEAD_BYTES: Final = 1024 * 1024
"""Behind what was read, so much is asked of the disk, so that the next reads need not wait for it."""

TRIES: Final = 3
"""So often a place is read before it is given up, over `GIVE_UP_MS` at least."""

GIVE_UP_MS: Final = 10_000

KEPT_ROUTES: Final = 256
"""Route sets that are remembered of those that no put will name again."""


_SEAL: Final = int(BlockFlag.SEAL)

_MESSAGE: Final = itemgetter(Put._fields.index("message"))


_Records: TypeAlias = tuple[bytes, int, int, int, bool]
"""Of one block: bytes, where in them the records begin and end, where the next block of the segment begins, and whether
the block is of the present epoch."""


class MessageReader:
    """Reads puts of one log. Raises OSError where it says so; what is damaged is named in the log and left out."""

    def __init__(
        self, files: FileLayer, usage: SegmentUsage, seed: int, routes: RouteSets, clock: Callable[[], int], epoch: int
    ) -> None:
        """`seed`: see `blocks.seed_of`; `clock` gives milliseconds; `epoch`: the present one."""
        self._epoch = epoch
        self._files, self._usage, self._seed, self._routes = files, usage, seed, routes
        self._clock = clock
        self._former: dict[tuple[int, int], tuple[int, ...]] = {}
        """By segment and route set, because numbers begin anew some day."""
        self._kept: OrderedDict[tuple[int, int], tuple[PutBlock, int]] = OrderedDict()
        self._kept_bytes = 0
        self._chunk: tuple[int, int, bytes] = (-1, 0, b"")
        self._named: set[tuple[int, int]] = set()
        """Damaged blocks of which the log has told."""
        self._failing: dict[tuple[int, int], tuple[int, int]] = {}
        """Places that could not be read: how often, and since when (milliseconds)."""
        self._given_up: set[tuple[int, int]] = set()
        """Places that are not read again before the next start."""
        self._asked = 0, 0
        """Up to which byte of which segment the disk was asked to read ahead."""

    def read(self, incarnation: int, first: int, last: int, most: int, most_bytes: int) -> Reading:
        """Puts of one queue with numbers from `first` to `last`: about `most`, and payloads of about `most_bytes`.

        Puts that the queue has acknowledged are among them; large payloads that lie in parts are not. Raises OSError.
        """
        found = Gathering(self._puts)
        ours: dict[int, bool] = {}
        number = first

        def is_ours(route_set: int, segment: Segment) -> bool:
            if route_set not in ours:
                ours[route_set] = self._is_for(incarnation, route_set, segment)
            return ours[route_set]

        while number <= last and found.count < most and found.bytes < most_bytes:
            segment, upto = self._usage.places.stretch(number)
            upto = min(upto, last)
            for start in segment.blocks.starts(number, upto):
                if start.first > upto:
                    break
                for block in self._blocks_from(segment, start, number, upto):
                    if block.route_set is not None and block.first >= number and block.last <= upto:
                        if ours.get(block.route_set) or is_ours(block.route_set, segment):
                            found.add(block)
                    else:
                        found.add_puts(
                            [
                                put
                                for put in self._puts(block)
                                if number <= put.message <= upto and is_ours(put.route_set, segment)
                            ]
                        )
                    if found.count >= most or found.bytes >= most_bytes:
                        upto = min(upto, block.last)  # what lies in other stretches is wanted up to there, too
                        break
            number = upto + 1
        return found.reading(number)

    def _puts(self, block: PutBlock) -> list[Put]:
        """The puts of a block, also if its bytes have to be read again; then none if it is damaged. Raises OSError."""
        puts = block.puts()
        if puts is not None:
            return puts
        _, length = self._kept.pop((block.segment.number, block.at), (None, 0))
        self._kept_bytes -= length
        again = self._block(block.segment, block.at)
        return again.puts() or [] if again is not None else []

    def _is_for(self, incarnation: int, route_set: int, segment: Segment) -> bool:
        key = segment.number, route_set
        queues = self._routes.incarnations.get(route_set) or self._former.get(key)
        if queues is None:
            queues = self._defined(route_set, segment)
            if len(self._former) >= KEPT_ROUTES:
                self._former.clear()
            self._former[key] = queues
        return incarnation in queues

    def _defined(self, route_set: int, segment: Segment) -> tuple[int, ...]:
        """The queues of a route set that nobody uses any more, as the segment defines it, or another one that does it
        always in the same way, if the block is damaged; none if all of them are. Raises OSError.
        """
        for each in (segment, *self._usage.segments):
            queues = self._defined_in(route_set, each) if route_set in each.definitions else None
            if queues is not None:
                return queues
        LOGGER.error(
            "the log is damaged: %s, byte %d: a route set can't be read; the messages in the segment that name it are "
            "lost", segment.path, segment.definitions.get(route_set, 0)
        )  # fmt: skip
        return ()

    def _defined_in(self, route_set: int, segment: Segment) -> tuple[int, ...] | None:
        known = KnownRouteSets()
        number, asked = route_set, set[int]()
        while number not in asked:
            asked.add(number)
            record = self._definition(number, segment)
            if record is None:
                break
            known.define(record)
            if isinstance(record, RouteSet):
                return known.incarnations(route_set)
            number = record.base
        return None

    def _definition(self, route_set: int, segment: Segment) -> RouteSet | RouteDifference | None:
        at = segment.definitions.get(route_set, 0)
        found = self._records_or_none(segment, at) if at else None
        if found is not None:
            data, begin, upto, _, _ = found
            records = decode_records(memoryview(data)[begin:upto])
        else:
            records = self._records_of_digest(segment)
        for record in records:
            if isinstance(record, RouteSet | RouteDifference) and record.route_set == route_set:
                return record
        return None

    def _records_of_digest(self, segment: Segment) -> Iterator[Record]:
        """What the digest of the segment, if it has one, has of its records, when a block of it is damaged."""
        if not segment.has_digest:
            return
        try:
            content = read_file(self._files, segment.path.with_name(digest_name(segment.number)))
        except OSError:
            return
        digest = decode_digest(content, self._seed)
        for item in digest.items if digest is not None else ():
            if isinstance(item, PlacedRecords):
                yield from item.records

    def _blocks_from(self, segment: Segment, start: Start, first: int, last: int) -> Iterator[PutBlock]:
        """The blocks from `start` on that may hold messages from `first` to `last`."""
        at, end = start.offset, start.end or segment.end
        while 0 < at < end:
            block = self._block(segment, at)
            if block is None:
                at = behind_damage(self._files, segment, at, self._seed)
                continue
            at = block.end
            if block.last < first:
                continue
            if block.first > last:
                return
            yield block

    def _block(self, segment: Segment, at: int) -> PutBlock | None:
        """The block that begins there; None if it is damaged, which is said once."""
        key = segment.number, at
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            return kept[0]
        found = self._records_or_none(segment, at)
        if key in self._given_up:
            return None
        try:
            if found is None:
                raise Malformed("no sound block begins there")
            data, begin, upto, end, is_current = found
            read = PutBlock(segment, at, end, data, begin, upto)
            if read.data is None:
                read.use(sorted(puts_in(data, begin, upto, with_volatile=is_current), key=_MESSAGE))
        except Malformed as error:
            if key not in self._named:
                self._named.add(key)
                LOGGER.error("the log is damaged: %s, byte %d: %s; its messages are lost", segment.path, at, error)
            return None
        self._kept[key] = read, upto - begin
        self._kept_bytes += upto - begin
        while self._kept_bytes > KEPT_BYTES and len(self._kept) > 1:
            self._kept_bytes -= self._kept.popitem(last=False)[1][1]
        return read

    def _records_or_none(self, segment: Segment, at: int) -> _Records | None:
        """The block that begins there; None if it is not sound, or could not be read for so long that it is given up.
        Raises OSError.
        """
        key = segment.number, at
        if key in self._given_up:
            return None
        try:
            found = self._records(segment, at)
        except OSError as error:
            if not self._gives_up(key):
                raise
            LOGGER.error(
                "%s can't be read at byte %d, also not after %d seconds: %s; its messages are set aside until the next "
                "start of the broker",
                segment.path,
                at,
                GIVE_UP_MS // 1000,
                error,
            )
            return None
        self._failing.pop(key, None)
        return found

    def _gives_up(self, key: tuple[int, int]) -> bool:
        """A place could not be read: whether that was so often enough."""
        now = self._clock()
        count, since = self._failing.get(key, (0, now))
        self._failing[key] = count + 1, since
        if count + 1 < TRIES or abs(now - since) < GIVE_UP_MS:
            return False
        del self._failing[key]
        self._given_up.add(key)
        return True

    def _records(self, segment: Segment, at: int) -> _Records | None:
        """The block that begins there; None if it is not sound."""
        data, view_at = self._bytes(segment, at)
        place = records_of_block(data, at - view_at, at, segment.number, self._seed)
        if place is None:
            return None
        begin, upto, flags, epoch = place
        end = segment.end if flags & _SEAL else at + padded(BLOCK_HEADER.size + upto - begin)
        return data, begin, upto, end, epoch == self._epoch

    def _bytes(self, segment: Segment, at: int) -> tuple[bytes, int]:
        """Bytes of the segment that hold the whole block at `at`, and where they begin."""
        number, begin, data = self._chunk
        start = at - begin
        whole = start + BLOCK_HEADER.size
        if (
            number == segment.number
            and begin <= at
            and whole <= len(data)
            and whole + BLOCK_LENGTH.unpack_from(data, start)[0] <= len(data)
        ):
            return data, begin
        most = min(READ_BYTES, segment.end - at)  # never what is not written yet
        try:
            data = self._files.pread(segment.handle, most, at)
        except OSError:
            data = self._files.pread(segment.handle, min(BLOCK_HEADER.size, most), at)  # the block may be readable
        self._ask_ahead(segment, at + len(data))
        if len(data) >= BLOCK_HEADER.size and not _holds_block(data, 0):
            length = BLOCK_HEADER.size + BLOCK_LENGTH.unpack_from(data)[0]
            if length <= segment.end - at:
                data = self._files.pread(segment.handle, length, at)
        self._chunk = segment.number, at, data
        return data, at

    def _ask_ahead(self, segment: Segment, at: int) -> None:
        """Have the disk read what comes next, while nobody waits for it."""
        number, upto = self._asked
        if number == segment.number and at + AHEAD_BYTES // 2 <= upto <= at + 2 * AHEAD_BYTES:
            return
        begin = upto if number == segment.number and at <= upto <= at + AHEAD_BYTES else at
        self._asked = segment.number, at + AHEAD_BYTES
        descriptor = self._files.descriptor(segment.handle)
        if descriptor is not None and begin < segment.end:
            os.posix_fadvise(descriptor, begin, min(at + AHEAD_BYTES, segment.end) - begin, os.POSIX_FADV_WILLNEED)


def _holds_block(data: bytes, at: int) -> bool:
    whole = at + BLOCK_HEADER.size
    return len(data) >= whole and len(data) >= whole + BLOCK_LENGTH.unpack_from(data, at)[0]
