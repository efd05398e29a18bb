"""What compaction does in one slice of a turn is bounded, however much is in a segment: bytes read and written, and
messages looked at. It waits for no sync."""

import itertools
from pathlib import Path

import pytest
from broker.log.log_steps import a_queue, settle
from broker.log.simulated_files import SimulatedFiles

from penstock_broker.log import Log, LogOptions, SyncChoice
from penstock_broker.log.compaction.live_contents import LiveContents
from penstock_broker.log.compaction.message_compaction import COPIED_BYTES
from penstock_broker.log.disk.files import Buffer
from penstock_broker.log.segments.segment_reader import PIECE

SEGMENT = 1024 * 1024
MOST_RECORDS = 1024
"""Messages that are looked at between two pauses."""
HEADERS = 4096
"""Bytes: headers of blocks, definitions of routes, padding."""


class CountedFiles(SimulatedFiles):
    """Counts what is read and written of segments."""

    def __init__(self) -> None:
        super().__init__()
        self.read = self.written = self.synced = 0

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        data = super().pread(handle, length, offset)
        self.read += len(data)
        return data

    def pwrite(self, handle: int, data: Buffer, offset: int) -> int:
        self.written += len(data)
        return super().pwrite(handle, data, offset)

    def fdatasync(self, handle: int) -> None:
        self.synced += 1
        super().fdatasync(handle)


@pytest.mark.parametrize(("size", "in_one_turn"), [(300, 2000), (2, 12_000), (60_000, 10)])
def test_no_slice_does_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, in_one_turn: int) -> None:
    """Blocks of 600 KB, of which one message in ten stays."""
    seen = 0
    add = LiveContents._add  # pyright: ignore[reportPrivateUsage]

    def counted(found: LiveContents, message: int, route: int, block: int, start: int, length: int) -> None:
        nonlocal seen
        seen += 1
        add(found, message, route, block, start, length)

    monkeypatch.setattr(LiveContents, "_add", counted)
    files = CountedFiles()
    options = LogOptions(segment_bytes=SEGMENT, sync=SyncChoice.INLINE)
    log, _ = Log.open(tmp_path, files=files, options=options, clock=itertools.count(1).__next__)
    queue, route = a_queue(log)
    for _ in range(14):
        messages = [log.put(route, bytes(size), 0) for _ in range(in_one_turn)]
        log.write()
        log.ack_many(queue, [message for index, message in enumerate(messages) if index % 10])
        log.write()
    for _ in range(20):  # a checkpoint behind them
        log.topology("exchange", "x", bytes(100_000))
        log.write()
    before = log.segments
    log.sync()
    most_read = most_written = most_seen = slices = 0
    while log.wants_maintenance:
        files.read = files.written = files.synced = seen = 0
        log.maintain(0.0)
        slices += 1
        most_read, most_written = max(most_read, files.read), max(most_written, files.written)
        most_seen = max(most_seen, seen)
        assert files.synced <= 1, "of a spare segment that is filled, which is not the log's own back end"
        log.request_sync()
        log.collect()
    settle(log)
    assert slices > 100
    assert log.segments < before - 5
    assert most_read <= PIECE + HEADERS
    assert most_written <= max(COPIED_BYTES + size, PIECE) + HEADERS
    assert 0 < most_seen <= MOST_RECORDS
    log.close()
