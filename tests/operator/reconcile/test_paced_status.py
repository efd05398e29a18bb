"""The writes of what all resources of a Broker say at the same time: their rate, and what happens while they wait."""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from dataclasses import dataclass, field

import pytest
from support.api_server_in_memory import ApiServerInMemory
from support.faulty_api_server import Fault, FaultyApiServer
from support.operator_in_memory import World, resource
from support.resources import GOOD, NOW
from support.virtual_time import run_in_virtual_time

from penstock_api.resources import Subscription
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.manifest import Manifest
from penstock_operator.plans.conditions import ConditionStatus, StatusCondition
from penstock_operator.plans.decisions import Report
from penstock_operator.reconcile.paced_status import PacedStatus

MAIN = ResourceKey("Broker", "shop", "main")
AWAY = Report((StatusCondition("Ready", ConditionStatus.UNKNOWN, "BrokerUnreachable", "It is away."),), {})
BACK = Report((StatusCondition("Ready", ConditionStatus.TRUE, "Ready", "It is there."),), {})


@dataclass
class Site:
    """An API server and a cache with some Subscriptions, and their writer."""

    api: ApiServerInMemory = field(default_factory=ApiServerInMemory)
    cache: Cache = field(default_factory=Cache)
    enqueued: list[ResourceKey] = field(default_factory=list[ResourceKey])

    def __post_init__(self) -> None:
        self.paced = PacedStatus(self.api, self.cache, lambda: NOW, self.enqueued.append, lambda: False)

    def subscription(self, name: str) -> tuple[ResourceKey, Subscription]:
        """A new Subscription, which the operator has seen."""
        self.api.user_applies({**GOOD["Subscription"], "metadata": {"name": name, "namespace": "shop"}})
        self.cache.put(copy.deepcopy(self.api.objects["Subscription", "shop", name]))
        return self.seen(name)

    def seen(self, name: str) -> tuple[ResourceKey, Subscription]:
        key = ResourceKey("Subscription", "shop", name)
        entry = self.cache.get(key)
        assert entry is not None
        assert isinstance(entry.resource, Subscription)
        return key, entry.resource

    def reasons(self) -> Counter[str]:
        shown = [it.get("status", {}).get("conditions", [{"reason": ""}])[0] for it in self.api.objects.values()]
        return Counter(str(it["reason"]) for it in shown)


def test_a_hundred_a_second_without_events_and_none_for_what_is_over_before_its_turn() -> None:
    site = Site()
    names = [f"s{number}" for number in range(500)]

    async def outage() -> None:
        for name in names:
            site.paced.offer(*site.subscription(name), AWAY)
        running = asyncio.create_task(site.paced.run())
        await asyncio.sleep(2.005)
        assert site.reasons() == {"BrokerUnreachable": 201, "": 299}
        for name in names:
            key, seen = site.seen(name)
            if seen.status.conditions:
                site.paced.offer(key, seen, BACK)
            else:
                site.paced.withdraw(key)
        await asyncio.sleep(3)
        assert site.reasons() == {"Ready": 201, "": 299}
        running.cancel()

    run_in_virtual_time(outage())
    assert site.api.writes == {"Subscription": 402}


def test_what_the_status_says_already_uses_up_nothing_of_the_rate() -> None:
    site = Site()

    async def write() -> float:
        for name in ("a", "b"):
            site.paced.offer(*site.subscription(name), AWAY)
        await site.paced.write_all()
        began = asyncio.get_running_loop().time()
        for name in ("a", "b"):
            site.paced.offer(*site.seen(name), AWAY)
        await site.paced.write_all()
        return asyncio.get_running_loop().time() - began

    assert run_in_virtual_time(write()) == 0
    assert site.api.written == 2


def test_another_resource_of_the_name_or_another_spec_does_not_get_it() -> None:
    site = Site()
    for name in ("again", "edited", "gone"):
        site.paced.offer(*site.subscription(name), AWAY)
    site.api.user_deletes("Subscription", "shop", "again")
    site.cache.remove(ResourceKey("Subscription", "shop", "again"))
    site.subscription("again")
    site.cache.remove(ResourceKey("Subscription", "shop", "gone"))
    spec = {**GOOD["Subscription"]["spec"], "persistence": "AsSent"}
    site.api.user_applies({**GOOD["Subscription"], "metadata": {"name": "edited", "namespace": "shop"}, "spec": spec})
    site.cache.put(copy.deepcopy(site.api.objects["Subscription", "shop", "edited"]))
    run_in_virtual_time(site.paced.write_all())
    assert site.api.written == 0


