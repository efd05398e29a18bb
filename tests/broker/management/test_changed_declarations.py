"""QUERY with `changedSince` of a real broker: what was declared, changed and removed since a revision."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from support.broker_process import BrokerProcess

from penstock_amqp.client.management import ListedEntity, ManagementClient, Page
from penstock_api.management import (
    Deletion,
    EntityType,
    ExchangeDeclaration,
    QueueDeclaration,
    QueueLimits,
    SubscriptionDeclaration,
)
from penstock_api.state_documents import BrokerState
from penstock_broker.management import entity_states

ATTRIBUTES = ["queueName", "revision"]


@pytest_asyncio.fixture
async def client(broker_process: BrokerProcess) -> AsyncIterator[ManagementClient]:
    client = await ManagementClient.connect(broker_process.management)
    yield client
    await client.close()


def named(number: int) -> SubscriptionDeclaration:
    return SubscriptionDeclaration(subscription_name=f"s{number}", exchange="orders")


async def since(client: ManagementClient, revision: int | None) -> Page:
    return await client.query(EntityType.SUBSCRIPTION, attributes=ATTRIBUTES, changed_since=revision)


def rows(page: Page) -> list[object]:
    return [row["queueName"] for row in page.results]


async def test_what_changed_and_what_was_removed(client: ManagementClient) -> None:
    await client.create(ExchangeDeclaration(exchange_type="Topic"), "orders")
    await client.create_all([ListedEntity(EntityType.SUBSCRIPTION, None, named(number)) for number in range(4)])
    first = await since(client, None)
    assert (first.is_whole, first.removed, len(rows(first))) == (True, (), 4)
    assert (await client.read_state(BrokerState)).topology_revision == first.revision

    await client.create(named(1))
    again = await since(client, first.revision)
    assert (again.is_whole, again.removed, rows(again)) == (False, (), []), "the same declaration changes nothing"
    assert again.revision == first.revision

    changed = (await client.create(named(1).model_copy(update={"limits": QueueLimits(max_messages=5)}))).attributes
    await client.delete(EntityType.SUBSCRIPTION, "psub:durable:global:s2", Deletion())
    await client.delete(EntityType.SUBSCRIPTION, "psub:durable:global:s3", Deletion())
    await client.create(named(3))
    then = await since(client, first.revision)
    assert then.is_whole is False
    assert rows(then) == ["psub:durable:global:s1", "psub:durable:global:s3"]
    assert then.results[0]["revision"] == changed["revision"]
    assert set(then.removed) == {"psub:durable:global:s2", "psub:durable:global:s3"}
    assert then.total_count == 3


async def test_exchanges_and_queues_are_told_too(client: ManagementClient) -> None:
    await client.create(QueueDeclaration(), "jobs")
    await client.create(ExchangeDeclaration(exchange_type="Topic"), "orders")
    revision = (await client.read_state(BrokerState)).topology_revision
    for kind in (EntityType.EXCHANGE, EntityType.QUEUE):
        page = await client.query(kind, attributes=["name"], changed_since=revision)
        assert (page.is_whole, page.results) == (False, []), "what has this revision is known"
    await client.delete(EntityType.EXCHANGE, "orders")
    await client.delete(EntityType.QUEUE, "jobs")
    for kind, name in ((EntityType.EXCHANGE, "orders"), (EntityType.QUEUE, "jobs")):
        page = await client.query(kind, attributes=["name"], changed_since=revision)
        assert (page.is_whole, page.removed) == (False, (name,))


async def test_a_revision_that_the_broker_has_not_reached_is_answered_with_everything(client: ManagementClient) -> None:
    """It is of the time before a restart."""
    await client.create(ExchangeDeclaration(exchange_type="Topic"), "orders")
    await client.create(named(1))
    page = await since(client, 10_000)
    assert (page.is_whole, page.removed, rows(page)) == (True, (), ["psub:durable:global:s1"])


async def test_what_is_only_declared_is_told_as_with_all_figures(client: ManagementClient) -> None:
    """The shorter way, which looks at no messages, tells the same."""
    await client.create(ExchangeDeclaration(exchange_type="Topic"), "orders")
    await client.create(named(1).model_copy(update={"selector": "a = 1", "binding_keys": ("x", "y")}))
    keys = sorted(entity_states.DECLARED)
    short = await client.query(EntityType.SUBSCRIPTION, attributes=keys)
    long = await client.query(EntityType.SUBSCRIPTION, attributes=[*keys, "depth"])
    assert short.results == [{key: row[key] for key in keys} for row in long.results]
    await client.create(QueueDeclaration(), "jobs")
    names = sorted(entity_states.DECLARED_OF_QUEUE)
    short_queues = await client.query(EntityType.QUEUE, attributes=names)
    long_queues = await client.query(EntityType.QUEUE, attributes=[*names, "depth"])
    assert short_queues.results == [{name: row[name] for name in names} for row in long_queues.results]
    assert (short.results[0]["selector"], short.results[0]["exchange"]) == ("a = 1", "orders")
