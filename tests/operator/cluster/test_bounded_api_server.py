"""Two hundred workers ask an API server that is far away or busy: how many requests are on the way to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from support.api_server_in_memory import ApiServerInMemory
from support.virtual_time import run_in_virtual_time

from penstock_operator.cluster.api_server import API_RESOURCES, ApiResource
from penstock_operator.cluster.bounded_api_server import BoundedApiServer
from penstock_operator.cluster.server_errors import KubeError
from penstock_operator.manifest import Manifest


@dataclass
class SlowApiServer(ApiServerInMemory):
    """Takes so many seconds for a request, given how many others are on the way."""

    seconds: Callable[[int], float] = lambda _: 0.0
    under_way: int = 0
    most: int = 0
    refuses: bool = False
    order: list[str] = field(default_factory=list[str])

    async def get(self, kind: ApiResource, namespace: str | None, name: str) -> Manifest | None:
        """As the API server in memory, after a while."""
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        self.order.append(name)
        try:
            await asyncio.sleep(self.seconds(self.under_way))
        finally:
            self.under_way -= 1
        if self.refuses:
            raise KubeError(429, "Too many requests")
        return await super().get(kind, namespace, name)


def _overloaded(under_way: int) -> float:
    """Fifty requests a second, however many there are."""
    return 0.02 * under_way


def _far_away(_: int) -> float:
    return 3.0


async def _ask(server: BoundedApiServer, name: str = "a") -> None:
    await server.get(API_RESOURCES["Secret"], "shop", name)


async def _most_at_the_end(seconds: Callable[[int], float], asked: int) -> int:
    """How many requests are on the way when two hundred workers have asked for a while."""
    inner = SlowApiServer(seconds=seconds)
    bounded = BoundedApiServer(inner)

    async def work() -> None:
        for _ in range(asked):
            await _ask(bounded)

    await asyncio.gather(*(work() for _ in range(200)))
    inner.most = 0
    await asyncio.gather(*(_ask(bounded) for _ in range(200)))
    return inner.most


def test_who_asks_beside_the_workers_does_not_wait_long() -> None:
    assert run_in_virtual_time(_most_at_the_end(_overloaded, 50)) == 9


def test_a_server_that_is_far_away_is_asked_by_many() -> None:
    assert run_in_virtual_time(_most_at_the_end(_far_away, 50)) == 64


def test_after_a_refusal_few_ask() -> None:
    async def story() -> int:
        inner = SlowApiServer(seconds=_far_away)
        bounded = BoundedApiServer(inner)
        await asyncio.gather(*(_ask(bounded) for _ in range(5_000)))
        inner.refuses = True
        with pytest.raises(KubeError):
            await _ask(bounded)
        inner.most = 0
        await asyncio.gather(*(_ask(bounded) for _ in range(200)), return_exceptions=True)
        return inner.most

    assert run_in_virtual_time(story()) == 8


def test_they_are_asked_in_the_order_in_which_they_came_and_who_has_ended_is_passed_over() -> None:
    async def story() -> list[str]:
        inner = SlowApiServer(seconds=_far_away)
        bounded = BoundedApiServer(inner)
        tasks = [asyncio.create_task(_ask(bounded, str(number))) for number in range(14)]
        await asyncio.sleep(1)
        tasks[3].cancel()  # it is on the way, so another one may begin
        tasks[9].cancel()  # it waits
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert inner.order == ["0", "1", "2", "3", "4", "5", "6", "7", "8"]
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert [number for number, end in enumerate(ends) if end is not None] == [3, 9]
        return inner.order

    assert run_in_virtual_time(story()) == [str(number) for number in range(14) if number != 9]


def test_whoever_ends_in_the_turn_in_which_he_may_ask_leaves_his_place_to_the_next() -> None:
    async def story() -> list[str]:
        inner = SlowApiServer(seconds=_far_away)
        bounded = BoundedApiServer(inner)
        tasks = [asyncio.create_task(_ask(bounded, str(number))) for number in range(10)]
        await asyncio.sleep(1)
        tasks[0].cancel()
        await asyncio.sleep(0)
        tasks[8].cancel()
        await asyncio.sleep(1)
        return inner.order

    assert run_in_virtual_time(story()) == ["0", "1", "2", "3", "4", "5", "6", "7", "9"]
