"""The verbs that ask a broker, as a user types them, against a broker process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import command_forks
from support.broker_process import BrokerProcess

from penstock_amqp.client.management import ListedEntity, ManagementClient, Page
from penstock_api.management import (
    MAX_COUNT,
    DeliveryPolicy,
    EntityType,
    ExchangeDeclaration,
    QueueDeclaration,
    SubscriptionDeclaration,
)
from penstock_cli.broker_client import find
from penstock_cli.broker_options import BrokerAccess
from penstock_cli.tables import as_table


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker


def penstock(broker: BrokerProcess, *arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    return command_forks.penstock(*arguments, "--broker", broker.management, typed=typed)


def declare(broker: BrokerProcess, name: str, declaration: QueueDeclaration | None = None) -> None:
    from penstock_cli.broker_client import ask

    site = BrokerAccess(broker.management, None, None, None)
    ask(site, lambda client: client.create(declaration or QueueDeclaration(), name))


def publish(broker: BrokerProcess, queue: str, *bodies: str) -> None:
    from proton import Message
    from proton.utils import BlockingConnection

    connection = BlockingConnection(broker.url)
    sender = connection.create_sender(queue)
    for body in bodies:
        sender.send(Message(body=body, durable=True, properties={"size": len(body)}))
    connection.close()


def test_queues_are_listed_with_what_they_hold(broker: BrokerProcess) -> None:
    declare(broker, "listed")
    publish(broker, "listed", "a", "b")
    said = penstock(broker, "queues", "list")
    assert said.returncode == 0, said.stderr
    heading, *rows = said.stdout.splitlines()
    assert heading.split()[:3] == ["QUEUE", "DEPTH", "READY"]
    assert ["listed", "2", "2"] in [row.split()[:3] for row in rows]
    lines = [json.loads(line) for line in penstock(broker, "queues", "list", "--json").stdout.splitlines()]
    assert {"listed"} <= {each["name"] for each in lines}
    assert penstock(broker, "subscriptions", "list").stdout.startswith("SUBSCRIPTION")


def test_peek_move_and_purge(broker: BrokerProcess) -> None:
    declare(broker, "from")
    declare(broker, "to", QueueDeclaration(delivery=DeliveryPolicy()))
    publish(broker, "from", "one", "three", "eleven")
    shown = penstock(broker, "peek", "from", "--json", "--count", "2")
    assert [json.loads(line)["body"] for line in shown.stdout.splitlines()] == ["one", "three"]
    assert "three" in penstock(broker, "peek", "from").stdout
    moved = penstock(broker, "move", "from", "to", "--selector", "size > 3", "--count", "1")
    assert (moved.returncode, moved.stdout) == (0, "1 moved\n")
    refused = penstock(broker, "purge", "from", typed="n\n")
    assert refused.returncode == 1
    purged = penstock(broker, "purge", "from", typed="y\n")
    assert (purged.returncode, purged.stdout) == (0, "2 purged\n")
    assert (penstock(broker, "purge", "to", "--yes").stdout) == "1 purged\n"


class Crowded(ManagementClient):
    """Behind its back a queue is deleted, after each first page of a list."""

    async def query(self, type: EntityType, *, offset: int = 0, **rest: Any) -> Page:
        page = await super().query(type, offset=offset, **rest)
        if offset == 0 and page.results:
            await self.delete(type, str(page.results[0]["name"]))
        return page


async def test_a_queue_is_found_while_others_are_deleted(tmp_path: Path) -> None:
    """Beyond the first page of the list, where a deletion makes all that follow move up."""
    with BrokerProcess(tmp_path / "data") as broker:
        client = await Crowded.connect(broker.management)
        names = [*(f"queue-{number:04}" for number in range(MAX_COUNT)), "wanted"]
        made = await client.create_all([ListedEntity(EntityType.QUEUE, name, QueueDeclaration()) for name in names])
        assert all(reply.is_success for reply in made)
        assert await find(client, "wanted") == (EntityType.QUEUE, "wanted")
        await client.close()


def test_what_can_not_go_back_is_told_and_exits_with_1(broker: BrokerProcess) -> None:
    declare(broker, "graves")
    publish(broker, "graves", "stray")
    said = penstock(broker, "redrive", "graves")
    assert (said.returncode, said.stdout) == (1, "0 redriven\n")
    assert "was not dead-lettered" in said.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["peek", "nowhere"], 1, "neither a queue nor a subscription 'nowhere'"),
        (["move", "graves", "nowhere"], 1, "There is no 'nowhere'"),
        (["move", "graves", ""], 2, "Invalid value for 'DESTINATION': it is empty; name a queue, a subscription, or"),
        (["peek", ""], 2, "Invalid value for 'ADDRESS': it is empty"),
        (["purge", "", "--yes"], 2, "Invalid value for 'ADDRESS': it is empty"),
        (["declare", "queue", ""], 2, "Invalid value for 'NAME': it is empty; name what is to be made"),
        (["purge", "graves", "--yes", "--selector", "a ="], 1, "InvalidSelector"),
        (["peek", "graves", "--count", "0"], 2, "0 is not in the range"),
        (["purge", "graves"], 1, "Give --yes where nobody can confirm"),
        (["peek", "graves", "--user", "ann"], 2, "there is no password for ann"),
        (["peek", "graves", "--user", "ann", "--password-file", os.devnull], 2, "/dev/null is empty: there is no pass"),
        (["peek", "graves", "--ca-file", __file__], 2, "holds no certificates"),
    ],
)
def test_refusals(broker: BrokerProcess, arguments: list[str], code: int, complaint: str) -> None:
    declare(broker, "graves")
    said = penstock(broker, *arguments)
    assert (said.returncode, complaint in said.stderr) == (code, True), said.stderr
    assert "Traceback" not in said.stderr


def test_nobody_is_asked_about_messages_of_what_is_not_there(broker: BrokerProcess) -> None:
    said = penstock(broker, "purge", "nowhere", typed="y\n")
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.splitlines() == [
        "penstock: there is neither a queue nor a subscription 'nowhere'.",
        "See `penstock queues list` and `penstock subscriptions list`.",
    ]


def test_a_name_that_several_subscriptions_have_is_told_with_their_queues(broker: BrokerProcess) -> None:
    for command in (
        ("declare", "exchange", "shared-name"),
        ("declare", "subscription", "twice", "--exchange", "shared-name"),
        ("declare", "subscription", "twice", "--exchange", "shared-name", "--client-id", "till"),
    ):
        assert penstock(broker, *command).returncode == 0
    said = penstock(broker, "peek", "twice")
    assert said.returncode == 1
    told, cure = said.stderr.splitlines()
    assert told == "penstock: several subscriptions are named 'twice'."
    first, second = cure.removeprefix("Say which: ").split(", ")
    for queue in (first, second):
        assert penstock(broker, "peek", queue).returncode == 0, queue


def test_nothing_is_purged_if_nobody_can_be_asked(broker: BrokerProcess) -> None:
    declare(broker, "graves")
    command = f'"{sys.executable}" -m penstock_cli purge graves --broker {broker.management} <&-'
    said = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=300)
    assert said.returncode == 1
    assert said.stderr.splitlines() == ["", "penstock: nothing was dropped.", "Give --yes where nobody can confirm."]


@pytest.mark.parametrize(
    ("address", "code", "complaint"),
    [
        ("unix:/nonexistent", 1, "there is no such socket.\nCheck that it is running"),
        ("127.0.0.1:1", 1, "can't be asked: no connection to 127.0.0.1:1: nothing listens there."),
        ("nonsense", 2, "neither unix:PATH nor HOST:PORT.\nGive --broker HOST:PORT"),
        ("amqp://localhost:5672", 2, "Leave out amqp://: --broker localhost:5672"),
    ],
)
def test_a_broker_that_is_not_there(address: str, code: int, complaint: str) -> None:
    said = command_forks.penstock("queues", "list", "--broker", address)
    assert (said.returncode, complaint in said.stderr) == (code, True), said.stderr


def test_a_table_shows_no_control_characters() -> None:
    assert as_table({"a": "A", "n": "N"}, [{"a": "x\x1b[2J\ny", "n": 7}, {"n": None}]) == (
        "A        N\nx [2J y  7\n-        -"
    )


def test_entities_keep_their_names() -> None:
    """The verbs name them by text, so as not to import the models for `--help`."""
    assert (EntityType["QUEUE"], EntityType["SUBSCRIPTION"]) == (EntityType.QUEUE, EntityType.SUBSCRIPTION)


def test_an_audit_is_started_and_stopped(broker: BrokerProcess) -> None:
    from penstock_cli.broker_client import ask

    site = BrokerAccess(broker.management, None, None, None)
    ask(site, lambda client: client.create(ExchangeDeclaration(exchange_type="Topic"), "orders"))
    declaration = SubscriptionDeclaration(subscription_name="audited", exchange="orders")
    ask(site, lambda client: client.create(declaration))
    declare(broker, "plain")
    started = penstock(broker, "lag", "audit", "start", "audited", "--seconds", "60")
    assert started.returncode == 0, started.stderr
    assert "of psub:durable:global:audited: 0 messages are there; it ends at " in started.stdout
    again = penstock(broker, "lag", "audit", "start", "audited")
    assert (again.returncode, "is on; stop it first" in again.stderr) == (1, True)
    stopped = penstock(broker, "lag", "audit", "stop", "audited")
    assert (stopped.returncode, stopped.stdout.endswith("0 records, ended by Request\n")) == (0, True)
    queue = penstock(broker, "lag", "audit", "start", "plain")
    assert (queue.returncode, "there is no subscription 'plain'" in queue.stderr) == (1, True)
    declare(broker, "audited")  # as who consumes from its name makes a queue where that is allowed
    assert penstock(broker, "lag", "audit", "start", "audited").returncode == 0
    nowhere = command_forks.penstock("lag", "audit", "report", "--subscription", "shop/audited")
    assert (nowhere.returncode, "Give either --observer or --ledger." in nowhere.stderr) == (2, True)
