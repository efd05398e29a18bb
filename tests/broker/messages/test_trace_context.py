"""A trace context comes through untouched on every way that a message takes: docs/how-to/trace-messages.md.

The context of who made the message stands in its application properties, that of who forwarded it in its message
annotations (W3C, Trace Context: AMQP protocol).
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from typing import Any

from proton import Delivery, Message, symbol
from support.broker_process import BrokerProcess
from support.proton_client import SECONDS, Subscribed, close, connected

from penstock_amqp.client.management import ManagementClient
from penstock_api.management import (
    DeliveryPolicy,
    EntityType,
    ExchangeDeclaration,
    Operation,
    QueueDeclaration,
    SubscriptionDeclaration,
)
from penstock_api.message_operations import HandledMessages, MessageSelection

MADE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
FORWARDED = "00-4bf92f3577b34da6a3ce929d0e0e4736-b7ad6b7169203331-01"
SENT = {"traceparent": MADE, "tracestate": "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "baggage": "tenant=eu"}


def traced() -> Message:
    forwarded = {symbol("traceparent"): FORWARDED, symbol("tracestate"): "congo=b7ad6b7169203331"}
    return Message(body="order", durable=True, properties=dict(SENT), annotations=forwarded)


def context(message: Message) -> tuple[dict[str, object], dict[str, object]]:
    """What stands in its application properties and its message annotations, without the broker's own."""
    annotations = named(message.annotations)
    return named(message.properties), {
        name: value for name, value in annotations.items() if not name.startswith("x-opt-")
    }


def named(section: object) -> dict[str, object]:
    """The fields of a section of the message."""
    assert isinstance(section, dict)
    fields: dict[Any, object] = section
    return {str(name): value for name, value in fields.items()}


UNTOUCHED = (
    {
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "tracestate": "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
        "baggage": "tenant=eu",
    },
    {
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-b7ad6b7169203331-01",
        "tracestate": "congo=b7ad6b7169203331",
    },
)


async def declare(broker: BrokerProcess) -> ManagementClient:
    client = await ManagementClient.connect(broker.management)
    await client.create(ExchangeDeclaration(exchange_type="Topic"), "orders")
    await client.create(
        SubscriptionDeclaration(
            subscription_name="billing", exchange="orders", delivery=DeliveryPolicy(dead_letter="dead")
        )
    )
    await client.create(QueueDeclaration(), "kept")
    return client


async def test_a_trace_context_is_untouched_on_every_way(broker_process: BrokerProcess) -> None:
    """Delivered, delivered again, dead letter, moved, and after kill -9."""
    client = await declare(broker_process)
    with connected(broker_process.url) as connection:
        assert connection.create_sender("orders").send(traced()).remote_state == Delivery.ACCEPTED
        billing = connection.create_receiver("orders", name="billing", credit=1, options=Subscribed())
        delivered = billing.receive(timeout=SECONDS)
        assert context(delivered) == UNTOUCHED
        billing.release(delivered=True)
        assert context(billing.receive(timeout=SECONDS)) == UNTOUCHED
        billing.reject()

        dead = connection.create_receiver("dead", credit=1)
        letter = dead.receive(timeout=SECONDS)
        assert named(letter.annotations)["x-opt-death-reason"] == "rejected"
        assert context(letter) == UNTOUCHED
        dead.release(delivered=False)
        close(dead)

    moved = await client.request(Operation.MOVE, EntityType.QUEUE, "dead", MessageSelection(destination="kept"))
    assert HandledMessages.model_validate(moved.check().attributes).messages == 1
    await client.close()
    broker_process.kill()
    broker_process.start()
    with connected(broker_process.url) as connection:
        assert context(connection.create_receiver("kept", credit=1).receive(timeout=SECONDS)) == UNTOUCHED
