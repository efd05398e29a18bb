"""Two operators and one Lease, in virtual time: never do both lead, and one of them soon does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest
from support.api_server_in_memory import ApiServerInMemory
from support.virtual_time import run_in_virtual_time

from penstock_operator.cluster.api_server import ApiResource, Forbidden, KubeError
from penstock_operator.cluster.leadership import Leadership, LeadershipLost
from penstock_operator.manifest import Manifest
from penstock_operator.plans.lease import LeaseTimes

T = TypeVar("T")
NAME = ("Lease", "system", "penstock")


def now() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class Way:
    """One operator's way to the API server."""

    api: ApiServerInMemory
    failure: KubeError | None = None
    """What every request gets instead of an answer."""
    delay: float = 0.0
    """Seconds until a request arrives."""
    late: float = 0.0
    """Seconds until the answer comes back, after the request has had its effect."""
    may_patch: bool = True
    """Whether the operator's role has the verb."""
    asked: list[float] = field(default_factory=list[float])

    async def get(self, kind: ApiResource, namespace: str | None, name: str) -> Manifest | None:
        return await self._pass(lambda: self.api.get(kind, namespace, name))

    async def create(self, manifest: Manifest) -> Manifest:
        return await self._pass(lambda: self.api.create(manifest))

    async def replace(self, manifest: Manifest) -> Manifest:
        return await self._pass(lambda: self.api.replace(manifest))

    async def replace_held(self, manifest: Manifest, holder: str) -> Manifest:
        if not self.may_patch:
            raise Forbidden(403, "PATCH /leases: no")
        return await self._pass(lambda: self.api.replace_held(manifest, holder))

    async def _pass(self, ask: Callable[[], Awaitable[T]]) -> T:
        """A request that was sent arrives, also if nobody waits for its answer any more."""
        self.asked.append(now())
        sent = asyncio.create_task(self._travel(ask))
        sent.add_done_callback(lambda it: it.cancelled() or it.exception())
        return await asyncio.shield(sent)

    async def _travel(self, ask: Callable[[], Awaitable[T]]) -> T:
        await asyncio.sleep(self.delay)
        if self.failure is not None:
            raise self.failure
        answer = await ask()
        await asyncio.sleep(self.late)
        return answer


def operator(way: Way, identity: str, skew: float = 0.0) -> Leadership:
    """Its monotonic clock began at another time, and its time of day is wrong by `skew` seconds."""

    def clock() -> datetime:
        return datetime(2026, 3, 1, 12, tzinfo=UTC) + timedelta(seconds=now() + skew)

    return Leadership(way, "system", "penstock", identity, LeaseTimes(15), lambda: now() + 1e6, clock)


@dataclass
class Pair:
    """Two operators; `a` leads at 0 s, `b` waits."""

    api: ApiServerInMemory = field(default_factory=ApiServerInMemory)
    a: Leadership = field(init=False)
    b: Leadership = field(init=False)
    way_of_a: Way = field(init=False)
    way_of_b: Way = field(init=False)

    def __post_init__(self) -> None:
        self.way_of_a, self.way_of_b = Way(self.api), Way(self.api)
        self.a = operator(self.way_of_a, "a")
        self.b = operator(self.way_of_b, "b", skew=-7200)

    @property
    def spec(self) -> Any:
        return self.api.objects[NAME]["spec"]


def play(story: Callable[[Pair], Coroutine[None, None, None]]) -> None:
    async def begin() -> None:
        pair = Pair()
        await pair.a.acquire()
        await story(pair)

    run_in_virtual_time(begin())


def test_the_first_leads_at_once_and_the_second_waits_while_it_renews() -> None:
    async def story(pair: Pair) -> None:
        assert (now(), pair.spec["holderIdentity"], pair.spec["leaseTransitions"]) == (0, "a", 0)
        keeping, waiting = asyncio.create_task(pair.a.keep()), asyncio.create_task(pair.b.acquire())
        await asyncio.sleep(600)
        assert (pair.a.leads(), pair.b.leads(), pair.b.holder) == (True, False, "a")
        assert not waiting.done()
        # One request every two seconds each.
        assert len(pair.way_of_a.asked) == pytest.approx(302, abs=2)
        assert len(pair.way_of_b.asked) == pytest.approx(300, abs=2)
        keeping.cancel()
        waiting.cancel()

    play(story)


def test_after_a_kill_the_other_leads_within_the_lease_s_time_and_one_attempt() -> None:
    async def story(pair: Pair) -> None:
        await pair.b.acquire()
        assert 15 <= now() <= 17
        assert (pair.spec["holderIdentity"], pair.spec["leaseTransitions"]) == ("b", 1)
        assert not pair.a.leads()

    play(story)


