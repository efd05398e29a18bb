"""Temporary queues and topics on bare frames: dynamic targets as the JMS client sends them, and dynamic sources.

Expected values are typed from AMQP 1.0 part 3, sections 3.5.9 to 3.5.13, and facts about the Qpid JMS client.
"""

from __future__ import annotations

import asyncio

import pytest
from support.broker_process import BrokerProcess
from support.raw_client import RawClient, symbols
from support.topic_links import LINK_DETACH, Connections, check_refusal, topic

from penstock_amqp.client.management import ManagementClient
from penstock_amqp.frames.performatives import (
    Accepted,
    Attach,
    Detach,
    Disposition,
    End,
    Flow,
    Source,
    Target,
    Transfer,
)
from penstock_amqp.messages.message_codec import Message, Properties, decode_message, encode_message
from penstock_amqp.types.values import Array, Described, Symbol, ULong, Value
from penstock_api.management import EntityType

ON_CLOSE, ON_NO_LINKS, ON_NO_MESSAGES, ON_NO_LINKS_OR_MESSAGES = 0x2B, 0x2C, 0x2D, 0x2E
POLICY = Symbol("lifetime-policy")


def lifetime(code: int | str) -> dict[Symbol, Value]:
    descriptor = ULong(code) if isinstance(code, int) else Symbol(code)
    return {POLICY: Described(descriptor, [])}


def dynamic_target(capability: str = "temporary-queue", policy: int | str = ON_CLOSE) -> Target:
    """What the JMS client sends for createTemporaryQueue() and createTemporaryTopic()."""
    return Target(
        durable=0,
        expiry_policy=LINK_DETACH,
        timeout=0,
        dynamic=True,
        dynamic_node_properties=lifetime(policy),
        capabilities=symbols(capability),
    )


def make(client: RawClient, name: str, capability: str = "temporary-queue", policy: int | str = ON_CLOSE) -> str:
    reply = client.attach_sender(name, dynamic_target(capability, policy))
    assert isinstance(reply.target, Target)
    assert reply.target.address
    return reply.target.address


def consume(client: RawClient, name: str, address: str, capability: str, credit: int = 10) -> Attach:
    reply = client.attach_receiver(name, Source(address=address, capabilities=symbols(capability)))
    client.flow(client.last_handle, credit=credit)
    return reply


def send(client: RawClient, handle: int, number: int, body: str, subject: str | None = None) -> None:
    head = Transfer(handle=handle, delivery_id=number, delivery_tag=str(number).encode(), settled=False)
    client.send(head, payload=encode_message(Message(body=body, properties=Properties(subject=subject))))


def detach(client: RawClient, handle: int) -> None:
    """Close a link; what its messages became is passed over."""
    client.send(Detach(handle=handle, closed=True))
    while not isinstance(performative := client.receive().performative, Detach):
        assert isinstance(performative, Flow | Disposition)
    assert performative.error is None


def is_gone(connect: Connections, address: str) -> bool:
    """Not found by a consumer, nor by a producer."""
    client = connect("asks")
    reply = client.attach_sender("to", Target(address=address))
    if reply.target is not None:
        return False
    error = client.expect(Detach).error
    assert error is not None
    assert (error.condition, (error.info or {})[Symbol("penstock:reason")]) == ("amqp:not-found", "AddressNotFound")
    return True


@pytest.mark.parametrize("code", [ON_CLOSE, "amqp:delete-on-close:list"])
def test_a_dynamic_target_is_answered_with_a_generated_address(connect: Connections, code: int | str) -> None:
    reply = connect("c1").attach_sender("qpid-jms:temp-queue-creator:ID:1", dynamic_target(policy=code))
    target = reply.target
    assert isinstance(target, Target)
    assert target.address is not None
    assert target.address.startswith("temporary-queue:")
    assert len(target.address) >= len("temporary-queue:") + 22  # 128 bits in base 64
    assert target.dynamic is True
    assert target.expiry_policy == "link-detach"
    assert target.capabilities == ("temporary-queue",)
    properties = dict(target.dynamic_node_properties or {})
    modes = properties.pop(Symbol("supported-dist-modes"))
    assert isinstance(modes, Array)
    assert modes.items == symbols("move", "copy")
    assert properties == {POLICY: Described(ULong(ON_CLOSE), [])}


