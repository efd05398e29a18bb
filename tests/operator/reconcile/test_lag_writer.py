"""The writes of lag: their order and rate, and what happened to the Subscription while they waited."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from support.api_server_in_memory import ApiServerInMemory
from support.resources import GOOD, NOW
from support.virtual_time import run_in_virtual_time

from penstock_api.resources import Lag, Subscription, parse
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.plans.conditions import ConditionStatus, StatusCondition
from penstock_operator.plans.lag_freshness import LagVerdict
from penstock_operator.reconcile.lag_writer import LagWriter

CURRENT = StatusCondition("LagFresh", ConditionStatus.TRUE, "Current", "The lag is from the newest result.")


def verdict(state: str = "OK", messages: int = 1, seconds: int = 0) -> LagVerdict:
    lag = Lag(
        state=state,
        message="It is so.",
        messages=messages,
        source="Live",
        observed_time=NOW + timedelta(seconds=seconds),
        run_name="live",
        brokers_reporting="1/1",
    )
    return LagVerdict(lag, (CURRENT,))


@dataclass
class Site:
    """An API server and a cache with some Subscriptions, and their writer."""

    api: ApiServerInMemory = field(default_factory=ApiServerInMemory)
    cache: Cache = field(default_factory=Cache)
    enqueued: list[ResourceKey] = field(default_factory=list[ResourceKey])

    def __post_init__(self) -> None:
        self.writer = LagWriter(self.api, self.cache, lambda: NOW, self.enqueued.append)

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
        site.writer.offer(site.subscription(name), verdict())

    async def write() -> None:
        await site.writer.write_all()
        now = asyncio.get_running_loop().time
        began = now()
        for name in names:
            site.writer.offer(site.now(name), verdict(messages=99, seconds=10))
        writing = asyncio.create_task(site.writer.write_all())
        await asyncio.sleep(2.01)
        site.writer.offer(site.now("s99"), verdict("Stalled", seconds=20))
        while not writing.done():
            if site.shown("s99") == "Stalled":
                times.setdefault("s99", now() - began)
            await asyncio.sleep(0.01)
        times["all"] = now() - began

    run_in_virtual_time(write())
    assert site.api.written == 200
    assert times["s99"] < 2.1, "its turn would have been after five seconds"
    assert 4.9 < times["all"] < 5.1


def test_a_subscription_that_is_made_again_does_not_get_the_verdict_of_the_one_before() -> None:
    site = Site()
    site.writer.offer(site.subscription("billing"), verdict())
    site.api.user_deletes("Subscription", "shop", "billing")
    site.cache.remove(ResourceKey("Subscription", "shop", "billing"))
    site.subscription("billing")
    run_in_virtual_time(site.writer.write_all())
    assert site.api.written == 0


def test_a_subscription_that_is_gone_needs_no_write() -> None:
    site = Site()
    site.writer.offer(site.subscription("billing"), verdict())
    site.cache.remove(ResourceKey("Subscription", "shop", "billing"))
    run_in_virtual_time(site.writer.write_all())
    assert site.api.written == 0


def test_what_the_status_says_already_is_not_written_again() -> None:
    """The same verdict was offered once more with a view of the Subscription from before its write."""
    site = Site()
    before = site.subscription("billing")
    for _ in range(2):
        site.writer.offer(before, verdict())
        run_in_virtual_time(site.writer.write_all())
    assert (site.api.written, site.shown("billing")) == (1, "OK")


def test_a_verdict_that_is_not_wanted_any_more_is_not_written() -> None:
    site = Site()
    found = site.subscription("billing")
    site.writer.offer(found, verdict())
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
            site.writer.offer(found, verdict(state))
            await asyncio.sleep(1)
            assert site.shown("billing") == state
        running.cancel()

    run_in_virtual_time(offered_later())


def test_a_reply_that_shows_a_new_spec_is_work() -> None:
    """Nobody told of the change yet; the watch event that comes later has the same version and says nothing new."""
    site = Site()
    site.writer.offer(site.subscription("billing"), verdict())
    site.api.user_applies(
        {
            **GOOD["Subscription"],
            "metadata": {"name": "billing", "namespace": "shop"},
            "spec": {**GOOD["Subscription"]["spec"], "persistence": "AsSent"},
        }
    )
    run_in_virtual_time(site.writer.write_all())
    assert site.enqueued == [ResourceKey("Subscription", "shop", "billing")]
