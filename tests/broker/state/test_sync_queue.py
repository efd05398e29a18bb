"""What waits for the log, on a real log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock_broker.access.connection import Connection
from penstock_broker.log import Log, LogOptions
from penstock_broker.state.sync_queue import SyncQueue
from penstock_broker.topology.store import Topology


def fail(connection: Connection) -> None:
    raise AssertionError("no connection waits")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log, _ = Log.open(tmp_path / "log", options=LogOptions(segment_bytes=1024 * 1024))
    yield log
    log.close()


def test_nothing_runs_before_the_sync_that_covers_it(log: Log) -> None:
    queue, done = SyncQueue(log, Topology(log, 1024 * 1024)), list[str]()
    log.topology("exchange", "a", b"{}")
    queue.after_sync(None, lambda: done.append("first"))
    queue.write()
    log.topology("exchange", "b", b"{}")
    queue.after_sync(None, lambda: done.append("second"))
    queue.release(fail)
    assert done == []
    assert queue.is_awaited
    queue.write()
    log.sync()
    queue.release(fail)
    assert done == ["first", "second"]
    assert queue.is_idle


def test_what_needs_no_record_runs_with_what_is_synced_already(log: Log) -> None:
    queue, done = SyncQueue(log, Topology(log, 1024 * 1024)), list[str]()
    queue.after_sync(None, lambda: done.append("now"))
    queue.write()
    assert queue.has_synced_waiting
    queue.release(fail)
    assert done == ["now"]


def test_one_action_that_fails_holds_no_other_up(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    queue, done = SyncQueue(log, Topology(log, 1024 * 1024)), list[str]()

    def raising() -> None:
        raise ValueError("broken")

    queue.after_sync(None, raising)
    queue.after_sync(None, lambda: done.append("behind"))
    queue.write()
    queue.release(fail)
    assert done == ["behind"]
    assert "broken" in caplog.text