def test_a_topic_has_its_capability_and_mode(connect: Connections) -> None:
    reply = connect("c1").attach_sender("t", dynamic_target("temporary-topic", ON_NO_LINKS))
    assert isinstance(reply.target, Target)
    assert (reply.target.address or "").startswith("temporary-topic:")
    assert reply.target.capabilities == ("temporary-topic",)
    assert reply.target.dynamic_node_properties == {
        POLICY: Described(ULong(ON_NO_LINKS), []),
        Symbol("supported-dist-modes"): Symbol("move"),
    }


def test_no_two_addresses_are_the_same(connect: Connections) -> None:
    client = connect("c1")
    assert len({make(client, f"t{number}") for number in range(20)}) == 20


def test_messages_go_round_by_the_address_of_a_queue(connect: Connections) -> None:
    owner, other = connect("c1"), connect("c2")
    address = make(owner, "creator")
    reply = consume(owner, "reader", address, "temporary-queue")
    assert reply.source is not None
    assert reply.source.address == address
    other.attach_sender("to", Target(address=address, capabilities=symbols("temporary-queue")))
    send(other, other.last_handle, 0, "hello")
    assert other.expect(Disposition).state is not None
    _, payload = owner.expect_transfer()
    assert decode_message(payload).body == "hello"


def test_every_consumer_of_a_topic_gets_every_message_whatever_its_subject(connect: Connections) -> None:
    owner, other = connect("c1"), connect("c2")
    address = make(owner, "creator", "temporary-topic")
    for name in ("one", "two"):
        reply = owner.attach_receiver(name, topic(address=address))
        assert reply.source is not None
        assert reply.source.address == address
        owner.flow(owner.last_handle, credit=10)
    other.attach_sender("to", Target(address=address, capabilities=symbols("temporary-topic")))
    send(other, other.last_handle, 0, "hello", subject="x.y")
    assert sorted((owner.expect_transfer()[0].handle, owner.expect_transfer()[0].handle)) == [1, 2]


def test_only_its_own_connection_consumes(connect: Connections) -> None:
    owner, other = connect("c1"), connect("c2")
    for name, capability in (("q", "temporary-queue"), ("t", "temporary-topic")):
        address = make(owner, name, capability)
        reply = other.attach_receiver(f"steals-{name}", Source(address=address, capabilities=symbols(capability)))
        check_refusal(other, reply, condition="amqp:resource-locked", reason="OtherConnection")
    browser = Source(address=make(owner, "b"), distribution_mode=Symbol("copy"))
    reply = other.attach_receiver("looks", browser)
    check_refusal(other, reply, condition="amqp:resource-locked", reason="OtherConnection")


def test_no_durable_subscription_on_a_temporary_topic(connect: Connections) -> None:
    owner = connect("c1")
    address = make(owner, "t", "temporary-topic")
    reply = owner.attach_receiver("sub", topic("shared", durable=2, expiry=Symbol("never"), address=address))
    check_refusal(owner, reply, condition="amqp:not-found", reason="OtherKindOfNode")


@pytest.mark.parametrize("capability", ["temporary-queue", "temporary-topic"])
@pytest.mark.parametrize("closed", [True, False])
def test_it_goes_with_its_link_and_everybody_is_told(connect: Connections, capability: str, closed: bool) -> None:
    owner, other = connect("c1"), connect("c2")
    address = make(owner, "creator", capability)
    creator = owner.last_handle
    consume(owner, "reader", address, capability)
    other.attach_sender("to", Target(address=address))
    owner.send(Detach(handle=creator, closed=closed))
    for client, count in ((owner, 2), (other, 1)):
        told = {detach.handle: detach for detach in (client.expect(Detach) for _ in range(count))}
        error = told[count - 1].error  # of the consumer, and of the producer
        assert error is not None
        assert (error.condition, (error.info or {})[Symbol("penstock:reason")]) == (
            "amqp:resource-deleted",
            "NodeDeleted",
        )
        if client is owner:
            assert told[0].error is None
            assert bool(told[0].closed) is closed
    assert is_gone(connect, address)


