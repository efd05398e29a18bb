"""Room in the log: what is recycled, and what a full disk refuses and still takes."""

# pyright: reportPrivateUsage=false

import errno
import itertools
import tempfile
from pathlib import Path

import pytest
from broker.log.log_steps import a_queue, settle
from broker.log.simulated_files import SimulatedFiles
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_broker.log import Log, LogOptions, SyncChoice
from penstock_broker.log.disk.files import Buffer
from penstock_broker.log.disk.spare_segments import SLICE

SMALL = LogOptions(segment_bytes=16384, sync=SyncChoice.INLINE)


def test_a_queue_in_steady_flow_needs_few_segments(tmp_path: Path) -> None:
    files = SimulatedFiles()
    log, _ = Log.open(tmp_path, files=files, options=SMALL)
    incarnation, route = a_queue(log)
    for _ in range(200):
        number = log.put(route, b"x" * 1000, 0)
        log.write()
        log.ack(incarnation, number)
        settle(log)
    assert log.segments <= 3
    assert len([path for path in files.paths() if path.name.startswith("spare")]) <= 4
    log.close()


class Full:
    """A log that was filled until it refused publishers, on a disk of `segments` segments."""

    def __init__(self, folder: Path, segments: int) -> None:
        self.files = SimulatedFiles()
        self.files.space = segments * 16384
        self.clock = itertools.count(1, 500)
        self.log, _ = Log.open(folder, files=self.files, options=SMALL, clock=lambda: next(self.clock))
        self.incarnation, self.route = a_queue(self.log)
        self.messages: list[int] = []
        while self.log.accepts_publishing():
            self.publish()
            assert len(self.messages) < 1000, "a full disk was never noticed"

    def publish(self) -> None:
        self.messages.append(self.log.put(self.route, b"m" * 500, 0))
        self.log.write()
        self.log.maintain(1000)
        self.log.sync()


def test_a_full_disk_refuses_publishing_and_can_be_drained(tmp_path: Path) -> None:
    full = Full(tmp_path, segments=8)
    log = full.log
    assert log.full and log.failed is None
    assert len(full.messages) > 80, "most of the space held messages"
    for message in full.messages:
        log.ack(full.incarnation, message)
        log.topology("exchange", "still possible", b"x" * 100)
        log.write()
        log.sync()
        log.maintain(1000)
        log.collect()
    assert log.failed is None
    assert log.accepts_publishing()
    full.publish()
    log.close()


def test_draining_in_any_order_finds_room(tmp_path: Path) -> None:
    full = Full(tmp_path, segments=8)
    backwards = full.messages[::-1]
    for message in backwards:
        full.log.ack(full.incarnation, message)
        settle(full.log)
    assert full.log.failed is None
    assert full.log.accepts_publishing()
    full.log.close()


def test_more_space_ends_the_refusal(tmp_path: Path) -> None:
    full = Full(tmp_path, segments=8)
    full.files.space *= 2
    assert not full.log.accepts_publishing()
    for _ in range(4):
        next(full.clock)  # it looks again after a second
    settle(full.log)
    assert full.log.accepts_publishing() and not full.log.full
    full.log.close()


