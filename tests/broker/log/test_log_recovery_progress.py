"""A recovery tells that it goes on, whatever it does: reads the log again, fetches bodies, makes segments durable.

Who watches a start ends one that has not advanced for a minute, so each stretch without a word must be short.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker.log.log_steps import settle
from broker.log.recoveries import SmallRule
from broker.log.simulated_files import SimulatedFiles
from broker.log.test_log_digests import Written

from penstock_broker.log.recovery import record_reader
from penstock_broker.log.recovery.recover import recover

PAGE = 4096


class Told:
    """What a recovery tells, and how many bytes and syncs come between two figures that differ."""

    def __init__(self, files: SimulatedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
        self.figures: list[tuple[int, int]] = []
        self.read = self.syncs = self.longest_read = self.most_syncs = 0
        pread, fdatasync = files.pread, files.fdatasync

        def counted_read(handle: int, length: int, offset: int) -> bytes:
            found = pread(handle, length, offset)
            self.read += len(found)
            self.longest_read = max(self.longest_read, self.read)
            return found

        def counted_sync(handle: int) -> None:
            fdatasync(handle)
            self.syncs += 1
            self.most_syncs = max(self.most_syncs, self.syncs)

        monkeypatch.setattr(files, "pread", counted_read)
        monkeypatch.setattr(files, "fdatasync", counted_sync)
        monkeypatch.setattr(record_reader, "PROGRESS_BYTES", PAGE)

    def __call__(self, done: int, total: int) -> None:
        if not self.figures or self.figures[-1] != (done, total):
            self.read = self.syncs = 0
        self.figures.append((done, total))


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    made = Written(tmp_path, 400)
    settle(made.log)
    made.write(3, 500)
    made.log.crash()
    yield made


def test_a_log_that_is_read_a_second_time_tells_it_again(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment without digest is damaged, so what the digests of the others said does not count."""
    digests = written.digests()
    segments = sorted(path for path in written.files.paths() if path.name.startswith("segment-"))
    bare = [path for path in segments[:-2] if path.with_name("digest-" + path.name[8:]) not in digests]
    size = sum(len(written.files.content(path)) for path in segments)
    assert (len(digests), len(segments), size) == (5, 13, 13 * 16384)
    content = written.files.content(bare[-1])
    victim = max(number for number, body in written.bodies[0].items() if body in content)
    content[content.index(written.bodies[0][victim]) + 10] ^= 1
    told = Told(written.files, monkeypatch)
    recover(written.files, written.folder, 2000, told, pageable=SmallRule(), kept_bytes=0)
    reads, totals = [done for done, _ in told.figures], [total for _, total in told.figures]
    assert reads == sorted(reads)
    assert totals == sorted(totals)
    assert reads[-1] == totals[-1] >= 2 * size - 2 * PAGE, "both readings count"
    assert told.longest_read == 4 * 16384, "blocks are told of once a later one says that they were synced"


def test_each_segment_and_digest_that_is_opened_is_told(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(written.files, monkeypatch)
    recover(written.files, written.folder, 2000, told, pageable=SmallRule(), kept_bytes=0)
    assert told.figures[:18] == [(0, opened) for opened in range(1, 19)], "13 segments, and 5 digests"
    assert told.figures[18][1] == 13 * 16384


def test_each_segment_that_is_made_durable_is_told(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(written.files, monkeypatch)
    recover(written.files, written.folder, 2000, told, pageable=SmallRule(), kept_bytes=0)
    assert told.most_syncs == 1
