"""The management client against a node on the real engine."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from bisect import bisect_right
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.certificates import Authority
from support.proton_node import Asked, Cut, Node, Reject, Reply, Silence, serving

from penstock_amqp.client.address import Address
from penstock_amqp.client.errors import ManagementError, RequestRefused, TransportError
from penstock_amqp.client.management import ListedEntity, ManagementClient, ManagementReply
from penstock_amqp.sasl.client import Login, NotAuthenticated
from penstock_amqp.sasl.mechanisms import Verdict
from penstock_api.management import Deletion, EntityType, ExchangeDeclaration, Operation, SubscriptionDeclaration
from penstock_api.state_documents import BrokerState

BROKER = {
    "instanceId": "a", "epoch": 1, "version": "1", "startedMs": 1, "nowMs": 2, "connections": 0, "subscriptions": 0,
    "exchanges": 0, "queues": 0, "durableWork": "Ok", "logBytes": 0, "logSegments": 0, "logSyncs": 0, "turns": 0,
}  # fmt: skip


def ok(body: object = None, **properties: object) -> Reply:
    return Reply({"statusCode": 200, "statusDescription": "OK", **properties}, body)


def fail(asked: Asked) -> Reply:
    properties = {
        "statusCode": 409,
        "statusDescription": "Two consumers are attached.",
        "errorCondition": "amqp:resource-locked",
        "penstock:reason": "ConsumersActive",
    }
    return Reply(properties, {"containers": ["a", "b"]})


async def test_a_state_is_read_as_a_model() -> None:
    async with serving(Node(lambda asked: ok(BROKER))) as node:
        client = await ManagementClient.connect(node.address)
        state = await client.read_state(BrokerState)
        await client.close()
    assert (state.instance_id, state.epoch, state.durable_work) == ("a", 1, "Ok")
    assert node.received == [Asked({"operation": "READ", "type": "penstock.broker"}, None)]
    assert node.users == ["anonymous"]


async def test_a_declaration_travels_as_a_map_of_its_aliases() -> None:
    declaration = SubscriptionDeclaration(subscription_name="s", exchange="x", binding_keys=("a.#",))
    async with serving(Node(lambda asked: ok({"outcome": "Created"}))) as node:
        client = await ManagementClient.connect(node.address)
        answer = await client.create(declaration)
        await client.close()
    assert answer == ManagementReply(
        status=200,
        description="OK",
        body={"outcome": "Created"},
        properties={"statusCode": 200, "statusDescription": "OK"},
    )
    (asked,) = node.received
    assert asked.properties == {"operation": "CREATE", "type": "penstock.subscription"}
    assert asked.body == {"subscriptionName": "s", "exchange": "x", "bindingKeys": ["a.#"]}


async def test_a_failure_is_an_error_with_its_reason() -> None:
    async with serving(Node(fail)) as node:
        client = await ManagementClient.connect(node.address)
        with pytest.raises(ManagementError) as caught:
            await client.delete(EntityType.SUBSCRIPTION, "q", Deletion(if_empty=True))
        raw = await client.request(Operation.DELETE, EntityType.SUBSCRIPTION, "q")
        await client.close()
    error = caught.value
    assert (error.status, error.condition, error.reason) == (409, "amqp:resource-locked", "ConsumersActive")
    assert error.body == {"containers": ["a", "b"]}
    assert (raw.status, raw.is_success) == (409, False)
    assert node.received[0].body == {"ifEmpty": True}


async def test_a_list_is_answered_entry_by_entry() -> None:
    def answer(asked: Asked) -> Reply:
        made = {"statusCode": 201, "statusDescription": "Created", "body": {"outcome": "Created"}}
        refused = {"statusCode": 404, "statusDescription": "No exchange.", "penstock:reason": "ExchangeNotFound"}
        return ok([made if entry["name"] == "x" else refused for entry in asked.body])

    entries = [
        ListedEntity(EntityType.EXCHANGE, "x", ExchangeDeclaration(exchange_type="Topic")),
        ListedEntity(EntityType.EXCHANGE, "y", ExchangeDeclaration(exchange_type="Direct", durable=False)),
    ]
    async with serving(Node(answer)) as node:
        client = await ManagementClient.connect(node.address)
        first, second = await client.create_all(entries)
        await client.close()
    assert (first.status, first.body) == (201, {"outcome": "Created"})
    assert (second.status, second.reason) == (404, "ExchangeNotFound")
    assert node.received[0].body[1] == {
        "type": "penstock.exchange",
        "name": "y",
        "body": {"exchangeType": "Direct", "durable": False},
    }


def made_of(asked: Asked) -> Reply:
    return ok([{"statusCode": 201, "statusDescription": entry["name"]} for entry in asked.body])


@pytest.mark.parametrize(("size", "requests"), [(1000, [8]), (140_000, [4, 4]), (600_000, [1] * 8)])
async def test_a_list_that_would_be_too_long_is_sent_in_parts_in_its_order(size: int, requests: list[int]) -> None:
    """One request may have a mebibyte if it has more than one entity."""
    entries = [
        ListedEntity(EntityType.SUBSCRIPTION, f"s{number}", SubscriptionDeclaration(
            subscription_name=f"s{number}", exchange="orders", binding_keys=("x" * size,)
        ))
        for number in range(8)
    ]  # fmt: skip
    async with serving(Node(made_of)) as node:
        client = await ManagementClient.connect(node.address)
        made = await client.create_all(entries)
        await client.close()
    assert [reply.description for reply in made] == [f"s{number}" for number in range(8)]
    assert [len(asked.body) for asked in node.received] == requests


async def test_what_the_broker_does_not_take_is_refused_alone() -> None:
    """It would end the link, and with it what others declare on this broker."""
    entries = [
        ListedEntity(EntityType.EXCHANGE, name, ExchangeDeclaration(exchange_type="Topic"))
        for name in ("a", "b" * 5000, "c", "d")
    ]
    async with serving(Node(made_of, max_message_size=2000)) as node:
        client = await ManagementClient.connect(node.address)
        made = await client.create_all(entries)
        await client.close()
    assert [(reply.status, reply.description) for reply in made if reply.is_success] == [
        (201, "a"),
        (201, "c"),
        (201, "d"),
    ]
    assert (made[1].status, made[1].reason, made[1].condition) == (
        413, "LimitExceeded", "amqp:link:message-size-exceeded",
    )  # fmt: skip
    found = re.fullmatch(r"The request is too long: it has (5,\d{3}) bytes, and may have 2,000\.", made[1].description)
    assert found is not None


async def test_a_query_is_read_page_after_page() -> None:
    names = [f"q{number}" for number in range(2500)]

    def answer(asked: Asked) -> Reply:
        offset, count = asked.properties["offset"], asked.properties["count"]
        rows = [[name, len(name)] for name in names[offset : offset + min(count, 1000)]]
        return ok({"attributeNames": ["queueName", "depth"], "results": rows}, totalCount=2500, revision=7)

    async with serving(Node(answer)) as node:
        client = await ManagementClient.connect(node.address)
        page = await client.query(EntityType.SUBSCRIPTION, offset=2400, changed_since=5, attributes=["queueName"])
        found = await client.query_all(EntityType.SUBSCRIPTION)
        await client.close()
    assert (len(page.results), page.total_count, page.revision) == (100, 2500, 7)
    assert node.received[0].properties == {
        "operation": "QUERY", "entityType": "penstock.subscription", "offset": 2400, "count": 1000, "changedSince": 5,
    }  # fmt: skip
    assert node.received[0].body == {"attributeNames": ["queueName"]}
    assert [row["queueName"] for row in found] == names


@pytest.mark.parametrize("knows_after", [True, False])
async def test_a_list_goes_on_behind_the_last_name_and_an_earlier_release_by_offset(knows_after: bool) -> None:
    """`q0003` is removed behind the first page: a release that knows `offset` only then leaves `q1000` out."""
    names = [f"q{number:04}" for number in range(1500)]

    def answer(asked: Asked) -> Reply:
        offset, after = asked.properties["offset"], asked.properties.get("after", "")
        begin = bisect_right(names, after) if knows_after and after else offset
        rows = [[1, name] for name in names[begin : begin + 1000]]
        if "q0003" in names:
            names.remove("q0003")
        return ok({"attributeNames": ["depth", "queueName"], "results": rows}, totalCount=len(names), revision=7)

    async with serving(Node(answer)) as node:
        client = await ManagementClient.connect(node.address)
        found = await client.query_all(EntityType.SUBSCRIPTION, attributes=["depth"])
        await client.close()
    assert [received.properties.get("after") for received in node.received] == [None, "q0999"]
    assert [received.properties["offset"] for received in node.received] == [0, 1000]
    assert node.received[0].body == {"attributeNames": ["depth", "queueName"]}
    assert found == [{"depth": 1}] * (1500 if knows_after else 1499)


async def test_large_requests_and_answers_travel_over_several_frames() -> None:
    large = "x" * 700_000
    async with serving(Node(lambda asked: ok({"echo": asked.body["text"]}), max_frame_size=4096)) as node:
        client = await ManagementClient.connect(node.address)
        answer = await client.request(Operation.READ, EntityType.QUEUE, "q", {"text": large})
        await client.close()
    assert answer.body == {"echo": large}


async def test_requests_are_pipelined_beyond_the_credit() -> None:
    async with serving(Node(lambda asked: ok(asked.properties["name"]), credit=3)) as node:
        client = await ManagementClient.connect(node.address, timeout_seconds=60)
        answers = await asyncio.gather(
            *(client.request(Operation.READ, EntityType.QUEUE, str(number)) for number in range(1500))
        )
        await client.close()
    assert [answer.body for answer in answers] == [str(number) for number in range(1500)]


async def test_a_request_that_is_not_answered_times_out_and_others_go_on() -> None:
    def answer(asked: Asked) -> Reply | Silence:
        return Silence() if asked.properties["name"] == "lost" else ok("here")

    async with serving(Node(answer)) as node:
        client = await ManagementClient.connect(node.address)
        with pytest.raises(TimeoutError):
            await client.request(Operation.READ, EntityType.QUEUE, "lost", timeout_seconds=0.05)
        assert (await client.request(Operation.READ, EntityType.QUEUE, "other")).body == "here"
        await client.close()


async def test_a_rejected_message_fails_its_request_at_once_and_others_go_on() -> None:
    def answer(asked: Asked) -> Reply | Reject:
        refused = asked.properties["name"] == "secret"
        return Reject("amqp:unauthorized-access", "not for you") if refused else ok("here")

    async with serving(Node(answer)) as node:
        client = await ManagementClient.connect(node.address)
        with pytest.raises(RequestRefused, match="not for you") as caught:
            await client.request(Operation.READ, EntityType.QUEUE, "secret")
        assert (await client.request(Operation.READ, EntityType.QUEUE, "other")).body == "here"
        await client.close()
    assert caught.value.condition == "amqp:unauthorized-access"


async def test_a_connection_that_is_cut_fails_what_waits_and_what_comes() -> None:
    async with serving(Node(lambda asked: Cut())) as node:
        client = await ManagementClient.connect(node.address)
        waiting = [client.request(Operation.READ, EntityType.QUEUE, str(number)) for number in range(3)]
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [TransportError] * 3
        assert not client.is_open
        with pytest.raises(ConnectionError):
            await client.read(EntityType.BROKER)
        await client.close()


@pytest.mark.parametrize("terminus", ["null", "full"])
async def test_links_that_are_refused_are_told_with_the_condition(terminus: str) -> None:
    async with serving(Node(lambda asked: ok(), refuse_links=terminus)) as node:
        with pytest.raises(TransportError) as caught:
            await ManagementClient.connect(node.address)
    assert caught.value.condition == "amqp:unauthorized-access"
    assert "not for you" in str(caught.value)


async def test_the_password_is_checked() -> None:
    async with serving(Node(lambda asked: ok(BROKER))) as node:
        client = await ManagementClient.connect(node.address, login=Login("operator", "secret"))
        await client.close()
        node.verdict = Verdict.WRONG
        with pytest.raises(NotAuthenticated):
            await ManagementClient.connect(node.address, login=Login("operator", "wrong"))
    assert node.users == ["operator"]


async def test_it_speaks_over_a_unix_socket(tmp_path: Path) -> None:
    async with serving(Node(lambda asked: ok(BROKER)), unix_path=tmp_path / "s") as node:
        assert node.address == f"unix:{tmp_path / 's'}"
        client = await ManagementClient.connect(node.address)
        assert (await client.read(EntityType.BROKER))["instanceId"] == "a"
        await client.close()


async def test_it_speaks_tls_and_checks_the_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("broker-management")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(issued.certificate, issued.key)
    trusting = ssl.create_default_context(cafile=authority.ca)
    async with serving(Node(lambda asked: ok(BROKER)), tls=server) as node:
        address = Address.parse(node.address, trusting, "broker-management")
        client = await ManagementClient.connect(address, login=Login("operator", "secret"))
        assert (await client.read(EntityType.BROKER))["instanceId"] == "a"
        await client.close()
        with pytest.raises(TransportError, match="certificate"):
            await ManagementClient.connect(Address.parse(node.address, trusting, "another-name"))
        with pytest.raises(TransportError, match="certificate"):
            await ManagementClient.connect(
                Address.parse(node.address, ssl.create_default_context(), "broker-management")
            )


async def test_nobody_there_is_a_transport_error(tmp_path: Path) -> None:
    with pytest.raises(TransportError):
        await ManagementClient.connect(f"unix:{tmp_path / 'absent'}")


@asynccontextmanager
async def saying(words: bytes) -> AsyncGenerator[str]:
    """A server that waits for the client's first bytes, says `words`, and closes when the client does."""
    done: list[asyncio.Task[None]] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        done.append(task)
        await reader.read(100)
        writer.write(words)
        with contextlib.suppress(OSError):
            await reader.read()
            writer.close()
            await writer.wait_closed()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await asyncio.gather(*done)


