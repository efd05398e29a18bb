"""What clients are told where they look for it: properties of the Open, invalid fields, the end of what they use."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.broker_process import BrokerProcess
from support.raw_client import RawClient, symbols
from support.topic_links import Connections, check_refusal, topic

from penstock_amqp.client.management import ManagementClient
from penstock_amqp.frames.performatives import Close, Detach, Source, Target
from penstock_amqp.types.values import Symbol
from penstock_api.management import Deletion, EntityType, ExchangeDeclaration, QueueDeclaration
from penstock_api.settings.announcements import Announcements
from penstock_broker.settings.settings import open_properties

INVALID_FIELD = Symbol("invalid-field")


def test_the_open_tells_failover_servers_and_prefixes(tmp_path: Path) -> None:
    announce = {
        "failoverServers": [
            {"hostname": "one.example", "port": 5671, "scheme": "amqps"},
            {"hostname": "two.example", "networkHost": "10.0.0.2", "port": 443, "scheme": "amqpwss", "path": "/amqp"},
        ],
        "prefixes": True,
    }
    settings: dict[str, object] = {"authentication": {"anonymous": True}, "announce": announce}
    with BrokerProcess(tmp_path / "data", dev=False, settings=settings) as process, RawClient(process.port, "c") as c:
        told = {str(key): value for key, value in (c.open.properties or {}).items()}
    assert told["failover-server-list"] == [
        {"hostname": "one.example", "network-host": "one.example", "port": 5671, "scheme": "amqps"},
        {
            "hostname": "two.example",
            "network-host": "10.0.0.2",
            "port": 443,
            "scheme": "amqpwss",
            "path": "/amqp",
        },
    ]
    assert (told["queue-prefix"], told["topic-prefix"], told["product"]) == ("queue://", "topic://", "Penstock")


def test_nothing_is_announced_that_nobody_asked_for() -> None:
    assert open_properties(Announcements()) == {}


@pytest.mark.parametrize(
    ("source", "field", "reason"),
    [
        (topic(selector="a = "), "filter", "InvalidSelector"),
        (Source(address=None, capabilities=symbols("topic")), "address", "InvalidAddress"),
        (Source(address="queue://x", capabilities=symbols("topic")), "address", "InvalidAddress"),
        (topic(address="news/" + "k" * 256), "filter", "InvalidBindingKey"),
    ],
)
def test_an_invalid_field_is_named_where_clients_look(
    connect: Connections, source: Source, field: str, reason: str
) -> None:
    client = connect("c1")
    error = check_refusal(client, client.attach_receiver("r", source), condition="amqp:invalid-field", reason=reason)
    assert (error.info or {})[INVALID_FIELD] == Symbol(field)


def test_a_second_connection_of_a_container_is_told_the_field_the_jms_client_looks_for(
    rows_broker: BrokerProcess,
) -> None:
    sole = symbols("sole-connection-for-container")
    with RawClient(rows_broker.port, "one-only", desired=sole) as first:
        first.begin()
        with RawClient(rows_broker.port, "one-only", desired=sole) as second:
            properties = second.open.properties or {}
            assert properties[Symbol("amqp:connection-establishment-failed")] is True
            error = second.expect(Close).error
            assert error is not None
            assert error.condition == "amqp:invalid-field"
            assert (error.info or {})[INVALID_FIELD] == Symbol("container-id")


async def declare(process: BrokerProcess) -> None:
    client = await ManagementClient.connect(process.management)
    await client.create(ExchangeDeclaration(exchange_type="Topic"), "short-lived")
    await client.create(QueueDeclaration(), "short-queue")
    await client.close()


async def delete(process: BrokerProcess) -> None:
    client = await ManagementClient.connect(process.management)
    await client.delete(EntityType.EXCHANGE, "short-lived", Deletion(if_unused=False))
    await client.delete(EntityType.QUEUE, "short-queue", Deletion(if_unused=False))
    await client.close()


def test_producers_are_told_that_what_they_send_to_is_gone(connect: Connections, rows_broker: BrokerProcess) -> None:
    asyncio.run(declare(rows_broker))
    client = connect("c1")
    client.attach_sender("to-exchange", Target(address="short-lived/a"))
    client.attach_sender("to-queue", Target(address="short-queue"))
    asyncio.run(delete(rows_broker))
    for handle in (0, 1):
        detach = client.expect(Detach)
        assert (detach.handle, detach.closed) == (handle, True)
        assert detach.error is not None
        assert detach.error.condition == "amqp:resource-deleted"
        assert (detach.error.info or {})[Symbol("penstock:reason")] == "NodeDeleted"
        client.send(Detach(handle=handle, closed=True))
    reply = client.attach_sender("again", Target(address="short-lived/a"))
    assert reply.target is None
    error = client.expect(Detach).error
    assert error is not None
    assert error.condition == "amqp:not-found"
