"""Many workers, few resources: each is reconciled when it is due, and a change does not wake all workers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from support.api_server_in_memory import ApiServerInMemory
from support.virtual_time import run_in_virtual_time

from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.cluster.controller import Controller
from penstock_operator.cluster.server_errors import KubeError
from penstock_operator.cluster.work_queue import Priority, WorkQueue
from penstock_operator.metrics import Metrics
from penstock_operator.plans.decisions import Retry


def now() -> float:
    return asyncio.get_running_loop().time()


@dataclass(slots=True)
class Counted(WorkQueue[ResourceKey]):
    """Counts how often workers look into it."""

    looks: int = 0

    def take(self, now: float) -> ResourceKey | None:
        self.looks += 1
        return WorkQueue[ResourceKey].take(self, now)


@dataclass
class Crew:
    """Workers whose passes take as long as a resource's name says, in seconds before a dash."""

    workers: int
    refused: dict[str, KubeError] = field(default_factory=dict[str, KubeError])
    """What the first pass of a resource gets."""
    done: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    """When the pass of which resource began."""
    queue: Counted = field(default_factory=Counted)
    controller: Controller = field(init=False)
    tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    def __post_init__(self) -> None:
        self.controller = Controller(Cache(is_complete=True), Metrics(), now, self.queue)

    async def begin(self) -> None:
        self.tasks = [asyncio.create_task(self.controller.run_worker(self.reconcile)) for _ in range(self.workers)]
        await asyncio.sleep(1)

    def end(self) -> None:
        for task in self.tasks:
            task.cancel()

    async def reconcile(self, key: ResourceKey) -> Retry:
        self.done.append((now(), key.name))
        await asyncio.sleep(float(key.name.partition("-")[0]))
        answer = self.refused.pop(key.name, None)
        if answer is not None:
            raise answer
        return Retry.RESYNC

    def add(self, name: str, delay: float = 0) -> None:
        self.controller.add(ResourceKey("Exchange", "shop", name), Priority.CHANGE, delay)


def test_a_change_does_not_wake_all_workers() -> None:
    """A hundred changes, one after the other, and two hundred workers that have nothing to do."""

    async def looks() -> int:
        crew = Crew(workers=200)
        await crew.begin()
        before = crew.queue.looks
        for number in range(100):
            crew.add(f"0-{number}")
            await asyncio.sleep(0.1)
        assert len(crew.done) == 100
        crew.end()
        return crew.queue.looks - before

    assert run_in_virtual_time(looks()) <= 500


def test_a_hundred_changes_at_once_are_begun_at_once() -> None:
    async def story() -> list[float]:
        crew = Crew(workers=150)
        await crew.begin()
        for number in range(100):
            crew.add(f"60-{number}")
        await asyncio.sleep(0.5)
        crew.end()
        return [when for when, _ in crew.done]

    assert run_in_virtual_time(story()) == [1.0] * 100


@pytest.mark.parametrize("workers", [1, 2, 3, 50])
def test_what_is_due_later_is_begun_then_whatever_comes_meanwhile(workers: int) -> None:
    """The worker that looks at the clock is taken away by work, and what is added last is due first."""

    async def story() -> list[tuple[float, str]]:
        crew = Crew(workers)
        await crew.begin()
        crew.add("0-late", delay=30)
        await asyncio.sleep(1)
        crew.add("0-early", delay=10)
        await asyncio.sleep(1)
        crew.add("4-now")
        await asyncio.sleep(1)
        crew.add("0-earliest", delay=5)
        await asyncio.sleep(60)
        crew.end()
        return crew.done

    assert run_in_virtual_time(story()) == [(3, "4-now"), (9, "0-earliest"), (12, "0-early"), (31, "0-late")]


@pytest.mark.parametrize("workers", [2, 3, 50])
def test_a_long_pass_of_one_worker_delays_no_other(workers: int) -> None:
    async def story() -> list[tuple[float, str]]:
        crew = Crew(workers)
        await crew.begin()
        crew.add("0-late", delay=10)
        crew.add("90-long")
        await asyncio.sleep(60)
        crew.end()
        return crew.done

    assert run_in_virtual_time(story()) == [(1, "90-long"), (11, "0-late")]


def test_who_looks_at_the_clock_while_its_worker_is_at_work() -> None:
    async def story() -> list[tuple[float, str]]:
        crew = Crew(workers=2)
        await crew.begin()
        crew.add("90-long", delay=10)
        crew.add("0-late", delay=20)
        await asyncio.sleep(60)
        crew.end()
        return crew.done

    assert run_in_virtual_time(story()) == [(11, "90-long"), (21, "0-late")]


def test_what_is_due_at_the_same_time_is_begun_at_the_same_time() -> None:
    async def story() -> list[tuple[float, str]]:
        crew = Crew(workers=6)
        await crew.begin()
        for name in ("90-a", "90-b", "90-c", "90-d"):
            crew.add(name, delay=10)
        await asyncio.sleep(60)
        crew.end()
        return crew.done

    assert run_in_virtual_time(story()) == [(11, "90-a"), (11, "90-b"), (11, "90-c"), (11, "90-d")]


@pytest.mark.parametrize("workers", [1, 2, 3, 50])
def test_what_failed_is_repeated_in_time(workers: int) -> None:
    async def story() -> list[tuple[float, str]]:
        crew = Crew(workers, refused={"5-first": KubeError(500, "broken")})
        await crew.begin()
        crew.add("5-first")
        await asyncio.sleep(60)
        crew.end()
        return crew.done

    assert run_in_virtual_time(story()) == [(1, "5-first"), (7, "5-first")]


@pytest.mark.parametrize("workers", [1, 2, 3, 50])
def test_what_comes_while_the_server_wants_to_be_left_alone_is_begun_afterwards(workers: int) -> None:
    async def story() -> list[tuple[float, str]]:
        crew = Crew(workers, refused={"0-first": KubeError(429, "Too many requests", retry_after_seconds=5)})
        await crew.begin()
        crew.add("0-first")
        await asyncio.sleep(2)
        crew.add("0-second")
        await asyncio.sleep(1)
        crew.add("0-third")
        await asyncio.sleep(60)
        crew.end()
        return crew.done

    assert run_in_virtual_time(story()) == [(1, "0-first"), (6, "0-second"), (6, "0-third"), (7, "0-first")]


@pytest.mark.parametrize(("name", "delay", "begun"), [("0-first", 0, 5), ("0-late", 20, 21)])
@pytest.mark.parametrize("workers", [1, 2, 50])
def test_what_was_added_before_the_first_list_is_begun_after_it(
    workers: int, name: str, delay: float, begun: float
) -> None:
    async def story() -> list[tuple[float, str]]:
        crew = Crew(workers)
        crew.controller.cache.is_complete = False
        await crew.begin()
        crew.add(name, delay)
        await asyncio.sleep(4)
        await crew.controller.list_all(ApiServerInMemory(), ())
        await asyncio.sleep(60)
        crew.end()
        return crew.done

    assert run_in_virtual_time(story()) == [(begun, name)]
