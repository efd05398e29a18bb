"""Dead letters on the page, from a real broker: behind a permission of their own on both sides."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from observer.page_site import BEARER, MESSAGES_TOKEN, serving
from page.html import text_of
from proton import Message, symbol
from proton.utils import BlockingConnection
from support.broker_process import BrokerProcess

from penstock_amqp.client.management import ManagementClient
from penstock_api.management import DeliveryPolicy, QueueDeclaration
from penstock_observer.broker_details import details_over

PRIVATE = {"Authorization": f"Bearer {MESSAGES_TOKEN}"}


async def prepare(broker: BrokerProcess) -> None:
    """A queue whose one message was rejected."""
    client = await ManagementClient.connect(broker.management)
    await client.create(QueueDeclaration(delivery=DeliveryPolicy(dead_letter="graves")), "orders")
    await client.close()
    await asyncio.to_thread(reject_one, broker.url)


def reject_one(url: str) -> None:
    """A JMS map message."""
    connection = BlockingConnection(url)
    annotations = {symbol("x-opt-jms-msg-type"): 2}
    body = {"order": 17, "<b>": "</pre><script>alert(1)</script>"}
    message = Message(id="order-17", body=body, durable=True, annotations=annotations, properties={"size": 3})
    connection.create_sender("orders").send(message)
    receiver = connection.create_receiver("orders", credit=1)
    receiver.receive(timeout=60)
    receiver.reject()
    connection.close()


@pytest.mark.parametrize("allows", [True, False], ids=["observerPeek", "default"])
async def test_dead_letters_are_shown_to_those_who_may_see_them(tmp_path: Path, allows: bool) -> None:
    """Not to the holder of the observer's token, and not if the broker does not allow it."""
    socket = tmp_path / "observer.sock"
    settings: dict[str, object] = {"observerSocket": str(socket)}
    if allows:
        settings["observerPeek"] = True
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        await prepare(broker)
        async with serving(tmp_path, details_over(socket)) as site:
            status, body = await site.get("/page/messages?queue=graves", headers=BEARER)
            assert (status, "Messages are private." in body, "order" in body) == (403, True, False)
            status, body = await site.get("/page/messages?queue=graves", headers=PRIVATE)
            if not allows:
                assert status == 502
                assert "set observerPeek: true in the broker&#39;s configuration" in body
                return
            assert (status, text_of(body, "h1"), text_of(body, "h2")) == (200, ["Messages in graves"], ["order-17"])
            assert text_of(body, "h3") == ["Body: JMS MapMessage, map of 2"]
            assert text_of(body, "pre") == ['{ "order": 17, "<b>": "</pre><script>alert(1)</script>" }']
            rows = text_of(body, "tr")
            assert "x-opt-ORIG-QUEUE orders" in rows and "size 3" in rows
            assert text_of(body, "script") == []
            status, body = await site.get("/page/messages?queue=graves&offset=1", headers=PRIVATE)
            assert (status, "No message waits here behind number 1." in body) == (200, True)
            status, body = await site.get("/page/messages?queue=nowhere", headers=PRIVATE)
            assert (status, "The messages can&#39;t be shown" in body) == (502, True)
