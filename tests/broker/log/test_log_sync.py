"""When what was written is synced, by each back end, and what follows from an fdatasync that fails."""

import select
from pathlib import Path

import pytest
from broker.log.log_steps import a_queue
from broker.log.simulated_files import SimulatedFiles

from penstock_broker.log import Log, LogOptions, SyncChoice

SMALL = LogOptions(segment_bytes=16384, sync=SyncChoice.INLINE)


@pytest.mark.parametrize("choice", [SyncChoice.AUTO, SyncChoice.AIO, SyncChoice.THREAD, SyncChoice.INLINE])
def test_the_descriptor_tells_when_a_sync_has_ended(tmp_path: Path, choice: SyncChoice) -> None:
    log, _ = Log.open(tmp_path, options=LogOptions(segment_bytes=16384, sync=choice))
    _, route = a_queue(log)
    log.put(route, b"x", 0)
    sequence = log.write()
    assert log.synced < sequence
    log.request_sync()
    poll = select.epoll()
    poll.register(log.descriptor, select.EPOLLIN)
    while log.synced < sequence:
        assert poll.poll(60)
        log.collect()
    poll.close()
    log.close()


def test_a_failed_sync_is_never_repeated_and_nothing_is_promised_after_it(tmp_path: Path) -> None:
    files = SimulatedFiles()
    log, _ = Log.open(tmp_path, files=files, options=SMALL)
    _, route = a_queue(log)
    log.put(route, b"x", 0)
    sequence = log.write()
    files.broken.add("fdatasync")
    log.request_sync()
    log.collect()
    assert log.failed is not None and "fdatasync failed" in log.failed
    assert log.synced < sequence
    files.broken.clear()
    calls = files.synced_calls
    log.put(route, b"y", 0)
    later = log.write()
    log.request_sync()
    log.collect()
    log.maintain(1000)
    assert files.synced_calls == calls
    assert log.synced < sequence <= later
    assert not log.accepts_publishing()
    log.close()
