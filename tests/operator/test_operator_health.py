"""Liveness: it fails if no list succeeds, if the watches deliver nothing, or if a reconcile does not end. The clock is
set by the test.
"""

from __future__ import annotations

import asyncio
import socket

import aiohttp
import pytest

from penstock_api.failure import CannotRun
from penstock_operator import health
from penstock_operator.cluster.cache import Cache, ResourceKey
from penstock_operator.cluster.controller import Controller
from penstock_operator.metrics import Metrics
from penstock_operator.settings import OperatorSettings


def controller() -> Controller:
    return Controller(Cache(), Metrics(), lambda: 0.0)


def test_a_new_operator_is_live_until_its_first_list_is_overdue() -> None:
    made = controller()
    assert health.problem_of(made, began=0, resync_seconds=300, now=960) is None
    assert (
        health.problem_of(made, began=0, resync_seconds=300, now=961) == "the resources could not be listed for 961 s"
    )


def test_it_is_not_restarted_before_the_kubelet_has_forgotten_the_restart_before() -> None:
    made = controller()
    assert health.problem_of(made, began=0, resync_seconds=10, now=660) is None
    assert health.problem_of(made, began=0, resync_seconds=10, now=661) == "the resources could not be listed for 661 s"


def test_lists_keep_it_alive() -> None:
    made = controller()
    made.last_listed = 1000
    assert health.problem_of(made, began=0, resync_seconds=300, now=1960) is None
    assert health.problem_of(made, began=0, resync_seconds=300, now=1961) is not None


def test_watches_that_tell_nothing_are_noticed() -> None:
    made = controller()
    made.last_listed = 0
    made.lists_without_events = 2
    assert health.problem_of(made, 0, 100, 0) is None
    made.lists_without_events = 3
    assert health.problem_of(made, 0, 100, 0) == "3 lists in a row found changes that no watch had reported"


def test_work_that_goes_on_a_minute_after_its_deadline_is_named() -> None:
    made = controller()
    made.pass_seconds = 200
    made.last_listed = 1000
    made.started[ResourceKey("Broker", "shop", "main")] = 740
    assert health.problem_of(made, 0, 1000, 1000) is None
    said = "work on Broker shop/main does not end, 260 s after its beginning"
    assert health.problem_of(made, 0, 1000, 1001) == said


async def test_it_answers_over_http() -> None:
    made, metrics = controller(), Metrics()
    settings = OperatorSettings(broker_image="b", lag_image="l", liveness_host="127.0.0.1", liveness_port=0)
    runner = await health.serve(settings, made, metrics, lambda: 0.0)
    try:
        (address,) = runner.addresses
        async with aiohttp.ClientSession(f"http://127.0.0.1:{address[1]}") as client:
            assert (await client.get("/livez")).status == 200
            assert (await client.get("/readyz")).status == 503
            made.cache.is_complete = True
            assert (await client.get("/readyz")).status == 200
            with metrics.measured("Broker"):
                await asyncio.sleep(0)
            text = await (await client.get("/metrics")).text()
            assert 'penstock_operator_passes_total{kind="Broker",result="done"} 1.0' in text
    finally:
        await runner.cleanup()


async def test_a_port_that_is_taken_is_no_bug_of_the_operator() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        settings = OperatorSettings(broker_image="b", lag_image="l", liveness_host="127.0.0.1", liveness_port=port)
        with pytest.raises(CannotRun) as told:
            await health.serve(settings, controller(), Metrics(), lambda: 0.0)
    where = f"127.0.0.1:{port} (--liveness-host, --liveness-port)"
    assert told.value.cause == f"the operator can't listen on {where}: Address already in use."
    assert told.value.cure == "End what listens there, or name another port."
