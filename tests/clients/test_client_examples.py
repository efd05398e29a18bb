"""The examples that users copy, examples/clients/{python,node,go}, as processes against a broker: all must do the same.

Each client publishes, consumes what a resource declares, shares a durable subscription of its own with two receivers,
and ends it.
"""

from __future__ import annotations

import asyncio
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest
from clients.example_clients import EXAMPLES, SECONDS, Client, declare_examples, finished, next_line
from support.broker_process import BrokerProcess
from support.proton_client import Subscribed, connected
from support.proton_node import Node, Release, serving

from penstock_amqp.client.management import ManagementClient
from penstock_api.management import EntityType
from penstock_cli.up.layout import free_endpoint

pytestmark = pytest.mark.clients


def url(broker: BrokerProcess) -> str:
    return broker.url.replace("amqp://", "amqp://guest:guest@")


def test_a_declared_subscription_is_shared_by_two_processes(client: Client, broker: BrokerProcess) -> None:
    """Each leaves after half of the messages; together they have all of them, each once."""
    assert client.lines("publish", url(broker), "20") == ["20 accepted"]
    with client.start("consume", url(broker), "10") as one, client.start("consume", url(broker), "10") as two:
        received = [line.removesuffix(" (again)") for line in finished(one) + finished(two)]
    assert sorted(received) == sorted(f"order {number}" for number in range(20))


def test_two_receivers_share_a_subscription_of_the_clients_own(client: Client, broker: BrokerProcess) -> None:
    """Both receive, nothing twice; what comes while nobody consumes waits, also through a kill -9 of the broker."""
    with client.start("share", url(broker), "mine", "20") as sharing:
        assert next_line(sharing) == "ready"
        assert client.lines("publish", url(broker), "20") == ["20 accepted"]
        received = [line.split(" ", 1) for line in finished(sharing)]
    assert {receiver for receiver, _ in received} == {"1", "2"}
    assert sorted(body for _, body in received) == sorted(f"order {number}" for number in range(20))

    assert client.lines("publish", url(broker), "3") == ["3 accepted"]
    broker.kill()
    broker.start()
    left = [line for line in client.lines("share", url(broker), "mine", "3") if line != "ready"]
    assert sorted(line.split(" ", 1)[1] for line in left) == ["order 0", "order 1", "order 2"]


def test_where_names_are_made_the_publisher_may_come_first(client: Client, tmp_path: Path) -> None:
    """It makes the topic, not a queue: the consumer that comes later gets what is published from then on."""
    with BrokerProcess(tmp_path / "data") as broker:
        assert client.lines("publish", url(broker), "2") == ["2 accepted"]
        with client.start("share", url(broker), "late", "2") as sharing:
            assert next_line(sharing) == "ready"
            assert client.lines("publish", url(broker), "2") == ["2 accepted"]
            received = [line.split(" ", 1)[1] for line in finished(sharing)]
    assert sorted(received) == ["order 0", "order 1"]


def unsubscribe(client: Client, broker: BrokerProcess, name: str, refusal: str) -> None:
    """End a subscription, or be refused by an answer that has these words ("": not refused)."""
    answer = client.lines("unsubscribe", url(broker), name)
    assert len(answer) == 1
    if not client.tells:
        assert answer == ["closed"]
    elif refusal:
        assert answer[0].startswith("refused: ")
        assert refusal in answer[0]
    else:
        assert answer == ["ended"]


def test_unsubscribing_ends_it_with_its_backlog(client: Client, broker: BrokerProcess) -> None:
    with client.start("share", url(broker), "mine", "1") as sharing:
        assert next_line(sharing) == "ready"
        assert client.lines("publish", url(broker), "5") == ["5 accepted"]
        finished(sharing)
    unsubscribe(client, broker, "mine", "")
    unsubscribe(client, broker, "mine", "There is no durable subscription 'mine")
    with client.start("share", url(broker), "mine", "1") as sharing:
        assert next_line(sharing) == "ready"
        assert client.lines("publish", url(broker), "1") == ["1 accepted"]
        assert [line.split(" ", 1)[1] for line in finished(sharing)] == ["order 0"]  # the new one, none of the five


def test_nobody_unsubscribes_what_others_consume(client: Client, broker: BrokerProcess) -> None:
    """The refusal says why, and the consumers don't notice."""
    with client.start("share", url(broker), "mine", "1") as sharing:
        assert next_line(sharing) == "ready"
        unsubscribe(client, broker, "mine", "mine")
        assert client.lines("publish", url(broker), "1") == ["1 accepted"]
        assert [line.split(" ", 1)[1] for line in finished(sharing)] == ["order 0"]


