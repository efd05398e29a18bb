"""PEEK, PURGE, MOVE and REDRIVE over `$management` of a real broker; docs/reference/management.md."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio
from proton import Message, symbol, ulong
from support.broker_process import BrokerProcess
from support.proton_client import Subscribed, connected, publish, take

from penstock_amqp.client.management import ManagementClient, ManagementReply
from penstock_api.management import (
    DeliveryPolicy,
    EntityType,
    ManagementDocument,
    Operation,
    QueueDeclaration,
    QueueLimits,
    SubscriptionDeclaration,
)
from penstock_api.message_operations import HandledMessages, MessageSelection, PeekedMessage, PeekReply, PeekRequest

BILLING = "psub:durable:global:billing"


@pytest_asyncio.fixture
async def client(broker_process: BrokerProcess) -> AsyncIterator[ManagementClient]:
    client = await ManagementClient.connect(broker_process.management)
    await client.create(QueueDeclaration(delivery=DeliveryPolicy(dead_letter="dead")), "jobs")
    yield client
    await client.close()


async def ask(
    client: ManagementClient,
    operation: Operation,
    name: str,
    body: ManagementDocument,
    kind: EntityType = EntityType.QUEUE,
) -> ManagementReply:
    return await client.request(operation, kind, name, body)


async def peek(client: ManagementClient, name: str, body: PeekRequest | None = None) -> Sequence[PeekedMessage]:
    answer = (await ask(client, Operation.PEEK, name, body or PeekRequest())).check()
    return PeekReply.model_validate(answer.attributes).messages


async def handled(client: ManagementClient, operation: Operation, name: str, body: MessageSelection) -> HandledMessages:
    return HandledMessages.model_validate((await ask(client, operation, name, body)).check().attributes)


async def bodies(client: ManagementClient, name: str) -> list[str]:
    return [each.body for each in await peek(client, name, PeekRequest(count=100))]


def fill(broker_process: BrokerProcess, count: int, queue: str = "jobs") -> None:
    with connected(broker_process.url) as connection:
        sender = connection.create_sender(queue)
        for number in range(count):
            publish(sender, [f"m{number}"], properties={"n": number})


async def test_peek_shows_a_message_and_leaves_it(client: ManagementClient, broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        message = Message(
            body="hello wörld",
            durable=True,
            priority=7,
            id="m-1",
            subject="greeting",
            group_id="g",
            properties={"n": 1, "raw": b"\x00\xff"},
            annotations={symbol("x-opt-a"): "b"},
        )
        connection.create_sender("jobs").send(message)
    (shown,) = await peek(client, "jobs")
    assert (shown.body, shown.body_form, shown.is_whole, shown.state) == ("hello wörld", "Text", True, "Ready")
    assert (shown.durable, shown.priority, shown.message_id, shown.subject) == (True, 7, "m-1", "greeting")
    assert (shown.group_id, shown.annotations, shown.delivery_count) == ("g", {"x-opt-a": "b"}, 0)
    assert shown.application_properties == {"n": 1, "raw": "00ff"}
    (cut,) = await peek(client, "jobs", PeekRequest(max_body_bytes=8))
    assert (cut.body, cut.is_whole) == ("hello w", False), "the two bytes of the ö are not cut in two"
    with connected(broker_process.url) as connection:
        assert take(connection.create_receiver("jobs"), 1) == [("hello wörld", 0)]


async def test_peek_shows_bytes_in_hexadecimal(client: ManagementClient, broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        sender = connection.create_sender("jobs")
        sender.send(Message(body=b"\x00\x01", inferred=True))
        sender.send(Message(body={"a": 1}))
    raw, mapped = await peek(client, "jobs")
    assert (raw.body, raw.body_form, raw.body_kind) == ("0001", "Hexadecimal", "Bytes")
    assert (mapped.body_form, mapped.body_kind, mapped.is_whole) == ("Hexadecimal", "Value", True)


@pytest.mark.parametrize(
    "asked", [{"x-opt-delivery-delay": 2**63 - 1}, {"x-opt-delivery-time": ulong(2**64 - 1)}], ids=["delay", "time"]
)
async def test_a_message_that_waits_for_ever_can_be_peeked_and_moved(
    client: ManagementClient, broker_process: BrokerProcess, asked: dict[str, object]
) -> None:
    """Its time as microseconds, or the time of its arrival and its delay, have more than 64 bits."""
    await client.create(QueueDeclaration(), "other")
    with connected(broker_process.url) as connection:
        annotations = {symbol(key): value for key, value in asked.items()}
        sender = connection.create_sender("jobs")
        sender.send(Message(body="late", durable=True, annotations=annotations))
        publish(sender, ["now"])
    assert [(each.body, each.state) for each in await peek(client, "jobs")] == [("now", "Ready"), ("late", "Scheduled")]
    assert (await handled(client, Operation.MOVE, "jobs", MessageSelection(destination="other"))).messages == 2
    assert [(each.body, each.state) for each in await peek(client, "other")] == [
        ("now", "Ready"),
        ("late", "Scheduled"),
    ]
    assert (await client.read(EntityType.QUEUE, "jobs"))["depthBytes"] == 0


async def test_peek_shows_numbers_that_no_long_holds(client: ManagementClient, broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        properties = {"high": ulong(2**64 - 1), "long": 2**63 - 1}
        annotations = {symbol("x-opt-hash"): ulong(2**63)}
        connection.create_sender("jobs").send(Message(body="m", properties=properties, annotations=annotations))
    (shown,) = await peek(client, "jobs")
    assert shown.application_properties == {"high": str(2**64 - 1), "long": 2**63 - 1}
    assert shown.annotations == {"x-opt-hash": str(2**63)}


async def test_pages_and_selectors(client: ManagementClient, broker_process: BrokerProcess) -> None:
    fill(broker_process, 9)
    page = await peek(client, "jobs", PeekRequest(offset=1, count=2, selector="n > 4"))
    assert [each.body for each in page] == ["m6", "m7"]
    assert (await handled(client, Operation.PURGE, "jobs", MessageSelection(selector="n < 3", count=2))).messages == 2
    assert await bodies(client, "jobs") == ["m2", "m3", "m4", "m5", "m6", "m7", "m8"]
    state = await client.read(EntityType.QUEUE, "jobs")
    assert (state["purged"], state["dropped"], state["moved"], state["depth"]) == (2, 0, 0, 7)


async def test_purge_outlives_kill_9_once_it_is_answered(
    client: ManagementClient, broker_process: BrokerProcess
) -> None:
    fill(broker_process, 450)
    assert (await handled(client, Operation.PURGE, "jobs", MessageSelection(count=430))).messages == 430
    broker_process.kill()
    broker_process.start()
    again = await ManagementClient.connect(broker_process.management)
    try:
        state = await again.read(EntityType.QUEUE, "jobs")
        assert state["depth"] == 20
        assert (await handled(again, Operation.PURGE, "jobs", MessageSelection())).messages == 20
        assert (await again.read(EntityType.QUEUE, "jobs"))["depthBytes"] == 0
    finally:
        await again.close()


async def test_move_keeps_order_and_survives(client: ManagementClient, broker_process: BrokerProcess) -> None:
    fill(broker_process, 300)
    await client.create(QueueDeclaration(), "other")
    done = await handled(client, Operation.MOVE, "jobs", MessageSelection(count=290, destination="other"))
    assert (done.messages, done.left) == (290, 0)
    broker_process.kill()
    broker_process.start()
    with connected(broker_process.url) as connection:
        moved = [body for body, _ in take(connection.create_receiver("other", credit=300), 290)]
        stayed = [body for body, _ in take(connection.create_receiver("jobs", credit=300), 10)]
    assert moved + stayed == [f"m{number}" for number in range(300)]


async def test_move_ends_where_the_destination_is_full(client: ManagementClient, broker_process: BrokerProcess) -> None:
    fill(broker_process, 5)
    await client.create(QueueDeclaration(limits=QueueLimits(max_messages=2, overflow="Reject")), "other")
    done = await handled(client, Operation.MOVE, "jobs", MessageSelection(destination="other"))
    assert (done.messages, done.left) == (2, 1)
    assert "full" in (done.why or "")
    assert await bodies(client, "jobs") == ["m2", "m3", "m4"]


async def test_move_takes_higher_priorities_first(client: ManagementClient, broker_process: BrokerProcess) -> None:
    with connected(broker_process.url) as connection:
        sender = connection.create_sender("jobs")
        for body, priority in (("low", 0), ("normal", 4), ("high", 9)):
            publish(sender, [body], priority=priority)
    await client.create(QueueDeclaration(limits=QueueLimits(max_messages=2, overflow="Reject")), "other")
    await handled(client, Operation.MOVE, "jobs", MessageSelection(destination="other"))
    assert await bodies(client, "other") == ["high", "normal"]
    assert await bodies(client, "jobs") == ["low"]


async def test_dead_letters_go_back_to_where_they_died(client: ManagementClient, broker_process: BrokerProcess) -> None:
    declared = SubscriptionDeclaration(
        subscription_name="billing", exchange="amq.topic", delivery=DeliveryPolicy(dead_letter="dead")
    )
    await client.create(declared)
    with connected(broker_process.url, container="app") as connection:
        receivers = {
            "billing": connection.create_receiver("amq.topic", name="billing", options=Subscribed(), credit=5),
            "jobs": connection.create_receiver("jobs", credit=5),
        }
        publish(connection.create_sender("amq.topic/a"), ["b1"], annotations={symbol("x-opt-mine"): 1})
        publish(connection.create_sender("jobs"), ["j1"])
        publish(connection.create_sender("dead"), ["stray"])
        for receiver in receivers.values():
            receiver.receive(timeout=60)
            receiver.reject()
    assert sorted(await bodies(client, "dead")) == ["b1", "j1", "stray"]
    done = await handled(client, Operation.REDRIVE, "dead", MessageSelection())
    assert (done.messages, done.left) == (2, 1)
    assert "was not dead-lettered" in (done.why or "")
    answer = await ask(client, Operation.PEEK, BILLING, PeekRequest(), EntityType.SUBSCRIPTION)
    (back,) = PeekReply.model_validate(answer.check().attributes).messages
    assert (back.body, back.annotations, back.delivery_count) == ("b1", {"x-opt-mine": 1}, 0)
    assert (await bodies(client, "jobs"), await bodies(client, "dead")) == (["j1"], ["stray"])


@pytest.mark.parametrize(
    ("operation", "name", "body", "status", "reason"),
    [
        (Operation.PEEK, "nowhere", PeekRequest(), 404, "QueueNotFound"),
        (Operation.PURGE, "jobs", MessageSelection(selector="n >"), 400, "InvalidSelector"),
        (Operation.PURGE, "jobs", MessageSelection(destination="dead"), 400, "InvalidRequest"),
        (Operation.MOVE, "jobs", MessageSelection(), 400, "InvalidRequest"),
        (Operation.MOVE, "jobs", MessageSelection(destination="nowhere"), 404, "AddressNotFound"),
        (Operation.MOVE, "jobs", MessageSelection(destination="jobs"), 400, "InvalidAddress"),
        (Operation.PEEK, "jobs", MessageSelection(count=7, selector="n = 1", destination="x"), 400, "InvalidRequest"),
    ],
)
async def test_what_can_not_be_done_says_why(
    client: ManagementClient, operation: Operation, name: str, body: ManagementDocument, status: int, reason: str
) -> None:
    answer = await ask(client, operation, name, body)
    assert (answer.status, answer.reason) == (status, reason)


async def test_an_exchange_holds_no_messages(client: ManagementClient) -> None:
    answer = await ask(client, Operation.PURGE, "amq.topic", MessageSelection(), EntityType.EXCHANGE)
    assert (answer.status, answer.reason) == (501, "NotImplemented")


async def test_clients_may_do_none_of_it(broker_process: BrokerProcess, client: ManagementClient) -> None:
    stranger = await ManagementClient.connect(broker_process.addresses["amqp"])
    try:
        for operation in (Operation.PEEK, Operation.PURGE, Operation.MOVE, Operation.REDRIVE):
            answer = await ask(stranger, operation, "jobs", MessageSelection())
            assert (answer.status, answer.reason) == (403, "NotPermitted")
    finally:
        await stranger.close()
