"""A queue that a resource has declared, as a real broker tells it to its observer: lag, ledger, metrics, page."""

from __future__ import annotations

import asyncio
from pathlib import Path

from observer.page_site import MESSAGES_TOKEN, serving
from page.html import text_of
from support.broker_process import BrokerProcess
from support.proton_client import connected, publish, take

from penstock_amqp.client.management import ManagementClient
from penstock_api.lag_result import LagState
from penstock_api.management import Deletion, EntityType, Operation, Owner, QueueDeclaration
from penstock_lag_rules.thresholds import Thresholds
from penstock_observer.broker_client import PolledBroker, over_unix_socket
from penstock_observer.broker_details import details_over
from penstock_observer.live_lag import LiveLag
from penstock_observer.live_view import LiveView
from penstock_observer.rows import RowOrigin, rows_of
from penstock_observer.subscription_metrics import subscription_lines

INVOICES = QueueDeclaration(
    owner=Owner(cluster_id="c", kind="Queue", namespace="shop", name="invoices", uid="u1"),
)


def fill(url: str) -> None:
    """Three messages, one of which is consumed; and one in a queue that no resource has declared."""
    with connected(url) as connection:
        publish(connection.create_sender("invoices"), ["1", "2", "3"])
        publish(connection.create_sender("spare"), ["1"])
        take(connection.create_receiver("invoices", credit=1), 1)


async def test_its_lag_is_judged_and_its_rows_are_kept(tmp_path: Path) -> None:
    socket = tmp_path / "observer.sock"
    with BrokerProcess(tmp_path / "data", settings={"observerSocket": str(socket)}) as broker:
        client = await ManagementClient.connect(broker.management)
        await client.create(INVOICES, "invoices")
        await client.create(QueueDeclaration(), "spare")
        polled = PolledBroker(over_unix_socket(socket))
        first = await polled.poll()
        assert [(each.queue_name, each.is_queue, each.depth) for each in first.subscriptions] == [("invoices", True, 0)]
        await asyncio.to_thread(fill, broker.url)
        poll = await polled.poll()
        rules = LiveLag(0, 1, Thresholds())
        rules.observe(poll)
        (lag,) = rules.lags()
        assert (lag.queue_name, lag.owner_namespace, lag.owner_name, lag.owner_uid, lag.state, lag.messages) == (
            *("invoices", "shop", "invoices", "u1"),
            *(LagState.UNKNOWN, 2),
        ), "one poll is too few to judge"
        row, closing = rows_of(poll, RowOrigin("main", 0, 1000), 1)
        assert (row["kind"], row["queue_name"], row["exchange"], row["owner_name"]) == (
            *("subscription", "invoices", "", "invoices"),
        )
        assert (row["enqueued"], row["acked"], row["depth"], closing["subscriptions"]) == (3, 1, 2, 1)
        view = LiveView()
        view.answered(poll, (lag,))
        lines = "".join(subscription_lines(view.known, "default")).splitlines()
        labels = '{exchange="",namespace="shop",subscription="invoices"}'
        assert f"penstock_subscription_depth_messages{labels} 2" in lines
        await client.request(Operation.DELETE, EntityType.QUEUE, "invoices", Deletion(owner_uid="u1"))
        assert (await polled.poll()).subscriptions == ()
        await polled.close()
        await client.close()


async def test_the_page_shows_its_messages(tmp_path: Path) -> None:
    """The broker is asked for those of a queue, not of a subscription."""
    socket = tmp_path / "observer.sock"
    settings: dict[str, object] = {"observerSocket": str(socket), "observerPeek": True}
    headers = {"Authorization": f"Bearer {MESSAGES_TOKEN}"}
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        client = await ManagementClient.connect(broker.management)
        await client.create(INVOICES, "invoices")
        await client.create(QueueDeclaration(), "spare")
        await asyncio.to_thread(fill, broker.url)
        polled = PolledBroker(over_unix_socket(socket))
        async with serving(tmp_path, details_over(socket)) as site:
            site.answer(await polled.poll())
            _, overview = await site.get("/page/", headers=headers)
            status, body = await site.get("/page/messages?queue=invoices", headers=headers)
        assert any("a queue" in each for each in text_of(overview, "span"))
        assert (status, text_of(body, "h1"), len(text_of(body, "h2"))) == (200, ["Messages in invoices"], 2)
        await polled.close()
        await client.close()
