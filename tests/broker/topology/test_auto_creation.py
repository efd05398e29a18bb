"""What a broker makes because a client named it: by kind and pattern, within limits, and gone again when unused."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Link
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, LinkDetached
from support.broker_process import BrokerProcess
from support.proton_client import close, connected, publish, put_symbols, take
from support.waiting import wait_until

from penstock_amqp.client.management import ManagementClient
from penstock_api.management import EntityType, QueueDeclaration

SETTINGS: dict[str, object] = {
    "authentication": {"anonymous": True},
    "autoCreate": {
        "queues": {"names": ["app.*", "jobs"], "limit": 2, "deleteUnusedSeconds": 1},
        "topics": {"names": ["news", "app.*"], "limit": 1},
    },
}


class Meaning(LinkOption):
    """A capability of the target: queue or topic."""

    def __init__(self, capability: str) -> None:
        self._capability = capability

    def apply(self, link: Link) -> None:
        put_symbols(link.target.capabilities, [self._capability])


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", dev=False, settings=SETTINGS) as process:
        yield process


async def names(process: BrokerProcess, kind: EntityType) -> list[str]:
    client = await ManagementClient.connect(process.management)
    try:
        return [str(each["name"]) for each in await client.query_all(kind)]
    finally:
        await client.close()


def refusal(connection: BlockingConnection, address: str, **options: Any) -> str:
    with pytest.raises(LinkDetached) as refused:
        connection.create_sender(address, **options)
    assert refused.value.condition is not None
    return refused.value.condition


async def test_the_capability_decides_the_kind_and_patterns_what_is_made(process: BrokerProcess) -> None:
    with connected(process.url) as connection:
        kept = connection.create_sender("app.q")
        connection.create_sender("app.t", options=Meaning("topic"))
        assert refusal(connection, "other") == "amqp:not-found"
        assert refusal(connection, "jobs", options=Meaning("topic")) == "amqp:not-found"
        assert refusal(connection, "news", options=Meaning("queue")) == "amqp:not-found"
        assert await names(process, EntityType.QUEUE) == ["app.q"]
        assert "app.t" in await names(process, EntityType.EXCHANGE)
        publish(kept, ["one"])


async def test_limits_are_per_kind_and_name_the_setting(process: BrokerProcess) -> None:
    with connected(process.url) as connection:
        for number in range(2):
            publish(connection.create_sender(f"app.{number}"), ["stays"])
        with pytest.raises(LinkDetached, match=r"autoCreate\.queues\.limit") as refused:
            connection.create_sender("app.2")
        assert refused.value.condition == "amqp:resource-limit-exceeded"
        connection.create_sender("app.t", options=Meaning("topic"))
        assert refusal(connection, "news", options=Meaning("topic")) == "amqp:resource-limit-exceeded"


async def test_an_unused_queue_goes_and_others_stay(process: BrokerProcess) -> None:
    client = await ManagementClient.connect(process.management)
    await client.create(QueueDeclaration(), "declared")
    await client.close()
    with connected(process.url) as connection:
        used = connection.create_sender("app.used")
        left = connection.create_sender("app.left")
        publish(left, ["a message"])
        assert await names(process, EntityType.QUEUE) == ["app.left", "app.used", "declared"]
        process.kill()
    process.start()  # what is auto-made is known after a restart
    with connected(process.url) as connection:
        used = connection.create_sender("app.used")
        reader = connection.create_receiver("app.left", credit=1)
        assert take(reader, 1)[0][0] == "a message"
        close(reader)

        async def has_gone() -> bool:
            return await names(process, EntityType.QUEUE) == ["app.used", "declared"]

        await wait_until(has_gone)
        publish(used, ["still there"])
        publish(connection.create_sender("app.left"), ["made again"])


async def test_one_that_is_declared_later_stays(process: BrokerProcess) -> None:
    with connected(process.url) as connection:
        connection.create_sender("app.a")
        connection.create_sender("app.b")
        client = await ManagementClient.connect(process.management)
        await client.create(QueueDeclaration(), "app.a")
        await client.close()

    async def one_has_gone() -> bool:
        return await names(process, EntityType.QUEUE) == ["app.a"]

    await wait_until(one_has_gone)
    process.kill()
    process.start()
    assert await names(process, EntityType.QUEUE) == ["app.a"]
