"""The examples that work as a service does: they take each order once, fail in order, outlive the broker, and stop."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from clients.example_clients import EXAMPLES, SECONDS, finished, next_line
from clients.working_clients import WORKERS, Worker, billed, build
from proton.utils import BlockingReceiver
from support.broker_process import BrokerProcess
from support.proton_client import Subscribed, connected, is_empty, publish

from penstock_amqp.client.management import ManagementClient
from penstock_api.management import EntityType
from penstock_cli.up import declarations
from penstock_cli.up.manifest_folder import read
from penstock_cli.up.topology import declared

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module", params=WORKERS)
def worker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Worker:
    return build(request.param, tmp_path_factory.mktemp("worker"))


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    """A broker with the resources of examples/clients/billing, at an address that stays when it starts again."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    users: dict[str, object] = {"authentication": {"users": {"guest": "guest"}}}
    with BrokerProcess(tmp_path / "data", dev=False, settings=users, listen=[address]) as process:
        path = Path(process.management.removeprefix("unix:"))
        await declarations.declare(path, declared(read(EXAMPLES / "billing")), float(SECONDS))
        yield process


def send(broker: BrokerProcess, *bodies: str) -> None:
    with connected(login(broker)) as connection:
        publish(connection.create_sender("orders"), bodies)


def login(broker: BrokerProcess) -> str:
    return broker.url.replace("amqp://", "amqp://guest:guest@")


def test_it_takes_each_order_once_and_leaves_nothing(worker: Worker, broker: BrokerProcess) -> None:
    with worker.start(worker.consume, broker) as one:
        assert any("6 accepted" in line for line in worker.publishes(6, broker))
        orders = billed(one, "order 0", "order 1", "order 2", "order 3", "order 4", "order 5")
        assert any("stopped" in line for line in worker.ends(one))
    assert len(orders) == 6
    with connected(login(broker)) as connection:
        assert is_empty(connection.create_receiver("orders", name="billing", credit=0, options=Subscribed()))


def test_what_fails_becomes_a_dead_letter_and_the_others_pass(worker: Worker, broker: BrokerProcess) -> None:
    """An order that fails three times, and a message that is no order: rejected at once, or failed as often."""
    with worker.start(worker.consume, broker) as run, connected(login(broker)) as connection:
        send(broker, "order unpaid", "no order", "order 1", "order 2")
        billed(run, "order 1", "order 2")
        receiver = connection.create_receiver("billing-dead")
        dead = dict(dead_letter(receiver) for _ in range(2))
        worker.ends(run)
    assert dead == {
        "order unpaid": ("delivery_limit", 3),
        "no order": ("rejected", 0) if worker.rejects else ("delivery_limit", 3),
    }


async def test_an_order_passes_a_message_that_nobody_can_read(worker: Worker, broker: BrokerProcess) -> None:
    """A text that is no UTF-8. The client in Rust lost its connection by it whenever the broker gave it again."""
    with worker.start(worker.consume, broker) as run, connected(login(broker)) as connection:
        link = connection.create_sender("orders").link
        sent = link.delivery(link.delivery_tag())
        link.stream(b"\x00\x53\x70\xc0\x02\x01\x41" + b"\x00\x53\x77\xa1\x02\xff\xfe")  # durable; a str8 of 2 bytes
        link.advance()
        connection.wait(lambda: sent.settled, timeout=SECONDS)
        send(broker, "order 1")
        lines = [next_line(run)]
        while "billed order 1" not in lines[-1]:
            assert lines[-1] or run.poll() is None, lines
            lines.append(next_line(run))
        worker.ends(run)
    assert not any("lost the broker" in line for line in lines)
    if worker.rejects:  # at once; the others have failed with it three times first
        client = await ManagementClient.connect(broker.management)
        state = await client.read(EntityType.QUEUE, "billing-dead")
        await client.close()
        assert state["depth"] == 1


def dead_letter(receiver: BlockingReceiver) -> tuple[object, tuple[object, object]]:
    """Body, reason and failed deliveries of the next one."""
    message = receiver.receive(timeout=SECONDS)
    receiver.accept()
    annotations: Any = message.annotations
    why: dict[str, object] = {str(name): value for name, value in annotations.items()}
    return str(message.body), (why["x-opt-death-reason"], why["x-opt-death-delivery-count"])


def test_it_goes_on_when_the_broker_comes_back(worker: Worker, broker: BrokerProcess) -> None:
    with worker.start(worker.consume, broker) as run:
        send(broker, "order 1")
        billed(run, "order 1")
        broker.kill()
        broker.start()
        send(broker, "order 2", "order 3")
        billed(run, "order 2", "order 3")
        assert any("stopped" in line for line in worker.ends(run))


def test_a_login_that_is_refused_ends_it_with_a_sentence(worker: Worker, broker: BrokerProcess) -> None:
    with worker.start(worker.consume, broker, password="wrong") as run:
        lines = finished(run)
        assert run.returncode == 1, lines
    assert any("refused: " in line for line in lines)
    assert not any("\tat " in line for line in lines), "a stack trace is no sentence"
