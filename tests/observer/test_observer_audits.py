"""Audits: their records are fetched from a real broker and kept as Parquet files, with a limit of their own."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# proton's own types are not complete.

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.broker_process import BrokerProcess
from support.proton_client import Subscribed, connected, publish

from penstock_amqp.client.management import ManagementClient
from penstock_api.management import EntityType, ExchangeDeclaration, Operation, Owner, SubscriptionDeclaration
from penstock_api.message_audit import AUDIT_COLUMNS, AuditEvent, AuditStart, AuditState, AuditTotals, EventKind
from penstock_observer.audit_fetch import AuditFetcher
from penstock_observer.audit_files import AuditFull, AuditStore
from penstock_observer.broker_client import PolledBroker, over_unix_socket
from penstock_observer.broker_details import details_over
from penstock_observer.live_view import LiveView

pq: Any = importlib.import_module("pyarrow.parquet")  # it ships no type information

NAME = "psub:durable:global:billing"
OWNER = Owner(cluster_id="local", kind="Subscription", namespace="shop", name="billing", uid="u1")
DAY_MS = 86_400_000


class Site:
    """A broker process, and the parts of an observer that fetch audits from it."""

    def __init__(self, broker: BrokerProcess, socket: Path, folder: Path) -> None:
        self.broker, self.folder = broker, folder
        self.live = LiveView()
        self.polled = PolledBroker(over_unix_socket(socket))
        self.connect = details_over(socket)
        self.restart_observer()

    def restart_observer(self) -> None:
        """It knows what its folder holds, and no more."""
        self.store = AuditStore(self.folder, 1 << 30, DAY_MS)
        self.fetcher = AuditFetcher(self.live, self.connect, self.store, 10)

    async def poll(self) -> None:
        """What the observer does every interval."""
        self.live.answered(await self.polled.poll())
        await self.fetcher.once()

    async def manage(self, operation: Operation, body: object = None) -> None:
        """A request of an administrator."""
        client = await ManagementClient.connect(self.broker.management)
        (await client.request(operation, EntityType.SUBSCRIPTION, NAME, body)).check()
        await client.close()

    async def send(self, *names: str) -> None:
        """Publish messages with these ids."""
        await asyncio.to_thread(self._send, names)

    def _send(self, names: tuple[str, ...]) -> None:
        with connected(self.broker.url) as connection:
            sender = connection.create_sender("orders")
            for name in names:
                publish(sender, [name], id=name)

    async def accept(self, count: int) -> None:
        """Consume messages, and go."""
        await asyncio.to_thread(self._accept, count)

    def _accept(self, count: int) -> None:
        with connected(self.broker.url) as connection:
            receiver = connection.create_receiver("orders", name="billing", credit=count, options=Subscribed())
            for _ in range(count):
                receiver.receive(timeout=60)
                receiver.accept()
            receiver.detach()

    def rows(self) -> list[tuple[object, ...]]:
        """Of all files: ordinal, kind, message-id, counted."""
        found: list[tuple[object, ...]] = []
        for audit in self.store.listed():
            for name in audit.files:
                path = self.store.path_of(name)
                table = pq.read_table(path)
                assert tuple(table.column_names) == AUDIT_COLUMNS
                found += [
                    (row["ordinal"], EventKind(row["kind"]).name, row["message_id"], row["counted"])
                    for row in table.to_pylist()
                ]
        return found


@pytest_asyncio.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    socket = tmp_path / "observer.sock"
    with BrokerProcess(tmp_path / "data", settings={"observerSocket": str(socket)}) as broker:
        client = await ManagementClient.connect(broker.management)
        await client.create(ExchangeDeclaration(exchange_type="Topic"), "orders")
        declaration = SubscriptionDeclaration(subscription_name="billing", exchange="orders", owner=OWNER)
        await client.create(declaration)
        await client.close()
        site = Site(broker, socket, tmp_path / "audit")
        yield site
        await site.polled.close()


async def test_an_audit_is_fetched_over_a_restart_of_the_observer(site: Site) -> None:
    await site.send("a")
    await site.manage(Operation.START_AUDIT, AuditStart(seconds=60))
    await site.poll()
    await site.send("b")
    site.restart_observer()
    await site.accept(1)
    await site.poll()
    await site.manage(Operation.STOP_AUDIT)
    await site.poll()
    await site.poll()
    assert site.rows() == [
        (0, "PRESENT", "a", 0),
        (1, "ENQUEUED", "b", 1),
        (2, "DELIVERED", "", 2),
        (3, "ACCEPTED", "", 3),
        (4, "WAITING", "", 3),
    ]
    (audit,) = site.store.listed()
    assert (audit.is_complete, audit.records, audit.state.ended_by) == (True, 5, "Request")
    assert (audit.state.namespace, audit.state.name, audit.state.queue_name) == ("shop", "billing", NAME)
    assert [path.name for path in site.folder.iterdir() if path.name.startswith(".")] == []


async def test_a_restart_of_the_broker_ends_the_audit_by_name(site: Site) -> None:
    await site.manage(Operation.START_AUDIT, AuditStart(seconds=60))
    await site.poll()
    site.broker.kill()
    site.broker.start()
    await site.polled.close()
    await site.poll()
    (audit,) = site.store.listed()
    assert (audit.is_complete, audit.state.ended_by) == (False, "Restart")
    await site.manage(Operation.START_AUDIT, AuditStart(seconds=60))
    await site.poll()
    assert [each.state.ended_by for each in site.store.listed()] == ["Restart", None]


# -- the folder -----------------------------------------------------------------------------------------------------


def state(number: int, **changes: Any) -> AuditState:
    values: dict[str, Any] = {
        "audit": f"1-{number}-7", "queue_name": f"q{number}", "subscription_name": "s", "instance_id": "i", "epoch": 1,
        "incarnation": 7, "started_ms": number, "until_ms": number + 60_000, "begin": AuditTotals(),
    }  # fmt: skip
    return AuditState(**(values | changes))


def events(count: int) -> list[AuditEvent]:
    return [AuditEvent(EventKind.ENQUEUED, number, 5, 5, f"m{number}") for number in range(count)]


def test_the_oldest_audits_make_room(tmp_path: Path) -> None:
    store = AuditStore(tmp_path / "measured", 1 << 30, DAY_MS)
    store.append(state(1), 0, events(9))
    folder = tmp_path / "audit"
    store = AuditStore(folder, int(2.5 * store.listed()[0].bytes), DAY_MS)
    for number in (1, 2, 3):
        store.append(state(number), 0, events(9))
    assert [each.state.queue_name for each in store.listed()] == ["q1", "q2", "q3"]
    store.append(state(4), 0, events(9))
    assert [each.state.queue_name for each in store.listed()] == ["q2", "q3", "q4"]
    assert sorted(path.name[:3] for path in folder.glob("*.parquet")) == ["1-2", "1-3", "1-4"]


def test_an_audit_that_is_too_large_alone_is_not_stored_any_more(tmp_path: Path) -> None:
    store = AuditStore(tmp_path, 1000, DAY_MS)
    store.append(state(1), 0, events(9))
    with pytest.raises(AuditFull, match="the audit of q1 takes more than 1000 bytes"):
        store.append(state(1), 9, events(9))
    assert store.next_of("1-1-7") == 9


def test_old_audits_go_with_the_next_one(tmp_path: Path) -> None:
    store = AuditStore(tmp_path, 1 << 30, DAY_MS)
    store.append(state(1), 0, events(1))
    store.append(state(2 + DAY_MS), 0, events(1))
    assert [each.state.queue_name for each in store.listed()] == [f"q{2 + DAY_MS}"]


def test_a_gap_is_never_complete(tmp_path: Path) -> None:
    store = AuditStore(tmp_path, 1 << 30, DAY_MS)
    store.append(state(1), 0, events(3))
    store.append(state(1, is_written=True, records=7), 4, events(3))
    again = AuditStore(tmp_path, 1 << 30, DAY_MS)
    for each in (*store.listed(), *again.listed()):
        assert (each.records, each.is_complete) == (7, False)


def test_what_was_half_written_is_removed_and_what_is_strange_stays(tmp_path: Path) -> None:
    (tmp_path / ".1-1-7-000000000000-000000000008.parquet").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "1-1-7.json").write_text("{")
    store = AuditStore(tmp_path, 1 << 30, DAY_MS)
    assert store.listed() == ()
    assert store.path_of("notes.txt") is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1-1-7.json", "notes.txt"]
