"""A queue that a resource declares: its owner mark, its messages over kill -9, its dead letters, and who polls it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from proton import Message
from support.broker_process import BrokerProcess
from support.proton_client import connected, publish, take

from penstock_amqp.client.management import ManagementClient, ManagementReply
from penstock_api.management import (
    Deletion,
    DeliveryPolicy,
    EntityType,
    Operation,
    Owner,
    QueueDeclaration,
    QueueLimits,
)
from penstock_api.state_documents import SubscriptionState

OWNER = Owner(cluster_id="local", kind="Queue", namespace="shop", name="invoices", uid="u1")
INVOICES = QueueDeclaration(owner=OWNER)
SECONDS = 60


@pytest_asyncio.fixture
async def client(broker_process: BrokerProcess) -> AsyncIterator[ManagementClient]:
    client = await ManagementClient.connect(broker_process.management)
    yield client
    await client.close()


async def ask(client: ManagementClient, body: QueueDeclaration, name: str = "invoices") -> ManagementReply:
    """CREATE, whatever the answer."""
    return await client.request(Operation.CREATE, EntityType.QUEUE, name, body)


async def delete(client: ManagementClient, deletion: Deletion) -> ManagementReply:
    """DELETE, whatever the answer."""
    return await client.request(Operation.DELETE, EntityType.QUEUE, "invoices", deletion)


async def test_the_mark_is_told_and_an_equal_declaration_changes_nothing(client: ManagementClient) -> None:
    assert (await ask(client, INVOICES)).attributes["outcome"] == "Created"
    assert (await ask(client, INVOICES)).attributes["outcome"] == "Unchanged"
    told = (await client.request(Operation.READ, EntityType.QUEUE, "invoices")).attributes
    mark = {"clusterId": "local", "kind": "Queue", "namespace": "shop", "name": "invoices", "uid": "u1"}
    assert told["owner"] == mark | {"deletionPolicy": "Delete"}
    assert told["declaration"] == {"persistence": "Always", "owner": mark | {"deletionPolicy": "Delete"}}
    (row,) = (await client.query(EntityType.QUEUE, attributes=["name", "owner", "revision"])).results
    assert (row["name"], row["owner"]) == ("invoices", told["owner"])


async def test_what_has_no_mark_is_adopted_with_its_messages(
    client: ManagementClient, broker_process: BrokerProcess
) -> None:
    await client.create(QueueDeclaration(), "invoices")
    with connected(broker_process.url) as connection:
        publish(connection.create_sender("invoices"), ["1"])
    assert (await ask(client, INVOICES)).attributes["outcome"] == "Adopted"
    (row,) = (await client.query(EntityType.QUEUE, attributes=["depth", "owner"])).results
    assert row["depth"] == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"owner": None}, "Managed"),
        ({"owner": OWNER.model_copy(update={"name": "bills", "uid": "u2"})}, "DuplicateSubscription"),
        ({"owner": OWNER.model_copy(update={"cluster_id": "other", "uid": "u2"})}, "DuplicateSubscription"),
        ({"owner": OWNER.model_copy(update={"kind": "Subscription"})}, "DuplicateSubscription"),
        ({"durable": False}, "Immutable"),
    ],
)
async def test_what_belongs_to_a_resource_is_not_changed_by_another(
    client: ManagementClient, change: dict[str, object], reason: str
) -> None:
    await ask(client, INVOICES)
    refused = await ask(client, INVOICES.model_copy(update=change | {"limits": QueueLimits(max_messages=1)}))
    assert (refused.status, refused.reason) == (409, reason)
    assert (await ask(client, INVOICES)).attributes["outcome"] == "Unchanged"


async def test_a_restored_resource_takes_over_what_it_had(client: ManagementClient) -> None:
    await ask(client, INVOICES)
    again = INVOICES.model_copy(update={"owner": OWNER.model_copy(update={"uid": "u2"})})
    assert (await ask(client, again)).attributes["outcome"] == "Updated"
    moved = OWNER.model_copy(update={"uid": "u3", "cluster_id": "other"})
    taken = INVOICES.model_copy(update={"owner": moved, "adoption": "OtherCluster"})
    assert (await ask(client, taken)).attributes["outcome"] == "Adopted"


async def test_only_its_own_resource_deletes_it_and_only_when_nobody_consumes(
    client: ManagementClient, broker_process: BrokerProcess
) -> None:
    await ask(client, INVOICES)
    assert (await delete(client, Deletion(owner_uid="u2"))).reason == "Managed"
    with connected(broker_process.url, container="till") as connection:
        connection.create_receiver("invoices")
        publish(connection.create_sender("invoices"), ["1"])
        blocked = await delete(client, Deletion(owner_uid="u1"))
        assert (blocked.reason, blocked.attributes["containers"]) == ("ConsumersActive", ["till"])
    assert (await delete(client, Deletion(owner_uid="u1", if_unused=False, if_empty=True))).reason == "NotEmpty"
    assert (await delete(client, Deletion(owner_uid="u1", if_unused=False))).status == 204
    assert (await client.query(EntityType.QUEUE)).results == []


async def test_its_messages_outlive_kill_9_although_nobody_asked_for_durability(
    client: ManagementClient, broker_process: BrokerProcess
) -> None:
    """`persistence` is left out: a queue of a resource keeps everything. What a consumer rejects is a dead letter."""
    wanted = INVOICES.model_copy(update={"delivery": DeliveryPolicy(dead_letter="dead", max_deliveries=3)})
    await ask(client, wanted)
    with connected(broker_process.url) as connection:
        publish(connection.create_sender("invoices"), ["1", "2", "3"], durable=False)
    broker_process.kill()
    broker_process.start()
    again = await ManagementClient.connect(broker_process.management)
    try:
        assert (await ask(again, wanted)).attributes["outcome"] == "Unchanged"
        with connected(broker_process.url) as connection:
            receiver = connection.create_receiver("invoices", credit=1)
            first: Any = receiver.receive(timeout=SECONDS)
            assert first.body == "1"
            receiver.reject()
            assert [body for body, _ in take(receiver, 2)] == ["2", "3"]
            assert [body for body, _ in take(connection.create_receiver("dead"), 1)] == ["1"]
    finally:
        await again.close()


async def test_who_polls_the_subscriptions_is_told_of_it_without_an_exchange(
    client: ManagementClient, broker_process: BrokerProcess
) -> None:
    """The queue of nobody's is not told; what changed is told once; the end is told."""
    await client.create(QueueDeclaration(), "nobody's")
    await ask(client, INVOICES)
    first = await client.changed_states("")
    (state,) = [SubscriptionState.read(each) for each in first.page.results]
    assert (state.queue_name, state.exchange, state.owner, state.depth) == ("invoices", "", OWNER, 0)
    with connected(broker_process.url) as connection:
        publish(connection.create_sender("nobody's"), ["0"])
        connection.create_sender("invoices").send(Message(body="1"))
    second = await client.changed_states(str(first.token))
    assert [(each["queueName"], each["depth"]) for each in second.page.results] == [("invoices", 1)]
    third = await client.changed_states(str(second.token))
    assert (third.page.results, third.removed) == ([], ())
    await delete(client, Deletion(owner_uid="u1"))
    assert (await client.changed_states(str(third.token))).removed == ("invoices",)
    assert (await client.query(EntityType.SUBSCRIPTION)).results == []
