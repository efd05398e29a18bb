"""A broker process, an observer's parts that fetch audits from it, and clients, for tests of audits."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# proton's own types are not complete.

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.broker_process import BrokerProcess
from support.proton_client import Subscribed, connected, publish

from penstock_amqp.client.management import ManagementClient
from penstock_api.management import EntityType, ExchangeDeclaration, Operation, Owner, SubscriptionDeclaration
from penstock_api.message_audit import AUDIT_COLUMNS, EventKind
from penstock_observer.audit_fetch import AuditFetcher
from penstock_observer.audit_files import AuditStore
from penstock_observer.broker_client import PolledBroker, over_unix_socket
from penstock_observer.broker_details import details_over
from penstock_observer.ledger import Ledger, SealLimits
from penstock_observer.live_view import LiveView
from penstock_observer.retention import RetentionLimits
from penstock_observer.rows import RowOrigin

pq: Any = importlib.import_module("pyarrow.parquet")  # it ships no type information

NAME = "psub:durable:global:billing"
OWNER = Owner(cluster_id="local", kind="Subscription", namespace="shop", name="billing", uid="u1")
DAY_MS = 86_400_000


class Site:
    """A broker process, and the parts of an observer that fetch audits from it."""

    def __init__(self, broker: BrokerProcess, socket: Path, folder: Path) -> None:
        self.broker, self.folder = broker, folder / "audit"
        self.ledger = Ledger(
            folder, RowOrigin("main", 0, 10_000), SealLimits(60, 10_000, 1 << 30), RetentionLimits(DAY_MS, 1 << 40)
        )
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
        poll = await self.polled.poll()
        self.live.answered(poll)
        self.ledger.append(poll)
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


@asynccontextmanager
async def audited(folder: Path) -> AsyncGenerator[Site]:
    """A broker with the subscription `NAME`, and an observer whose ledger is in `folder / "ledger"`."""
    socket = folder / "observer.sock"
    with BrokerProcess(folder / "data", settings={"observerSocket": str(socket)}) as broker:
        client = await ManagementClient.connect(broker.management)
        await client.create(ExchangeDeclaration(exchange_type="Topic"), "orders")
        await client.create(SubscriptionDeclaration(subscription_name="billing", exchange="orders", owner=OWNER))
        await client.close()
        site = Site(broker, socket, folder / "ledger")
        yield site
        await site.polled.close()
        site.ledger.close()
