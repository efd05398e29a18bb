"""A pass that hangs is ended at its deadline, told and repeated, and holds up nobody else. Time is virtual."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from support.virtual_time import run_in_virtual_time

from penstock_operator.cluster.api_server import ApiResource, ApiServer
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.cluster.controller import Controller
from penstock_operator.cluster.pass_deadline import PassOverdue, within
from penstock_operator.cluster.work_queue import Priority
from penstock_operator.metrics import Metrics
from penstock_operator.plans.decisions import Retry
from penstock_operator.reconcile.cluster_facts import ClusterFacts

A, B = ResourceKey("Exchange", "shop", "a"), ResourceKey("Exchange", "shop", "b")
CONTROLLER = "penstock_operator.cluster.controller"


def now() -> float:
    return asyncio.get_running_loop().time()


def clock() -> datetime:
    return datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=now())


class Silent:
    """An API server that does not answer the first `count` questions, and nothing ends them."""

    def __init__(self, count: int) -> None:
        self.left = count

    async def serves(self, kind: ApiResource) -> bool:
        self.left -= 1
        if self.left >= 0:
            await asyncio.Event().wait()
        return True


async def run(
    reconcile: Callable[[ResourceKey], Awaitable[Retry]], *keys: ResourceKey, seconds: float, workers: int = 1
) -> Metrics:
    """What the metrics say of an operator that reconciles these keys, a minute one after the other, for so long."""
    controller = Controller(Cache(is_complete=True), Metrics(), now)
    tasks = [asyncio.create_task(controller.run_worker(reconcile)) for _ in range(workers)]
    for place, key in enumerate(keys):
        controller.add(key, Priority.CHANGE, delay=place * 60)
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return controller.metrics


def counted(metrics: Metrics, result: str) -> float:
    found = metrics.registry.get_sample_value("penstock_operator_passes_total", {"kind": "Exchange", "result": result})
    return found or 0.0


def test_a_pass_that_hangs_is_ended_counted_and_repeated_with_growing_delays() -> None:
    begun: list[float] = []

    async def hang(_: ResourceKey) -> Retry:
        begun.append(now())
        if len(begun) < 4:
            await asyncio.Event().wait()
        return Retry.RESYNC

    metrics = run_in_virtual_time(run(hang, A, seconds=1000))
    assert begun == [0, 121, 243, 367]
    assert (counted(metrics, "overdue"), counted(metrics, "done")) == (3, 1)


def test_the_log_names_the_resource_the_step_and_the_line(caplog: pytest.LogCaptureFixture) -> None:
    async def ask(_: ResourceKey) -> Retry:
        await ClusterFacts(cast(ApiServer, Silent(1)), clock).changed(with_issuer=False)
        return Retry.RESYNC

    with caplog.at_level(logging.ERROR, CONTROLLER):
        run_in_virtual_time(run(ask, A, seconds=130))
    (record,) = caplog.records
    said = record.getMessage()
    assert said.startswith(
        "the reconcile of Exchange shop/a was ended because it took longer than 120 s, and is repeated in 1.0 s; it "
        "stood in changed > spark_installed at reconcile/cluster_facts.py:"
    )
    assert said.endswith(
        '`self._spark = self.clock(), await self.kube.serves(API_RESOURCES["ScheduledSparkApplication"])`'
    )


def test_the_worker_goes_on_with_others_and_they_come_first() -> None:
    done: list[tuple[float, str]] = []

    async def hang_at_a(key: ResourceKey) -> Retry:
        done.append((now(), key.name))
        if key == A:
            await asyncio.Event().wait()
        return Retry.RESYNC

    run_in_virtual_time(run(hang_at_a, A, B, seconds=200))
    assert done == [(0, "a"), (120, "b"), (121, "a")]


def test_who_waits_for_the_same_answer_gets_it() -> None:
    """The first one asks the API server for both, and hangs; the second one asks when the first has been ended."""
    facts: list[ClusterFacts] = []
    done: list[tuple[float, str]] = []

    async def ask(key: ResourceKey) -> Retry:
        if not facts:
            facts.append(ClusterFacts(cast(ApiServer, Silent(1)), clock))
        await facts[0].spark_installed()
        done.append((now(), key.name))
        return Retry.RESYNC

    metrics = run_in_virtual_time(run(ask, A, B, seconds=150, workers=2))
    assert done == [(120, "b"), (121, "a")]
    assert counted(metrics, "overdue") == 1


def test_a_pass_in_time_is_not_touched() -> None:
    async def last() -> float:
        async def wait() -> float:
            await asyncio.sleep(119)
            return now()

        found = await within(120, wait())
        await asyncio.sleep(10)
        return found

    assert run_in_virtual_time(last()) == 119


def test_a_time_out_of_its_own_is_the_pass_s_error() -> None:
    async def time_out() -> None:
        async with asyncio.timeout(1):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        run_in_virtual_time(within(120, time_out()))


def test_what_ends_the_operator_is_no_deadline() -> None:
    async def ended() -> bool:
        task = asyncio.create_task(within(120, asyncio.Event().wait()))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return task.cancelled()

    assert run_in_virtual_time(ended())


def test_it_says_so_if_none_of_the_operator_s_functions_waits() -> None:
    with pytest.raises(PassOverdue, match="outside of the operator's own code"):
        run_in_virtual_time(within(1, asyncio.sleep(2)))