@pytest.mark.parametrize("policy", [ON_CLOSE, ON_NO_LINKS, ON_NO_MESSAGES, ON_NO_LINKS_OR_MESSAGES])
def test_every_policy_ends_with_the_connection(connect: Connections, policy: int) -> None:
    owner = connect("c1")
    address = make(owner, "creator", policy=policy)
    send(owner, owner.last_handle, 0, "nobody will take it")
    owner.expect(Disposition)
    owner.close()
    assert is_gone(connect, address)


def test_it_goes_with_the_session_of_its_link(connect: Connections) -> None:
    owner = connect("c1")
    address = make(owner, "creator")
    owner.send(End())
    owner.expect(End)
    assert is_gone(connect, address)


def test_without_links_it_goes_whatever_it_holds(connect: Connections, rows_broker: BrokerProcess) -> None:
    owner, other = connect("c1"), connect("c2")
    address = make(owner, "creator", policy=ON_NO_LINKS)
    send(owner, owner.last_handle, 0, "lost")
    other.attach_sender("to", Target(address=address))
    detach(owner, owner.last_handle)
    assert address in temporary_names(rows_broker)
    detach(other, other.last_handle)
    assert address not in temporary_names(rows_broker)


def test_it_can_stay_until_its_messages_are_gone(connect: Connections, rows_broker: BrokerProcess) -> None:
    owner = connect("c1")
    address = make(owner, "creator", policy=ON_NO_MESSAGES)
    send(owner, owner.last_handle, 0, "left over")
    detach(owner, owner.last_handle)
    assert address in temporary_names(rows_broker)
    consume(owner, "reader", address, "temporary-queue")
    transfer, _ = owner.expect_transfer()
    assert transfer.delivery_id is not None
    owner.send(Disposition(role=True, first=transfer.delivery_id, settled=True, state=Accepted()))
    error = owner.expect(Detach).error  # the reader is told: the queue has gone
    assert error is not None
    assert error.condition == "amqp:resource-deleted"
    assert address not in temporary_names(rows_broker)


def test_it_can_stay_until_neither_is_left(connect: Connections, rows_broker: BrokerProcess) -> None:
    owner = connect("c1")
    address = make(owner, "creator", policy=ON_NO_LINKS_OR_MESSAGES)
    send(owner, owner.last_handle, 0, "left over")
    detach(owner, owner.last_handle)
    assert address in temporary_names(rows_broker)
    consume(owner, "reader", address, "temporary-queue")
    transfer, _ = owner.expect_transfer()
    assert transfer.delivery_id is not None
    owner.send(Disposition(role=True, first=transfer.delivery_id, settled=True, state=Accepted()))
    assert address in temporary_names(rows_broker)
    detach(owner, owner.last_handle)
    assert address not in temporary_names(rows_broker)


def test_a_dynamic_source_makes_a_queue_and_consumes_from_it(connect: Connections) -> None:
    owner, other = connect("c1"), connect("c2")
    source = Source(dynamic=True, dynamic_node_properties=lifetime(ON_CLOSE))
    reply = owner.attach_receiver("replies", source)
    assert reply.source is not None
    assert reply.source.dynamic is True
    assert (reply.source.address or "").startswith("temporary-queue:")
    assert reply.source.capabilities == (
        "queue",
    )  # it was not called temporary, so it is not for this connection alone
    assert (reply.source.dynamic_node_properties or {})[POLICY] == Described(ULong(ON_CLOSE), [])
    owner.flow(owner.last_handle, credit=10)
    other.attach_sender("to", Target(address=reply.source.address))
    send(other, other.last_handle, 0, "answer")
    assert decode_message(owner.expect_transfer()[1]).body == "answer"
    detach(owner, owner.last_handle)
    assert is_gone(connect, reply.source.address or "")


def test_a_dynamic_source_consumes_whatever_mode_it_asks_for(connect: Connections) -> None:
    owner, other = connect("c1"), connect("c2")
    reply = owner.attach_receiver("replies", Source(dynamic=True, distribution_mode=Symbol("copy")))
    assert reply.source is not None
    assert reply.source.distribution_mode == "move"
    owner.flow(owner.last_handle, credit=10)
    other.attach_sender("to", Target(address=reply.source.address))
    send(other, other.last_handle, 0, "answer")
    assert decode_message(owner.expect_transfer()[1]).body == "answer"


