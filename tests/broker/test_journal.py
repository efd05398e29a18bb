"""What waits for the log, on a real log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock_broker.log import Log, LogOptions
from penstock_broker.state.journal import Journal


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log, _ = Log.open(tmp_path / "log", options=LogOptions(segment_bytes=1024 * 1024))
    yield log
    log.close()


def test_nothing_runs_before_the_sync_that_covers_it(log: Log) -> None:
    journal, done = Journal(log), list[str]()
    log.topology("exchange", "a", b"{}")
    journal.after_sync(None, lambda: done.append("first"))
    journal.write()
    log.topology("exchange", "b", b"{}")
    journal.after_sync(None, lambda: done.append("second"))
    journal.release()
    assert done == []
    assert journal.is_awaited
    journal.write()
    log.sync()
    journal.release()
    assert done == ["first", "second"]
    assert journal.is_idle


def test_what_needs_no_record_runs_with_what_is_synced_already(log: Log) -> None:
    journal, done = Journal(log), list[str]()
    journal.after_sync(None, lambda: done.append("now"))
    journal.write()
    assert journal.has_synced_waiting
    journal.release()
    assert done == ["now"]


def test_one_action_that_fails_holds_no_other_up(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    journal, done = Journal(log), list[str]()

    def fail() -> None:
        raise ValueError("broken")

    journal.after_sync(None, fail)
    journal.after_sync(None, lambda: done.append("behind"))
    journal.write()
    journal.release()
    assert done == ["behind"]
    assert "broken" in caplog.text