def test_a_lease_that_is_given_back_is_taken_at_the_next_attempt() -> None:
    async def story(pair: Pair) -> None:
        waiting = asyncio.create_task(pair.b.acquire())
        await asyncio.sleep(1)
        await pair.a.release()
        assert not pair.a.leads()
        assert "holderIdentity" not in pair.spec
        await waiting
        assert now() <= 2

    play(story)


def test_only_the_leader_gives_the_lease_back() -> None:
    async def story(pair: Pair) -> None:
        await pair.b.release()
        assert pair.spec["holderIdentity"] == "a"

    play(story)


def test_a_leader_that_can_t_renew_stops_before_the_other_begins() -> None:
    async def story(pair: Pair) -> None:
        began: list[float] = []
        keeping = asyncio.create_task(pair.a.keep())

        async def wait() -> None:
            await pair.b.acquire()
            began.append(now())

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(20.5)  # it has renewed at 20 s
        pair.way_of_a.failure = KubeError(503, "it is away")
        with pytest.raises(LeadershipLost, match=r"system/penstock could not be renewed for 10 s: 503: it is away"):
            await keeping
        assert now() == pytest.approx(30, abs=0.01)
        assert not pair.a.leads()
        await waiting
        assert began[0] >= 35

    play(story)


def test_a_leader_that_could_not_renew_waits_and_leads_again_if_nobody_else_has() -> None:
    async def story(pair: Pair) -> None:
        pair.way_of_a.failure = KubeError(503, "it is away")
        with pytest.raises(LeadershipLost):
            await pair.a.keep()
        waiting = asyncio.create_task(pair.a.acquire())
        await asyncio.sleep(600)
        assert not pair.a.leads()
        pair.way_of_a.failure = None
        back = now()
        await waiting
        assert now() - back <= 2.5
        assert (pair.a.leads(), pair.spec["holderIdentity"], pair.spec["leaseTransitions"]) == (True, "a", 0)

    play(story)


def test_a_leader_that_lost_the_lease_to_another_waits_like_everybody() -> None:
    async def story(pair: Pair) -> None:
        await pair.b.acquire()
        with pytest.raises(LeadershipLost):
            await pair.a.keep()
        keeping, waiting = asyncio.create_task(pair.b.keep()), asyncio.create_task(pair.a.acquire())
        await asyncio.sleep(600)
        assert (pair.a.leads(), pair.b.leads(), waiting.done()) == (False, True, False)
        keeping.cancel()
        await pair.b.release()
        await waiting
        assert (pair.a.leads(), pair.spec["holderIdentity"], pair.spec["leaseTransitions"]) == (True, "a", 2)

    play(story)


def test_whose_lease_was_taken_waits_for_it_without_another_error() -> None:
    async def story(pair: Pair) -> None:
        taken = pair.api.objects[NAME]
        await pair.api.replace({**taken, "spec": {**taken["spec"], "holderIdentity": "c"}})
        with pytest.raises(LeadershipLost):
            await pair.a.keep()
        began = now()
        await pair.a.acquire()
        assert 15 <= now() - began <= 17.5

    play(story)


def test_an_answer_that_is_lost_is_no_renewal_but_the_lease_stays_its_own() -> None:
    async def story(pair: Pair) -> None:
        keeping = asyncio.create_task(pair.a.keep())
        await asyncio.sleep(0.5)
        pair.way_of_a.late = 60
        await asyncio.sleep(5.5)
        pair.way_of_a.late = 0
        await asyncio.sleep(100)
        assert pair.a.leads()
        keeping.cancel()

    play(story)


def test_a_leader_counts_from_when_it_asked_and_not_from_the_answer() -> None:
    async def story(pair: Pair) -> None:
        pair.way_of_a.delay = 4
        keeping = asyncio.create_task(pair.a.keep())
        await asyncio.sleep(6.5)  # it asked at 2 s, and has had its answer at 6 s
        pair.way_of_a.failure = KubeError(0, "no way")
        with pytest.raises(LeadershipLost):
            await keeping
        assert now() == pytest.approx(12, abs=0.01)

    play(story)


@pytest.mark.parametrize(("delay", "late"), [(0.0, 7.5), (3.75, 3.75), (7.5, 0.0)])
def test_a_leader_whose_answers_take_seven_seconds_leads_on(delay: float, late: float) -> None:
    async def story(pair: Pair) -> None:
        pair.way_of_a.delay, pair.way_of_a.late = delay, late
        keeping, waiting = asyncio.create_task(pair.a.keep()), asyncio.create_task(pair.b.acquire())
        await asyncio.sleep(600)
        assert (pair.a.leads(), keeping.done(), waiting.done(), pair.spec["leaseTransitions"]) == (
            True,
            False,
            False,
            0,
        )
        # No more of them than to a fast one.
        assert len(pair.way_of_a.asked) == pytest.approx(302, abs=2)
        keeping.cancel()
        waiting.cancel()

    play(story)


