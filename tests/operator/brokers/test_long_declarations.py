"""What the operator declares is longer than messages of clients may be, or than one request: with a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest
import pytest_asyncio
from support.broker_process import BrokerProcess
from support.resources import exchange, subscription
from support.waiting import wait_until

from penstock_amqp.client.management import ManagementClient
from penstock_api import declaration
from penstock_api.management import EntityType
from penstock_operator.brokers.management import BrokerManagement, ManagementAccess
from penstock_operator.brokers.management_amqp import AmqpManagement
from penstock_operator.brokers.session import BrokerSession
from penstock_operator.brokers.sessions import BrokerSessions
from penstock_operator.plans.decisions import DeclareEntity, Reach

ACCESS = ManagementAccess(host="", port=0, server_name="main", ca=b"", user="", password="")
ORDERS = DeclareEntity(EntityType.EXCHANGE, "orders", declaration.exchange_declaration(exchange(), cluster_id="c1"))


@pytest_asyncio.fixture
async def session(tmp_path: Path) -> AsyncIterator[BrokerSession]:
    """A session to a broker that takes messages of 1 KiB from its clients, the least that a Broker may say."""
    connections = 0

    async def connect(_: ManagementAccess) -> BrokerManagement:
        nonlocal connections
        connections += 1
        return AmqpManagement(await ManagementClient.connect(process.management), "main")

    with BrokerProcess(tmp_path / "data", settings={"maxMessageBytes": 1024}) as process:
        sessions = BrokerSessions(connect, 60, lambda: datetime.now(UTC))
        made = await sessions.ensure("shop/main", ACCESS, lambda _: None)

        async def is_connected() -> bool:
            return made.reach is Reach.CONNECTED

        await wait_until(is_connected)
        yield made
        await sessions.close()
    assert connections == 1, "the broker has ended a link"


def subscriptions(number: int, keys: int, length: int) -> list[DeclareEntity]:
    """So many subscriptions with so many binding keys, of characters that have four bytes each."""
    made = [
        subscription(
            metadata={"name": f"s{each}", "uid": f"u{each}"},
            bindingKeys=[f"{key}.".ljust(length, "\U0001f980") for key in range(keys)],
        )
        for each in range(number)
    ]
    bodies = [declaration.subscription_declaration(each, exchange="orders", cluster_id="c1") for each in made]
    return [DeclareEntity(EntityType.SUBSCRIPTION, None, body) for body in bodies]


@pytest.mark.parametrize(("number", "keys", "length"), [(150, 1, 10), (100, 256, 255)], ids=["many", "25 MiB"])
async def test_all_are_declared(session: BrokerSession, number: int, keys: int, length: int) -> None:
    await session.declare(ORDERS)
    replies = await asyncio.gather(*(session.declare(each) for each in subscriptions(number, keys, length)))
    assert {reply.status for reply in replies} == {201}
    assert {len(cast(list[object], reply.body["bindingKeys"])) for reply in replies} == {keys}
