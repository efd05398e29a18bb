"""What the lag reader has written of what it reads, how fast, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.lag_stage import BROKER, NOW, Stage, document, entry, lag_stage

from penstock_operator.cluster.cache import Cache
from penstock_operator.reconcile.write_pace import WritePace


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with lag_stage(tmp_path) as made:
        yield made


class CountedPace(WritePace):
    """A pace without pauses that counts the writes."""

    writes = 0

    def wait(self, now: float) -> float:
        CountedPace.writes += 1
        return 0.0


async def test_every_write_keeps_the_pace(stage: Stage) -> None:
    CountedPace.writes = 0
    stage.reader.writer.pace = CountedPace(20)
    for number in range(3):
        stage.add_subscription(f"s{number}")
    stage.answer = document(entry(stage.uid))
    await stage.rounds(3, timedelta(seconds=5))
    assert (stage.api.written, CountedPace.writes) == (4, 4)


class HeldPace(WritePace):
    """A pace that lets no write happen before the test says so."""

    def __init__(self) -> None:
        super().__init__(20)
        self.is_held = True

    def wait(self, now: float) -> float:
        return 3600.0 if self.is_held else 0.0


async def test_reading_does_not_wait_for_writing_and_the_newest_update_is_written(stage: Stage) -> None:
    stage.answer = document()
    pace = stage.reader.writer.pace = HeldPace()
    stage.polled(0, state="OK")
    await stage.reader.look(BROKER)
    writing = asyncio.create_task(stage.reader.writer.run())
    stage.polled(10, state="Stalled")
    await stage.reader.look(BROKER)
    assert stage.lag() is None, "the first write has not happened yet"
    writing.cancel()
    with suppress(asyncio.CancelledError):
        await writing
    pace.is_held = False
    await stage.reader.writer.write_all()
    assert (stage.lag()["state"], stage.api.written) == ("Stalled", 1)


async def test_states_are_written_before_figures(stage: Stage) -> None:
    names = [f"s{number}" for number in range(4)]
    uids = {name: stage.add_subscription(name) for name in names}

    def polled(seconds: int, **messages: tuple[int, str]) -> None:
        stage.now = NOW + timedelta(seconds=seconds)
        moment = stage.now.isoformat()
        found = [
            entry(
                uids[name],
                ownerName=name,
                queueName=f"psub:durable:global:{name}",
                observedTime=moment,
                messages=count,
                state=state,
            )
            for name, (count, state) in messages.items()
        ]
        stage.live = document(*found, runName="live", windowEnd=moment)

    stage.answer = document()
    polled(0, s0=(1, "OK"), s1=(1, "OK"), s2=(1, "OK"), s3=(1, "OK"))
    await stage.look()
    order: list[str] = []
    stage.reader.writer.cache = Watched(stage.reader.cache, order)  # type: ignore[assignment]
    polled(10, s0=(99, "OK"), s1=(1, "OK"), s2=(99, "Stalled"), s3=(1, "Unconsumed"))
    await stage.look()
    assert (sorted(order[:2]), order[2:]) == (["s2", "s3"], ["s0"])


class Watched:
    """A cache that notes the names of what is put into it."""

    def __init__(self, cache: Cache, order: list[str]) -> None:
        self.get = cache.get
        self._cache, self._order = cache, order

    def put(self, manifest: Any) -> None:
        self._order.append(manifest["metadata"]["name"])
        self._cache.put(manifest)


async def test_of_a_thousand_only_those_that_changed_beyond_the_dead_band_are_written(stage: Stage) -> None:
    """At twenty writes a second 10,000 would take more than eight minutes, so nothing may be written for nothing."""
    stage.reader.writer.pace = CountedPace(20)
    uids = [stage.add_subscription(f"s{number}") for number in range(1_000)]

    def polled(seconds: int, messages: dict[int, int], stalled: range = range(0)) -> None:
        stage.now = NOW + timedelta(seconds=seconds)
        moment = stage.now.isoformat()
        found = [
            entry(
                uid,
                ownerName=f"s{number}",
                queueName=f"psub:durable:global:s{number}",
                observedTime=moment,
                messages=messages.get(number, 1000),
                state="Stalled" if number in stalled else "OK",
            )
            for number, uid in enumerate(uids)
        ]
        stage.live = document(entry(stage.uid, observedTime=moment), *found, runName="live", windowEnd=moment)

    async def written() -> int:
        before = stage.api.written
        await stage.look()
        return stage.api.written - before

    stage.answer = document()
    polled(0, {})
    assert await written() == 1_001
    polled(10, {})
    assert await written() == 0, "nothing has changed but the time"
    polled(20, dict.fromkeys(range(300), 1009))
    assert await written() == 0, "less than ten messages"
    polled(30, dict.fromkeys(range(20), 1010), stalled=range(995, 1_000))
    assert await written() == 25
    polled(60, {number: 1001 if number >= 20 else 1010 for number in range(30)}, stalled=range(995, 1_000))
    assert await written() == 10, "what differs at all is written when it is a minute old"
