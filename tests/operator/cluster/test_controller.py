"""What the controller does when the API server says that it has too much to do, or can't list."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import cast

import pytest
from support.resources import GOOD
from support.virtual_time import run_in_virtual_time

from penstock_operator.cluster.api_server import ApiResource, ApiServer
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.cluster.controller import Controller
from penstock_operator.cluster.server_errors import KubeError
from penstock_operator.cluster.work_queue import Priority
from penstock_operator.manifest import Manifest
from penstock_operator.metrics import Metrics
from penstock_operator.plans.decisions import Retry

A, B = ResourceKey("Exchange", "shop", "a"), ResourceKey("Exchange", "shop", "b")


def now() -> float:
    return asyncio.get_running_loop().time()


async def passes(answer: KubeError, seconds: float) -> list[tuple[float, str]]:
    """When which resource was reconciled; the first pass of all gets this answer. B comes 1 s later."""
    controller = Controller(Cache(is_complete=True), Metrics(), now)
    done: list[tuple[float, str]] = []

    async def reconcile(key: ResourceKey) -> Retry:
        done.append((now(), key.name))
        if len(done) == 1:
            raise answer
        return Retry.RESYNC

    worker = asyncio.create_task(controller.run_worker(reconcile))
    controller.add(A, Priority.CHANGE)
    await asyncio.sleep(1)
    controller.add(B, Priority.CHANGE)
    await asyncio.sleep(seconds)
    worker.cancel()
    return done


def test_after_too_many_requests_nothing_is_asked_until_the_time_that_the_server_named() -> None:
    answer = KubeError(429, "Too many requests", retry_after_seconds=5)
    assert run_in_virtual_time(passes(answer, 20)) == [(0, "a"), (5, "b"), (6, "a")]


def test_after_too_many_requests_without_a_time_it_is_a_second() -> None:
    assert run_in_virtual_time(passes(KubeError(429, "Too many requests"), 20)) == [(0, "a"), (1, "b"), (2, "a")]


def test_another_error_that_names_a_time_concerns_one_resource() -> None:
    answer = KubeError(503, "starting", retry_after_seconds=5)
    assert run_in_virtual_time(passes(answer, 20)) == [(0, "a"), (1, "b"), (6, "a")]


class Overloaded:
    """Its first list fails."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    async def list(
        self, kind: ApiResource, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> AsyncIterator[Manifest]:
        if kind.kind == "Broker":
            self.asked.append(now())
            if len(self.asked) == 1:
                raise KubeError(429, "Too many requests", retry_after_seconds=30)
        for manifest in [GOOD[kind.kind]] if kind.kind in GOOD else []:
            yield manifest


def test_a_list_waits_as_long_as_the_server_asks() -> None:
    async def listed() -> list[float]:
        api = Overloaded()
        controller = Controller(Cache(), Metrics(), now)

        async def nothing() -> None:
            return

        task = asyncio.create_task(controller.resync(cast(ApiServer, api), (), 120, nothing))
        await asyncio.sleep(100)
        task.cancel()
        return api.asked

    assert run_in_virtual_time(listed()) == [0, 30]


def test_without_one_kind_the_deletions_of_the_others_are_seen() -> None:
    """Somebody removes all CRDs: that of the Brokers is gone, and one Subscription still has the finalizer."""

    async def seen() -> tuple[bool, bool, bool]:
        removed = False

        class Removed:
            async def list(
                self, kind: ApiResource, namespace: str | None = None, labels: str = "", fields: str = ""
            ) -> AsyncIterator[Manifest]:
                if removed and kind.kind == "Broker":
                    raise KubeError(404, "404 page not found")
                for manifest in [GOOD[kind.kind]] if kind.kind in GOOD else []:
                    about = cast(Manifest, manifest["metadata"])
                    deleted = {"deletionTimestamp": "2026-07-24T12:00:00Z", "resourceVersion": "9"} if removed else {}
                    yield {**manifest, "metadata": {**about, **deleted}}

        api = cast(ApiServer, Removed())
        controller = Controller(Cache(), Metrics(), now)
        await controller.list_all(api, ())
        controller.begin_anew()
        listed, removed = controller.last_listed, True
        await asyncio.sleep(1)
        with pytest.raises(KubeError, match="404 page not found"):
            await controller.list_all(api, ())
        keys = iter(lambda: controller.queue.take(now()), None)
        found = {key.kind for key in keys}
        return "Subscription" in found, bool(controller.cache.all("Broker")), controller.last_listed == listed

    assert run_in_virtual_time(seen()) == (True, True, True)


