"""What each listener may have of its own, seen by clients of two of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
from support.broker_process import BrokerProcess
from support.raw_client import RawClient

from penstock_amqp.client.management import ManagementClient
from penstock_amqp.frames.performatives import Detach, Disposition, Target, Transfer
from penstock_amqp.messages.message_codec import Message, encode_message
from penstock_api.management import EntityType, Operation
from penstock_broker.settings.settings import BrokerSettings

KIB = 1024


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings: dict[str, object] = {
        "listeners": [
            {"name": "small", "address": "127.0.0.1:0", "maxMessageBytes": 4 * KIB, "idleTimeoutSeconds": 9},
            {"name": "large", "address": "127.0.0.1:0", "maxMessageBytes": 48 * KIB, "idleTimeoutSeconds": 0},
        ],
        "maxMessageBytes": 16 * KIB,
        "idleTimeoutSeconds": 40,
        "authentication": {"anonymous": True},
        "autoCreate": True,
    }
    with BrokerProcess(tmp_path_factory.mktemp("listeners") / "data", dev=False, settings=settings) as process:
        yield process


def client(broker: BrokerProcess, listener: str) -> RawClient:
    return RawClient(int(broker.addresses[listener].rpartition(":")[2]), f"on-{listener}")


@pytest.mark.parametrize(
    ("listener", "idle_time_out_ms", "largest"),
    [("small", 4500, 4 * KIB), ("large", None, 48 * KIB), ("amqp", 20_000, 16 * KIB)],
)
def test_a_listener_s_own_limits_are_told_and_hold(
    broker: BrokerProcess, listener: str, idle_time_out_ms: int | None, largest: int
) -> None:
    with client(broker, listener) as raw:
        # Half of what is configured is announced, so that a peer that sends in time is never late (2.4.5).
        assert (raw.open.idle_time_out or None) == idle_time_out_ms
        raw.begin()
        assert raw.attach_sender("s", Target(address="q")).max_message_size == largest
        fits = encode_message(Message(body="x" * (largest - 100)))
        raw.send(Transfer(handle=0, delivery_id=0, delivery_tag=b"1"), payload=fits)
        raw.expect(Disposition)
        raw.send(Transfer(handle=0, delivery_id=1, delivery_tag=b"2"), payload=fits + bytes(100))
        while not isinstance(told := raw.receive().performative, Detach):
            pass  # the delivery may be settled first
        error = told.error
        assert error is not None
        assert str(error.condition) == "amqp:link:message-size-exceeded"
        assert f"at most {largest} bytes" in (error.description or "")


async def test_requests_of_the_operator_have_room_whatever_messages_have(broker: BrokerProcess) -> None:
    """The operator declares many queues with one request."""
    client = await ManagementClient.connect(broker.management)
    body: dict[str, object] = {}
    listed = [{"type": "penstock.queue", "name": f"{number}-{'x' * 900}", "body": body} for number in range(40)]
    answer = await client.request(Operation.CREATE, EntityType.QUEUE, None, listed)
    await client.close()
    assert len(cast(list[object], answer.body)) == 40


def test_a_transaction_has_room_for_the_largest_message_of_any_listener() -> None:
    listener = {"name": "bulk", "address": "127.0.0.1:0", "maxMessageBytes": 512 * KIB * KIB}
    settings = BrokerSettings.model_validate({"listeners": [listener], "maxMessageBytes": KIB * KIB})
    limits = settings.transactions.limits(settings.log.segment_bytes, settings.largest_message_bytes)
    assert limits.bytes == 512 * KIB * KIB
