"""Ways around permissions that somebody might try, at a running broker: none of them leads anywhere."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

import socket
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from proton.utils import BlockingConnection, LinkDetached
from support.broker_process import BrokerProcess
from support.proton_client import SECONDS, Browsing, Subscribed, connected, publish, take
from support.raw_client import RawClient
from support.transaction_client import TransactionClient, condition_of
from support.waiting import until

from penstock_amqp.client.management import ManagementClient
from penstock_amqp.frames.performatives import Accepted, Attach, Detach, Rejected, Source, Target
from penstock_amqp.sasl.client import Login
from penstock_amqp.types.values import Symbol
from penstock_api.management import EntityType, ExchangeDeclaration, QueueDeclaration, SubscriptionDeclaration
from penstock_api.state_documents import BrokerState, SubscriptionState

USERS = dict.fromkeys(("maker", "reader", "root"), "secret")
SHARED = Subscribed()
READING: dict[str, object] = {
    "users": ["reader", "root"],
    "actions": ["consume", "create"],
    "exchanges": ["orders"],
    "subscriptions": ["audit*"],
}
MAKING: dict[str, object] = {"users": ["maker"], "actions": ["publish", "consume"], "queues": ["work"]}
MANAGING: dict[str, object] = {"users": ["root"], "actions": ["manage"], "subscriptions": ["audit*"]}


def permit(path: Path, *permissions: dict[str, object]) -> None:
    hidden = path.with_suffix(".new")
    hidden.write_text(yaml.safe_dump({"permissions": list(permissions)}))
    hidden.replace(path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "permissions.yaml"
    permit(path, READING, MAKING, MANAGING)
    return path


@pytest.fixture
def broker(tmp_path: Path, file: Path) -> Iterator[BrokerProcess]:
    settings: dict[str, object] = {
        "authentication": {"users": USERS, "scramIterations": 4096, "anonymous": True},
        "permissionsFile": str(file),
    }
    with BrokerProcess(tmp_path / "data", dev=False, settings=settings) as process:
        yield process


@contextmanager
def as_user(broker: BrokerProcess, user: str) -> Generator[BlockingConnection]:
    with connected(broker.url, user, user=user, password="secret", allow_insecure_mechs=True) as connection:
        yield connection


async def declare(broker: BrokerProcess) -> None:
    client = await ManagementClient.connect(broker.management)
    for exchange in ("orders", "salaries"):
        await client.create(ExchangeDeclaration(exchange_type="Topic"), exchange)
    await client.create(QueueDeclaration(), "work")
    await client.create(SubscriptionDeclaration(subscription_name="audit-eu", exchange="orders", binding_keys=("eu",)))
    await client.close()


async def binding(broker: BrokerProcess, queue: str) -> tuple[str, tuple[str, ...]]:
    client = await ManagementClient.connect(broker.management)
    states = [each for each in await client.states(SubscriptionState) if each.queue_name == queue]
    await client.close()
    return states[0].exchange, states[0].binding_keys


@pytest.mark.parametrize(
    ("permitted", "address", "kept"),
    [
        ([READING], "salaries/#", ("orders", ("eu",))),
        ([{**READING, "exchanges": ["other"]}], "orders/#", ("orders", ("eu",))),
        ([READING], "orders/#", ("orders", ("#",))),
    ],
)
async def test_who_may_consume_a_declared_subscription_binds_it_only_to_what_it_may_consume(
    broker: BrokerProcess,
    file: Path,
    permitted: list[dict[str, object]],
    address: str,
    kept: tuple[str, tuple[str, ...]],
) -> None:
    await declare(broker)
    permit(file, *permitted, MANAGING, {**MAKING, "users": ["reader"]})
    with as_user(broker, "reader") as reader:
        wait_until_publishing(reader)
        try:
            reader.create_receiver(address, name="audit-eu|global", options=SHARED, credit=0).detach()
            is_refused = False
        except LinkDetached as refused:
            is_refused = True
            assert refused.condition == "amqp:unauthorized-access"
            assert "may not consume on exchange" in str(refused)
    assert is_refused is (kept[1] == ("eu",))
    assert await binding(broker, "psub:durable:global:audit-eu") == kept


def wait_until_publishing(connection: BlockingConnection) -> None:
    """Until new permissions, which let this connection publish to `work`, hold."""

    def may_publish() -> bool:
        try:
            connection.create_sender("work").close()  # type: ignore[no-untyped-call] # proton has no types there
        except LinkDetached:
            return False
        return True

    until(may_publish, "the new permissions to hold")


async def test_a_commit_publishes_nothing_that_is_not_allowed_any_more(broker: BrokerProcess, file: Path) -> None:
    await declare(broker)
    with RawClient(broker.port, "maker", login=Login("maker", "secret")) as raw:
        client = TransactionClient(raw)
        named = client.sender("work", "named")
        first, second = client.declare(), client.declare()
        client.state_of(client.post(named, "by name", first))
        client.state_of(client.post(named, "by name too", second))
        permit(file, READING)
        assert str(getattr(client.detached().error, "condition", "")) == "amqp:unauthorized-access"
        for txn_id in (first, second):
            state = client.discharge(txn_id)
            assert isinstance(state, Rejected)
            assert condition_of(state) == "amqp:transaction:rollback"
            error = state.error
            assert error is not None
            assert "may not publish on queue 'work'" in (error.description or "")
        permit(file, READING, {**MAKING, "users": ["reader", "maker"]})
        with as_user(broker, "reader") as reader:
            wait_until_publishing(reader)
            publish(reader.create_sender("work"), ["after"])
            assert take(reader.create_receiver("work", credit=10), 1) == [("after", 0)]
        third = client.declare()
        client.state_of(client.post(client.sender("work", "again"), "allowed", third))
        assert client.discharge(third) == Accepted()


async def test_links_end_when_another_user_s_subscription_may_not_be_managed_any_more(
    broker: BrokerProcess, file: Path
) -> None:
    await declare(broker)
    with as_user(broker, "reader") as reader, as_user(broker, "root") as root:
        reader.create_receiver("orders", name="audit-own|global", options=SHARED, credit=0).detach()
        using = root.create_receiver("orders", name="audit-own|global", options=SHARED, credit=1)
        browsing = root.create_receiver("psub:durable:global:audit-own", credit=1, options=Browsing())
        permit(file, READING, MAKING)
        for link, words in ((using, "made by another user"), (browsing, "may not manage on subscription 'audit-own'")):
            with pytest.raises(LinkDetached, match=words) as refused:
                link.receive(timeout=SECONDS)
            assert refused.value.condition == "amqp:unauthorized-access"


# -- the observer's socket -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("permissions", [None, [{"users": ["*"], "actions": ["publish", "consume"], "queues": ["*"]}]])
async def test_the_observer_s_socket_neither_publishes_nor_consumes(
    tmp_path: Path, permissions: list[dict[str, object]] | None
) -> None:
    path = tmp_path / "observer.sock"
    settings: dict[str, object] = {
        "observerSocket": str(path),
        "autoCreate": True,
        "authentication": {"anonymous": True},
    }
    if permissions is not None:
        settings["permissions"] = permissions
    with BrokerProcess(tmp_path / "data", dev=False, settings=settings) as broker:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(60)
        sock.connect(str(path))
        with RawClient(0, "observer", stream=sock) as raw:
            raw.begin()
            for terminus in (Target(address="q"), Target(), Target(dynamic=True)):
                check_refused(raw, raw.attach_sender(f"s{terminus}", terminus))
            for source in (Source(address="q"), Source(dynamic=True), None):
                check_refused(raw, raw.attach_receiver(f"r{source}", source))
            assert raw.attach_sender("asks", Target(address="$management")).target is not None
        client = await ManagementClient.connect(f"unix:{path}")
        assert (await client.read_state(BrokerState)).queues == 0
        assert await client.query_all(EntityType.QUEUE) == []
        await client.close()
        assert "internal error" not in broker.log()


def check_refused(raw: RawClient, reply: Attach) -> None:
    """The attach was answered by a detach that says why."""
    assert (reply.target if reply.role else reply.source) is None
    error = raw.expect(Detach).error
    assert error is not None
    assert str(error.condition) == "amqp:unauthorized-access"
    assert (error.info or {})[Symbol("penstock:reason")] == "NotPermitted"
