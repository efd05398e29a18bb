"""The asyncio client at a real broker's management listener: TLS, password, Unix socket, kill."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker_process import BrokerProcess
from support.certificates import Authority

from penstock_amqp.client.address import Address
from penstock_amqp.client.errors import ManagementError, TransportError
from penstock_amqp.client.management import ListedEntity, ManagementClient
from penstock_amqp.sasl.client import Login, NotAuthenticated
from penstock_api.management import EntityType, ExchangeDeclaration, SubscriptionDeclaration
from penstock_api.state_documents import BrokerState, ExchangeState, SubscriptionState


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[BrokerProcess]:
    """A broker whose management listener is on TLS with a password."""
    issued = authority.issue("broker-management")
    password = issued.key.with_name("password")
    password.write_text("secret")
    settings: dict[str, object] = {
        "authentication": {"users": {"alice": "wonder"}},
        "management": {
            "address": "127.0.0.1:0",
            "tls": {"certificate": str(issued.certificate), "key": str(issued.key)},
            "passwordFile": str(password),
        },
    }
    data = tmp_path_factory.mktemp("broker") / "data"
    with BrokerProcess(data, dev=False, management=False, settings=settings) as process:
        yield process


def address(broker: BrokerProcess, ca: Path | None = None, name: str = "broker-management") -> Address:
    return Address.parse(broker.addresses["management"], ssl.create_default_context(cafile=ca), name)


async def test_topology_is_declared_and_read_over_tls(broker: BrokerProcess, authority: Authority) -> None:
    client = await ManagementClient.connect(address(broker, authority.ca), login=Login("operator", "secret"))
    exchanges = [
        ListedEntity(EntityType.EXCHANGE, f"x{n}", ExchangeDeclaration(exchange_type="Topic")) for n in range(50)
    ]
    assert {answer.status for answer in await client.create_all(exchanges)} == {201}
    assert {answer.status for answer in await client.create_all(exchanges)} == {200}
    subscriptions = [
        client.create(SubscriptionDeclaration(subscription_name=f"s{n}", exchange=f"x{n % 50}", binding_keys=("a.#",)))
        for n in range(300)
    ]
    assert {answer.status for answer in await asyncio.gather(*subscriptions)} == {201}
    found = await client.states(SubscriptionState)
    assert {state.subscription_name for state in found} == {f"s{n}" for n in range(300)}
    assert len(await client.states(ExchangeState)) >= 50
    assert (await client.read_state(BrokerState)).subscriptions == 300
    with pytest.raises(ManagementError) as caught:
        await client.create(SubscriptionDeclaration(subscription_name="s", exchange="absent"))
    assert (caught.value.status, caught.value.reason) == (404, "ExchangeNotFound")
    await client.close()


async def test_the_certificate_and_the_password_are_checked(broker: BrokerProcess, authority: Authority) -> None:
    with pytest.raises(TransportError, match="certificate"):
        await ManagementClient.connect(address(broker), login=Login("operator", "secret"))
    with pytest.raises(TransportError, match="certificate"):
        await ManagementClient.connect(address(broker, authority.ca, "elsewhere"), login=Login("operator", "secret"))
    for login in (Login("operator", "wrong"), Login("guest", "secret"), None):
        with pytest.raises(NotAuthenticated):
            await ManagementClient.connect(address(broker, authority.ca), login=login)


async def test_a_killed_broker_ends_what_waits(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as process:
        client = await ManagementClient.connect(process.management)
        assert (await client.read_state(BrokerState)).epoch == 1
        process.kill()
        with pytest.raises(ConnectionError):
            while True:
                await client.read(EntityType.BROKER)
        await client.close()
        process.start()
        client = await ManagementClient.connect(process.management)
        assert (await client.read_state(BrokerState)).epoch == 2
        await client.close()