def test_one_that_is_refused_does_not_stop_the_others_and_a_newer_spec_is_work() -> None:
    site = Site()
    for name in ("gone", "edited"):
        site.paced.offer(*site.subscription(name), AWAY)
    site.api.user_deletes("Subscription", "shop", "gone")
    spec = {**GOOD["Subscription"]["spec"], "persistence": "AsSent"}
    site.api.user_applies({**GOOD["Subscription"], "metadata": {"name": "edited", "namespace": "shop"}, "spec": spec})
    run_in_virtual_time(site.paced.write_all())
    assert site.reasons() == {"BrokerUnreachable": 1}
    assert site.enqueued == [ResourceKey("Subscription", "shop", "edited")]


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [(Fault(429, False), 5), (Fault(500, False), 1), (Fault(0, True), 1), (Fault(409, False), 1)],
    ids=str,
)
def test_an_api_server_that_has_too_much_to_do_is_left_alone_and_told_later(fault: Fault, seconds: float) -> None:
    api = FaultyApiServer(retry_after_seconds=5)
    site = Site(api)
    for name in ("a", "b", "c"):
        site.paced.offer(*site.subscription(name), AWAY)
    api.faults = [None, fault]
    times: list[float] = []

    async def write() -> None:
        await site.paced.write_all()
        times.append(asyncio.get_running_loop().time())

    run_in_virtual_time(write())
    assert site.reasons() == {"BrokerUnreachable": 3}
    # 10 ms between writes: the second fails, and after the pause both come.
    assert [round(at, 3) for at in times] == [seconds + 0.02]


def test_declarations_go_first_and_what_is_over_meanwhile_is_not_written() -> None:
    site = Site()
    names = [f"s{number}" for number in range(20)]

    async def heal() -> tuple[int, float]:
        now = asyncio.get_running_loop().time
        site.paced.is_declaring = lambda: now() < 25
        for name in names:
            site.paced.offer(*site.subscription(name), AWAY)
        writing = asyncio.create_task(site.paced.write_all())
        await asyncio.sleep(24)
        before = site.api.written
        for name in names[5:]:
            site.paced.withdraw(ResourceKey("Subscription", "shop", name))
        await writing
        return before, now()

    before, ended = run_in_virtual_time(heal())
    assert (before, site.api.written) == (0, 5)
    assert 25 < ended < 26


@dataclass(slots=True)
class SlowApiServer(FaultyApiServer):
    """It makes a change of a status at once, and answers after three seconds."""

    async def apply_status(
        self, resource: Manifest, status: Manifest, manager: str, *, unchanged: bool = False
    ) -> Manifest:
        try:
            return await FaultyApiServer.apply_status(self, resource, status, manager, unchanged=unchanged)
        finally:
            await asyncio.sleep(3)


def test_what_is_withdrawn_while_it_is_written_is_looked_at_again_when_it_has_arrived() -> None:
    """The broker is back, and whoever looked at the resource meanwhile saw a status that says so already."""
    site = Site(SlowApiServer())

    async def write() -> list[ResourceKey]:
        key, seen = site.subscription("a")
        site.paced.offer(key, seen, AWAY)
        writing = asyncio.create_task(site.paced.write_all())
        await asyncio.sleep(1)
        site.paced.withdraw(key)
        before = list(site.enqueued)
        await writing
        return before

    assert run_in_virtual_time(write()) == []
    assert site.enqueued == [ResourceKey("Subscription", "shop", "a")]


def test_what_is_withdrawn_while_nobody_answers_is_not_written_again() -> None:
    api = SlowApiServer(faults=[Fault(0, False)])
    site = Site(api)

    async def write() -> None:
        key, seen = site.subscription("a")
        site.paced.offer(key, seen, AWAY)
        writing = asyncio.create_task(site.paced.write_all())
        await asyncio.sleep(1)
        site.paced.withdraw(key)
        await writing

    run_in_virtual_time(write())
    assert site.api.written == 0
    assert site.enqueued == [ResourceKey("Subscription", "shop", "a")]


def test_a_withdrawal_before_the_write_or_of_another_resource_is_no_reason_to_look_again() -> None:
    site = Site(SlowApiServer())

    async def write() -> None:
        key, seen = site.subscription("a")
        site.paced.withdraw(key)
        site.paced.offer(key, seen, AWAY)
        writing = asyncio.create_task(site.paced.write_all())
        await asyncio.sleep(1)
        site.paced.withdraw(ResourceKey("Subscription", "shop", "another"))
        await writing

    run_in_virtual_time(write())
    assert (site.api.written, site.enqueued) == (1, [])


def test_an_outage_that_ends_while_a_slow_api_server_writes_it_is_over_in_the_status_too() -> None:
    """The whole operator, and no list: the next one comes after two minutes."""
    billing = ResourceKey("Subscription", "shop", "billing")

    async def story() -> list[str]:
        world = World(api=SlowApiServer())
        for kind, name in (("Broker", "main"), ("Exchange", "orders"), ("Subscription", "billing")):
            world.api.user_applies(resource(kind, name))
        await world.calm_down()
        world.broker.is_up = False
        world.now += 200
        world.reconciler.brokers.findings[MAIN].is_out = True
        said = [shown(world)]
        await world.reconciler.reconcile(billing)
        writing = asyncio.create_task(world.reconciler.paced.write_all())
        await asyncio.sleep(1)
        world.broker.is_up = True
        world.reconciler.brokers.findings[MAIN].is_out = False
        await world.reconciler.reconcile(billing)
        await writing
        said.append(shown(world))
        await world.reconcile_next(10)
        return [*said, shown(world)]

    def shown(world: World) -> str:
        conditions = world.api.objects[billing]["status"]["conditions"]
        return next(str(it["reason"]) for it in conditions if it["type"] == "Ready")

    assert run_in_virtual_time(story()) == ["Ready", "BrokerUnreachable", "Ready"]
