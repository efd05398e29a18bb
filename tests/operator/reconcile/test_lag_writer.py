"""The writes of lag: their order and rate, and what happened to the Subscription while they waited."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.api_server_in_memory import ApiServerInMemory
from support.faulty_api_server import Fault, FaultyApiServer
from support.resources import GOOD, NOW
from support.virtual_time import run_in_virtual_time

from penstock_api.resources import Lag, Subscription, parse
from penstock_operator.cluster.api_server import ApiServer, KubeError
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.manifest import Manifest, dig
from penstock_operator.plans.conditions import ConditionStatus, StatusCondition
from penstock_operator.plans.lag_freshness import LagUpdate
from penstock_operator.reconcile.lag_writer import LagWriter

CURRENT = StatusCondition("LagFresh", ConditionStatus.TRUE, "Current", "The lag is from the newest result.")


def update(state: str = "OK", messages: int = 1, seconds: int = 0) -> LagUpdate:
    lag = Lag(
        state=state,
        message="It is so.",
        messages=messages,
        source="Live",
        observed_time=NOW + timedelta(seconds=seconds),
        run_name="live",
        brokers_reporting="1/1",
    )
    return LagUpdate(lag, (CURRENT,))


@dataclass
class Site:
    """An API server and a cache with some Subscriptions, and their writer."""

    api: ApiServerInMemory = field(default_factory=ApiServerInMemory)
    cache: Cache = field(default_factory=Cache)
    enqueued: list[ResourceKey] = field(default_factory=list[ResourceKey])

    def __post_init__(self) -> None:
        self.writer = LagWriter(self.api, self.cache, lambda: NOW, self.enqueued.append, lambda: False)

    def subscription(self, name: str) -> Subscription:
        """A new Subscription, which the operator has seen."""
        self.api.user_applies({**GOOD["Subscription"], "metadata": {"name": name, "namespace": "shop"}})
        self.cache.put(copy.deepcopy(self.api.objects["Subscription", "shop", name]))
        return self.now(name)

    def now(self, name: str) -> Subscription:
        found = parse(self.api.objects["Subscription", "shop", name])
        assert isinstance(found, Subscription)
        return found

    def shown(self, name: str) -> Any:
        return self.api.objects["Subscription", "shop", name].get("status", {}).get("lag", {}).get("state")


def test_twenty_a_second_and_a_state_that_changes_meanwhile_goes_first() -> None:
    site, times = Site(), dict[str, float]()
    names = [f"s{number}" for number in range(100)]
    for name in names:
        site.writer.offer(site.subscription(name), update())

    async def write() -> None:
        await site.writer.write_all()
        now = asyncio.get_running_loop().time
        began = now()
        for name in names:
            site.writer.offer(site.now(name), update(messages=99, seconds=10))
        writing = asyncio.create_task(site.writer.write_all())
        await asyncio.sleep(2.01)
        site.writer.offer(site.now("s99"), update("Stalled", seconds=20))
        while not writing.done():
            if site.shown("s99") == "Stalled":
                times.setdefault("s99", now() - began)
            await asyncio.sleep(0.01)
        times["all"] = now() - began

    run_in_virtual_time(write())
    assert site.api.written == 200
    assert times["s99"] < 2.1, "its turn would have been after five seconds"
    assert 4.9 < times["all"] < 5.1


def test_a_subscription_that_is_made_again_does_not_get_the_update_of_the_one_before() -> None:
    site = Site()
    site.writer.offer(site.subscription("billing"), update())
    site.api.user_deletes("Subscription", "shop", "billing")
    site.cache.remove(ResourceKey("Subscription", "shop", "billing"))
    site.subscription("billing")
    run_in_virtual_time(site.writer.write_all())
    assert site.api.written == 0


def test_a_subscription_that_is_gone_needs_no_write() -> None:
    site = Site()
    site.writer.offer(site.subscription("billing"), update())
    site.cache.remove(ResourceKey("Subscription", "shop", "billing"))
    run_in_virtual_time(site.writer.write_all())
    assert site.api.written == 0


def test_what_the_status_says_already_is_not_written_again() -> None:
    """The same update was offered once more with a view of the Subscription from before its write."""
    site = Site()
    before = site.subscription("billing")
    for _ in range(2):
        site.writer.offer(before, update())
        run_in_virtual_time(site.writer.write_all())
    assert (site.api.written, site.shown("billing")) == (1, "OK")


def test_an_update_that_is_not_wanted_any_more_is_not_written() -> None:
    site = Site()
    found = site.subscription("billing")
    site.writer.offer(found, update())
    site.writer.offer(found, None)
    run_in_virtual_time(site.writer.write_all())
    assert site.api.written == 0


def test_the_run_of_a_task_writes_what_is_offered_later() -> None:
    site = Site()
    found = site.subscription("billing")

    async def offered_later() -> None:
        running = asyncio.create_task(site.writer.run())
        for state in ("OK", "Stalled"):
            await asyncio.sleep(1)
            site.writer.offer(found, update(state))
            await asyncio.sleep(1)
            assert site.shown("billing") == state
        running.cancel()

    run_in_virtual_time(offered_later())


def test_a_reply_that_shows_a_new_spec_is_work() -> None:
    """Nobody told of the change yet; the watch event that comes later has the same version and says nothing new."""
    site = Site()
    site.writer.offer(site.subscription("billing"), update())
    site.api.user_applies(
        {
            **GOOD["Subscription"],
            "metadata": {"name": "billing", "namespace": "shop"},
            "spec": {**GOOD["Subscription"]["spec"], "persistence": "AsSent"},
        }
    )
    run_in_virtual_time(site.writer.write_all())
    assert site.enqueued == [ResourceKey("Subscription", "shop", "billing")]


def test_while_the_api_server_has_too_much_to_do_no_lag_is_written() -> None:
    """What was not written is offered again by the next round."""
    api = FaultyApiServer(retry_after_seconds=5, faults=[None, Fault(429, False)])
    site = Site(api)
    for name in ("a", "b", "c"):
        site.writer.offer(site.subscription(name), update())
    times: list[float] = []

    async def write() -> None:
        await site.writer.write_all()
        times.append(asyncio.get_running_loop().time())

    run_in_virtual_time(write())
    assert [site.shown(name) for name in ("a", "b", "c")].count("OK") == 2
    # 10 ms between writes: the second fails, the third comes after the pause.
    assert [round(at, 3) for at in times] == [5.01]


@dataclass(slots=True)
class Answering(ApiServerInMemory):
    """An API server that needs a time for each write, and counts those that are on the way."""

    seconds: float = 0.005
    on_the_way: list[str] = field(default_factory=list[str])
    most: int = 0
    order: list[str] = field(default_factory=list[str])
    """Names of what was written."""

    async def apply_status(
        self, resource: Manifest, status: Manifest, manager: str, *, unchanged: bool = False
    ) -> Manifest:
        name = str(dig(resource, "metadata", "name"))
        assert name not in self.on_the_way, "two writes of one resource could arrive in the wrong order"
        self.on_the_way.append(name)
        self.order.append(name)
        self.most = max(self.most, len(self.on_the_way))
        await asyncio.sleep(self.seconds)
        self.on_the_way.remove(name)
        return await ApiServerInMemory.apply_status(self, resource, status, manager, unchanged=unchanged)


def offered(count: int, *, seconds: float, states: bool) -> tuple[Answering, float]:
    """The API server, and the time in which it has got so many new states or figures."""
    api = Answering(seconds=seconds)
    site = Site(api)
    names = [f"s{number}" for number in range(count)]
    for name in names:
        site.subscription(name)
    if not states:
        for name in names:
            site.writer.offer(site.now(name), update())
        run_in_virtual_time(site.writer.write_all())
        site.writer = LagWriter(api, site.cache, lambda: NOW, site.enqueued.append, lambda: False)
        api.written = 0
        api.order.clear()

    async def write() -> float:
        for name in names:
            site.writer.offer(site.now(name), update(messages=99, seconds=10))
        await site.writer.write_all()
        return asyncio.get_running_loop().time()

    took = run_in_virtual_time(write())
    assert (api.written, len(set(api.order))) == (count, count)
    return api, took


@pytest.mark.parametrize(
    ("seconds", "at_most", "on_the_way"),
    [
        pytest.param(0.005, 101, 1, id="an-API-server-that-answers-soon-needs-no-second-one"),
        pytest.param(0.045, 101, 5, id="five-are-enough-for-45-ms"),
        pytest.param(0.1, 128, 8, id="a-busy-one-gets-eight"),
    ],
)
def test_ten_thousand_states_are_written_within_two_minutes(seconds: float, at_most: float, on_the_way: int) -> None:
    api, took = offered(10_000, seconds=seconds, states=True)
    assert 99 < took < at_most
    assert api.most == on_the_way


def test_a_slow_api_server_has_one_write_on_the_way() -> None:
    api, took = offered(50, seconds=0.6, states=True)
    assert (api.most, round(took)) == (1, 30)


def test_figures_keep_to_twenty_a_second() -> None:
    _, took = offered(1_000, seconds=0.005, states=False)
    assert 49 < took < 51


def test_what_is_offered_during_a_write_of_the_same_resource_is_written_after_it() -> None:
    api = Answering(seconds=1)
    site = Site(api)
    found = site.subscription("billing")

    async def write() -> None:
        site.writer.offer(found, update("OK"))
        writing = asyncio.create_task(site.writer.write_all())
        await asyncio.sleep(0.5)
        site.writer.offer(found, update("OK"))
        site.writer.offer(found, update("Stalled"))
        await writing

    run_in_virtual_time(write())
    assert (api.order, site.shown("billing")) == (["billing", "billing"], "Stalled")


def test_after_a_refusal_one_write_is_on_the_way_again_and_nothing_begins_before_the_time_that_it_names() -> None:
    api = Answering(seconds=0.1)
    site = Site(api)
    names = [f"s{number:03}" for number in range(200)]
    for name in names:
        site.writer.offer(site.subscription(name), update())
    began: list[float] = []

    async def refused(*_: object) -> Manifest:
        raise KubeError(429, "too many", retry_after_seconds=7)

    async def write() -> None:
        now = asyncio.get_running_loop().time
        writing = asyncio.create_task(site.writer.write_all())
        while api.most < 8:
            await asyncio.sleep(0.01)
        site.writer.kube = cast(ApiServer, SimpleNamespace(apply_status=refused))
        while site.writer.window.limit > 1:
            await asyncio.sleep(0.001)
        at, already = now(), len(api.order)
        site.writer.kube, api.most = api, 0
        await asyncio.sleep(6.9)
        assert len(api.order) == already, "nothing has begun"
        while len(api.order) == already:
            await asyncio.sleep(0.001)
        began.append(now() - at)
        await asyncio.sleep(0.05)
        assert len(api.on_the_way) == 1
        await writing

    run_in_virtual_time(write())
    assert [round(seconds, 1) for seconds in began] == [7.0]


def test_declarations_go_first() -> None:
    site, times = Site(), list[float]()
    for number in range(20):
        site.writer.offer(site.subscription(f"s{number}"), update())

    async def write() -> None:
        now = asyncio.get_running_loop().time
        site.writer.is_declaring = lambda: now() < 25
        writing = asyncio.create_task(site.writer.write_all())
        await asyncio.sleep(24.9)
        times.append(site.api.written)
        await writing
        times.append(now())

    run_in_virtual_time(write())
    assert times[0] == 0
    assert 25 < times[1] < 26
    assert site.api.written == 20


def test_declarations_that_never_end_do_not_keep_lag_from_being_written() -> None:
    site = Site()
    for number in range(500):
        site.writer.offer(site.subscription(f"s{number}"), update())
    site.writer.is_declaring = lambda: True

    async def write() -> float:
        await site.writer.write_all()
        return asyncio.get_running_loop().time()

    assert 60 < run_in_virtual_time(write()) < 90
    assert site.api.written == 500
