"""Brokers for the tests of this folder: one for each test, and one for all tests on bare frames."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker_process import BrokerProcess
from support.stepped_broker import SteppedBroker
from support.topic_links import Connections

from penstock_amqp.client.management import ManagementClient
from penstock_api.management import ExchangeDeclaration


@pytest.fixture
def broker_process(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A running `--dev` broker with an empty data folder."""
    with BrokerProcess(tmp_path / "data") as broker:
        yield broker


@pytest.fixture
def timed() -> Iterator[SteppedBroker]:
    """A broker in this process, whose turns and clock the test drives."""
    broker = SteppedBroker()
    yield broker
    broker.close()


@pytest.fixture(scope="session")
def rows_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that makes nothing by itself, with the topic exchanges `news` and `sport`."""
    settings: dict[str, object] = {"authentication": {"anonymous": True}}
    with BrokerProcess(tmp_path_factory.mktemp("rows") / "data", dev=False, settings=settings) as process:
        asyncio.run(declare_exchanges(process.management))
        yield process


async def declare_exchanges(address: str) -> None:
    client = await ManagementClient.connect(address)
    for name in ("news", "sport"):
        await client.create(ExchangeDeclaration(exchange_type="Topic"), name)
    await client.close()


numbers = itertools.count()


@pytest.fixture
def name() -> str:
    """A subscription name that no other test uses."""
    return f"sub{next(numbers)}"


@pytest.fixture
def connect(rows_broker: BrokerProcess) -> Iterator[Connections]:
    connections = Connections(rows_broker.port)
    yield connections
    connections.close()
