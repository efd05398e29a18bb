"""A thread for what must not wait behind the operator's other work."""

from __future__ import annotations

import asyncio
import threading

import pytest

from penstock_operator.cluster.own_thread import OwnThread


async def test_it_goes_on_while_the_other_loop_stands_still() -> None:
    aside, went_on = OwnThread("aside"), threading.Event()

    async def go_on() -> str:
        for _ in range(10):  # as many turns of its loop as a request takes
            await asyncio.sleep(0)
        went_on.set()
        return threading.current_thread().name

    running = asyncio.create_task(aside.run(go_on()))
    await asyncio.sleep(0)
    # This blocks the loop of the test until the other one has done its work.
    assert went_on.wait(timeout=60)
    assert await running == "aside"
    aside.end()


async def test_it_hands_over_results_and_errors() -> None:
    aside = OwnThread("aside")

    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await aside.run(fail())
    assert await aside.run(asyncio.sleep(0, "well")) == "well"
    aside.end()


async def test_who_is_cancelled_cancels_what_runs_there() -> None:
    aside, begun, cancelled = OwnThread("aside"), threading.Event(), threading.Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    running = asyncio.create_task(aside.run(wait()))
    await asyncio.sleep(0)
    assert begun.wait(timeout=60)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert cancelled.wait(timeout=60)
    aside.end()


async def test_after_its_end_nothing_runs_there() -> None:
    aside = OwnThread("aside")
    left = asyncio.create_task(aside.run(asyncio.sleep(3600)))
    await asyncio.sleep(0)
    aside.end()
    assert "aside" not in {thread.name for thread in threading.enumerate()}
    left.cancel()
