"""Many observers, some of which do not answer: whom the lag reader asks at once, and who waits for whom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from support.lag_stage import BROKER, Stage, document, entry, lag_stage

from penstock_operator.brokers.observer_client import (
    fetch_latest,
)
from penstock_operator.cluster.cache import ResourceKey
from penstock_operator.reconcile.broker_findings import BrokerFindings


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with lag_stage(tmp_path) as made:
        yield made


async def test_eight_observers_are_asked_at_once(stage: Stage) -> None:
    """Of ten that do not answer, eight are asked; the others have not even been connected to after another request."""
    held, eighth = asyncio.Event(), asyncio.Event()
    keys = [stage.add_broker(f"b{number}") for number in range(10)]
    stage.answers.update((key.name, held) for key in keys)
    stage.arrivals[8] = eighth
    stage.answer = document()
    async with asyncio.timeout(60):
        looks = asyncio.gather(*(stage.reader.look(key) for key in keys))
        await eighth.wait()
        await fetch_latest(stage.reader.http, stage.access)
        assert len(stage.requests) == 9, "eight, and the one that was just answered"
        held.set()
        await looks
    assert len(stage.requests) == 11


async def test_a_result_is_loaded_once(stage: Stage) -> None:
    stage.answer = document(entry(stage.uid))
    await stage.rounds(5, timedelta(seconds=5))
    assert (len(stage.requests), stage.bodies, stage.api.written) == (5, 1, 1)
    stage.answer = document(
        entry(stage.uid, messages=99, observedTime="2026-03-01T12:05:00Z"), windowEnd="2026-03-01T12:05:00Z"
    )
    await stage.rounds(5, timedelta(seconds=5))
    assert (len(stage.requests), stage.bodies, stage.lag()["messages"]) == (10, 2, 99)


async def test_an_observer_that_does_not_answer_delays_no_other(stage: Stage) -> None:
    other = stage.add_broker("other")
    held = asyncio.Event()
    stage.answer = held
    seen: asyncio.Queue[ResourceKey] = asyncio.Queue()
    stage.reader.enqueue = seen.put_nowait
    stage.answers["other"] = document(broker="other")
    running = asyncio.create_task(stage.reader.run(0.01))
    try:
        async with asyncio.timeout(60):
            assert await seen.get() == other
            stage.answers["other"] = document(broker="other", windowEnd="2026-03-01T12:05:00Z")
            assert await seen.get() == other
    finally:
        running.cancel()
        held.set()
        with suppress(asyncio.CancelledError):
            await running
    assert stage.requests.count("secret") == 1, "it is not asked again while it is waited for"
    assert stage.requests.count("other") >= 2


async def test_a_bug_with_one_observer_keeps_no_other_from_being_read(stage: Stage) -> None:
    """What an observer answers is not trusted, and must not end the operator."""
    faulty, other = stage.add_broker("faulty"), stage.add_broker("other")
    stage.answers["other"] = document(broker="other")
    seen: asyncio.Queue[ResourceKey] = asyncio.Queue()
    stage.reader.enqueue = seen.put_nowait

    def is_own(key: ResourceKey) -> bool:
        if key == faulty:
            raise RuntimeError("a bug")
        return True

    stage.reader.is_own = is_own
    running = asyncio.create_task(stage.reader.run(0.01))
    try:
        async with asyncio.timeout(60):
            assert await seen.get() == other
            stage.answers["other"] = document(broker="other", windowEnd="2026-03-01T12:05:00Z")
            assert await seen.get() == other
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def test_observers_that_do_not_answer_take_no_turn_of_others(stage: Stage) -> None:
    """Eight that failed before do not answer; another Broker is read nevertheless."""
    held, arrived = asyncio.Event(), asyncio.Event()
    keys = [stage.add_broker(f"b{number}", port=1) for number in range(8)]
    await asyncio.gather(*(stage.reader.look(key) for key in keys))
    for key in keys:
        stage.reader.findings[key] = BrokerFindings(observer=replace(stage.access, token=key.name))
        stage.answers[key.name] = held
    stage.arrivals[8] = arrived
    stage.answer = document(entry(stage.uid))
    async with asyncio.timeout(60):
        looks = asyncio.gather(*(stage.reader.look(key) for key in keys))
        await arrived.wait()
        await stage.look()
        assert stage.lag()["messages"] == 17
        held.set()
        await looks


@pytest.mark.parametrize("has_failed", [False, True], ids=["that-answered-before", "that-failed-before"])
async def test_observers_that_die_together_keep_nobody_waiting(stage: Stage, has_failed: bool) -> None:
    """Twenty of them take a connection and say nothing; a request lasts fifteen seconds. The one that comes after them
    is asked while all twenty still wait.
    """
    stage.reader = replace(stage.reader, place_seconds=0.05)
    held = asyncio.Event()
    keys = [stage.add_broker(f"b{number}", port=1) for number in range(20)] if has_failed else []
    if has_failed:
        stage.add_broker("main", "secret", port=1)
        await asyncio.gather(*(stage.reader.look(key) for key in (*keys, BROKER)))
    keys = [stage.add_broker(f"b{number}") for number in range(20)]
    stage.add_broker("main", "secret")
    stage.answers.update((key.name, held) for key in keys)
    stage.answer = document(entry(stage.uid))
    async with asyncio.timeout(60):
        looks = [asyncio.create_task(stage.reader.look(key)) for key in keys]
        await asyncio.sleep(0)  # they ask for their places first
        await stage.look()
        assert stage.lag()["messages"] == 17
        assert not any(look.done() for look in looks), "none of them had to be given up before"
        held.set()
        await asyncio.gather(*looks)