class WithoutCrds(Overloaded):
    """Its second list gets this error, as when somebody has removed the CRDs."""

    def __init__(self, error: KubeError) -> None:
        super().__init__()
        self.error = error

    async def list(
        self, kind: ApiResource, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> AsyncIterator[Manifest]:
        if kind.kind == "Broker":
            self.asked.append(now())
            if len(self.asked) == 2:
                raise self.error
        for manifest in [GOOD[kind.kind]] if kind.kind in GOOD else []:
            yield manifest


@pytest.mark.parametrize(("status", "seconds"), [(404, 40), (503, 10)])
def test_the_watches_wait_until_no_kind_is_missing(
    status: int, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    """They ask after ten seconds. Another error says nothing about the kinds."""

    async def waited() -> float:
        api = WithoutCrds(KubeError(status, "page not found", retry_after_seconds=30))
        controller = Controller(Cache(), Metrics(), now)

        async def nothing() -> None:
            return

        task = asyncio.create_task(controller.resync(cast(ApiServer, api), (), 120, nothing))
        await asyncio.sleep(10)
        await controller.wait_for_kinds()
        task.cancel()
        return now()

    assert run_in_virtual_time(waited()) == seconds
    said = (
        "the API server does not know a kind (page not found): its CRD was never installed, or was removed, "
        "and all resources of the kind with it. Install the CRDs of this release; until then changes are found by "
        "lists, every few seconds"
    )
    assert (said in caplog.messages) == (status == 404)


def test_a_kind_that_is_missing_for_weeks_is_logged_once_and_so_is_its_return(caplog: pytest.LogCaptureFixture) -> None:
    """One CRD after the other is removed, and all are installed again."""
    gone = {0: "", 100: "brokers", 1000: "queues", 10_000: ""}

    class Removed(Overloaded):
        async def list(
            self, kind: ApiResource, namespace: str | None = None, labels: str = "", fields: str = ""
        ) -> AsyncIterator[Manifest]:
            self.asked.append(now())
            missing = [name for since, name in gone.items() if since <= now()][-1]
            if missing == kind.plural:
                raise KubeError(404, f"GET {missing}: page not found")
            for manifest in [GOOD[kind.kind]] if kind.kind in GOOD else []:
                yield manifest

    async def logged() -> int:
        api = Removed()
        controller = Controller(Cache(), Metrics(), now)

        async def nothing() -> None:
            return

        task = asyncio.create_task(controller.resync(cast(ApiServer, api), (), 120, nothing))
        await asyncio.sleep(11_000)
        task.cancel()
        return len(api.asked)

    caplog.set_level(logging.INFO)
    assert run_in_virtual_time(logged()) > 4 * 1900, "it is listed every few seconds"
    assert [(record.levelname, record.getMessage()[:62]) for record in caplog.records] == [
        ("WARNING", "the API server does not know a kind (GET brokers: page not fou"),
        ("WARNING", "the API server does not know a kind (GET queues: page not foun"),
        ("INFO", "the API server knows all kinds again"),
    ]


@pytest.mark.parametrize("turns", range(6))
def test_a_worker_that_is_ended_while_a_key_comes_has_ended(turns: int) -> None:
    """`turns`: so many turns of the loop pass between the two."""

    async def ended() -> bool:
        controller = Controller(Cache(is_complete=True), Metrics(), now)
        controller.add(A, Priority.CHANGE, delay=60)

        async def reconcile(_: ResourceKey) -> Retry:
            return Retry.RESYNC

        worker = asyncio.create_task(controller.run_worker(reconcile))
        await asyncio.sleep(1)
        controller.add(B, Priority.CHANGE, delay=60)
        for _ in range(turns):
            await asyncio.sleep(0)
        worker.cancel()
        await asyncio.sleep(1)
        return worker.cancelled()

    assert run_in_virtual_time(ended())


def test_who_leads_anew_knows_nothing_of_what_was_under_way() -> None:
    """A pass that was ended in the middle would keep its resource for ever."""

    async def story() -> list[str]:
        controller = Controller(Cache(is_complete=True), Metrics(), now)
        done: list[str] = []

        async def hang(_: ResourceKey) -> Retry:
            await asyncio.Event().wait()
            return Retry.RESYNC

        async def reconcile(key: ResourceKey) -> Retry:
            done.append(key.name)
            return Retry.RESYNC

        worker = asyncio.create_task(controller.run_worker(hang))
        controller.add(A, Priority.CHANGE)
        await asyncio.sleep(1)
        worker.cancel()
        assert list(controller.started) == [A]
        controller.begin_anew()
        assert list(controller.started) == []
        controller.add(A, Priority.RESYNC)
        again = asyncio.create_task(controller.run_worker(reconcile))
        await asyncio.sleep(1)
        again.cancel()
        return done

    assert run_in_virtual_time(story()) == ["a"]


def test_who_leads_no_more_leaves_no_broker_to_others() -> None:
    """Else the last count would stay until it leads again, beside that of the operator that leads meanwhile."""
    metrics = Metrics()
    controller = Controller(Cache(is_complete=True), metrics, now)
    metrics.left_to_others.set_function(lambda: 3)
    assert "\npenstock_operator_brokers_of_others 3.0\n" in metrics.expose().decode()
    controller.begin_anew()
    assert "\npenstock_operator_brokers_of_others 0.0\n" in metrics.expose().decode()