def test_a_disk_of_which_half_is_free_again_is_not_full(tmp_path: Path) -> None:
    """The spares that are wanted are all there, recycled: no other has to be made for the log to go on."""
    full = Full(tmp_path, segments=24)
    for message in full.messages[: len(full.messages) // 2]:
        full.log.ack(full.incarnation, message)
        settle(full.log)
    for _ in range(4):
        next(full.clock)  # it looks again after a second
    settle(full.log)
    assert not full.log.full
    full.log.close()


def test_publishers_wait_while_compaction_gains_room(tmp_path: Path) -> None:
    """The disk is full, and of each segment seven tenths are dead: nobody consumes any more, and nobody is refused
    before all of that is used again."""
    full = Full(tmp_path, segments=24)
    log = full.log
    left = full.messages[::3]
    for message in set(full.messages) - set(left):
        log.ack(full.incarnation, message)
    log.write()
    full.messages = []
    waited = 0
    while True:
        if log.makes_room():
            waited += 1
            log.write()
            log.request_sync()
            log.collect()
            log.maintain(0.0)
        elif log.accepts_publishing():
            full.publish()
        else:
            break
    assert waited > 0
    assert log.failed is None
    alive = (len(left) + len(full.messages)) * 532
    assert alive > 16 * 12_000, "most of the disk is alive when the first is refused"
    log.close()
    _, recovered = Log.open(tmp_path, files=full.files, options=SMALL)
    assert [each.number for each in recovered.messages[full.incarnation]] == left + full.messages


def test_a_full_disk_without_dead_space_refuses_at_once(tmp_path: Path) -> None:
    full = Full(tmp_path, segments=12)
    assert not full.log.makes_room()
    full.log.close()


class Filled(SimulatedFiles):
    """Counts the zeros that are written ahead of need."""

    def __init__(self) -> None:
        super().__init__()
        self.zeros = 0

    def pwrite(self, handle: int, data: Buffer, offset: int) -> int:
        if data == bytes(len(data)):
            self.zeros += len(data)
        return super().pwrite(handle, data, offset)


MIB = 1 << 20


@pytest.mark.parametrize("turns_of_a_sync", [1, 9])
@settings(max_examples=30)
@given(turns=st.lists(st.integers(1, 240), min_size=30, max_size=45))
def test_a_log_that_grows_fills_segments_as_fast_as_it_is_written(turns_of_a_sync: int, turns: list[int]) -> None:
    """No turn has to fill a whole one, though none has time for it. KiB of each turn, at most a quarter of a segment;
    three segments are filled while three quarters of the first are written, and one in each that follows.
    """
    files = Filled()
    with tempfile.TemporaryDirectory() as folder:
        log, _ = Log.open(Path(folder), files=files, options=LogOptions(segment_bytes=MIB, sync=SyncChoice.INLINE))
        _grow(log, files, turns, turns_of_a_sync)
        log.crash()
    assert files.unsynced_writes() == 0, "a spare segment was filled, and never synced as a whole"


def _grow(log: Log, files: Filled, turns: list[int], turns_of_a_sync: int) -> None:
    _, route = a_queue(log)
    log.write()
    written = files.zeros = 0
    for at, kib in enumerate(turns):
        log.put(route, b"m" * (kib * 1024), 0)
        before = files.zeros
        log.write()
        assert files.zeros == before, "a segment was filled when it was needed"
        written += kib * 1024 + 200
        log.request_sync()
        if at % turns_of_a_sync == 0:
            log.collect()
        if log.wants_maintenance:
            log.maintain(0.0)
        assert files.zeros - before <= MIB
        assert files.zeros <= 4 * written + (at + 1) * SLICE
        if log.segments > 3:
            assert files.zeros - before <= (kib * 1024 + 200) * 4 / 3 + 2 * SLICE
    while log.is_filling_spare:
        log.collect()
    log.sync()


def test_acks_are_not_written_once_more_where_they_would_take_the_last_room(tmp_path: Path) -> None:
    """Every second message has left, and the acks of that fill what is kept back for them. What consumers still send
    fits, and frees a segment; to write the acks once more would have ended the log.
    """
    files = SimulatedFiles()
    files.space = 16 * 16384
    clock = itertools.count(1, 500)
    log, _ = Log.open(tmp_path, files=files, options=SMALL, clock=lambda: next(clock))
    incarnation, route = a_queue(log)
    messages: list[int] = []
    while log.accepts_publishing():
        messages += [log.put(route, b"m", 0) for _ in range(10)]
        log.write()
        log.maintain(1000)
        log.sync()
    going = messages[::2]
    while len(log._spares) or log._usage.segments[-1].room > 3500:
        log.ack_many(incarnation, going[:20])
        del going[:20]
        log.write()
    left = sorted({*going, *messages[1::2]})
    log.write()
    log.sync()
    assert len(log._spares) == 0, "the reserve is used up"
    settle(log)
    assert log.failed is None
    taken = left[:1500]
    for start in range(0, 1500, 100):
        log.ack_many(incarnation, taken[start : start + 100])
        settle(log)
    assert log.failed is None and log.accepts_publishing()
    log.close()
    _, recovered = Log.open(tmp_path, files=files, options=SMALL)
    assert [each.number for each in recovered.messages[incarnation]] == left[1500:]


class WithoutDescriptors(SimulatedFiles):
    """The process may open no further file, as clients have all descriptors."""

    are_used_up = False

    def open(self, path: Path, *, create: bool) -> int:
        if self.are_used_up:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().open(path, create=create)


def test_a_log_that_gets_no_descriptor_refuses_and_goes_on_when_there_are_some(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = WithoutDescriptors()
    clock = itertools.count(1, 500)
    log, _ = Log.open(tmp_path, files=files, options=SMALL, clock=lambda: next(clock))
    incarnation, route = a_queue(log)
    settle(log)
    files.are_used_up = True
    messages: list[int] = []
    while log.accepts_publishing():
        messages.append(log.put(route, b"m" * 500, 0))
        log.write()
        log.maintain(1000)
        log.sync()
    assert log.failed is None
    assert [each.message for each in caplog.records] == [
        "no further log segment can be opened, which counts as a full disk: [Errno 24] Too many open files"
    ]
    files.are_used_up = False
    for _ in range(4):
        next(clock)
    settle(log)
    assert log.accepts_publishing() and not log.full
    log.close()
    _, recovered = Log.open(tmp_path, files=files, options=SMALL)
    assert [each.number for each in recovered.messages[incarnation]] == messages
