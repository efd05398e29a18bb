"""What users may do at a running broker with permissions, what they are told, and a change of them while they work."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from proton import Message
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached, SendException
from support.broker_process import BrokerProcess
from support.no_descriptors import no_descriptors
from support.proton_client import SECONDS, Browsing, NullSource, Subscribed, close, connected, publish, take
from support.waiting import until

from penstock_amqp.client.errors import ManagementError
from penstock_amqp.client.management import ManagementClient
from penstock_amqp.sasl.client import Login
from penstock_api.management import EntityType, ExchangeDeclaration, Owner, QueueDeclaration, SubscriptionDeclaration
from penstock_broker.access.permissions import PermissionCheck
from penstock_broker.settings.settings import BrokerSettings

USERS = dict.fromkeys(("maker", "reader", "other", "root", "nobody"), "secret")
PERMISSIONS: list[dict[str, object]] = [
    {"users": ["maker"], "actions": ["publish"], "exchanges": ["orders"], "queues": ["work*"]},
    {"users": ["maker"], "actions": ["create"], "queues": ["work-*"]},
    {"groups": ["readers"], "actions": ["consume"], "exchanges": ["orders"], "queues": ["work*"]},
    {"groups": ["readers"], "actions": ["consume", "create"], "subscriptions": ["audit*"]},
    {"users": ["root"], "actions": ["consume", "manage"], "exchanges": ["*"], "subscriptions": ["*"]},
    {"users": ["root"], "actions": ["manage"], "management": True},
]
SHARED = Subscribed()


def broker_of(data: Path, **settings: object) -> BrokerProcess:
    return BrokerProcess(
        data,
        dev=False,
        settings={
            "authentication": {"users": USERS, "groups": {"readers": ["reader", "other"]}, "scramIterations": 4096},
            "autoCreate": True,
            **settings,
        },
    )


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker_of(tmp_path_factory.mktemp("permitting") / "data", permissions=PERMISSIONS) as process:
        yield process


@pytest_asyncio.fixture
async def declared(broker: BrokerProcess) -> AsyncIterator[ManagementClient]:
    """An exchange, a queue and two declared subscriptions, and the client that made them."""
    client = await ManagementClient.connect(broker.management)
    await client.create(ExchangeDeclaration(exchange_type="Topic"), "orders")
    await client.create(QueueDeclaration(), "work")
    await client.create(QueueDeclaration(), "secret")
    for name in ("audit-all", "billing"):
        owner = Owner(cluster_id="local", kind="Subscription", namespace="shop", name=name, uid="u1")
        await client.create(SubscriptionDeclaration(subscription_name=name, exchange="orders", owner=owner))
    yield client
    await client.close()


@contextmanager
def as_user(broker: BrokerProcess, user: str, container: str | None = None) -> Generator[BlockingConnection]:
    with connected(broker.url, container, user=user, password="secret", allow_insecure_mechs=True) as connection:
        yield connection


def refusal(error: pytest.ExceptionInfo[LinkDetached]) -> tuple[str, str]:
    """Condition and description of the error that a link was closed with."""
    condition = error.value.condition
    assert condition == "amqp:unauthorized-access"
    return condition, str(error.value)


def receiver(
    connection: BlockingConnection, address: str, name: str, options: LinkOption | None = SHARED
) -> BlockingReceiver:
    return connection.create_receiver(address, name=name, options=options, credit=10)


def test_who_may_publish_and_who_may_consume(broker: BrokerProcess, declared: ManagementClient) -> None:
    with as_user(broker, "maker") as maker, as_user(broker, "reader") as reader:
        queue = reader.create_receiver("work", credit=10)
        audit = receiver(reader, "orders/#", "audit-mine|global")
        publish(maker.create_sender("work"), ["job"])
        publish(maker.create_sender("orders/eu"), ["order"])
        assert take(queue, 1) == [("job", 0)]
        assert take(audit, 1) == [("order", 0)]
        assert close(audit) is None


@pytest.mark.parametrize(
    ("user", "address", "lacking"),
    [
        ("reader", "orders/eu", "may not publish on exchange 'orders'"),
        ("reader", "work", "may not publish on queue 'work'"),
        ("maker", "secret", "may not publish on queue 'secret'"),
        ("nobody", "work", "may not publish on queue 'work'"),
        ("maker", "other-queue", "may not create on queue 'other-queue'"),
    ],
)
def test_a_sender_without_permission_learns_what_is_lacking(
    broker: BrokerProcess, declared: ManagementClient, user: str, address: str, lacking: str
) -> None:
    with as_user(broker, user) as connection:
        with pytest.raises(LinkDetached) as refused:
            connection.create_sender(address)
        assert lacking in refusal(refused)[1]
        assert f"User '{user}'" in refusal(refused)[1]


@pytest.mark.parametrize(
    ("user", "address", "name", "lacking"),
    [
        ("maker", "orders/#", "audit-1|global", "may not consume on exchange 'orders'"),
        ("reader", "orders/#", "mine|global", "may not create on subscription 'mine'"),
        ("reader", "orders/#", "billing|global", "may not consume on subscription 'billing'"),
        ("reader", "secret", "q", "may not consume on queue 'secret'"),
        ("reader", "work-new", "q", "may not create on queue 'work-new'"),
    ],
)
def test_a_receiver_without_permission_learns_what_is_lacking(
    broker: BrokerProcess, declared: ManagementClient, user: str, address: str, name: str, lacking: str
) -> None:
    with as_user(broker, user) as connection:
        with pytest.raises(LinkDetached) as refused:
            receiver(connection, address, name, options=SHARED if "orders" in address else None)
        assert lacking in refusal(refused)[1]


async def test_a_declared_subscription_asks_for_itself_and_a_refused_attach_makes_nothing(
    broker: BrokerProcess, declared: ManagementClient
) -> None:
    with as_user(broker, "reader") as connection:
        receiver(connection, "orders/#", "audit-all|global").detach()
        with pytest.raises(LinkDetached):
            connection.create_sender("other-queue")
    with pytest.raises(ManagementError):
        await declared.read(EntityType.QUEUE, "other-queue")


def test_making_a_queue_by_naming_it_has_its_own_permission(broker: BrokerProcess, declared: ManagementClient) -> None:
    with as_user(broker, "maker") as maker:
        publish(maker.create_sender("work-1"), ["x"])


def test_each_message_of_an_anonymous_sender_is_asked(broker: BrokerProcess, declared: ManagementClient) -> None:
    with as_user(broker, "maker") as maker:
        relay = maker.create_sender(None)
        publish(relay, ["x"], address="work")
        for address in ("secret", "other-queue"):
            with pytest.raises(SendException):
                relay.send(Message(body="y", address=address))
        publish(relay, ["z"], address="orders/eu")


def test_a_subscription_s_queue_is_browsed_by_permission_to_manage_it(
    broker: BrokerProcess, declared: ManagementClient
) -> None:
    queue = "psub:durable:global:billing"
    with as_user(broker, "maker") as maker, as_user(broker, "root") as root, as_user(broker, "reader") as reader:
        publish(maker.create_sender("orders/eu"), ["seen"])
        ((_, deliveries),) = take(root.create_receiver(queue, credit=1, options=Browsing()), 1)
        assert deliveries == 0
        with pytest.raises(LinkDetached) as refused:
            reader.create_receiver(queue, credit=1, options=Browsing())
        refusal(refused)


def test_what_one_user_made_another_uses_and_ends_only_by_permission(
    broker: BrokerProcess, declared: ManagementClient
) -> None:
    def end(connection: BlockingConnection) -> object:
        return close(connection.create_receiver(None, name="audit-own|global", options=NullSource(), credit=0))

    with as_user(broker, "reader") as reader:
        receiver(reader, "orders/#", "audit-own|global").detach()
    with as_user(broker, "other") as other:
        for address in ("orders/#", None):
            with pytest.raises(LinkDetached) as refused:
                options = SHARED if address else NullSource()
                other.create_receiver(address, name="audit-own|global", options=options, credit=0)
            assert "made by another user" in refusal(refused)[1]
    with as_user(broker, "root") as root:
        receiver(root, "orders/#", "audit-own|global|2").detach()
        assert end(root) is None


async def test_management_on_a_client_listener_is_for_who_may_manage_it(
    broker: BrokerProcess, declared: ManagementClient
) -> None:
    address = broker.addresses["amqp"]
    root = await ManagementClient.connect(address, login=Login("root", "secret"))
    await root.create(QueueDeclaration(), "work-by-root")
    await root.close()
    reader = await ManagementClient.connect(address, login=Login("reader", "secret"))
    with pytest.raises(ManagementError, match="grant 'manage' on management"):
        await reader.create(QueueDeclaration(), "work-by-reader")
    await reader.close()


def test_request_and_reply_needs_nothing_for_temporary_queues(
    broker: BrokerProcess, declared: ManagementClient
) -> None:
    with as_user(broker, "reader") as asks, as_user(broker, "maker") as answers:
        replies = asks.create_receiver(None, dynamic=True, credit=1)
        publish(answers.create_sender(None), ["pong"], address=replies.link.remote_source.address)
        assert take(replies, 1) == [("pong", 0)]


def write(path: Path, permissions: list[dict[str, object]]) -> None:
    hidden = path.with_suffix(".new")
    hidden.write_text(yaml.safe_dump({"permissions": permissions}))
    hidden.replace(path)


def test_a_change_of_the_file_holds_for_links_that_are_attached(tmp_path: Path) -> None:
    path = tmp_path / "permissions.yaml"
    both: list[dict[str, object]] = [{"users": ["*"], "actions": ["publish", "consume", "create"], "queues": ["*"]}]
    write(path, both)
    with broker_of(tmp_path / "data", permissionsFile=str(path)) as broker, as_user(broker, "reader") as reader:
        sender, queue = reader.create_sender("work"), reader.create_receiver("work", credit=10)
        publish(sender, ["x"])
        assert take(queue, 1) == [("x", 0)]
        write(path, [{"users": ["reader"], "actions": ["publish"], "queues": ["work"]}])
        with pytest.raises(LinkDetached) as refused:
            queue.receive(timeout=SECONDS)
        assert "may not consume on queue 'work'" in refusal(refused)[1]
        publish(sender, ["y"])
        # A file that can't be used changes nothing, and is named.
        path.write_text("permissions: [{users: [reader], actions: [fly], queues: [work]}]")

        def told() -> bool:
            publish(sender, ["z"])  # they hold on
            return "The permissions stay as they were" in broker.log()

        until(told, "word of the file")


@pytest.mark.parametrize("text", ["permissions: [", "permissions: [{users: [a]}]", "grants: []", "[]"])
def test_a_broker_does_not_start_with_permissions_that_cannot_be_used(tmp_path: Path, text: str) -> None:
    path = tmp_path / "permissions.yaml"
    path.write_text(text)
    with pytest.raises(AssertionError, match="permissions"), broker_of(tmp_path / "data", permissionsFile=str(path)):
        pass


def test_an_empty_list_allows_nothing(tmp_path: Path) -> None:
    with broker_of(tmp_path / "data", permissions=[]) as broker, as_user(broker, "root") as root:
        with pytest.raises(LinkDetached) as refused:
            root.create_sender("work")
        refusal(refused)


def test_a_changed_file_that_cannot_be_read_for_a_moment_is_read_later(tmp_path: Path) -> None:
    """The file does not change again when the system has descriptors again."""
    path = tmp_path / "permissions.yaml"
    path.write_text("permissions: [{users: [ann], actions: [publish], queues: [jobs]}]")
    check = PermissionCheck(BrokerSettings(permissions_file=path))
    path.write_text("permissions: []")
    with no_descriptors():
        assert not check.reload()
    assert check.reload()
    assert check.permissions.grants == ()


@pytest.mark.parametrize(
    "content", [b"permissions: 2026-13-45", b"permissions: " + b"[" * 3000, "# \u00e4".encode("latin-1")]
)
def test_a_changed_file_that_is_no_yaml_changes_nothing_and_is_told(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """What PyYAML raises for the first two is no `YAMLError`."""
    path = tmp_path / "permissions.yaml"
    path.write_text("permissions: [{users: [ann], actions: [publish], queues: [jobs]}]")
    check = PermissionCheck(BrokerSettings(permissions_file=path))
    path.write_bytes(content)
    assert not check.reload()
    assert len(check.permissions.grants) == 1
    assert f"The permissions stay as they were: The permissions {path} are not valid YAML" in caplog.text