def test_nobody_unsubscribes_what_a_resource_declares(client: Client, broker: BrokerProcess) -> None:
    unsubscribe(client, broker, "billing", "billing")
    assert client.lines("publish", url(broker), "1") == ["1 accepted"]
    assert client.lines("consume", url(broker), "1") == ["order 0"]


def test_the_python_examples_run_on_the_version_they_name() -> None:
    assert (EXAMPLES / "python" / "requirements.txt").read_text() == "python-qpid-proton==0.40.0\n"
    assert metadata.version("python-qpid-proton") == "0.40.0"


@pytest.mark.parametrize("arguments", [("publish", "1"), ("consume", "1")], ids=lambda each: each[0])
def test_a_login_that_is_refused_is_told_in_a_sentence_and_by_the_exit_code(
    client: Client, broker: BrokerProcess, arguments: tuple[str, str]
) -> None:
    name, count = arguments
    with client.start(name, url(broker).replace("guest@", "wrong@"), count) as run:
        lines = finished(run)
        assert run.returncode == 1
    assert len(lines) == 1
    assert lines[0].startswith("refused: ")


PYTHON = Client((sys.executable, "-u"), ".py", EXAMPLES / "python", tells=True, goes_on=True)


async def test_a_publisher_loses_nothing_that_is_accepted_where_the_broker_is_killed(
    client: Client, tmp_path: Path
) -> None:
    """It sends again what had no answer and goes on, or ends with how many are accepted. Those in Python and Node
    waited for ever for an answer, and the messages were lost; those in Go and Java said that the broker refused.
    """
    count = 20_000
    with BrokerProcess(tmp_path / "data", listen=[free_endpoint("127.0.0.1", 0)]) as broker:
        await declare_examples(broker)
        with client.start("publish", url(broker), str(count)) as publishing:
            with connected(broker.url) as connection:
                connection.create_receiver("orders", name="billing", credit=1, options=Subscribed()).receive(SECONDS)
            broker.kill()
            broker.start()
            (said,) = finished(publishing)
        management = await ManagementClient.connect(broker.management)
        state = await management.read(EntityType.SUBSCRIPTION, "psub:durable:global:billing")
        await management.close()
    accepted = count
    if client.goes_on:
        assert (publishing.returncode, said) == (0, f"{count} accepted")
    else:
        words = re.search(r"\((\d+) of 20000 are accepted; the next one may be there, too\)$", said)
        assert (publishing.returncode, said.startswith("lost the broker: ")) == (1, True), said
        assert words is not None, said
        accepted = int(words[1])
    assert int(str(state["depth"])) >= accepted


def test_a_consumer_says_that_the_broker_is_lost_or_goes_on(client: Client, tmp_path: Path) -> None:
    """It accepts nothing that it has not printed, and what it accepted does not come again."""
    with BrokerProcess(tmp_path / "data", listen=[free_endpoint("127.0.0.1", 0)]) as broker:
        asyncio.run(declare_examples(broker))
        with client.start("consume", url(broker), "2") as consuming:
            assert client.lines("publish", url(broker), "1") == ["1 accepted"]
            assert next_line(consuming) == "order 0"
            broker.kill()
            broker.start()
            if client.goes_on:
                assert client.lines("publish", url(broker), "1") == ["1 accepted"]
            said = finished(consuming)
    if client.goes_on:
        assert consuming.returncode == 0
        assert said[-1].startswith("order 0")
    else:
        assert (consuming.returncode, len(said), said[0].startswith("lost the broker: ")) == (1, 1, True), said


async def test_a_message_that_is_released_is_not_counted_as_accepted(client: Client) -> None:
    """The broker does not have it. The client in Go said "accepted": for go-amqp only `rejected` is an error."""
    async with serving(Node(lambda _: Release())) as node:
        with client.start("publish", f"amqp://guest:guest@{node.address}", "1") as publishing:
            said = await asyncio.to_thread(finished, publishing)
    assert publishing.returncode == 1, said
    assert len(said) == 1
    assert "1 accepted" not in said[0]


async def test_a_python_command_that_is_refused_says_so_by_its_exit_code(tmp_path: Path) -> None:
    users: dict[str, object] = {"authentication": {"users": {"guest": "guest"}}}
    with BrokerProcess(tmp_path / "data", dev=False, settings=users, listen=["127.0.0.1:0"]) as broker:
        for name in ("publish", "consume"):
            with PYTHON.start(name, url(broker), "1") as run:
                (line,) = finished(run)
                assert (run.returncode, line.startswith("refused: ")) == (1, True), line