@pytest.mark.parametrize(("delay", "late"), [(0.0, 7.5), (3.75, 3.75), (7.5, 0.0)])
def test_who_begins_to_lead_by_answers_that_take_seven_seconds_leads_on(delay: float, late: float) -> None:
    async def story(pair: Pair) -> None:
        pair.way_of_b.delay, pair.way_of_b.late = delay, late
        await pair.b.acquire()
        keeping = asyncio.create_task(pair.b.keep())
        await asyncio.sleep(600)
        assert (pair.b.leads(), keeping.done(), pair.spec["leaseTransitions"]) == (True, False, 1)
        keeping.cancel()

    play(story)


def test_a_leader_whose_answers_take_too_long_says_that() -> None:
    async def story(pair: Pair) -> None:
        pair.way_of_a.late = 9
        with pytest.raises(LeadershipLost, match="could not be renewed for 10 s: no answer came in time"):
            await pair.a.keep()

    play(story)


def test_one_request_that_hangs_does_not_keep_the_next_one_waiting() -> None:
    async def story(pair: Pair) -> None:
        pair.way_of_a.late = 60
        keeping = asyncio.create_task(pair.a.keep())
        await asyncio.sleep(0.5)
        pair.way_of_a.late = 0
        await asyncio.sleep(2)
        pair.way_of_a.failure = KubeError(503, "it is away")
        with pytest.raises(LeadershipLost):
            await keeping
        assert now() == pytest.approx(12, abs=0.01)  # it was renewed at 2 s

    play(story)


def test_a_renewal_that_arrives_when_another_leads_takes_nothing_from_it() -> None:
    async def story(pair: Pair) -> None:
        pair.way_of_a.delay = 30
        with pytest.raises(LeadershipLost):
            await pair.a.keep()
        await pair.b.acquire()
        keeping = asyncio.create_task(pair.b.keep())
        assert now() < 30
        await asyncio.sleep(100)
        assert (pair.spec["holderIdentity"], pair.b.leads(), keeping.done()) == ("b", True, False)
        keeping.cancel()

    play(story)


def test_an_old_state_that_is_read_late_does_not_end_a_leader() -> None:
    async def story(pair: Pair) -> None:
        waiting = asyncio.create_task(pair.b.acquire())
        await asyncio.sleep(13)
        pair.way_of_b.late = 3  # of the read at 14 s, which shows `a`
        await asyncio.sleep(2)
        pair.way_of_b.late = 0
        await waiting
        assert now() == pytest.approx(16, abs=0.01)
        keeping = asyncio.create_task(pair.b.keep())
        await asyncio.sleep(60)
        assert (pair.b.leads(), keeping.done(), pair.spec["leaseTransitions"]) == (True, False, 1)
        keeping.cancel()

    play(story)


def test_the_answer_to_an_earlier_renewal_may_come_later() -> None:
    async def story(pair: Pair) -> None:
        pair.way_of_a.late = 5
        keeping = asyncio.create_task(pair.a.keep())
        await asyncio.sleep(3)
        pair.way_of_a.late = 0
        await asyncio.sleep(2)
        pair.way_of_a.failure = KubeError(503, "it is away")
        with pytest.raises(LeadershipLost):
            await keeping
        assert now() == pytest.approx(14, abs=0.01)  # it asked at 2 s and at 4 s

    play(story)


def test_a_lease_whose_renewal_was_not_answered_is_given_back() -> None:
    async def story(pair: Pair) -> None:
        pair.way_of_a.late = 60
        keeping = asyncio.create_task(pair.a.keep())
        await asyncio.sleep(3)
        keeping.cancel()
        pair.way_of_a.late = 0
        await pair.a.release()
        assert "holderIdentity" not in pair.spec

    play(story)


def test_what_failed_before_a_renewal_that_succeeded_is_no_problem() -> None:
    async def story(pair: Pair) -> None:
        pair.way_of_a.delay, pair.way_of_a.failure = 5, KubeError(503, "it is away")
        keeping = asyncio.create_task(pair.a.keep())
        await asyncio.sleep(2.5)
        pair.way_of_a.delay, pair.way_of_a.failure = 0, None
        seen = set[str]()
        for _ in range(60):
            await asyncio.sleep(0.25)
            pair.way_of_a.failure = KubeError(503, "it is away") if 6.5 < now() < 7.5 else None
            seen.add(pair.a.problem)
        assert (seen, pair.a.leads()) == ({""}, True)
        keeping.cancel()

    play(story)


