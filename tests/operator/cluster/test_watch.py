"""Each watch is seen: what is cut, refused or silent is opened again, what is dead is started anew, and at last the
operator is not live.

kopf watches an API server in memory over HTTP, behind a proxy that injects the faults.
"""

from __future__ import annotations

import asyncio
import getpass
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import kopf
import pytest
import pytest_asyncio
from kopf._core.reactor.inventory import ResourceMemories
from support.api_server_in_memory import ApiServerInMemory
from support.api_server_over_http import kubeconfig_for, serving
from support.faulty_proxy import Fault, Faults, serving_faults
from support.operator_in_memory import resource

from penstock_operator import health
from penstock_operator.cluster import watch
from penstock_operator.cluster.cache import Cache, KindName, ResourceKey
from penstock_operator.cluster.controller import Controller
from penstock_operator.cluster.watch_activity import WatchActivity
from penstock_operator.cluster.watch_requests import WatchTimes, watch_paths
from penstock_operator.metrics import Metrics
from penstock_operator.settings import OperatorSettings

BROKERS = "/apis/penstock.dev/v1alpha1/brokers"
EXCHANGES = "/apis/penstock.dev/v1alpha1/exchanges"
SUBSCRIPTIONS = "/apis/penstock.dev/v1alpha1/subscriptions"
QUEUES = "/apis/penstock.dev/v1alpha1/queues"
SETTINGS = OperatorSettings(broker_image="b", lag_image="l")


@dataclass
class Watched:
    """An API server and the watches of one operator."""

    api: ApiServerInMemory
    faults: Faults
    controller: Controller = field(init=False)
    activity: WatchActivity = field(default_factory=lambda: WatchActivity(timeout=2.0))
    tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])
    wait_for_kinds: Callable[[], Awaitable[None]] | None = None
    readings: list[float] = field(default_factory=list[float])
    """What the clock of the operator has said."""

    def __post_init__(self) -> None:
        self.controller = Controller(Cache(is_complete=True), Metrics(), self.clock)

    def clock(self) -> float:
        now = time.monotonic()
        self.readings.append(now)  # also from the thread of the watches
        return now

    async def start(self, settings: OperatorSettings = SETTINGS, *, server: int = 60, **times: float) -> float:
        """Begin to watch; the moment from which on each watch is expected to be opened."""
        chosen = WatchTimes(server=server, **{"silent": 60.0, "grace": 60.0, **times})
        watching = watch.watch(self.controller, settings, self.activity, chosen, wait_for_kinds=self.wait_for_kinds)
        self.tasks.append(asyncio.create_task(watching))
        await asyncio.sleep(0)
        return self.readings[0]

    def opened(self, path: str) -> int:
        """How often the API server was asked for this watch."""
        return sum(is_watch and asked == path for _, _, asked, _, is_watch in self.faults.requests)

    async def sees(self, kind: KindName, name: str, seconds: float = 120) -> None:
        """A user applies a resource, and the watches tell it."""
        self.api.user_applies(resource(kind, name))
        await self.until(lambda: self.controller.cache.get(_key(kind, name)) is not None, seconds)

    async def until(self, true: Callable[[], bool], seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while not true():
            assert not any(task.done() for task in self.tasks), self.tasks
            assert time.monotonic() < end, "it did not become true"
            await asyncio.sleep(0.02)


def _key(kind: KindName, name: str) -> ResourceKey:
    return ResourceKey(kind, "shop", name)


@pytest_asyncio.fixture
async def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watched]:
    api, faults = ApiServerInMemory(), Faults(seed=1)
    async with serving(api) as server, serving_faults(server, faults) as proxy:
        monkeypatch.setenv("KUBECONFIG", kubeconfig_for(proxy, tmp_path / "kubeconfig"))
        made = Watched(api, faults)
        yield made
        for task in made.tasks:
            task.cancel()
        await asyncio.gather(*made.tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("settings", "paths"),
    [
        (
            SETTINGS,
            [
                BROKERS,
                EXCHANGES,
                SUBSCRIPTIONS,
                QUEUES,
                *("/apis/apps/v1/statefulsets", "/api/v1/services", "/api/v1/configmaps"),
            ],
        ),
        (
            OperatorSettings(broker_image="b", lag_image="l", namespaces=("shop", "b")),
            [
                "/apis/penstock.dev/v1alpha1/namespaces/shop/brokers",
                "/apis/penstock.dev/v1alpha1/namespaces/b/brokers",
                "/apis/penstock.dev/v1alpha1/namespaces/shop/exchanges",
                "/apis/penstock.dev/v1alpha1/namespaces/b/exchanges",
                "/apis/penstock.dev/v1alpha1/namespaces/shop/subscriptions",
                "/apis/penstock.dev/v1alpha1/namespaces/b/subscriptions",
                "/apis/penstock.dev/v1alpha1/namespaces/shop/queues",
                "/apis/penstock.dev/v1alpha1/namespaces/b/queues",
            ],
        ),
    ],
    ids=["cluster-wide", "namespaced"],
)
async def test_every_watch_is_known_and_is_seen_when_it_is_opened(
    watched: Watched, settings: OperatorSettings, paths: list[str]
) -> None:
    assert watch_paths(settings.namespaces) == paths
    began = await watched.start(settings)
    await watched.until(lambda: watched.activity.overdue(began + 62.01) == [])
    assert {path for _, _, path, _, is_watch in watched.faults.requests if is_watch} == set(paths)


