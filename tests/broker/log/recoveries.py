"""Two recoveries of the same log that have to find the same: one keeps all messages in memory, one none that it can
leave in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from broker.log.simulated_files import SimulatedFiles

from penstock_broker.log import KEEP, CommonStart, LiveRun, Recovered
from penstock_broker.log.format.blocks import seed_of
from penstock_broker.log.format.record_codec import Malformed
from penstock_broker.log.recovery.digest_builder import DigestBuilder
from penstock_broker.log.recovery.recover import Restored, recover
from penstock_broker.log.segments.block_index import BlockIndex
from penstock_broker.log.segments.segment_digest import digest_name
from penstock_broker.log.segments.segment_reader import find_put, sound_blocks

__all__ = ["SmallRule", "assert_digests_find_the_same", "assert_paging_finds_the_same", "numbers_in", "write_digests"]


class Found(NamedTuple):
    """What is known of one message in one queue."""

    payload: bytes
    deliveries: int
    delivered: bool
    remark: bytes


class SmallRule:
    """The broker's rule in small: what begins with a byte below 40 has to stay, a third of the rest expires."""

    def __init__(self) -> None:
        self.common_start: CommonStart | None = None

    def expiry(self, data: bytes, start: int, end: int, arrival: int) -> int:
        """See `Pageable`."""
        first = data[start] if end > start else 0xFF
        self.common_start = CommonStart(data[start : start + 1], 1, 255) if first >= 40 and first % 3 else None
        return KEEP if first < 40 else arrival + first if first % 3 == 0 else 0


def numbers_in(run: LiveRun) -> Iterator[int]:
    """The messages of a run."""
    for first, last in zip(run.firsts, run.lasts, strict=True):
        yield from range(first, last + 1)


def assert_paging_finds_the_same(files: SimulatedFiles, folder: Path, inline_bytes: int) -> int:
    """Recover copies of the disk in both ways, and compare. Returns how many messages were left in the log."""
    kept_disk, paged_disk = files.copy(), files.copy()
    kept = recover(kept_disk, folder, inline_bytes)
    paged = recover(paged_disk, folder, inline_bytes, pageable=SmallRule(), kept_bytes=0)
    return _assert_same(kept_disk, kept, paged_disk, paged)


def assert_digests_find_the_same(files: SimulatedFiles, folder: Path, inline_bytes: int) -> int:
    """Recover copies of the disk with a digest for each sealed segment and without any, and compare. Returns how many
    segments were not read.
    """
    kept_disk, digest_disk = files.copy(), files.copy()
    recover(kept_disk, folder, inline_bytes)
    write_digests(digest_disk, folder, recover(digest_disk, folder, inline_bytes))
    kept = recover(kept_disk, folder, inline_bytes)
    paged = recover(digest_disk, folder, inline_bytes, pageable=SmallRule(), kept_bytes=0)
    _assert_same(kept_disk, kept, digest_disk, paged)
    return sum(segment.has_digest for segment in paged.usage.segments)


def write_digests(files: SimulatedFiles, folder: Path, restored: Restored) -> None:
    """Write digests of all sealed segments of a recovered log that can be read."""
    seed = seed_of(restored.log_id or b"")
    for segment in restored.usage.segments:
        builder = DigestBuilder(segment.number, segment.first_message, seed, SmallRule(), 1 << 30)
        try:
            for block in sound_blocks(files, segment, seed):
                if block is not None:
                    all(step is None for step in builder.add(block.header, block.records))
        except Malformed:
            continue
        if builder.is_complete:
            handle = files.open(folder / digest_name(segment.number), create=True)
            files.pwrite(handle, b"".join(builder.finished()), 0)
            files.close(handle)


def _assert_same(kept_disk: SimulatedFiles, kept: Restored, paged_disk: SimulatedFiles, paged: Restored) -> int:
    whole, bare = kept.recovered, paged.recovered
    assert (bare.documents, bare.epoch, bare.sequence, bare.clean) == (
        whole.documents,
        whole.epoch,
        whole.sequence,
        whole.clean,
    )
    assert [(each.segment, each.start, each.end) for each in bare.damage] == [
        (each.segment, each.start, each.end) for each in whole.damage
    ]
    assert bare.lost == whole.lost
    assert paged.incomplete == kept.incomplete
    assert _all(paged_disk, paged) == _all(kept_disk, kept)
    _assert_same_usage(kept, paged)
    for incarnation, queue in bare.paged.items():
        _assert_runs_are_right(whole, incarnation, queue.runs)
    return sum(run.messages for queue in bare.paged.values() for run in queue.runs)


def _all(files: SimulatedFiles, restored: Restored) -> dict[int, dict[int, Found]]:
    """By incarnation and number; what is in the log only is read there."""
    recovered, usage = restored.recovered, restored.usage
    found = {
        incarnation: {each.number: Found(bytes(each.payload), *each[4:7]) for each in queue}
        for incarnation, queue in recovered.messages.items()
    }
    for incarnation, queue in recovered.paged.items():
        failed = dict(queue.failed)
        for run in queue.runs:
            for number in numbers_in(run):
                segment = usage.segment_of(number)
                assert isinstance(segment.blocks, BlockIndex)
                put = find_put(files, segment, number, seed_of(restored.log_id or b""))
                assert put is not None
                assert number not in found[incarnation], "it is there twice"
                count = failed.get(number, 0)
                delivered = count > 0 or number <= queue.delivered_up_to
                found[incarnation][number] = Found(put.payload, count, delivered, b"")
    return found


def _assert_same_usage(kept: Restored, paged: Restored) -> None:
    assert paged.usage.queues == kept.usage.queues
    for one, other in zip(kept.usage.segments, paged.usage.segments, strict=True):
        assert (one.number, one.end, one.live, one.bodies) == (other.number, other.end, other.live, other.bodies)
        assert one.put_places == other.put_places
        assert (one.first_message, one.last_message) == (other.first_message, other.last_message)
        assert one.acks_into <= other.acks_into, "an ack might be recycled before its put"
        assert (one.copied, one.copied_from) == (other.copied, other.copied_from)
    for queue in kept.recovered.messages.values():
        for message in queue:
            assert paged.usage.segment_of(message.number).number == kept.usage.segment_of(message.number).number


def _assert_runs_are_right(whole: Recovered, incarnation: int, runs: list[LiveRun]) -> None:
    messages = {each.number: each for each in whole.messages[incarnation]}
    reached = 0
    for run in runs:
        members = [messages[number] for number in numbers_in(run)]
        assert members[0].number > reached, "runs are in ascending order"
        reached = members[-1].number
        assert run.messages == len(members)
        assert run.bytes == sum(len(each.payload) for each in members)
        assert run.arrival <= min(each.arrival for each in members)
        expiries = [SmallRule().expiry(each.payload, 0, len(each.payload), each.arrival) for each in members]
        assert (min((each for each in expiries if each), default=0) or run.expires) >= run.expires
        assert run.expires or not any(expiries)
