"""Messages read back by their numbers: which are found, across segments, route sets, commits and damage."""

import itertools
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker.log.simulated_files import SimulatedFiles

from penstock_broker.log import Log, LogOptions, SyncChoice
from penstock_broker.log.segments.block_index import INDEX_BYTES, BlockIndex

LOG_ID = b"\7" * 16
ANY = 1 << 30


def opened(folder: Path, files: SimulatedFiles, segment_bytes: int = 65536) -> Log:
    ticks: Iterator[int] = itertools.count(1)
    options = LogOptions(segment_bytes=segment_bytes, sync=SyncChoice.INLINE)
    log, _ = Log.open(folder, files=files, options=options, clock=lambda: next(ticks), entropy=lambda size: LOG_ID)
    return log


class Written:
    """Queues 0, 1 and 2; every message goes to one of these sets of them, in turn."""

    SETS = ((0,), (0, 1), (1,), (0, 1, 2))

    def __init__(self, folder: Path, count: int, size: int = 500) -> None:
        self.files = SimulatedFiles()
        self.folder = folder
        self.log = opened(folder, self.files)
        self.queues = [self.log.next_incarnation() for _ in range(3)]
        for name, incarnation in zip("abc", self.queues, strict=True):
            self.log.topology("queue", name, b"", incarnation)
        self.bodies: list[dict[int, bytes]] = [{}, {}, {}]
        self.write(count, size)

    def write(self, count: int, size: int) -> None:
        for at in range(count):
            queues = self.SETS[at % len(self.SETS)]
            body = at.to_bytes(4, "big") * (size // 4)
            if at % 11 == 10:
                self.log.next_messages(5)  # volatile ones
            number = self.log.put(self.log.route_set(tuple(self.queues[each] for each in queues)), body, at, 1)
            for each in queues:
                self.bodies[each][number] = body
            if at % 7 == 6:
                self.log.write()
        self.log.write()

    def read(self, queue: int, first: int, last: int, most: int = ANY, most_bytes: int = ANY) -> dict[int, bytes]:
        reading = self.log.read(self.queues[queue], first, last, most, most_bytes)
        return {put.message: put.payload for put in reading.puts}


@pytest.mark.parametrize("is_restarted", [False, True])
def test_each_queue_finds_its_own_messages_across_segments(tmp_path: Path, is_restarted: bool) -> None:
    written = Written(tmp_path, 1000)
    assert written.log.segments > 5
    if is_restarted:
        written.log.crash()
        written.log = opened(tmp_path, written.files)
    for queue, bodies in enumerate(written.bodies):
        assert written.read(queue, 0, ANY) == bodies
        numbers = sorted(bodies)
        middle = numbers[100:150]
        assert sorted(written.read(queue, middle[0], middle[-1])) == middle
        assert written.read(queue, middle[7], middle[7]) == {middle[7]: bodies[middle[7]]}
    written.log.crash()


def test_reading_goes_on_where_it_stopped(tmp_path: Path) -> None:
    written = Written(tmp_path, 400)
    found: list[int] = []
    following, steps = 0, 0
    last = max(written.bodies[0])
    while following <= last:
        reading = written.log.read(written.queues[0], following, last, 20, 5000)
        puts, following = reading.puts, reading.following
        found += [put.message for put in puts]
        assert len(puts) <= 40, "not much more than asked for"
        steps += 1
    assert found == sorted(written.bodies[0])
    assert steps > 15
    written.log.crash()


def test_what_comes_after_a_read_is_found_by_the_next(tmp_path: Path) -> None:
    written = Written(tmp_path, 50)
    assert written.read(0, 0, ANY) == written.bodies[0]
    written.write(50, 500)
    assert written.read(0, 0, ANY) == written.bodies[0]
    written.log.crash()


def test_queues_share_the_bytes_of_a_body(tmp_path: Path) -> None:
    written = Written(tmp_path, 40)
    first, second = written.read(0, 0, ANY), written.read(1, 0, ANY)
    shared = first.keys() & second.keys()
    assert len(shared) == 20
    assert all(first[number] is second[number] for number in shared)
    written.log.crash()


def test_messages_are_found_though_another_queue_of_their_route_set_has_ended(tmp_path: Path) -> None:
    """A checkpoint forgets such a route set; the segments define it still."""
    written = Written(tmp_path, 300)
    written.log.delete("queue", "c")
    written.write(300, 500)
    assert written.read(0, 0, ANY) == written.bodies[0]
    written.log.crash()


def test_messages_of_a_transaction_are_found(tmp_path: Path) -> None:
    written = Written(tmp_path, 10)
    log = written.log
    log.begin_unit()
    numbers = [log.put(log.route_set((written.queues[2],)), b"unit" * 10, 0) for _ in range(3)]
    log.end_unit()
    log.write()
    assert sorted(written.read(2, numbers[0], ANY)) == numbers
    log.crash()


def test_a_damaged_block_is_named_once_and_the_others_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written = Written(tmp_path, 200)
    path = next(path for path in written.files.paths() if path.name.startswith("segment-"))
    content = written.files.content(path)
    at = bytes(content).index((100).to_bytes(4, "big") * 20)
    content[at] ^= 1
    with caplog.at_level(logging.ERROR):
        found = written.read(0, 0, ANY)
        written.read(0, 0, ANY)
    lost = written.bodies[0].keys() - found.keys()
    assert 1 <= len(lost) < 60
    assert all(found[number] == written.bodies[0][number] for number in found)
    assert len([record for record in caplog.records if "the log is damaged" in record.message]) == 1
    written.log.crash()


def damaged_definition(folder: Path, count: int) -> Written:
    """A log of which nobody uses any route set any more; the block that defines these is damaged."""
    written = Written(folder, count)
    written.log.close()
    written.log = opened(folder, written.files)
    first, *_ = (path for path in written.files.paths() if path.name.startswith("segment-"))
    content = written.files.content(first)
    at = bytes(content).index((1).to_bytes(4, "big") * 100)
    content[at] ^= 1
    return written


@pytest.mark.parametrize("count", [100, 400])
def test_a_damaged_definition_of_a_route_set_holds_up_no_other_messages(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    """Other segments say the same of the set; without these its messages are lost."""
    written = damaged_definition(tmp_path, count)
    with caplog.at_level(logging.ERROR):
        found = written.read(1, 0, 1 << 40)
        assert written.read(1, 0, 1 << 40) == found
    numbers = sorted(written.bodies[1])
    if count == 400:
        assert len(numbers) - len(found) <= 7
    else:
        assert written.log.segments == 1 and not found
        assert any("a route set can't be read" in record.message for record in caplog.records)
    assert found.items() <= written.bodies[1].items()
    number = written.log.put(written.log.route_set((written.queues[1],)), b"new", 0)
    written.log.write()
    assert written.read(1, 0, 1 << 40) == {**found, number: b"new"}
    written.log.crash()


def test_the_index_is_sparse_and_finds_what_lies_out_of_order() -> None:
    index = BlockIndex()
    for block in range(1000):
        index.note(100 + block, 100 + block, 4096 + block * 1024)
    assert len(index) == 1000 // (INDEX_BYTES // 1024) + 1
    [start] = index.starts(600, 600)
    assert start.offset <= 4096 + 500 * 1024 < start.offset + INDEX_BYTES
    assert start.end == 0
    copied = 4096 + 1000 * 1024
    index.note(7, 7, copied)
    index.note(5000, 5000, copied + INDEX_BYTES)
    [own] = index.starts(50, 4000)
    assert (own.offset, own.end) == (4096, copied), "the copy lies elsewhere, and so does what is new"
    assert index.starts(1, 7) == [(copied, copied + INDEX_BYTES, 7)]
    assert index.starts(5000, 6000) == [(copied + INDEX_BYTES, 0, 5000)]
    assert [start.first for start in index.starts(1, 6000)] == [7, 100, 5000]
    assert index.next_after(copied) == copied + INDEX_BYTES
    assert index.next_after(copied + INDEX_BYTES) == 0
    assert BlockIndex().starts(1, 1) == []


def test_a_place_that_cannot_be_read_is_given_up_after_a_while_and_the_others_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then each read fails, so that nobody takes messages for lost which a disk gives back a second later."""
    written = Written(tmp_path, 1000)
    path = min(each for each in written.files.paths() if each.name.startswith("segment-"))
    expected = written.bodies[0]
    written.files.unreadable[path] = (60_000, 60_001)
    now = 0
    written.log._messages._clock = lambda: now  # pyright: ignore[reportPrivateUsage]
    for seconds in (0, 5, 9):
        now = seconds * 1000
        with pytest.raises(OSError, match="the disk can't read this"):
            written.read(0, 0, ANY)
    assert not caplog.records
    now = 10_000
    found = written.read(0, 0, ANY)
    assert found.items() <= expected.items()
    assert 0 < len(expected) - len(found) <= 2 * INDEX_BYTES // 500
    assert [each.levelno for each in caplog.records] == [logging.ERROR]
    assert "byte" in caplog.text and "set aside until the next start" in caplog.text
    written.files.unreadable.clear()
    assert written.read(0, 0, ANY) == found
    written.log.close()


def test_a_definition_that_cannot_be_read_is_waited_for_and_given_up_as_a_place_is(tmp_path: Path) -> None:
    written = Written(tmp_path, 100)
    written.log.close()
    written.log = opened(tmp_path, written.files)
    last = max(written.bodies[0])
    path = min(each for each in written.files.paths() if each.name.startswith("segment-"))
    at = bytes(written.files.content(path)).index((1).to_bytes(4, "big") * 100)
    written.files.unreadable[path] = (at, at + 1)
    now = 0
    written.log._messages._clock = lambda: now  # pyright: ignore[reportPrivateUsage]
    for seconds in (0, 5, 9):
        now = seconds * 1000
        with pytest.raises(OSError, match="the disk can't read this"):
            written.read(0, last - 5, last)
    now = 10_000
    assert not written.read(0, last - 5, last)
    written.log.close()
