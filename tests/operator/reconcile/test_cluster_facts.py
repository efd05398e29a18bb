"""What is known of the cluster as a whole: how long it is taken for true."""

from __future__ import annotations

from datetime import timedelta

from support.api_server_in_memory import ApiServerInMemory
from support.resources import NOW

from penstock_operator.reconcile.cluster_facts import ClusterFacts


async def test_what_was_read_is_read_again_after_a_while_and_when_the_clock_was_set_back() -> None:
    api, now = ApiServerInMemory(), NOW
    facts = ClusterFacts(api, lambda: now)
    assert not await facts.spark_installed()
    api.served.add("ScheduledSparkApplication")
    assert not await facts.spark_installed()
    assert api.requests == 1
    now = NOW - timedelta(hours=2)
    assert await facts.spark_installed()
    assert api.requests == 2
    assert await facts.spark_installed()
    assert api.requests == 2, "its time counts from then on"
