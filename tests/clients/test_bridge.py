"""examples/clients/python/bridge.py, which docs/how-to/migrate.md uses: from broker to broker, refused, and stopped.

The old broker is a Penstock here, too. 1,000 messages of Artemis 2.56.0 were moved by hand.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from clients.example_clients import EXAMPLES, SECONDS, finished, next_line
from proton import Delivery, Event, Message, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container
from proton.utils import BlockingConnection
from support.broker_process import BrokerProcess
from support.proton_client import connected, is_empty
from support.waiting import until

from penstock_amqp.client.management import ManagementClient
from penstock_api.management import QueueDeclaration, QueueLimits
from penstock_cli.up.layout import free_endpoint

pytestmark = pytest.mark.clients
COUNT, WINDOW, ACCEPTED = 700, 500, 3
"""There are more messages than the bridge has under way at once."""


@pytest.fixture
def old(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "old") as broker, connected(broker.url) as connection:
        sender = connection.create_sender("invoices")
        for number in range(COUNT):
            fields: dict[str, Any] = {"properties": {"amount": number}, "annotations": {symbol("x-opt-mark"): "old"}}
            message = Message(f"invoice {number}", id=f"ID:{number}", subject="eu.fr", durable=True, **fields)
            if number < COUNT - 1:
                sender.link.send(message)
            else:
                sender.send(message)  # waits for its accept, which comes after those of the others
        yield broker


@pytest.fixture
def new(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "new") as broker:
        yield broker


class SlowBroker(MessagingHandler):
    """It takes all messages, accepts the first three, and the others when it is told to."""

    def __init__(self) -> None:
        super().__init__(auto_accept=False, prefetch=COUNT)
        self.address = free_endpoint("127.0.0.1", 0)
        self.taken: list[str] = []
        self.may_accept = threading.Event()
        self.is_over = threading.Event()
        self._held: list[Delivery] = []

    def on_start(self, event: Event) -> None:
        self._acceptor = event.container.listen(self.address)
        event.container.schedule(0.05, self)

    def on_message(self, event: Event) -> None:
        assert event.delivery is not None
        self.taken.append(str(event.message.id))
        self._held.append(event.delivery)
        if len(self.taken) <= ACCEPTED:
            self._accept()

    def _accept(self) -> None:
        while self._held:
            self.accept(self._held.pop(0))

    def on_timer_task(self, event: Event) -> None:
        if self.may_accept.is_set():
            self._accept()
        if self.is_over.is_set():
            self._acceptor.close()
            event.container.stop()
        else:
            event.container.schedule(0.05, self)


@pytest.fixture
def slow() -> Iterator[SlowBroker]:
    broker = SlowBroker()
    thread = threading.Thread(target=Container(broker).run)
    thread.start()
    yield broker
    broker.is_over.set()
    thread.join(SECONDS)
    assert not thread.is_alive()


@contextmanager
def bridging(old: BrokerProcess, new: str, address: str = "invoices") -> Generator[subprocess.Popen[str]]:
    command = [sys.executable, str(EXAMPLES / "python" / "bridge.py"), old.url, "invoices", new, address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        try:
            yield run
        finally:
            run.kill()


@contextmanager
def halfway(old: BrokerProcess, slow: SlowBroker) -> Generator[subprocess.Popen[str]]:
    """A bridge of which three messages are on the new broker, and a window of them under way."""
    with bridging(old, f"amqp://{slow.address}") as run:
        until(lambda: len(slow.taken) == ACCEPTED + WINDOW, "the messages under way")
        yield run


def bridge(old: BrokerProcess, new: BrokerProcess, address: str) -> tuple[int, list[str]]:
    with bridging(old, new.url, address) as run:
        lines = finished(run)
        return run.returncode, lines


def waiting(connection: BlockingConnection, address: str) -> list[Message]:
    receiver = connection.create_receiver(address, credit=0)
    fetcher = receiver.fetcher
    assert fetcher is not None
    messages: list[Message] = []
    while not is_empty(receiver):
        messages.append(fetcher.pop())
    return messages


def test_it_moves_everything_in_order_and_untouched(old: BrokerProcess, new: BrokerProcess) -> None:
    assert bridge(old, new, "invoices") == (0, ["700 moved"])
    with connected(new.url) as connection:
        moved = waiting(connection, "invoices")
    assert [each.body for each in moved] == [f"invoice {number}" for number in range(700)]
    last = moved[-1]
    properties: Any = last.properties
    annotations: Any = last.annotations
    assert (last.id, last.subject, last.durable) == ("ID:699", "eu.fr", True)
    assert (properties, annotations) == ({"amount": 699}, {symbol("x-opt-mark"): "old"})
    with connected(old.url) as connection:
        assert waiting(connection, "invoices") == []


async def test_what_the_new_broker_refuses_stays_on_the_old_one(old: BrokerProcess, new: BrokerProcess) -> None:
    management = await ManagementClient.connect(new.management)
    await management.create(QueueDeclaration(limits=QueueLimits(max_messages=3, overflow="Reject")), "small")
    await management.close()
    code, lines = bridge(old, new, "small")
    assert code == 1
    assert lines[0].startswith("refused: ")
    assert lines[1:] == ["3 moved"]
    with connected(new.url) as connection:
        taken = [str(each.body) for each in waiting(connection, "small")]
    assert taken == ["invoice 0", "invoice 1", "invoice 2"]
    with connected(old.url) as connection:
        stayed = [str(each.body) for each in waiting(connection, "invoices")]
    assert sorted([*taken, *stayed]) == sorted(f"invoice {number}" for number in range(700))


def left(old: BrokerProcess) -> list[str]:
    """The message-ids that are on the old broker."""
    with connected(old.url) as connection:
        return [str(each.id) for each in waiting(connection, "invoices")]


IDS = [f"ID:{number}" for number in range(COUNT)]


@pytest.mark.parametrize("ask", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop_it_leaves_each_message_on_one_broker(
    old: BrokerProcess, slow: SlowBroker, ask: signal.Signals
) -> None:
    with halfway(old, slow) as run:
        run.send_signal(ask)
        assert next_line(run) == "stopping: 500 under way"
        slow.may_accept.set()
        assert finished(run) == ["503 moved"]
        assert run.returncode == 1, "something is left to do"
    assert slow.taken == IDS[:503]
    assert left(old) == IDS[503:]


def test_asked_twice_it_ends_at_once(old: BrokerProcess, slow: SlowBroker) -> None:
    with halfway(old, slow) as run:
        run.terminate()
        assert next_line(run) == "stopping: 500 under way"
        run.terminate()
        assert run.wait(SECONDS) == -signal.SIGTERM


def test_killed_it_loses_nothing_and_what_is_on_both_has_the_same_message_id(
    old: BrokerProcess, slow: SlowBroker, new: BrokerProcess
) -> None:
    with halfway(old, slow) as run:
        run.kill()
        run.wait()
    assert left(old) == IDS[ACCEPTED:]
    assert slow.taken == IDS[:503], "those from the fourth on are on both"
    assert bridge(old, new, "invoices") == (0, ["697 moved"])


def test_a_lost_connection_ends_it_and_it_says_what_may_be_on_both(old: BrokerProcess, slow: SlowBroker) -> None:
    with halfway(old, slow) as run:
        old.kill()
        lines = finished(run)
        assert run.returncode == 1
    assert lines[0].startswith("lost: ")
    assert lines[1:] == ["3 moved, 500 may be on both"]
