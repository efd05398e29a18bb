"""Container-ids that keep changing hands: seen by two real connections that fight, and never by a failover."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack

import pytest_asyncio
from support.broker_process import BrokerProcess
from support.proton_client import Subscribed, connected

from penstock_amqp.client.management import ManagementClient
from penstock_api.state_documents import BrokerState
from penstock_broker.access.container_contests import ContainerContests, Contested

SOLE = {
    "desired_capabilities": ["sole-connection-for-container"],
    "properties": {"sole-connection-enforcement-policy": 1},
}
MINUTE = 60_000


@pytest_asyncio.fixture
async def client(broker_process: BrokerProcess) -> AsyncIterator[ManagementClient]:
    client = await ManagementClient.connect(broker_process.management)
    yield client
    await client.close()


async def contested(client: ManagementClient) -> list[tuple[str, int]]:
    """What the broker says of itself."""
    state = await client.read_state(BrokerState)
    assert all(state.started_ms <= each.last_ms <= state.now_ms for each in state.contested_containers)
    return [(each.container_id, each.takeovers) for each in state.contested_containers]


async def test_connections_that_close_each_other(client: ManagementClient, broker_process: BrokerProcess) -> None:
    with ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(connected(broker_process.url, "twin", **SOLE))
        assert await contested(client) == []
        stack.enter_context(connected(broker_process.url, "twin", **SOLE))
        assert await contested(client) == [("twin", 5)]
    assert "container-id 'twin' keep closing each other" in broker_process.log()


async def test_connections_that_steal_each_others_links(
    client: ManagementClient, broker_process: BrokerProcess
) -> None:
    mine = Subscribed(shared=False, global_=False)
    with ExitStack() as stack:
        for _ in range(6):
            assert await contested(client) == []
            connection = stack.enter_context(connected(broker_process.url, "twin"))
            connection.create_receiver("amq.topic/a", name="topic", options=mine, credit=0)
            connection.create_receiver("jobs", name="queue", credit=0)
        assert await contested(client) == [("twin", 5)]


async def test_one_failover_of_many_links_is_no_fight(client: ManagementClient, broker_process: BrokerProcess) -> None:
    mine = Subscribed(shared=False, global_=False)
    with connected(broker_process.url, "app") as old, connected(broker_process.url, "app") as new:
        for connection in (old, new):
            for number in range(12):
                connection.create_receiver("amq.topic/a", name=f"mine-{number}", options=mine, credit=0)
    assert await contested(client) == []


def fought(contests: ContainerContests, name: str, times: int, start: int = 0) -> None:
    """So many takeovers, a second apart."""
    for number in range(times):
        now = start + number * 1000
        contests.record(name, number % 2, now_ms=now, now_us=now * 1000)


def test_the_busiest_come_first_and_go_when_it_is_quiet() -> None:
    contests = ContainerContests()
    fought(contests, "few", 5)
    fought(contests, "many", 9)
    fought(contests, "hardly", 4)
    assert contests.now(9000) == [Contested("many", 9, 8_000_000), Contested("few", 5, 4_000_000)]
    assert contests.now(5000 + MINUTE) == [Contested("many", 9, 8_000_000)]
    assert contests.now(9000 + MINUTE) == []


def test_what_strangers_make_it_remember_is_bounded() -> None:
    contests = ContainerContests()
    fought(contests, "first", 5)
    for number in range(999):
        contests.record(f"other-{number}", 1, now_ms=5000, now_us=0)
    assert [each.container_id for each in contests.now(5000)] == ["first"]
    contests.record("one more", 1, now_ms=5000, now_us=0)
    assert contests.now(5000) == []
    fought(contests, "x" * 10_000, 5)
    assert [each.container_id for each in contests.now(5000)] == ["x" * 255]
    for number in range(30):
        fought(contests, f"fight-{number}", 5)
    assert len(contests.now(5000)) == 20