async def test_a_server_that_speaks_something_else_is_a_transport_error() -> None:
    async with saying(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        with pytest.raises(TransportError, match="HTTP"):
            await ManagementClient.connect(address)


async def test_a_server_that_says_nothing_times_out() -> None:
    async with saying(b"") as address:
        with pytest.raises(TimeoutError):
            await ManagementClient.connect(address, timeout_seconds=0.05)


async def test_heartbeats_keep_an_idle_connection() -> None:
    async with serving(Node(lambda asked: ok("here"), idle_timeout_seconds=0.2)) as node:
        client = await ManagementClient.connect(node.address)
        async with asyncio.timeout(30):
            for _ in range(3):
                await node.heartbeats.acquire()
        assert (await client.request(Operation.READ, EntityType.QUEUE, "q")).body == "here"
        await client.close()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("unix:/run/penstock/s.sock", Address(unix_path="/run/penstock/s.sock")),
        ("broker:5671", Address(host="broker", port=5671)),
        ("[::1]:5672", Address(host="::1", port=5672)),
    ],
)
def test_addresses_are_read(text: str, address: Address) -> None:
    assert Address.parse(text) == address


@pytest.mark.parametrize("text", ["broker", "broker:", ":5672", "broker:x", "broker:99999", ""])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="neither"):
        Address.parse(text)
