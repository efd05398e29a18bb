"""The poll loop: what it makes of answers, of silence and of a full disk."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from observer.samples import START_MS, ScriptedBroker, a_poll

from penstock_api.ledger_format import SegmentName
from penstock_lag_rules.thresholds import Thresholds
from penstock_observer.ledger import Ledger, SealLimits, WriteSegment
from penstock_observer.live_lag import LiveLag
from penstock_observer.live_view import LiveView
from penstock_observer.parquet import write_segment
from penstock_observer.poller import BrokerAway, Poller
from penstock_observer.retention import RetentionLimits
from penstock_observer.rows import RowOrigin


def a_ledger(folder: Path, seconds: float = 60, write: WriteSegment = write_segment) -> Ledger:
    """A ledger in a folder."""
    rolling = SealLimits(seconds=seconds, rows=1000, bytes=10**9)
    return Ledger(folder, RowOrigin("main", 0, 1000), rolling, RetentionLimits(10**12, 10**12), write)


def live_lag() -> LiveLag:
    """Judges polls that come every second."""
    return LiveLag(0, 1_000, Thresholds())


async def test_an_answer_goes_to_the_live_view_and_the_ledger(tmp_path: Path) -> None:
    """One poll, one row waiting."""
    live, ledger = LiveView(), a_ledger(tmp_path)
    await Poller(ScriptedBroker([a_poll()]), live, live_lag(), ledger, 1).once()
    assert live.known.poll == a_poll()
    assert live.known.reachable
    assert ledger.waiting_rows == 1
    ledger.close()


async def test_silence_keeps_what_is_known(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The problem is told once, not at every poll, and the ledger gets no row."""
    live, ledger = LiveView(), a_ledger(tmp_path)
    away = BrokerAway("the broker does not answer: connection refused")
    poller = Poller(ScriptedBroker([a_poll(), away, away, a_poll(START_MS + 1)]), live, live_lag(), ledger, 1)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await poller.once()
    assert not live.known.reachable
    assert live.known.problem == "the broker does not answer: connection refused"
    assert live.known.poll == a_poll()
    assert (live.known.polls, live.known.failures) == (3, 2)
    assert len(caplog.records) == 1
    assert ledger.waiting_rows == 1
    await poller.once()
    assert live.known.reachable
    assert live.known.poll == a_poll(START_MS + 1)
    ledger.close()


async def test_a_volume_that_hangs_keeps_no_poll_from_the_live_view(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever scales by these figures would be told old ones as if they were new. The problem goes with its cause."""
    answers = threading.Event()

    def write(folder: Path, name: SegmentName, rows: Any) -> int:
        answers.wait()
        return write_segment(folder, name, rows)

    live, ledger = LiveView(), a_ledger(tmp_path, seconds=0, write=write)
    polls = [a_poll(START_MS + 1000 * number) for number in range(999)]
    poller = Poller(ScriptedBroker([*polls]), live, live_lag(), ledger, 1, ledger_seconds=0.1)
    for poll in polls[:3]:
        await poller.once()
        assert live.known.poll == poll
    assert live.known.ledger_problem is not None
    assert "its volume does not answer" in live.known.ledger_problem
    assert caplog.text.count("its volume does not answer") == 1
    assert (live.known.unanswered_writes, ledger.failed_writes) == (3, 0)
    answers.set()
    while live.known.ledger_problem is not None:  # pyright: ignore[reportUnnecessaryComparison]
        await poller.once()
    assert ledger.segments[0].first_ms == START_MS
    ledger.close()


async def test_polls_are_judged_although_all_threads_wait_for_a_volume(tmp_path: Path) -> None:
    """Each result that is stored and each segment that is read may take one, and none comes back."""
    answers, loop = threading.Event(), asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    waits = loop.run_in_executor(None, answers.wait)
    live, ledger = LiveView(), a_ledger(tmp_path)
    poller = Poller(ScriptedBroker([a_poll(), a_poll(START_MS + 1)]), live, live_lag(), ledger, 1, ledger_seconds=0.1)
    try:
        async with asyncio.timeout(30):
            await poller.once()
            await poller.once()
        assert live.known.poll == a_poll(START_MS + 1)
        assert live.known.unanswered_writes == 2
    finally:
        answers.set()
    await waits
    while live.known.ledger_problem is not None:
        await asyncio.sleep(0)
        await poller.once()
    ledger.close()


async def test_a_full_disk_is_known_and_polling_goes_on(tmp_path: Path) -> None:
    """Live state does not depend on the ledger; the problem goes when the disk is back."""
    full = True

    def write(folder: Path, name: SegmentName, rows: Any) -> int:
        if full:
            raise OSError(28, "No space left on device")
        return write_segment(folder, name, rows)

    ledger = Ledger(
        tmp_path, RowOrigin("main", 0, 1000), SealLimits(1, 1, 10**9), RetentionLimits(10**12, 10**12), write
    )
    live = LiveView()
    poller = Poller(ScriptedBroker([a_poll(), a_poll(START_MS + 1000)]), live, live_lag(), ledger, 1)
    await poller.once()
    assert live.known.reachable
    assert "No space left on device" in (live.known.ledger_problem or "")
    full = False
    await poller.once()
    assert live.known.ledger_problem is None
    assert [info.rows for info in ledger.segments] == [2]
    ledger.close()


async def test_stopping_seals_what_waits_and_lets_go_of_the_broker(tmp_path: Path) -> None:
    """The rows of the last minute are not lost by a roll-out."""
    source, live, ledger = ScriptedBroker([a_poll()]), LiveView(), a_ledger(tmp_path)
    stop = asyncio.Event()
    running = asyncio.create_task(Poller(source, live, live_lag(), ledger, 3600).run(stop))
    while live.known.poll is None:
        await asyncio.sleep(0)
    stop.set()
    await asyncio.wait_for(running, 60)
    assert [info.rows for info in ledger.segments] == [1]
    assert source.closed == 1
    ledger.close()


async def test_it_polls_again_after_the_interval(tmp_path: Path) -> None:
    """Three polls come by themselves."""
    source, ledger, stop = ScriptedBroker([a_poll()]), a_ledger(tmp_path), asyncio.Event()
    running = asyncio.create_task(Poller(source, LiveView(), live_lag(), ledger, 0.001).run(stop))
    while source.asked < 3:
        await asyncio.sleep(0)
    stop.set()
    await asyncio.wait_for(running, 60)
    ledger.close()