def test_a_dynamic_source_can_be_a_topic(connect: Connections) -> None:
    owner, other = connect("c1"), connect("c2")
    reply = owner.attach_receiver("news", Source(dynamic=True, capabilities=symbols("temporary-topic")))
    assert reply.source is not None
    assert (reply.source.address or "").startswith("temporary-topic:")
    assert reply.source.dynamic is True
    owner.flow(owner.last_handle, credit=10)
    other.attach_sender("to", Target(address=reply.source.address))
    send(other, other.last_handle, 0, "news")
    assert decode_message(owner.expect_transfer()[1]).body == "news"
    detach(owner, owner.last_handle)
    assert is_gone(connect, reply.source.address or "")


def test_the_link_of_a_dynamic_source_is_stolen_by_a_client_that_comes_back(connect: Connections) -> None:
    first = connect("same").attach_receiver("replies", Source(dynamic=True))
    again = connect("same").attach_receiver("replies", Source(dynamic=True))
    assert first.source is not None
    assert again.source is not None
    assert again.source.address != first.source.address
    assert is_gone(connect, first.source.address or "")
    assert not is_gone(connect, again.source.address or "")


def test_a_refused_dynamic_attach_leaves_nothing(connect: Connections, rows_broker: BrokerProcess) -> None:
    client = connect("c1")
    asked = topic("temporary-topic", selector="a = ")
    reply = client.attach_receiver("x", Source(dynamic=True, filter=asked.filter, capabilities=asked.capabilities))
    check_refusal(client, reply, condition="amqp:invalid-field", reason="InvalidSelector")
    reply = client.attach_receiver("y", Source(dynamic=True, address="mine"))
    check_refusal(client, reply, condition="amqp:invalid-field", reason="InvalidAddress")
    reply = client.attach_receiver("z", Source(dynamic=True, capabilities=symbols("queue", "topic")))
    check_refusal(client, reply, condition="amqp:invalid-field", reason="InvalidAddress")
    assert temporary_names(rows_broker) == []


def temporary_names(process: BrokerProcess) -> list[str]:
    """The temporary nodes that there are."""
    return asyncio.run(_temporary_names(process.management))


async def _temporary_names(address: str) -> list[str]:
    client = await ManagementClient.connect(address)
    try:
        exchanges = await client.query_all(EntityType.EXCHANGE)
        queues = await client.query_all(EntityType.QUEUE)
    finally:
        await client.close()
    return [str(each["name"]) for each in (*exchanges, *queues) if str(each["name"]).startswith("temporary-")]


def test_a_connection_has_so_many_and_no_more(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings: dict[str, object] = {"authentication": {"anonymous": True}, "temporaryPerConnection": 2}
    with (
        BrokerProcess(tmp_path_factory.mktemp("few") / "data", dev=False, settings=settings) as process,
        RawClient(process.port, "c1") as client,
    ):
        client.begin()
        for number in range(2):
            make(client, f"t{number}")
        reply = client.attach_sender("one-more", dynamic_target())
        assert reply.target is None
        error = client.expect(Detach).error
        assert error is not None
        assert error.condition == "amqp:resource-limit-exceeded"
        client.detach(0, closed=True)
        make(client, "room-again")


def test_nothing_of_it_outlives_the_process(tmp_path_factory: pytest.TempPathFactory) -> None:
    with BrokerProcess(tmp_path_factory.mktemp("gone") / "data") as process:
        with RawClient(process.port, "c1") as client:
            client.begin()
            addresses = [make(client, "q"), make(client, "t", "temporary-topic")]
            send(client, 0, 0, "x")
            client.expect(Disposition)
            process.kill()
        process.start()
        assert temporary_names(process) == []
        with RawClient(process.port, "c1") as client:
            client.begin()
            for number, address in enumerate(addresses):  # nor is it made again, though --dev makes what is named
                assert client.attach_sender(f"s{number}", Target(address=address)).target is None
                error = client.expect(Detach).error
                assert error is not None
                assert error.condition == "amqp:not-found"
