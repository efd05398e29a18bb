"""A task that is told to end does end, also if its cancellation gets lost on the way.

`asyncio.gather` raises what one of its parts has raised, although the task that waits for it was cancelled in the same
turn of the loop. A worker of an operator that had lost the Lease went on then: the operator waited for it for ever, and
never led again.
"""

from __future__ import annotations

import asyncio

import pytest

from penstock_operator.cluster.api_server import KubeError
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.cluster.controller import Controller
from penstock_operator.cluster.work_queue import Priority
from penstock_operator.metrics import Metrics
from penstock_operator.plans.decisions import Retry
from penstock_operator.tasks import run_until_first_ends


async def test_a_worker_ends_that_was_cancelled_when_a_request_had_just_failed() -> None:
    controller = Controller(Cache(is_complete=True), Metrics(), asyncio.get_running_loop().time)
    has_begun, answered = asyncio.Event(), asyncio.Event()

    async def fail() -> None:
        has_begun.set()
        await answered.wait()
        raise KubeError(500, "broken")

    async def reconcile(_key: ResourceKey) -> Retry:
        await asyncio.gather(fail(), asyncio.Event().wait())
        return Retry.RESYNC

    worker = asyncio.create_task(controller.run_worker(reconcile))
    controller.add(ResourceKey("Broker", "shop", "main"), Priority.CHANGE)
    await has_begun.wait()
    answered.set()
    await asyncio.sleep(0)  # the request has failed, and gather has not heard of it
    worker.cancel()
    await asyncio.wait([worker], timeout=60)
    assert worker.cancelled()


async def test_a_task_that_goes_on_after_it_was_cancelled_is_cancelled_again() -> None:
    lost: list[str] = []

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if lost:
                    raise
                lost.append("once")

    async def ends() -> None:
        await asyncio.sleep(0)

    async with asyncio.timeout(60):
        assert await run_until_first_ends(stubborn(), ends(), cancel_again_seconds=0.01) == 1
    assert lost == ["once"]


async def test_what_a_task_raises_while_it_is_ended_is_raised() -> None:
    async def fails_at_its_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise KubeError(500, "broken")

    async def ends() -> None:
        await asyncio.sleep(0)

    with pytest.raises(KubeError, match="broken"):
        await run_until_first_ends(fails_at_its_end(), ends())
