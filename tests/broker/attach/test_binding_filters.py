"""Binding keys and header bindings named by filters, on bare frames; Headers exchanges end to end, restart included.

Descriptors are typed from the AMQP filter registry; what matches is typed from docs/reference/addresses.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import pytest
from support.broker_process import BrokerProcess
from support.raw_client import RawClient
from support.topic_links import LINK_DETACH, NEVER, SELECTOR, Connections, check_refusal

from penstock_amqp.client.management import ManagementClient
from penstock_amqp.frames.performatives import Attach, Source, Target, Transfer
from penstock_amqp.messages.message_codec import Message, Properties, decode_message, encode_message
from penstock_amqp.types.values import Array, Described, Symbol, Timestamp, UInt, ULong, Value
from penstock_api.management import ExchangeDeclaration, HeaderBindingDocument, Owner, SubscriptionDeclaration
from penstock_api.state_documents import SubscriptionState

EXACT, PATTERN, HEADERS = ULong(0x0000_468C_0000_0000), ULong(0x0000_468C_0000_0001), ULong(0x0000_468C_0000_0002)
BY_NAME = {
    EXACT: Symbol("apache.org:legacy-amqp-direct-binding:string"),
    PATTERN: Symbol("apache.org:legacy-amqp-topic-binding:string"),
    HEADERS: Symbol("apache.org:legacy-amqp-headers-binding:map"),
}


OWNER = Owner(cluster_id="c", kind="Subscription", namespace="shop", name="sub", uid="u1")


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings: dict[str, object] = {"authentication": {"anonymous": True}}
    with BrokerProcess(tmp_path_factory.mktemp("filters") / "data", dev=False, settings=settings) as process:
        asyncio.run(declare(process.management))
        yield process


async def declare(address: str) -> None:
    client = await ManagementClient.connect(address)
    for kind in ("Topic", "Direct", "Fanout", "Headers"):
        await client.create(ExchangeDeclaration(exchange_type=kind), kind.lower())
    bindings = (
        HeaderBindingDocument(headers={"region": "eu", "size": 3}),
        HeaderBindingDocument(match="Any", headers={"urgent": True, "vip": None}),
    )
    managed = SubscriptionDeclaration(
        subscription_name="managed", exchange="headers", header_bindings=bindings, owner=OWNER
    )
    await client.create(managed)
    keys = SubscriptionDeclaration(
        subscription_name="two-keys", exchange="topic", binding_keys=("us.*", "eu.#"), owner=OWNER
    )
    await client.create(keys)
    await client.close()


@pytest.fixture
def connect(process: BrokerProcess) -> Iterator[Connections]:
    connections = Connections(process.port)
    yield connections
    connections.close()


def attach(
    client: RawClient,
    address: str,
    filters: Mapping[str, Value] | None = None,
    *,
    name: str = "reads",
    shared: bool = False,
) -> Attach:
    """A volatile subscription, or a link on a shared, global, durable one."""
    source = Source(
        address=address,
        durable=2 if shared else 0,
        expiry_policy=NEVER if shared else LINK_DETACH,
        filter={Symbol(key): value for key, value in filters.items()} if filters is not None else None,
        capabilities=tuple(map(Symbol, ("topic", "shared", "global") if shared else ("topic",))),
    )
    reply = client.attach_receiver(name, source)
    if reply.source is not None:
        client.flow(client.last_handle, credit=100)
    return reply


def publish(client: RawClient, address: str, *messages: tuple[str | None, Mapping[str, Value]]) -> None:
    """Messages of a subject and properties each; the body is the number."""
    client.attach_sender(f"to-{address}-{id(messages)}", Target(address=address))
    for number, (subject, properties) in enumerate(messages):
        data = encode_message(
            Message(properties=Properties(subject=subject), application_properties=properties, body=number)
        )
        head = Transfer(handle=client.last_handle, delivery_id=number, delivery_tag=b"%d" % number, settled=True)
        client.send(head, payload=data)


def bodies(client: RawClient, count: int) -> list[Value]:
    return [decode_message(client.expect_transfer()[1]).body for _ in range(count)]


def in_place(reply: Attach) -> dict[str, Value]:
    assert reply.source is not None
    return {str(key): value for key, value in (reply.source.filter or {}).items()}


@pytest.mark.parametrize("by_name", [False, True])
def test_several_keys_of_a_topic_exchange(connect: Connections, by_name: bool) -> None:
    client, sender = connect("c1"), connect("c2")
    code = BY_NAME[PATTERN] if by_name else PATTERN
    filters: dict[str, Value] = {"one": Described(code, "eu.#"), "two": Described(code, "us.*")}
    reply = attach(client, "topic", filters)
    assert in_place(reply) == filters
    assert reply.source is not None
    assert reply.source.address == "topic"
    publish(sender, "topic", ("eu.fr", {}), ("us", {}), ("us.ny", {}), ("eu", {}), ("last.eu", {}), ("eu.last", {}))
    assert bodies(client, 4) == [0, 2, 3, 5]


def test_a_list_of_keys_in_one_filter(connect: Connections) -> None:
    client, sender = connect("c1"), connect("c2")
    attach(client, "topic", {"keys": Described(PATTERN, ["eu", "us"])})
    publish(sender, "topic", ("us", {}), ("fr", {}), ("eu", {}))
    assert bodies(client, 2) == [0, 2]


def test_a_key_of_the_address_and_one_of_a_filter(connect: Connections) -> None:
    client, sender = connect("c1"), connect("c2")
    reply = attach(client, "direct/a", {"b": Described(EXACT, "b")})
    assert (reply.source and reply.source.address) == "direct/a"
    assert in_place(reply) == {"b": Described(EXACT, "b")}
    publish(sender, "direct", ("a", {}), ("c", {}), ("b", {}))
    assert bodies(client, 2) == [0, 2]


@pytest.mark.parametrize(
    ("exchange", "filters"),
    [
        ("fanout", {"k": Described(PATTERN, "eu.#")}),
        ("topic", {"k": Described(EXACT, "eu.#")}),
        ("direct", {"k": Described(PATTERN, "eu.#")}),
        ("topic", {"k": Described(HEADERS, {"a": 1})}),
        ("topic", {"k": Described(PATTERN, None)}),
        ("topic", {"k": Described(PATTERN, [])}),
        ("topic", {"k": "not described"}),
        ("topic", {"k": Described(ULong(0x0000_468C_0000_0BAD), "unknown")}),
    ],
)
def test_what_has_no_meaning_there_is_not_in_place(
    connect: Connections, exchange: str, filters: dict[str, Value]
) -> None:
    client, sender = connect("c1"), connect("c2")
    assert in_place(attach(client, exchange, {**filters, "s": Described(SELECTOR, "x IS NULL")})) == {
        "s": Described(SELECTOR, "x IS NULL")
    }
    publish(sender, f"{exchange}/", ("any", {}))
    assert bodies(client, 1) == [0]


MATCHED: list[tuple[dict[Value, Value], list[dict[str, Value]], list[int]]] = [
    ({"x-match": "all", "a": 1, "b": "x"}, [{"a": 1, "b": "x"}, {"a": 1}, {"a": UInt(1), "b": "x", "c": 2}], [0, 2]),
    ({"a": 1, "b": "x"}, [{"a": 1}, {"a": 1, "b": "x"}], [1]),
    ({"x-match": "any", "a": 1, "b": "x"}, [{"a": 1}, {"b": "y"}, {"b": "x"}], [0, 2]),
    ({"x-match": "all", "a": None}, [{"b": 1}, {"a": False}], [1]),
    ({"x-match": "any", "x-other": 1}, [{}, {"a": 1}], [0, 1]),
]


@pytest.mark.parametrize(("wanted", "sent", "got"), MATCHED)
def test_a_headers_exchange_routes_by_properties(
    connect: Connections, wanted: dict[Value, Value], sent: list[dict[str, Value]], got: list[int]
) -> None:
    client, sender = connect("c1"), connect("c2")
    filters: dict[str, Value] = {"h": Described(HEADERS, wanted)}
    assert in_place(attach(client, "headers", filters)) == filters
    publish(sender, "headers/ignored", *((None, each) for each in sent))
    assert bodies(client, len(got)) == got


def test_without_filter_a_headers_exchange_gives_everything_and_a_selector_reduces_it(connect: Connections) -> None:
    everything, selecting, sender = connect("c1"), connect("c2"), connect("c3")
    assert in_place(attach(everything, "headers")) == {}
    attach(selecting, "headers", {"s": Described(SELECTOR, "size > 3")})
    publish(sender, "headers", (None, {}), ("s", {"size": 4}))
    assert bodies(everything, 2) == [0, 1]
    assert bodies(selecting, 1) == [1]


@pytest.mark.parametrize("wanted", ["no map", {"x-match": "some"}, {"a": b"bytes"}, {17: "a"}, {"a" * 256: 1}])
def test_a_binding_that_cannot_be_is_refused(connect: Connections, wanted: Value) -> None:
    client = connect("c1")
    reply = attach(client, "headers", {"h": Described(HEADERS, wanted)})
    check_refusal(client, reply, condition="amqp:invalid-field", reason="InvalidBindingKey")


@pytest.mark.parametrize("code", [PATTERN, EXACT])
@pytest.mark.parametrize("exchange", ["topic", "direct", "fanout"])
@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (17, "long"),
        (b"eu.#", "binary"),
        ({"eu.#": None}, "map"),
        (["eu.#", b"us.#"], "binary"),
        (Array(0x83, (Timestamp(5),)), "timestamp"),
    ],
)
def test_a_binding_key_that_is_no_text_is_refused(
    connect: Connections, code: ULong, exchange: str, wanted: Value, told: str
) -> None:
    """Its link would get what the client does not want."""
    client = connect("c1")
    reply = attach(client, exchange, {"k": Described(code, wanted)})
    error = check_refusal(client, reply, condition="amqp:invalid-field", reason="InvalidBindingKey")
    assert (error.info or {}).get(Symbol("invalid-field")) == "filter"
    assert f"holds a key of type {told}; write it as a string" in (error.description or "")


def test_a_managed_one_tells_all_it_is_bound_by_and_survives_a_restart(
    connect: Connections, process: BrokerProcess
) -> None:
    client = connect("c1")
    expected: dict[str, Value] = {
        "headers-0": Described(HEADERS, {"x-match": "all", "region": "eu", "size": 3}),
        "headers-1": Described(HEADERS, {"x-match": "any", "urgent": True, "vip": None}),
    }
    reply = attach(client, "headers", name="managed|global", shared=True)
    assert in_place(reply) == expected
    keys = attach(client, "topic", name="two-keys|global", shared=True)
    assert in_place(keys) == {"binding-0": Described(PATTERN, "eu.#"), "binding-1": Described(PATTERN, "us.*")}
    process.kill()
    process.start()
    with RawClient(process.port, "c2") as again, RawClient(process.port, "c3") as sender:
        again.begin()
        sender.begin()
        assert in_place(attach(again, "headers", name="managed|global", shared=True)) == expected
        publish(
            sender,
            "headers",
            (None, {"region": "eu", "size": 3}),
            (None, {"region": "eu"}),
            (None, {"vip": "x"}),
            (None, {"urgent": False}),
            (None, {"urgent": True}),
        )
        assert bodies(again, 3) == [0, 2, 4]
    state = asyncio.run(read(process.management, "psub:durable:global:managed"))
    assert state.header_bindings == (
        HeaderBindingDocument(headers={"region": "eu", "size": 3}),
        HeaderBindingDocument(match="Any", headers={"urgent": True, "vip": None}),
    )


async def read(address: str, name: str) -> SubscriptionState:
    client = await ManagementClient.connect(address)
    try:
        return await client.read_state(SubscriptionState, name)
    finally:
        await client.close()


def test_other_bindings_on_a_managed_one_are_refused(connect: Connections) -> None:
    client = connect("c1")
    reply = attach(client, "headers", {"h": Described(HEADERS, {"a": 1})}, name="managed|global", shared=True)
    check_refusal(client, reply, condition="amqp:resource-locked", reason="Managed")
    reply = attach(client, "topic", {"k": Described(PATTERN, "eu.#")}, name="two-keys|global", shared=True)
    check_refusal(client, reply, condition="amqp:resource-locked", reason="Managed")
    same = {"one": Described(PATTERN, "us.*"), "two": Described(PATTERN, "eu.#")}
    assert in_place(attach(client, "topic", same, name="two-keys|global", shared=True)) == same
