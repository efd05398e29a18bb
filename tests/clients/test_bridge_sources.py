"""From which kinds of source examples/clients/python/bridge.py takes, and that it passes on the bytes of a message.

`hack/soak/migrate` moves the backlogs of Artemis, Broker-J and RabbitMQ with it.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from clients.example_clients import EXAMPLES, SECONDS
from proton import Event, Message, Terminus
from proton import Sender as ProtonSender
from proton.handlers import MessagingHandler
from proton.reactor import Container, LinkOption
from support.broker_process import BrokerProcess
from support.proton_client import SelectedBy, Subscribed, connected, publish

from penstock_amqp.client.address import Address
from penstock_amqp.client.management import ManagementClient
from penstock_amqp.client.message_client import MessageClient
from penstock_amqp.client.message_session import Sender, Subscriber
from penstock_api.management import EntityType, ExchangeDeclaration, SubscriptionDeclaration
from penstock_cli.up.layout import free_endpoint

pytestmark = pytest.mark.clients

DURABLE = b"\x00\x53\x70\xc0\x02\x01\x41"
DECIMAL = b"\x00\x53\x74\xc1\x10\x02\xa1\x04huge\x84\x22\x38\x00\x00\x00\x00\x00\x7b"
TWO_PARTS = b"\x00\x53\x75\xa0\x03one\x00\x53\x75\xa0\x03two"
FOOTER = b"\x00\x53\x78\xc1\x0b\x02\xa3\x03sig\xa1\x03abc"
SIGNED = DURABLE + DECIMAL + TWO_PARTS + FOOTER
"""A message with what libraries lose that read a message and write it again: a body in two sections, and a footer."""


@pytest.fixture
def old(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "old") as broker:
        yield broker


@pytest.fixture
def new(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "new") as broker:
        yield broker


def bridge(*arguments: str) -> tuple[int, str]:
    """Its exit code, and what it prints."""
    command = [sys.executable, str(EXAMPLES / "python" / "bridge.py"), *arguments]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=SECONDS)
    return run.returncode, run.stdout


async def taken(broker: BrokerProcess, queue: str) -> list[bytes]:
    """The messages of a queue, as they are on the wire."""
    client = await MessageClient.connect(Address.parse(broker.addresses["amqp"]), Subscriber(address=queue))
    found: list[bytes] = []
    client.ask_for(10)
    while (encoded := await client.receive(2.0)) is not None:
        found.append(encoded)
        client.accept()
    await client.close()
    return found


async def test_every_byte_of_a_message_is_passed_on(old: BrokerProcess, new: BrokerProcess) -> None:
    client = await MessageClient.connect(Address.parse(old.addresses["amqp"]), Sender("invoices"))
    await client.send(SIGNED)
    await client.close()
    assert bridge(old.url, "invoices", new.url, "invoices") == (0, "1 moved\n")
    assert await taken(new, "invoices") == [SIGNED]


@pytest.mark.parametrize("selector", ["", "amount > 1"])
def test_a_shared_subscription_is_emptied_and_stays_what_it_is(
    old: BrokerProcess, new: BrokerProcess, selector: str
) -> None:
    """With another selector it would begin anew, without its backlog."""
    options: list[LinkOption] = [Subscribed(), *([SelectedBy(selector)] if selector else [])]
    with connected(old.url) as connection:
        connection.create_receiver("orders", name="billing|global", options=options).link.detach()
        sender = connection.create_sender("orders")
        for amount in range(3):
            publish(sender, [f"order {amount}"], properties={"amount": amount})
        wanted = ["--selector", selector] if selector else []
        assert bridge(old.url, "orders", new.url, "invoices", "--shared", "billing", *wanted) == (
            0, f"{1 if selector else 3} moved\n",
        )  # fmt: skip
        publish(sender, ["one more"], properties={"amount": 7})
        receiver = connection.create_receiver("orders", name="billing|global", options=options, credit=1)
        assert receiver.receive(SECONDS).body == "one more"


class OldBroker(MessagingHandler):
    """It keeps how somebody attached, and has one message."""

    def __init__(self) -> None:
        super().__init__()
        self.address = free_endpoint("127.0.0.1", 0)
        self.attached: tuple[str, str, int] | None = None
        self.has_sent = False

    def on_start(self, event: Event) -> None:
        self._acceptor = event.container.listen(self.address)

    def on_link_opening(self, event: Event) -> None:
        link, connection = event.link, event.connection
        assert link is not None and connection is not None
        self.attached = (str(connection.remote_container), link.name, link.remote_source.type)

    def on_sendable(self, event: Event) -> None:
        if not self.has_sent:
            self.has_sent = True
            assert isinstance(event.link, ProtonSender)
            event.link.send(Message("of the mailer"))

    def on_connection_closed(self, event: Event) -> None:
        self._acceptor.close()


async def test_the_subscription_of_a_client_is_found_by_its_name_without_a_source(new: BrokerProcess) -> None:
    """So the old broker changes neither its topic nor its selector. The new broker gets another container-id, which
    a consumer may have there already."""
    old = OldBroker()
    thread = threading.Thread(target=Container(old).run, daemon=True)
    thread.start()
    with connected(new.url, container="mail-app"):
        moved = bridge(f"amqp://{old.address}", "mailer", new.url, "invoices", "--client-id", "mail-app")
    thread.join(SECONDS)
    assert moved == (0, "1 moved\n")
    assert old.attached == ("mail-app", "mailer", Terminus.UNSPECIFIED)
    assert len(await taken(new, "invoices")) == 1


async def test_what_the_bridge_exchange_has_no_subscription_for_stays_on_the_old_broker(
    old: BrokerProcess, new: BrokerProcess
) -> None:
    """As the page declares it: Fanout looks at no key, and what has no subscription is refused, not dropped."""
    management = await ManagementClient.connect(new.management)
    await management.create(ExchangeDeclaration(exchange_type="Fanout", unroutable="Reject"), "bridge")
    with connected(old.url) as connection:
        publish(connection.create_sender("invoices"), ["to the UK"], subject="uk")
    code, said = bridge(old.url, "invoices", new.url, "bridge")
    assert (code, said.startswith("refused: "), said.endswith("\n0 moved\n")) == (1, True, True), said
    billing = SubscriptionDeclaration(subscription_name="billing", exchange="bridge", binding_keys=("eu.#",))
    await management.create(billing)
    assert bridge(old.url, "invoices", new.url, "bridge") == (0, "1 moved\n")
    (state,) = await management.query_all(EntityType.SUBSCRIPTION)
    await management.close()
    assert (state["subscriptionName"], state["depth"]) == ("billing", 1)


@pytest.mark.parametrize("options", [["--client-id", "a", "--shared", "b"], ["--selector", "a > 1"]])
def test_options_that_do_not_belong_together_are_refused(options: list[str]) -> None:
    assert bridge("amqp://a", "b", "amqp://c", "d", *options)[0] == 2
