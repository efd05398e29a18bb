"""Rights that come with the declaration of an exchange or a subscription, at a running broker whose permissions allow
nobody anything (docs/decisions/110-rights-given-by-resources.md)."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached, SendException
from support.broker_process import BrokerProcess
from support.proton_client import SECONDS, Subscribed, connected, publish, take

from penstock_amqp.client.management import ListedEntity, ManagementClient
from penstock_api.management import Deletion, EntityType, ExchangeDeclaration, Owner, SubscriptionDeclaration

BILLING = "system:serviceaccount:billing:app"
QUEUE = "psub:durable:global:invoices"
EVE = "system:serviceaccount:evil:app"
USERS = dict.fromkeys((BILLING, EVE, "ann"), "secret")


def settings(*permissions: object) -> dict[str, object]:
    return {
        "authentication": {"users": USERS, "scramIterations": 4096},
        "permissions": list(permissions),
    }


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", dev=False, settings=settings()) as process:
        yield process


@pytest_asyncio.fixture
async def management(broker: BrokerProcess) -> AsyncIterator[ManagementClient]:
    client = await ManagementClient.connect(broker.management)
    yield client
    await client.close()


@contextmanager
def as_user(broker: BrokerProcess, user: str, container: str | None = None) -> Generator[BlockingConnection]:
    with connected(broker.url, container, user=user, password="secret", allow_insecure_mechs=True) as connection:
        yield connection


def owner(kind: str, name: str, namespace: str = "billing") -> Owner:
    return Owner.model_validate({"clusterId": "c", "kind": kind, "namespace": namespace, "name": name, "uid": "u1"})


def orders(*publishers: str) -> ExchangeDeclaration:
    return ExchangeDeclaration(exchange_type="Topic", publishers=publishers, owner=owner("Exchange", "orders"))


def invoices(*consumers: str, client_id: str | None = None) -> SubscriptionDeclaration:
    return SubscriptionDeclaration(
        subscription_name="invoices",
        scope="Global" if client_id is None else "Container",
        client_id=client_id,
        exchange="orders",
        consumers=consumers,
        owner=owner("Subscription", "invoices" if client_id is None else f"invoices-{client_id}"),
    )


def consume(connection: BlockingConnection) -> BlockingReceiver:
    return connection.create_receiver("orders", name="invoices|1", options=Subscribed(), credit=10)


def why(refused: pytest.ExceptionInfo[LinkDetached]) -> str:
    assert refused.value.condition == "amqp:unauthorized-access"
    return str(refused.value)


async def test_who_is_named_publishes_and_consumes_and_nobody_else(
    broker: BrokerProcess, management: ManagementClient
) -> None:
    await management.create(orders(BILLING), "orders")
    await management.create(ExchangeDeclaration(exchange_type="Topic"), "salaries")
    await management.create(invoices("system:serviceaccount:billing:*"))
    with as_user(broker, BILLING) as billing, as_user(broker, EVE) as eve:
        receiver = consume(billing)
        publish(billing.create_sender("orders"), ["1"])
        assert take(receiver, 1) == [("1", 0)]
        with pytest.raises(LinkDetached) as refused:
            billing.create_sender("salaries")
        assert "may not publish on exchange 'salaries'" in why(refused)
        with pytest.raises(LinkDetached) as refused:
            consume(eve)
        assert "may not consume on subscription 'invoices'" in why(refused)
        with pytest.raises(LinkDetached) as refused:
            eve.create_sender("orders")
        assert "may not publish on exchange 'orders'" in why(refused)
        with pytest.raises(SendException):
            publish(eve.create_sender(None), ["2"], address="orders")


async def test_the_right_to_publish_is_none_to_consume(broker: BrokerProcess, management: ManagementClient) -> None:
    await management.create(orders(BILLING), "orders")
    await management.create(invoices())
    with as_user(broker, BILLING) as billing:
        with pytest.raises(LinkDetached) as refused:
            consume(billing)
        assert "may not consume on subscription 'invoices'" in why(refused)
        with pytest.raises(LinkDetached) as refused:
            billing.create_receiver("orders", name="own|1", options=Subscribed(), credit=10)
        assert "may not consume on exchange 'orders'" in why(refused)


async def test_a_subscription_of_the_same_name_in_another_scope_gives_no_right(
    broker: BrokerProcess, management: ManagementClient
) -> None:
    await management.create(orders(), "orders")
    await management.create(invoices(BILLING))
    await management.create(invoices(EVE, client_id="eve"))
    with as_user(broker, EVE, "eve") as eve, pytest.raises(LinkDetached) as refused:
        consume(eve)
    assert "may not consume on subscription 'invoices'" in why(refused)


async def test_a_right_that_is_taken_away_ends_the_links_that_need_it_and_no_others(
    broker: BrokerProcess, management: ManagementClient
) -> None:
    await management.create(orders(BILLING, "ann"), "orders")
    await management.create(invoices(BILLING, "ann"))
    with as_user(broker, BILLING) as billing, as_user(broker, "ann") as ann:
        sender, receiver, hers = billing.create_sender("orders"), consume(billing), ann.create_sender("orders")
        await management.create(invoices("ann"))
        with pytest.raises(LinkDetached) as refused:
            receiver.receive(timeout=SECONDS)
        assert "may not consume on subscription 'invoices'" in why(refused)
        publish(sender, ["1"])
        await management.create(orders("ann"), "orders")
        with pytest.raises((LinkDetached, SendException)):
            for _ in range(100):
                publish(sender, ["2"])
        publish(hers, ["3"])


async def test_the_rights_of_an_entity_can_be_ended_while_it_and_its_messages_stay(
    broker: BrokerProcess, management: ManagementClient
) -> None:
    await management.create(orders("ann"), "orders")
    await management.create(invoices(BILLING))
    with as_user(broker, "ann") as ann:
        publish(ann.create_sender("orders"), ["1"])
    ending = Deletion(rights_only=True, owner_uid="u1")
    other = Deletion(rights_only=True, owner_uid="another")
    with as_user(broker, BILLING) as billing:
        receiver = consume(billing)
        assert take(receiver, 1) == [("1", 0)]
        told = await management.delete_all(
            [
                ListedEntity(EntityType.SUBSCRIPTION, QUEUE, other),
                ListedEntity(EntityType.EXCHANGE, "orders", other),
                ListedEntity(EntityType.EXCHANGE, "nowhere", ending),
            ]
        )
        assert [each.status for each in told] == [409, 409, 204]
        told = await management.delete_all(
            [
                ListedEntity(EntityType.SUBSCRIPTION, QUEUE, ending),
                ListedEntity(EntityType.EXCHANGE, "orders", ending),
            ]
        )
        assert [each.status for each in told] == [204, 204]
        with pytest.raises(LinkDetached) as refused:
            receiver.receive(timeout=SECONDS)
        assert "may not consume on subscription 'invoices'" in why(refused)
    with as_user(broker, "ann") as ann, pytest.raises(LinkDetached):
        ann.create_sender("orders")
    state = await management.read(EntityType.SUBSCRIPTION, QUEUE)
    assert state["depth"] == 1


async def declared(client: ManagementClient, kind: EntityType, name: str, key: str) -> object:
    declaration = (await client.read(kind, name))["declaration"]
    assert isinstance(declaration, dict)
    return declaration[key]


async def outcome(client: ManagementClient, wanted: SubscriptionDeclaration) -> object:
    body = (await client.create(wanted)).body
    assert isinstance(body, dict)
    return body["outcome"]


async def test_rights_outlive_a_restart_and_are_told(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data, dev=False, settings=settings()) as broker:
        client = await ManagementClient.connect(broker.management)
        await client.create(orders(BILLING), "orders")
        await client.create(invoices(BILLING))
        await client.close()
    with BrokerProcess(data, dev=False, settings=settings()) as broker:
        client = await ManagementClient.connect(broker.management)
        assert await declared(client, EntityType.EXCHANGE, "orders", "publishers") == [BILLING]
        assert await declared(client, EntityType.SUBSCRIPTION, QUEUE, "consumers") == [BILLING]
        assert await outcome(client, invoices(BILLING)) == "Unchanged"
        assert await outcome(client, invoices()) == "Updated"
        await client.close()
        with as_user(broker, BILLING) as billing:
            billing.create_sender("orders")
