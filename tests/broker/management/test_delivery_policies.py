"""The `delivery` of subscriptions and queues: declared, kept, and its destinations made;
docs/reference/management.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from support.broker_process import BrokerProcess

from penstock_amqp.client.management import ManagementClient
from penstock_api.management import (
    DeliveryPolicy,
    EntityType,
    ExchangeDeclaration,
    Operation,
    QueueDeclaration,
    SubscriptionDeclaration,
)

BILLING = SubscriptionDeclaration(subscription_name="billing", exchange="amq.topic")


@pytest_asyncio.fixture
async def client(broker_process: BrokerProcess) -> AsyncIterator[ManagementClient]:
    client = await ManagementClient.connect(broker_process.management)
    yield client
    await client.close()


async def queues(client: ManagementClient) -> set[object]:
    return {each["name"] for each in (await client.query(EntityType.QUEUE)).results}


async def test_a_declaration_makes_the_queues_that_it_names(
    client: ManagementClient, broker_process: BrokerProcess
) -> None:
    await client.create(ExchangeDeclaration(exchange_type="Direct"), "graves")
    wanted = BILLING.model_copy(update={"delivery": DeliveryPolicy(dead_letter="dead", expiry="queue://late")})
    assert (await client.create(wanted)).attributes["outcome"] == "Created"
    elsewhere = QueueDeclaration(delivery=DeliveryPolicy(dead_letter="graves/jobs", expiry="later/jobs"))
    assert (await client.create(elsewhere, "jobs")).attributes["outcome"] == "Created"
    assert await queues(client) == {"dead", "late", "jobs"}
    broker_process.kill()
    broker_process.start()
    again = await ManagementClient.connect(broker_process.management)
    try:
        assert await queues(again) == {"dead", "late", "jobs"}
        assert (await again.create(wanted)).attributes["outcome"] == "Unchanged"
        assert (await again.create(elsewhere, "jobs")).attributes["outcome"] == "Unchanged"
        changed = BILLING.model_copy(update={"delivery": DeliveryPolicy(dead_letter="dead", max_deliveries=2)})
        assert (await again.create(changed)).attributes["outcome"] == "Updated"
    finally:
        await again.close()


@pytest.mark.parametrize(
    ("delivery", "reason"),
    [
        (DeliveryPolicy(dead_letter="psub:durable:global:x"), "NotAllowed"),
        (DeliveryPolicy(dead_letter="dead", expiry="$management"), "InvalidAddress"),
        (DeliveryPolicy(expiry="jobs"), "InvalidRequest"),
    ],
)
async def test_a_destination_that_can_not_be_makes_nothing(
    client: ManagementClient, delivery: DeliveryPolicy, reason: str
) -> None:
    answer = await client.request(Operation.CREATE, EntityType.QUEUE, "jobs", QueueDeclaration(delivery=delivery))
    assert answer.reason == reason
    assert await queues(client) == set()
