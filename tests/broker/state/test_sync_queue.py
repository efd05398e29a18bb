"""What waits for the log, on a real log."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from penstock_broker.access.connection import Connection
from penstock_broker.clock import TurnClock
from penstock_broker.log import Log, LogOptions
from penstock_broker.state.sync_queue import SyncQueue
from penstock_broker.topology.store import Topology


def fail(connection: Connection) -> None:
    raise AssertionError("no connection waits")


@pytest.fixture
def clock() -> TurnClock:
    return TurnClock()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log, _ = Log.open(tmp_path / "log", options=LogOptions(segment_bytes=1024 * 1024))
    yield log
    log.close()


def test_nothing_runs_before_the_sync_that_covers_it(log: Log, clock: TurnClock) -> None:
    queue, done = SyncQueue(log, Topology(log)), list[str]()
    log.topology("exchange", "a", b"{}")
    queue.after_sync(None, lambda: done.append("first"))
    queue.write()
    log.topology("exchange", "b", b"{}")
    queue.after_sync(None, lambda: done.append("second"))
    queue.release(fail, clock)
    assert done == []
    assert queue.is_awaited
    queue.write()
    log.sync()
    queue.release(fail, clock)
    assert done == ["first", "second"]
    assert queue.is_idle


def test_what_needs_no_record_runs_with_what_is_synced_already(log: Log, clock: TurnClock) -> None:
    queue, done = SyncQueue(log, Topology(log)), list[str]()
    queue.after_sync(None, lambda: done.append("now"))
    queue.write()
    assert queue.has_synced_waiting
    queue.release(fail, clock)
    assert done == ["now"]


def test_one_action_that_fails_holds_no_other_up(log: Log, clock: TurnClock, caplog: pytest.LogCaptureFixture) -> None:
    queue, done = SyncQueue(log, Topology(log)), list[str]()

    def raising() -> None:
        raise ValueError("broken")

    queue.after_sync(None, raising)
    queue.after_sync(None, lambda: done.append("behind"))
    queue.write()
    queue.release(fail, clock)
    assert done == ["behind"]
    assert "broken" in caplog.text


def test_very_many_that_waited_for_one_sync_are_answered_in_slices_and_in_order(log: Log, clock: TurnClock) -> None:
    """A look at the clock takes 0.5 ms, and a slice 2 ms."""
    looks = itertools.count()
    clock.seconds = lambda: next(looks) * 0.0005
    queue, done = SyncQueue(log, Topology(log)), list[int]()
    for block in range(2):
        log.topology("exchange", f"e{block}", b"{}")
        for number in range(5):
            queue.after_sync(None, partial(done.append, 5 * block + number))
        queue.write()
    log.sync()
    had: list[int] = []
    while queue.has_synced_waiting:
        clock.turns += 1
        for _ in range(2):  # the second has no time left in this turn
            queue.release(fail, clock)
        had.append(len(done))
    assert had == [4, 8, 10]
    assert done == list(range(10))
    assert queue.syncs == 1


def test_what_is_durable_waits_for_its_turn_behind_those_that_are_not_answered_yet(log: Log, clock: TurnClock) -> None:
    clock.seconds = itertools.count().__next__
    queue, done = SyncQueue(log, Topology(log)), list[str]()
    connection = cast(Connection, None)
    for name in ("first", "second"):
        queue.after_sync(None, partial(done.append, name))
    queue.write()
    queue.release(fail, clock)
    assert done == ["first"]
    queue.when_durable(connection, partial(done.append, "third"))
    assert done == ["first"]
    queue.write()
    for _ in range(2):
        clock.turns += 1
        queue.release(fail, clock)
    assert done == ["first", "second", "third"]
    queue.when_durable(connection, partial(done.append, "at once"))
    assert done[-1] == "at once"


def test_an_answer_that_another_brings_about_comes_right_behind_it(log: Log, clock: TurnClock) -> None:
    """An attach and a detach in one write: the detach is looked at when the attach is answered."""
    queue, done = SyncQueue(log, Topology(log)), list[str]()
    connection = cast(Connection, None)

    def attached() -> None:
        done.append("attached")
        queue.when_durable(connection, partial(done.append, "detached"))

    queue.after_sync(connection, attached)
    queue.write()
    queue.release(fail, clock)
    assert done == ["attached", "detached"]
    assert queue.is_idle
    assert not queue.is_awaited


def test_what_is_synced_is_answered_though_the_log_has_failed_since(log: Log, clock: TurnClock) -> None:
    clock.seconds = itertools.count().__next__
    queue, done = SyncQueue(log, Topology(log)), list[str]()
    one, other = cast(Connection, "one"), cast(Connection, "other")
    queue.after_sync(one, partial(done.append, "first"))
    queue.after_sync(one, partial(done.append, "second"))
    queue.write()
    queue.release(fail, clock)
    log.topology("exchange", "e", b"{}")
    queue.after_sync(other, partial(done.append, "never"))
    queue.write()
    assert queue.abandon() == {other}
    clock.turns += 1
    queue.release(fail, clock)
    assert done == ["first", "second"]
    assert queue.is_idle


def test_an_action_of_several_connections_concerns_each_of_them(log: Log, clock: TurnClock) -> None:
    queue = SyncQueue(log, Topology(log))
    one, other = cast(Connection, "one"), cast(Connection, "other")

    def raising() -> None:
        raise RuntimeError("of both")

    failed: list[Connection] = []
    queue.after_sync_of([one, other], raising)
    queue.write()
    queue.release(failed.append, clock)
    assert failed == [one, other]
    log.topology("exchange", "e", b"{}")
    queue.after_sync_of([one, other], raising)
    queue.write()
    assert queue.abandon() == {one, other}
