"""What an operator costs the API server while nothing changes: 200 Brokers and 2,000 Subscriptions in 20 namespaces,
and 10,000 in hack/soak/machine.

Its own loops run, in virtual time, against an API server and brokers in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from support.api_server_in_memory import ApiServerInMemory
from support.examples import IS_LONG_FORM
from support.management_in_memory import BrokerInMemory, SessionsInMemory
from support.resources import GOOD
from support.virtual_time import run_in_virtual_time

from penstock_operator.brokers.sessions import BrokerSessions
from penstock_operator.cluster.api_server import ApiServer
from penstock_operator.cluster.cache import Cache
from penstock_operator.cluster.controller import Controller
from penstock_operator.metrics import Metrics
from penstock_operator.reconcile.broker_reconciler import BrokerReconciler
from penstock_operator.reconcile.reconciler import Reconciler
from penstock_operator.settings import OperatorSettings

SETTINGS = OperatorSettings(broker_image="b", lag_image="l")
NAMESPACES = tuple(f"team-{number}" for number in range(20))
BROKERS = 200
SUBSCRIPTIONS = 10_000 if IS_LONG_FORM else 2_000
PERIOD = 120


def now() -> float:
    return asyncio.get_running_loop().time()


def resource(kind: str, name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    return {
        **GOOD[kind],
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**GOOD[kind]["spec"], **spec},
    }


def declare_everything(api: ApiServerInMemory, subscriptions: int) -> None:
    """Each namespace has ten Brokers; each Broker an Exchange and some Subscriptions, and a pod that serves."""
    for number in range(BROKERS):
        namespace, name = NAMESPACES[number % 20], f"b{number}"
        api.user_applies(resource("Broker", name, namespace))
        api.user_applies(resource("Exchange", f"x{number}", namespace, brokerRef={"name": name}))
        api.objects["Pod", namespace, f"{name}-0"] = {
            "kind": "Pod",
            "metadata": {"name": f"{name}-0", "namespace": namespace},
            "status": {"containerStatuses": [{"name": "broker", "ready": True}]},
        }
    for number in range(subscriptions):
        at = number % BROKERS
        refs = {"brokerRef": {"name": f"b{at}"}, "exchangeRef": {"name": f"x{at}"}}
        api.user_applies(resource("Subscription", f"s{number}", NAMESPACES[at % 20], **refs))
    api.events.clear()


@contextlib.asynccontextmanager
async def running(api: ApiServerInMemory, namespaces: tuple[str, ...]) -> AsyncGenerator[Controller]:
    """The operator's loops, without watches: the lists find out everything."""
    controller = Controller(Cache(), Metrics(), now)
    sessions = cast(BrokerSessions, SessionsInMemory(BrokerInMemory()))

    def clock() -> datetime:
        return datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=now())

    brokers = BrokerReconciler(
        api,
        controller.cache,
        sessions,
        replace(SETTINGS, namespaces=namespaces),
        clock,
        controller.enqueue,
        controller.enqueue_with_dependents,
        controller.resync_soon,
        controller.children,
    )
    whole = Reconciler(api, controller.cache, sessions, SETTINGS, "c1", brokers, clock, controller.enqueue)

    async def nothing() -> None:
        return

    kube = cast(ApiServer, api)
    tasks = [
        asyncio.create_task(controller.resync(kube, namespaces, PERIOD, nothing, brokers.begin_resync)),
        *(asyncio.create_task(controller.run_worker(whole.reconcile)) for _ in range(32)),
        asyncio.create_task(whole.paced.run()),
    ]
    if namespaces:
        tasks.append(asyncio.create_task(controller.resync_children(kube, namespaces)))
    try:
        yield controller
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def requests_per_second(api: ApiServerInMemory, namespaces: tuple[str, ...], intervals: int) -> list[float]:
    """Of each interval between two resyncs, after the operator has made everything."""
    found: list[float] = []
    async with running(api, namespaces):
        await asyncio.sleep(1.5 * PERIOD)
        for _ in range(intervals):
            before = api.requests
            await asyncio.sleep(PERIOD)
            found.append((api.requests - before) / PERIOD)
    return found


def measured(namespaces: tuple[str, ...], *, subscriptions: int, intervals: int) -> list[float]:
    api = ApiServerInMemory()
    declare_everything(api, subscriptions)
    found = run_in_virtual_time(requests_per_second(api, namespaces, intervals))
    statuses = [it["status"]["conditions"] for (kind, *_), it in api.objects.items() if kind in GOOD]
    ready = [conditions[0]["status"] for conditions in statuses]
    assert ready == ["True"] * (2 * BROKERS + subscriptions)
    return found


BOTH_MODES = pytest.mark.parametrize("namespaces", [(), NAMESPACES], ids=["cluster-wide", "namespaced"])


@BOTH_MODES
def test_subscriptions_cost_their_lists(namespaces: tuple[str, ...]) -> None:
    """In this interval no Broker's turn comes. In each of 20 namespaces four kinds of resources are listed every 120 s,
    and three kinds of children every 20 s; in the whole cluster all seven kinds every 120 s. A page has 500: there
    1,000 Services need 2, and the other kinds one but Subscriptions. One request asks which kinds are installed.
    """
    (found,) = measured(namespaces, subscriptions=SUBSCRIPTIONS, intervals=1)
    if namespaces:  # what begins every 20 s begins five or six times in 120 s
        assert found * 120 in (20 * 4 + 20 * 3 * 5 + 1, 20 * 4 + 20 * 3 * 6 + 1)
    else:
        assert found * 120 == 5 + 2 + SUBSCRIPTIONS // 500 + 1


@BOTH_MODES
def test_idle_it_costs_at_most_ten_requests_a_second(namespaces: tuple[str, ...]) -> None:
    """Ten intervals are as long as the longest time after which a Broker has its turn. There are few Subscriptions, to
    make the test shorter: all that they cost are further pages of lists, of which 10,000 need 20 in 120 s.
    """
    found = measured(namespaces, subscriptions=200, intervals=10)
    assert max(found) <= 10 - 20 / 120
