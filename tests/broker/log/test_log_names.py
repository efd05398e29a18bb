"""The names of segments are synced beside the blocks, not by whoever writes these; nothing is promised before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker.log.log_steps import a_queue
from broker.log.simulated_files import SimulatedFiles
from support.broker_site import HeldSyncer

from penstock_broker.log import FileLayer, Log, LogOptions, RealFiles, SyncChoice
from penstock_broker.log.disk.syncers import AioSyncer, ThreadSyncer

SIZE = 16384


class Disk:
    """A log whose syncs end when the test says so."""

    def __init__(self, folder: Path) -> None:
        self.files = SimulatedFiles()
        self._folder = folder
        self.start()

    def start(self) -> None:
        options = LogOptions(segment_bytes=SIZE, reserve=1, spare=2)
        self.log, self.recovered = Log.open(self._folder, files=self.files, options=options, syncer=self._make)

    def _make(self, files: FileLayer) -> HeldSyncer:
        self.syncer = HeldSyncer(files)
        return self.syncer

    def complete(self) -> None:
        """What was submitted ends."""
        self.syncer.complete()
        self.log.collect()

    def settle(self) -> None:
        """All syncs and all idle work are done."""
        for _ in range(30):
            self.log.request_sync()
            self.complete()
            self.log.maintain(1000)

    @property
    def segment_files(self) -> int:
        """How many files are named as segments, synced or not."""
        return sum(path.name.startswith("segment-") for path in self.files.paths())

    def begin_segment(self, route: int) -> int:
        """Write until a segment is begun; the sequence of the first block in it."""
        before, sequence = self.log.segments, 0
        while self.log.segments == before:
            self.log.put(route, bytes(1000), 0)
            sequence = self.log.write()
        return sequence


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path)
    yield made
    made.log.crash()


def test_nothing_in_a_new_segment_is_promised_before_its_name_is_synced(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, route = a_queue(disk.log)
    disk.settle()
    called: list[Path] = []
    synced = disk.files.fsync_folder
    monkeypatch.setattr(disk.files, "fsync_folder", called.append)
    sequence = disk.begin_segment(route)
    assert called == []  # not in the turn that began the segment
    disk.log.request_sync()
    assert called == []
    monkeypatch.setattr(disk.files, "fsync_folder", synced)
    submitted, disk.syncer.submitted = disk.syncer.submitted, []
    names = [each for each in submitted if isinstance(each[1], Path)]
    disk.syncer.submitted = [each for each in submitted if each not in names]
    disk.complete()
    assert disk.log.synced < sequence
    disk.syncer.submitted = names
    disk.complete()
    assert disk.log.synced >= sequence


def test_a_power_failure_before_the_name_is_synced_loses_nothing_that_was_promised(disk: Disk) -> None:
    queue, route = a_queue(disk.log)
    disk.settle()
    promised = disk.log.next_number - 1
    disk.begin_segment(route)
    disk.log.request_sync()
    submitted = disk.syncer.submitted
    disk.syncer.submitted = [each for each in submitted if not isinstance(each[1], Path)]
    disk.complete()
    told = disk.log.synced
    disk.log.crash()
    disk.files.crash(lambda length: length, names_kept=0)
    disk.start()
    assert disk.recovered.damage == ()
    assert disk.recovered.sequence >= told
    assert disk.log.next_number > promised
    assert queue


def test_a_recycled_segment_and_those_whose_acks_it_needed_go_one_after_the_other(disk: Disk) -> None:
    queue, route = a_queue(disk.log)
    for _ in range(3):
        disk.begin_segment(route)
    last = disk.log.next_number
    disk.settle()
    disk.log.ack_many(queue, list(range(1, last)))
    disk.log.write()
    disk.log.request_sync()
    disk.complete()
    before = disk.segment_files
    for _ in range(5):
        disk.log.maintain(1000)  # what says that they are over is not synced
        assert disk.segment_files == before
    while disk.segment_files == before:
        disk.log.maintain(1000)
        if disk.segment_files == before:
            disk.log.request_sync()
            disk.complete()
    for _ in range(5):
        disk.log.maintain(1000)  # the name of the first is not synced
        assert disk.segment_files == before - 1
        assert not disk.log.wants_maintenance
    disk.complete()
    disk.log.maintain(1000)
    assert disk.segment_files == before - 2


def test_a_folder_that_cannot_be_synced_fails_the_log(disk: Disk) -> None:
    _, route = a_queue(disk.log)
    disk.settle()
    sequence = disk.begin_segment(route)
    disk.files.broken.add("fsync_folder")
    disk.log.request_sync()
    disk.complete()
    assert disk.log.failed is not None and "fsync of the folder failed" in disk.log.failed
    assert disk.log.synced < sequence


@pytest.mark.parametrize("make", [AioSyncer, ThreadSyncer])
def test_each_back_end_syncs_folders_beside_files(tmp_path: Path, make: type[AioSyncer] | type[ThreadSyncer]) -> None:
    syncer = make(RealFiles())
    with (tmp_path / "file").open("wb") as file:
        syncer.submit_folder(-2, tmp_path)
        syncer.submit(7, [file.fileno()])
        syncer.submit_folder(-3, tmp_path / "missing")
        done: dict[int, OSError | None] = {}
        while len(done) < 3:
            done |= dict(syncer.wait())
    assert (done[-2], done[7]) == (None, None)
    assert isinstance(done[-3], FileNotFoundError)
    syncer.close()


@pytest.mark.parametrize("choice", [SyncChoice.AUTO, SyncChoice.THREAD])
def test_a_real_log_goes_on_over_many_segments(tmp_path: Path, choice: SyncChoice) -> None:
    log, _ = Log.open(tmp_path, options=LogOptions(segment_bytes=SIZE, sync=choice))
    queue, route = a_queue(log)
    for _ in range(40):
        number = log.put(route, bytes(5000), 0)
        log.write()
        log.sync()
        log.ack(queue, number)
        log.maintain(1.0)
    log.write()
    log.sync()
    assert log.synced == log.sequence
    log.close()
    assert Log.open(tmp_path)[1].damage == ()