async def test_watches_say_who_opens_them(watched: Watched) -> None:
    await watched.start()
    await watched.sees("Exchange", "orders")
    assert watched.faults.agents == {f"penstock-operator/{version('penstock')}"}


async def test_kopf_handles_nothing_itself(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would copy each object, compare it and keep a memory of it, which costs more than all that is done with it."""

    def handles(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("kopf handles an event")

    monkeypatch.setattr(ResourceMemories, "recall", handles)
    await watched.start()
    await watched.sees("Exchange", "orders")


async def test_a_user_without_a_name_can_watch(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """On OpenShift the operator runs as a number of the namespace's range."""

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 1000650000")

    monkeypatch.setattr(getpass, "getuser", nameless)
    await watched.start()
    await watched.sees("Subscription", "nightly")


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.GONE, Fault.SERVER_ERROR, Fault.TOO_MANY, Fault.SLOW])
async def test_a_watch_that_fails_is_opened_again_and_tells_what_happened_meanwhile(
    watched: Watched, fault: Fault
) -> None:
    def fails_twice(_method: str, path: str, is_watch: bool) -> Fault | None:
        return fault if is_watch and path == SUBSCRIPTIONS and watched.opened(path) < 2 else None

    watched.faults.always = fails_twice
    await watched.start()
    for number in range(6):
        await watched.sees("Subscription", f"s{number}")
    assert watched.faults.happened[fault] == (1 if fault is Fault.SLOW else 2)


async def test_a_watch_in_which_nothing_comes_is_opened_again(watched: Watched) -> None:
    def silent_once(_method: str, path: str, is_watch: bool) -> Fault | None:
        return Fault.SILENT if is_watch and path == SUBSCRIPTIONS and not watched.opened(path) else None

    watched.faults.always = silent_once
    await watched.start(silent=3.0)
    await watched.until(lambda: watched.opened(SUBSCRIPTIONS) == 1)
    await watched.sees("Subscription", "billing")
    assert watched.opened(SUBSCRIPTIONS) >= 2


async def test_watches_that_end_with_an_error_begin_anew(watched: Watched) -> None:
    """A proxy ends an answer properly, but in the middle of a line: kopf can't read that, and ends as a whole."""

    def ends(_method: str, path: str, is_watch: bool) -> Fault | None:
        return Fault.HALF_LINE if is_watch and path == BROKERS and not watched.opened(path) else None

    watched.faults.always = ends
    await watched.start()
    await watched.until(lambda: watched.opened(BROKERS) >= 2)
    await watched.sees("Exchange", "orders")
    await watched.sees("Broker", "main")


async def test_watches_begin_anew_only_when_all_kinds_exist(watched: Watched) -> None:
    """A removed CRD ends kopf, and one that starts without it would not watch the kind when it comes back."""
    asked, exist = asyncio.Event(), asyncio.Event()

    async def wait_for_kinds() -> None:
        asked.set()
        await exist.wait()

    def ends(_method: str, path: str, is_watch: bool) -> Fault | None:
        return Fault.HALF_LINE if is_watch and path == BROKERS and not watched.opened(path) else None

    watched.faults.always, watched.wait_for_kinds = ends, wait_for_kinds
    await watched.start()
    await watched.until(asked.is_set)
    assert watched.opened(BROKERS) == 1
    exist.set()
    await watched.sees("Broker", "main")


async def test_a_watch_that_is_dead_makes_all_begin_anew(watched: Watched) -> None:
    def runs() -> int:
        return sum(path == "/apis" for _, _, path, _, _ in watched.faults.requests)

    def refuse(_method: str, path: str, is_watch: bool) -> Fault | None:
        return Fault.SERVER_ERROR if is_watch and path == EXCHANGES and runs() < 2 else None

    watched.faults.always = refuse
    watched.activity = WatchActivity(timeout=1.0, margin=1.0)
    await watched.start(server=1, grace=8.0, check=0.1)
    await watched.until(lambda: runs() >= 2)
    await watched.until(lambda: watched.activity.overdue(time.monotonic()) == [])
    await watched.sees("Exchange", "orders")


async def test_a_watch_that_can_t_be_opened_ends_liveness(watched: Watched) -> None:
    watched.faults.always = lambda _, path, is_watch: Fault.SERVER_ERROR if is_watch and path == EXCHANGES else None
    began = await watched.start()
    await watched.sees("Broker", "main")
    # Its time-out of 2 s, a minute for attempts, and five minutes for all watches to be started anew.
    await watched.until(lambda: watched.activity.overdue(began + 62.01) == [EXCHANGES])
    made = watched.controller
    assert health.problem_of(made, began, 1000, began + 361.9, watched.activity) is None
    problem = health.problem_of(made, began, 1000, began + 362.01, watched.activity)
    assert problem == f"the watches of {EXCHANGES} were not opened again for 362 s"


async def test_kopf_does_not_keep_what_it_has_handed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By default it keeps each object for five seconds, and so all of a first list at the same time."""
    given: list[kopf.OperatorSettings] = []

    async def operator(*, settings: kopf.OperatorSettings, stop_flag: asyncio.Event, **_: object) -> None:
        given.append(settings)
        await stop_flag.wait()

    monkeypatch.setattr(kopf, "operator", operator)
    controller = Controller(Cache(is_complete=True), Metrics(), time.monotonic)
    watching = asyncio.create_task(watch.watch(controller, SETTINGS, WatchActivity(timeout=2.0)))
    while not given:
        await asyncio.sleep(0.01)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert 0 < given[0].queueing.idle_timeout <= 0.1
