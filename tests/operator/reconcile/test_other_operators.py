"""What two operators do that see the same Brokers, whatever they do in which order."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from support.api_server_in_memory import ApiServerInMemory
from support.operator_in_memory import resource

from penstock_operator import names
from penstock_operator.cluster.api_server import API_RESOURCES, ApiResource, Conflict, Forbidden, KubeError
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.manifest import Manifest
from penstock_operator.plans.managing_operator import OVER_SECONDS, Responsibility
from penstock_operator.reconcile.other_operators import OtherOperators

MAIN = ResourceKey("Broker", "shop", "main")
ORDERS = ResourceKey("Exchange", "shop", "orders")


class CountingServer(ApiServerInMemory):
    """It may refuse to show Leases, and counts the looks at them."""

    looks = 0
    error: KubeError | None = None

    async def get(self, kind: ApiResource, namespace: str | None, name: str) -> Manifest | None:
        if kind.kind == "Lease":
            self.looks += 1
            if self.error is not None:
                raise self.error
        return await super().get(kind, namespace, name)


@dataclass
class Operator:
    """One operator with a cache of its own, which is as old as `sees` leaves it."""

    api: CountingServer
    me: str
    now: float = 0.0
    cache: Cache = field(default_factory=Cache)
    queued: list[ResourceKey] = field(default_factory=list[ResourceKey])
    others: OtherOperators = field(init=False)

    def __post_init__(self) -> None:
        self.others = OtherOperators(self.api, self.cache, self.me, self.clock, self.queued.append, lambda: self.now)

    @staticmethod
    def clock() -> datetime:
        return datetime(2026, 3, 1, tzinfo=UTC)

    async def sees(self) -> None:
        """A complete list."""
        for kind in ("Broker", "Exchange"):
            began = self.cache.begin_list()
            found = [it async for it in self.api.list(API_RESOURCES[kind])]
            self.cache.end_list(kind, began, found, ())

    def holds(self, pod: str) -> None:
        """It renews its Lease, or gives it back."""
        namespace, _, name = self.me.partition("/")
        spec: dict[str, Any] = {"leaseDurationSeconds": 15, "renewTime": f"t{self.api.version}"}
        spec |= {"holderIdentity": pod} if pod else {}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}
        self.api.objects["Lease", namespace, name] = {**lease, "metadata": {"name": name, "namespace": namespace}}
        self.api.user_applies(resource("Broker", f"b{len(self.api.objects)}"))  # another version
        self.api.objects.popitem()


@pytest.fixture
def api() -> CountingServer:
    made = CountingServer()
    made.user_applies(resource("Broker", "main"))
    made.user_applies(resource("Exchange", "orders"))
    return made


def recorded(api: ApiServerInMemory) -> str:
    return str(api.objects["Broker", "shop", "main"].get("status", {}).get("operator", ""))


async def forget(api: ApiServerInMemory) -> None:
    """Somebody removes the name."""
    there = api.objects["Broker", "shop", "main"]
    await api.apply_status(there, {"conditions": []}, names.MANAGER)


async def test_whoever_comes_first_is_recorded_and_what_names_the_broker_waits_for_it(api: CountingServer) -> None:
    one = Operator(api, "x/one")
    await one.sees()
    assert not one.others.is_own(MAIN)
    assert await one.others.take(MAIN)
    assert recorded(api) == "x/one"
    assert one.queued == [ORDERS]
    assert one.others.is_own(MAIN)
    written = api.written
    assert await one.others.take(MAIN)
    await one.others.look()
    assert (api.written, api.looks, api.announced) == (written, 0, [])


async def test_of_two_at_the_same_moment_one_is_refused(api: CountingServer) -> None:
    one, two = Operator(api, "x/one"), Operator(api, "x/two")
    await one.sees()
    await two.sees()
    assert await one.others.take(MAIN)
    with pytest.raises(Conflict):
        await two.others.take(MAIN)
    assert recorded(api) == "x/one"


async def test_the_other_one_leaves_it_alone_and_says_so_once(api: CountingServer) -> None:
    one, two = Operator(api, "x/one"), Operator(api, "x/two")
    await one.sees()
    await one.others.take(MAIN)
    await two.sees()
    written = api.written
    for number in range(100):
        two.now = 10.0 * number
        one.holds("pod")
        await two.others.look()
        assert not await two.others.take(MAIN)
        assert not two.others.is_own(MAIN)
    assert api.written == written
    assert api.looks == 100
    (event,) = api.announced
    assert event["reason"] == "ManagedByOtherOperator"
    assert "The operator x/one manages this Broker." in event["message"]
    assert two.others.count() == 1
    assert one.others.count() == 0


async def test_an_operator_that_gave_its_lease_back_may_come_again_and_is_succeeded_later(api: CountingServer) -> None:
    one, two = Operator(api, "x/one"), Operator(api, "x/two")
    await one.sees()
    await one.others.take(MAIN)
    one.holds("")
    await two.sees()
    await two.others.look()
    two.queued.clear()
    for two.now in range(10, int(OVER_SECONDS), 10):
        await two.others.look()
        assert not await two.others.take(MAIN)
    assert two.queued == []
    two.now = OVER_SECONDS
    await two.others.look()
    assert set(two.queued) == {MAIN, ORDERS}
    assert await two.others.take(MAIN)
    assert recorded(api) == "x/two"
    # The first one comes again.
    again = Operator(api, "x/one")
    await again.sees()
    assert not await again.others.take(MAIN)


async def test_a_lease_that_may_not_be_read_counts_as_that_of_one_that_lives(api: CountingServer) -> None:
    one, two = Operator(api, "x/one"), Operator(api, "x/two")
    await one.sees()
    await one.others.take(MAIN)
    await two.sees()
    api.error = Forbidden(403, "no")
    for two.now in (0.0, 1e6):
        await two.others.look()
        assert not await two.others.take(MAIN)
    assert len(api.announced) == 1
    # Somebody who knows that it is over removes its name.
    await forget(api)
    await two.sees()
    await two.others.look()
    assert await two.others.take(MAIN)


async def test_an_api_server_that_does_not_answer_tells_nothing(api: CountingServer) -> None:
    one, two = Operator(api, "x/one"), Operator(api, "x/two")
    await one.sees()
    await one.others.take(MAIN)
    await two.sees()
    api.error = KubeError(500, "it is away")
    two.now = 1e6
    await two.others.look()
    assert two.others.responsibility(MAIN) is Responsibility.WAIT


async def test_one_that_could_not_look_for_long_does_not_take_it_from_one_that_lives(api: CountingServer) -> None:
    """The API server did not answer it, or its process stood still, and its first pass comes before its next look."""
    one, two = Operator(api, "x/one"), Operator(api, "x/two")
    await one.sees()
    await one.others.take(MAIN)
    one.holds("pod")
    await two.sees()
    await two.others.look()
    api.error = KubeError(503, "it is away")
    for _ in range(100):
        two.now += 10
        await two.others.look()
    api.error = None
    assert not await two.others.take(MAIN)
    one.holds("pod")
    await two.others.look()
    assert not await two.others.take(MAIN)
    assert recorded(api) == "x/one"


async def test_the_name_that_an_operator_of_an_earlier_release_removes_is_written_again(api: CountingServer) -> None:
    one = Operator(api, "x/one")
    await one.sees()
    await one.others.take(MAIN)
    await one.others.look()
    await forget(api)
    one.queued.clear()
    await one.sees()
    await one.others.look()
    assert one.queued == [MAIN]
    assert await one.others.take(MAIN)
    assert recorded(api) == "x/one"


class OlderServer(CountingServer):
    """Its CRDs do not know the field yet."""

    is_upgraded = False

    async def apply_status(
        self, resource: Manifest, status: Manifest, manager: str, *, unchanged: bool = False
    ) -> Manifest:
        known = {name: value for name, value in status.items() if self.is_upgraded or name != "operator"}
        return await super().apply_status(resource, known, manager, unchanged=unchanged)


async def test_with_crds_of_an_earlier_release_it_manages_without_a_name() -> None:
    api = OlderServer()
    api.user_applies(resource("Broker", "main"))
    one = Operator(api, "x/one")
    await one.sees()
    for _ in range(3):
        assert await one.others.take(MAIN)
        assert one.others.is_own(MAIN)
        assert one.others.recorded({"epoch": 1}) == {"epoch": 1}
        await one.sees()
    assert api.written == 1


async def test_when_the_crds_are_upgraded_after_the_operator_it_records_its_name_without_a_restart() -> None:
    api = OlderServer()
    for name in ("main", "other"):
        api.user_applies(resource("Broker", name))
    one = Operator(api, "x/one")
    await one.sees()
    assert await one.others.take(MAIN)
    api.is_upgraded = True
    one.now = 599.0
    await one.others.look()
    assert recorded(api) == ""
    one.now = 600.0
    one.queued.clear()
    await one.others.look()
    assert set(one.queued) == {MAIN, ResourceKey("Broker", "shop", "other")}
    assert await one.others.take(MAIN)
    assert recorded(api) == "x/one"
    assert one.others.recorded({}) == {"operator": "x/one"}


async def test_with_crds_of_an_earlier_release_it_tries_again_with_one_broker_in_ten_minutes() -> None:
    api = OlderServer()
    for name in ("main", "other", "third"):
        api.user_applies(resource("Broker", name))
    one = Operator(api, "x/one")
    await one.sees()
    await one.others.take(MAIN)
    before = api.written
    for _ in range(360):
        one.now += 10
        await one.others.look()
        assert one.others.is_own(MAIN)
    assert api.written == before + 6


async def test_what_the_status_says_stays_when_a_name_is_recorded(api: CountingServer) -> None:
    condition = {"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "t"}
    there = api.objects["Broker", "shop", "main"]
    there["status"] = {"observedGeneration": 1, "epoch": 3, "conditions": [condition]}
    one = Operator(api, "x/one")
    await one.sees()
    await one.others.take(MAIN)
    status = api.objects["Broker", "shop", "main"]["status"]
    assert status == {"observedGeneration": 1, "epoch": 3, "conditions": [condition], "operator": "x/one"}


async def test_a_broker_that_is_being_deleted_gets_no_name_any_more(api: CountingServer) -> None:
    api.objects["Broker", "shop", "main"]["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    one = Operator(api, "x/one")
    await one.sees()
    assert await one.others.take(MAIN)
    assert one.others.is_own(MAIN)
    assert recorded(api) == ""


@pytest.mark.parametrize("seed", range(30))
async def test_whatever_three_operators_do_in_which_order_they_settle_on_one(seed: int, api: CountingServer) -> None:
    """Each pass may see an old list, and end in a Conflict; any of them may be gone for some time."""
    chance = random.Random(seed)
    operators = [Operator(api, f"x/{name}") for name in ("one", "two", "three")]
    for step in range(300):
        operator = chance.choice(operators)
        is_calm = step >= 200
        for each in operators:
            each.now += 10
            if is_calm or chance.random() < 0.7:
                each.holds("pod")
        if is_calm or chance.random() < 0.5:
            await operator.sees()
        if is_calm or chance.random() < 0.5:
            await operator.others.look()
        try:
            await operator.others.take(MAIN)
        except Conflict:
            await operator.sees()
    for operator in operators:
        await operator.sees()
        await operator.others.look()
    assert [each.me for each in operators if each.others.is_own(MAIN)] == [recorded(api)]
    before = recorded(api)
    for operator in operators * 5:
        for each in operators:
            each.holds("pod")
        await operator.others.look()
        await operator.others.take(MAIN)
    assert recorded(api) == before
