"""Routes that are remembered: as many as are in use, and a bounded number more."""

from __future__ import annotations

from itertools import combinations

from penstock_broker.queue.queue import Queue
from penstock_broker.state import routes
from penstock_broker.state.routes import RouteMemo, Routes
from penstock_broker.topology.records import Exchange, new_router
from penstock_core.terms import ExchangeType


class Log:
    """Knows which route sets are in use."""

    def __init__(self) -> None:
        self.used: dict[int, tuple[int, ...]] = {}
        self.asked = 0

    def route_set(self, incarnations: tuple[int, ...]) -> int:
        self.asked += 1
        self.used[self.asked] = incarnations
        return self.asked

    def release_route_set(self, number: int) -> None:
        del self.used[number]


def queues(count: int) -> list[Queue]:
    return [Queue(f"q{number}", number, is_logged=True, now_us=0) for number in range(1, count + 1)]


def test_combinations_of_many_selectors_do_not_stay() -> None:
    log, memo, twenty = Log(), RouteMemo(), queues(20)
    for reached in combinations(twenty, 5):  # 15,504 of the million
        route = memo.route(reached, log)
        assert log.used[route.logged_set] == tuple(queue.incarnation for queue in reached)
        del route
        assert len(memo) <= 2 * routes.MOST_ROUTES
        assert len(log.used) <= 2 * routes.MOST_ROUTES
    memo.forget()
    assert not log.used


def test_long_routes_end_a_generation_early() -> None:
    log, memo, many = Log(), RouteMemo(), queues(1000)
    for first in range(300):
        memo.route(tuple(many[first:]), log)
    assert sum(map(len, log.used.values())) <= 2 * (routes.MOST_QUEUES + 1000)


def test_a_route_that_is_asked_for_again_stays() -> None:
    log, memo, some = Log(), RouteMemo(), queues(40)
    often = memo.route((some[0],), log)
    for reached in combinations(some, 3):
        memo.route(reached, log)
        assert memo.route((some[0],), log) is often


def test_who_sends_to_one_exchange_shares_its_route() -> None:
    known = Routes(Log())
    exchange = Exchange(name="e", type=ExchangeType.TOPIC, router=new_router(ExchangeType.TOPIC))
    again = Exchange(name="e", type=ExchangeType.TOPIC, router=new_router(ExchangeType.TOPIC))
    target = known.target_of(exchange, None)
    assert known.target_of(exchange, None) is target
    assert known.target_of(exchange, "key") is not target
    assert known.target_of(again, None) is not target