def test_a_role_of_an_earlier_chart_that_may_not_patch_is_enough() -> None:
    async def story(pair: Pair) -> None:
        pair.way_of_a.may_patch = False
        keeping = asyncio.create_task(pair.a.keep())
        await asyncio.sleep(600)
        assert (pair.a.leads(), pair.a.problem, keeping.done()) == (True, "", False)
        keeping.cancel()

    play(story)


def test_a_leader_that_stood_still_does_not_write_when_it_goes_on() -> None:
    async def story(pair: Pair) -> None:
        await pair.b.acquire()
        with pytest.raises(LeadershipLost, match="the process stood still"):
            await pair.a.keep()
        await pair.a.release()
        assert pair.spec["holderIdentity"] == "b"

    play(story)


def test_a_leader_whose_lease_somebody_else_has_stops_at_once() -> None:
    async def story(pair: Pair) -> None:
        taken = pair.api.objects[NAME]
        await pair.api.replace({**taken, "spec": {**taken["spec"], "holderIdentity": "c"}})
        with pytest.raises(LeadershipLost, match="c has taken the Lease system/penstock"):
            await pair.a.keep()
        assert now() <= 4
        assert not pair.a.leads()

    play(story)


@pytest.mark.parametrize("change", ["label", "delete"])
def test_what_a_person_does_to_the_lease_does_not_end_the_leader(change: str) -> None:
    async def story(pair: Pair) -> None:
        keeping = asyncio.create_task(pair.a.keep())
        await asyncio.sleep(1)
        if change == "label":
            there = pair.api.objects[NAME]
            await pair.api.replace({**there, "metadata": {**there["metadata"], "labels": {"x": "y"}}})
        else:
            del pair.api.objects[NAME]
        await asyncio.sleep(60)
        assert pair.a.leads()
        assert pair.spec["holderIdentity"] == "a"
        keeping.cancel()

    play(story)


def test_a_container_that_starts_again_in_the_same_pod_goes_on_at_once() -> None:
    async def story(pair: Pair) -> None:
        again = operator(Way(pair.api), "a")
        await again.acquire()
        assert (now(), pair.spec["leaseTransitions"]) == (0, 0)

    play(story)


def test_who_may_not_read_the_lease_says_so_and_asks_on() -> None:
    async def story(pair: Pair) -> None:
        pair.way_of_b.failure = Forbidden(403, "GET /leases: no")
        waiting = asyncio.create_task(pair.b.acquire())
        await asyncio.sleep(20)
        assert pair.b.problem == "403: GET /leases: no"
        pair.way_of_b.failure = None
        await waiting
        assert pair.b.problem == ""

    play(story)


def test_a_server_that_asks_to_wait_is_left_alone() -> None:
    async def story(pair: Pair) -> None:
        pair.way_of_b.failure = KubeError(429, "Too many requests", retry_after_seconds=9)
        waiting = asyncio.create_task(pair.b.acquire())
        await asyncio.sleep(20)
        assert pair.way_of_b.asked == [0, 9, 18]
        waiting.cancel()

    play(story)


@pytest.mark.parametrize("seed", range(12))
def test_of_three_that_fail_at_random_never_two_lead(seed: int) -> None:
    """Each loses its way to the API server, is slow, or is killed and started again, for half an hour."""

    async def story() -> float:
        chance, api = random.Random(seed), ApiServerInMemory()
        leading: dict[str, Leadership] = {}
        seconds_led = 0.0

        async def life(name: str) -> None:
            way = Way(api)
            while True:
                leadership = operator(way, name, skew=chance.uniform(-100, 100))
                leading[name] = leadership
                try:
                    async with asyncio.timeout(chance.uniform(5, 300)):
                        await leadership.acquire()
                        assert [other for other, it in leading.items() if it.leads()] == [name]
                        await leadership.keep()
                except LeadershipLost:
                    pass
                except TimeoutError:
                    if chance.random() < 0.5:
                        await leadership.release()
                    leadership._renewed = None  # pyright: ignore[reportPrivateUsage]  # it is dead
                way.failure = None

        async def trouble(name: str) -> None:
            while True:
                await asyncio.sleep(chance.uniform(1, 40))
                way = leading[name].server
                assert isinstance(way, Way)
                way.failure = KubeError(0, "no way") if chance.random() < 0.3 else None
                way.delay = chance.choice([0, 0, 0.5, 3])
                way.late = chance.choice([0, 0, 0.5, 3, 20])

        tasks = [asyncio.create_task(each(name)) for name in "abc" for each in (life, trouble)]
        while now() < 1800:
            await asyncio.sleep(1)
            seconds_led += any(it.leads() for it in leading.values())
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return seconds_led

    assert run_in_virtual_time(story()) > 600
