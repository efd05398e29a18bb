"""`$management` of a real broker, over its Unix socket: declare, change, read, list, delete; and who may not."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from proton import Delivery, Message
from proton.utils import LinkDetached, SendException
from support.broker_process import BrokerProcess
from support.proton_client import Subscribed, connected, publish, take
from support.raw_client import RawClient

from penstock_amqp.client.management import ListedEntity, ManagementClient, ManagementReply
from penstock_amqp.frames.performatives import Source, Target, Transfer
from penstock_amqp.messages.message_codec import Message as EncodedMessage
from penstock_amqp.messages.message_codec import Properties, encode_message
from penstock_api.management import (
    Deletion,
    EntityType,
    ExchangeDeclaration,
    Operation,
    Owner,
    QueueDeclaration,
    QueueLimits,
    SubscriptionDeclaration,
)
from penstock_api.state_documents import BrokerState, ExchangeState, SubscriptionState

ORDERS = ExchangeDeclaration(exchange_type="Topic")
OWNER = Owner(cluster_id="local", kind="Subscription", namespace="shop", name="billing", uid="u1")
BILLING = SubscriptionDeclaration(subscription_name="billing", exchange="orders", owner=OWNER)
NAME = "psub:durable:global:billing"
SECONDS = 60


@pytest_asyncio.fixture
async def client(broker_process: BrokerProcess) -> AsyncIterator[ManagementClient]:
    client = await ManagementClient.connect(broker_process.management)
    yield client
    await client.close()


async def ask(client: ManagementClient, body: SubscriptionDeclaration, name: str | None = None) -> ManagementReply:
    """CREATE, whatever the answer."""
    return await client.request(Operation.CREATE, EntityType.SUBSCRIPTION, name, body)


def body_of(answer: ManagementReply) -> dict[str, object]:
    """The body of a refusal."""
    return answer.attributes


async def delete(client: ManagementClient, deletion: Deletion) -> ManagementReply:
    """DELETE, whatever the answer."""
    return await client.request(Operation.DELETE, EntityType.SUBSCRIPTION, NAME, deletion)


async def declare(client: ManagementClient, declaration: SubscriptionDeclaration = BILLING) -> dict[str, object]:
    await client.create(ORDERS, "orders")
    return (await client.create(declaration)).attributes


async def test_a_declaration_is_made_once_and_says_so(client: ManagementClient) -> None:
    assert (await declare(client))["outcome"] == "Created"
    again = await client.create(BILLING)
    assert (again.status, again.attributes["outcome"]) == (200, "Unchanged")
    named = await client.create(BILLING, NAME)
    assert (named.status, named.attributes["outcome"]) == (200, "Unchanged")
    wrong = await ask(client, BILLING, "psub:durable:global:other")
    assert (wrong.status, wrong.reason) == (400, "InvalidName")


async def test_states_fit_the_models(client: ManagementClient) -> None:
    await declare(client)
    (subscription,) = await client.states(SubscriptionState)
    assert (subscription.queue_name, subscription.owner, subscription.depth) == (NAME, OWNER, 0)
    exchanges = await client.states(ExchangeState)
    assert [each.name for each in exchanges] == ["amq.direct", "amq.fanout", "amq.match", "amq.topic", "orders"]
    (broker,) = await client.states(BrokerState)
    assert (broker.subscriptions, broker.exchanges, broker.durable_work, broker.epoch) == (1, 5, "Ok", 1)


async def test_a_changed_binding_is_put_in_place(client: ManagementClient, broker_process: BrokerProcess) -> None:
    await declare(client)
    with connected(broker_process.url) as connection:
        sender = connection.create_sender("orders")
        publish(sender, ["kept"], subject="us.1")
        changed = BILLING.model_copy(update={"binding_keys": ("eu.#",), "selector": "amount > 10"})
        answer = (await client.create(changed)).check()
        assert (answer.attributes["outcome"], answer.attributes["bindingKeys"]) == ("Rebound", ["eu.#"])
        publish(sender, ["other"], subject="us.1", properties={"amount": 11})
        publish(sender, ["small"], subject="eu.1", properties={"amount": 1})
        publish(sender, ["new"], subject="eu.1", properties={"amount": 11})
        receiver = connection.create_receiver("orders/eu.#", name="billing|global", options=Subscribed(), credit=10)
        assert take(receiver, 2) == [("kept", 0), ("new", 0)]


async def test_a_rebind_that_has_to_wait_says_for_what(client: ManagementClient, broker_process: BrokerProcess) -> None:
    await declare(client, BILLING.model_copy(update={"rebind_policy": "WhenIdle"}))
    changed = BILLING.model_copy(update={"rebind_policy": "WhenIdle", "binding_keys": ("eu.#",)})
    with connected(broker_process.url) as connection:
        connection.create_receiver("orders", name="billing|global", options=Subscribed(), credit=0)
        attributes = (await client.create(changed)).attributes
        assert (attributes["outcome"], attributes["blockedBy"], attributes["bindingKeys"]) == (
            "RebindBlocked",
            "ConsumersActive",
            ["#"],
        )


async def test_another_resource_can_not_take_a_declared_name(client: ManagementClient) -> None:
    await declare(client)
    other = OWNER.model_copy(update={"namespace": "elsewhere"})
    answer = await ask(client, BILLING.model_copy(update={"owner": other}))
    assert (answer.status, answer.reason) == (409, "DuplicateSubscription")
    adopted = OWNER.model_copy(update={"uid": "u2"})
    same = await client.create(BILLING.model_copy(update={"owner": adopted}))
    assert same.attributes["outcome"] == "Updated"


async def test_what_another_cluster_declared_is_adopted_if_that_is_allowed(
    client: ManagementClient, broker_process: BrokerProcess
) -> None:
    """As after a restore: exchange, subscription and the message in it stay, and both have the new mark."""
    of_exchange = OWNER.model_copy(update={"kind": "Exchange", "name": "orders"})
    await client.create(ORDERS.model_copy(update={"owner": of_exchange}), "orders")
    await client.create(BILLING)
    with connected(broker_process.url) as connection:
        publish(connection.create_sender("orders/eu"), ["waits"])
    here = {"cluster_id": "new", "uid": "u2"}
    exchange = ORDERS.model_copy(update={"owner": of_exchange.model_copy(update=here)})
    subscription = BILLING.model_copy(update={"owner": OWNER.model_copy(update=here)})
    refused = await client.request(Operation.CREATE, EntityType.EXCHANGE, "orders", exchange)
    assert (refused.status, refused.reason) == (409, "DuplicateSubscription")
    assert "allow the adoption of OtherCluster" in refused.description
    assert (await ask(client, subscription)).reason == "DuplicateSubscription"
    taken = await client.create(exchange.model_copy(update={"adoption": "OtherCluster"}), "orders")
    assert taken.attributes["outcome"] == "Adopted"
    taken = await client.create(subscription.model_copy(update={"adoption": "OtherCluster"}))
    assert taken.attributes["outcome"] == "Adopted"
    state = await client.read_state(SubscriptionState, NAME)
    assert state.owner is not None
    assert (state.owner.cluster_id, state.owner.uid, state.depth) == ("new", "u2", 1)
    again = await client.create(subscription.model_copy(update={"adoption": "OtherCluster"}))
    assert again.attributes["outcome"] == "Unchanged"


async def test_an_orphan_of_another_name_is_adopted_only_as_an_orphan(client: ManagementClient) -> None:
    await declare(client)
    other = BILLING.model_copy(update={"owner": OWNER.model_copy(update={"name": "invoices", "uid": "u9"})})
    assert (await ask(client, other.model_copy(update={"adoption": "OtherCluster"}))).reason == "DuplicateSubscription"
    taken = await client.create(other.model_copy(update={"adoption": "Orphans"}))
    assert taken.attributes["outcome"] == "Adopted"


async def test_counters_follow_a_message_through_its_life(
    client: ManagementClient, broker_process: BrokerProcess
) -> None:
    await declare(client)
    with connected(broker_process.url) as connection:
        publish(connection.create_sender("orders"), ["a", "b", "c"])
        waiting = await client.read_state(SubscriptionState, NAME)
        assert (waiting.depth, waiting.ready, waiting.in_flight, waiting.enqueued) == (3, 3, 0, 3)
        assert waiting.oldest_available_ms is not None
        receiver = connection.create_receiver("orders", name="billing|global", options=Subscribed(), credit=10)
        assert take(receiver, 1) == [("a", 0)]
        receiver.receive(timeout=60)
        receiver.receive(timeout=60)
    # Its connection is closed: what it held came back.
    state = await client.read_state(SubscriptionState, NAME)
    assert (state.depth, state.in_flight, state.acked, state.delivered, state.returned) == (2, 0, 1, 3, 2)
    assert state.depth == state.enqueued - state.acked
    assert (sum(state.sojourn.counts), sum(state.wait.counts)) == (1, 3)
    assert state.unused_since_ms is not None


async def test_a_subscription_in_use_or_not_empty_is_deleted_only_if_asked(
    client: ManagementClient, broker_process: BrokerProcess
) -> None:
    await declare(client)
    with connected(broker_process.url, "app") as connection:
        publish(connection.create_sender("orders"), ["a"])
        full = await delete(client, Deletion(if_empty=True))
        assert (full.status, full.reason, body_of(full)["depth"]) == (409, "NotEmpty", 1)
        connection.create_receiver("orders", name="billing|global", options=Subscribed(), credit=0)
        used = await delete(client, Deletion())
        assert (used.status, used.reason, body_of(used)["containers"]) == (409, "ConsumersActive", ["app"])
        assert (await delete(client, Deletion(if_unused=False))).status == 204
    assert (await delete(client, Deletion())).status == 204
    assert (await client.request(Operation.READ, EntityType.SUBSCRIPTION, NAME)).status == 404


async def test_a_list_is_answered_entry_by_entry(client: ManagementClient) -> None:
    entries = [
        ListedEntity(EntityType.EXCHANGE, "orders", ORDERS),
        ListedEntity(EntityType.SUBSCRIPTION, None, BILLING),
        ListedEntity(EntityType.SUBSCRIPTION, None, BILLING.model_copy(update={"exchange": "nowhere"})),
    ]
    answers = await client.create_all(entries)
    assert [(answer.status, answer.reason) for answer in answers] == [
        (201, None),
        (201, None),
        (404, "ExchangeNotFound"),
    ]


async def test_a_list_of_declarations_is_answered_with_what_was_asked_for(client: ManagementClient) -> None:
    """Who declares thousands does not have to read the figures of each."""
    entries = [
        ListedEntity(EntityType.EXCHANGE, "orders", ORDERS),
        ListedEntity(EntityType.SUBSCRIPTION, None, BILLING),
        ListedEntity(EntityType.QUEUE, "jobs", QueueDeclaration()),
        ListedEntity(EntityType.SUBSCRIPTION, None, BILLING.model_copy(update={"exchange": "nowhere"})),
    ]
    made = await client.create_all(entries, attributes=["revision", "exchange", "bindingKeys"])
    assert [answer.body for answer in made] == [
        {"outcome": "Created", "revision": made[0].attributes["revision"]},
        {
            "outcome": "Created",
            "revision": made[1].attributes["revision"],
            "exchange": "orders",
            "bindingKeys": ["#"],
        },
        {"outcome": "Created", "revision": made[2].attributes["revision"]},
        None,
    ]
    again = await client.create_all(entries[1:2], attributes=["revision", "depth"])
    assert again[0].body == {"outcome": "Unchanged", "revision": made[1].attributes["revision"], "depth": 0}
    whole = await client.create_all(entries[1:2])
    assert whole[0].attributes.keys() > {"depth", "owner", "sojourn", "exchange"}


async def test_long_lists_come_in_pages_in_name_order(client: ManagementClient) -> None:
    await client.create(ORDERS, "orders")
    bare = BILLING.model_copy(update={"owner": None})
    declarations = [bare.model_copy(update={"subscription_name": f"s{number:03}"}) for number in range(120)]
    await client.create_all([ListedEntity(EntityType.SUBSCRIPTION, None, each) for each in declarations])
    page = await client.query(EntityType.SUBSCRIPTION, offset=100, count=50)
    assert (len(page.results), page.total_count) == (20, 120)
    assert page.results[0]["subscriptionName"] == "s100"
    since = await client.query(EntityType.SUBSCRIPTION, changed_since=page.revision)
    assert since.results == []


async def test_declared_things_survive_kill_9(client: ManagementClient, broker_process: BrokerProcess) -> None:
    limits = QueueLimits(max_bytes=1000, overflow="DropNewest")
    await declare(client, BILLING.model_copy(update={"limits": limits, "selector": "a = 1"}))
    before = await client.read_state(BrokerState)
    broker_process.kill()
    broker_process.start()
    again = await ManagementClient.connect(broker_process.management)
    try:
        after = await again.read_state(BrokerState)
        assert (after.instance_id, after.epoch) == (before.instance_id, before.epoch + 1)
        state = await again.read_state(SubscriptionState, NAME)
        assert (state.owner, state.selector) == (OWNER, "a = 1")
        declared = BILLING.model_copy(update={"limits": limits, "selector": "a = 1"})
        assert (await again.create(declared)).attributes["outcome"] == "Unchanged"
    finally:
        await again.close()


async def test_clients_see_their_own_connection_and_nothing_else(broker_process: BrokerProcess) -> None:
    client = await ManagementClient.connect(broker_process.addresses["amqp"])
    try:
        refused = await client.request(Operation.CREATE, EntityType.EXCHANGE, "orders", ORDERS)
        assert (refused.status, refused.condition, refused.reason) == (403, "amqp:unauthorized-access", "NotPermitted")
        (own,) = await client.query_all(EntityType.CONNECTION)
        assert own["listener"] == "amqp"
    finally:
        await client.close()


async def test_what_matches_nothing_goes_to_the_alternate(
    client: ManagementClient, broker_process: BrokerProcess
) -> None:
    await client.create(ExchangeDeclaration(exchange_type="Fanout"), "lost")
    alternate = ExchangeDeclaration(exchange_type="Topic", unroutable="Alternate", alternate_exchange="lost")
    await client.create(alternate, "orders")
    with connected(broker_process.url) as connection:
        found = connection.create_receiver("orders/eu.#", credit=10)
        lost = connection.create_receiver("lost", credit=10)
        sender = connection.create_sender("orders")
        publish(sender, ["matches"], subject="eu.1")
        publish(sender, ["lost"], subject="us.1")
        assert take(lost, 1) == [("lost", 0)]
        assert take(found, 1) == [("matches", 0)]
    state = await client.read_state(ExchangeState, "orders")
    assert (state.received, state.unroutable_messages) == (2, 1)


async def test_what_every_selector_refuses_is_accepted_and_counted(
    client: ManagementClient, broker_process: BrokerProcess
) -> None:
    await declare(client, BILLING.model_copy(update={"selector": "region = 'eu'"}))
    with connected(broker_process.url) as connection:
        sender = connection.create_sender("orders")
        for region in ("eu", "us", "us", None):
            assert sender.send(Message(body=region, properties={"region": region})).remote_state == Delivery.ACCEPTED
        state = await client.read_state(ExchangeState, "orders")
        assert (state.received, state.unroutable_messages, state.unselected_messages) == (4, 0, 3)
        taken = await client.read_state(SubscriptionState, NAME)
        assert taken.ready == 1
        # Another subscription that takes all: nothing is unselected any more.
        audit = SubscriptionDeclaration(subscription_name="audit", exchange="orders", binding_keys=("#",))
        await client.create(audit)
        sender.send(Message(body="us", properties={"region": "us"}))
    state = await client.read_state(ExchangeState, "orders")
    assert (state.received, state.unselected_messages) == (5, 3)


async def test_producers_learn_that_their_exchange_is_gone(
    client: ManagementClient, broker_process: BrokerProcess
) -> None:
    await client.create(ORDERS, "orders")
    with connected(broker_process.url) as connection:
        sender = connection.create_sender("orders")
        publish(sender, ["accepted"])
        await client.delete(EntityType.EXCHANGE, "orders")
        with pytest.raises(LinkDetached) as gone:
            publish(sender, ["too late"])
        assert gone.value.condition == "amqp:resource-deleted"


async def test_a_declared_subscription_keeps_undurable_messages_too(
    client: ManagementClient, broker_process: BrokerProcess
) -> None:
    """persistence is Always for what a resource declares, AsSent for all else."""
    await declare(client)
    with connected(broker_process.url) as connection:
        connection.create_receiver("orders", name="own|global", options=Subscribed(), credit=0)
        publish(connection.create_sender("orders"), ["careless"], durable=False)
        broker_process.kill()
        connection.timeout = 0.1
        broker_process.start()
    again = await ManagementClient.connect(broker_process.management)
    try:
        depths = {state.subscription_name: state.depth for state in await again.states(SubscriptionState)}
        assert depths == {"billing": 1, "own": 0}
    finally:
        await again.close()


async def test_an_orderly_stop_counts_what_it_loses(client: ManagementClient, broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        connection.create_receiver("amq.topic", name="own|global", options=Subscribed(), credit=0)
        sender = connection.create_sender("amq.topic")
        publish(sender, ["lost", "lost too"], durable=False)
        publish(sender, ["kept"])
    assert broker_process.stop() == 0
    broker_process.start()
    again = await ManagementClient.connect(broker_process.management)
    try:
        (state,) = await again.states(SubscriptionState)
        assert (state.depth, state.lost_at_restart) == (1, 2)
    finally:
        await again.close()


async def test_a_full_subscription_rejects_or_drops_as_declared(
    client: ManagementClient, broker_process: BrokerProcess
) -> None:
    await client.create(ORDERS, "orders")
    newest = BILLING.model_copy(
        update={"limits": QueueLimits(max_messages=2, overflow="DropNewest"), "binding_keys": ("n",)}
    )
    await client.create(newest)
    strict = BILLING.model_copy(
        update={
            "subscription_name": "strict",
            "owner": None,
            "limits": QueueLimits(max_messages=2, overflow="Reject"),
            "binding_keys": ("r",),
        }
    )
    await client.create(strict)
    with connected(broker_process.url) as connection:
        sender = connection.create_sender("orders")
        publish(sender, ["1", "2", "3"], subject="n")
        publish(sender, ["1", "2"], subject="r")
        with pytest.raises(SendException):
            publish(sender, ["3"], subject="r")
    states = {state.subscription_name: state for state in await client.states(SubscriptionState)}
    assert (states["billing"].depth, states["billing"].dropped, states["billing"].enqueued) == (2, 1, 3)
    assert (states["strict"].depth, states["strict"].dropped, states["strict"].enqueued) == (2, 0, 2)


def test_answers_go_to_a_temporary_queue_of_the_connection_that_asks(broker_process: BrokerProcess) -> None:
    """As JMS applications ask: in order, and the queue of another connection is no reply-to."""
    read = {"operation": "READ", "type": "penstock.connection"}
    with connected(broker_process.url) as mine, connected(broker_process.url) as other:
        replies = mine.create_receiver(None, dynamic=True, credit=10)
        address = replies.link.remote_source.address
        requests = mine.create_sender("$management")
        for number in range(3):
            requests.send(Message(reply_to=address, id=f"r{number}", properties={**read, "name": f"none-{number}"}))
        for number in range(3):
            answer = replies.receive(timeout=SECONDS)
            assert answer.correlation_id == f"r{number}"
            assert answer.properties is not None
            assert answer.properties["statusCode"] == 404
        with pytest.raises(SendException) as refused:
            other.create_sender("$management").send(Message(reply_to=address, id="r", properties=read))
        assert refused.value.state == Delivery.REJECTED


def test_the_later_of_two_reply_links_for_one_address_outlives_the_earlier(broker_process: BrokerProcess) -> None:
    """As where a client attaches anew before it closes its old link."""
    node, target = Source(address="$management"), Target(address="here")
    with RawClient(broker_process.port, "again") as client:
        client.begin()
        client.attach_sender("requests", Target(address="$management"))
        client.attach_receiver("old", node, target=target)
        old = client.last_handle
        client.attach_receiver("new", node, target=target)
        client.detach(old, closed=True)
        client.flow(client.last_handle, credit=1)
        properties = Properties(message_id="1", reply_to="here")
        asked = encode_message(EncodedMessage(properties=properties, application_properties={"operation": "?"}))
        client.send(Transfer(handle=0, delivery_id=0, delivery_tag=b"1"), payload=asked)
        client.expect_transfer()  # and no disposition that rejects the request
