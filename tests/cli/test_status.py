"""`penstock status` and the listings, as a user types them, against a broker process; and the report's sentences."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest
from support import command_forks
from support.broker_process import BrokerProcess
from support.proton_client import Subscribed, connected, publish
from support.resources import broker_state

from penstock_cli.status_report import BrokerReport, QueueFigures, report_lines


def holding(name: str, *, ready: int = 0, consumers: int = 0, stranded: int = 0) -> QueueFigures:
    return QueueFigures(name, ready + stranded, ready, consumers, stranded)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Two messages wait in the subscription `billing` on `orders`, and three in the queue `jobs`."""
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        assert penstock(broker, "declare", "queue", "jobs").returncode == 0
        with connected(broker.url) as connection:
            connection.create_receiver("orders", name="billing", credit=0, options=Subscribed())
            publish(connection.create_sender("orders"), ["one", "two"])
            publish(connection.create_sender("jobs"), ["one", "two", "three"])
        yield broker


def penstock(broker: BrokerProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    return command_forks.penstock(*arguments, "--broker", broker.management)


def test_status_says_what_waits_for_nobody(broker: BrokerProcess) -> None:
    said = penstock(broker, "status")
    assert said.returncode == 0, said.stderr
    assert "Durable work:  Ok\n" in said.stdout
    assert "Subscriptions: 1, with 2 messages\n" in said.stdout
    assert "Queues:        1, with 3 messages\n" in said.stdout
    assert said.stdout.endswith("! Messages wait and nobody consumes: jobs, psub:durable:global:billing.\n")


def test_status_can_be_a_check(broker: BrokerProcess) -> None:
    assert penstock(broker, "status", "--check").returncode == 1


def test_status_for_programs(broker: BrokerProcess) -> None:
    found = json.loads(penstock(broker, "status", "--output", "json").stdout)
    assert found["broker"]["durableWork"] == "Ok"
    assert (found["messages"], found["unconsumed"]) == (5, ["jobs", "psub:durable:global:billing"])


def test_exchanges_are_listed_without_the_word_list(broker: BrokerProcess) -> None:
    said = penstock(broker, "exchanges")
    assert said.returncode == 0, said.stderr
    heading, *rows = said.stdout.splitlines()
    expected = "EXCHANGE TYPE SUBSCRIPTIONS RECEIVED UNROUTABLE UNSELECTED MANAGED BY"
    assert heading.split() == expected.split()
    assert [row.split() for row in rows if row.startswith("orders")] == [["orders", "Topic", "1", "2", "0", "0", "-"]]


def test_connections_are_listed(broker: BrokerProcess) -> None:
    with connected(broker.url, container="till-7") as connection:
        connection.create_sender("orders")
        listed = [json.loads(line) for line in penstock(broker, "connections", "-o", "json").stdout.splitlines()]
        (mine,) = [each for each in listed if each["containerId"] == "till-7"]
        assert (mine["user"], mine["links"]) == ("anonymous", 1)
        row = next(line for line in penstock(broker, "connections").stdout.splitlines() if "till-7" in line)
        assert row.endswith(" UTC")


def test_a_group_still_has_help() -> None:
    said = command_forks.penstock("subscriptions", "--help")
    assert "Usage: penstock subscriptions [OPTIONS] COMMAND" in said.stdout


def test_a_healthy_broker_is_said_to_be_well() -> None:
    busy, idle = holding("busy", ready=5, consumers=1), holding("idle")
    assert report_lines(BrokerReport(broker_state(), (busy, idle), (busy, idle)))[-1] == "All is well."


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"durable_work": "Full"},
            "Durable messages are refused: the log is Full. See docs/how-to/runbooks/storage-refuses-work.md.",
        ),
        ({"storage_level": "High"}, "The volume is filling (High)."),
        ({"memory_level": "HeldBack"}, "Messages take much of the memory (HeldBack): producers are slowed down."),
    ],
)
def test_what_the_broker_lacks_is_said_first(changed: dict[str, object], sentence: str) -> None:
    report = BrokerReport(broker_state(**changed), (holding("billing", ready=1),))
    assert report.concerns() == (sentence, "Messages wait and nobody consumes: billing.")


def test_of_many_subscriptions_and_queues_the_deepest_are_named() -> None:
    waiting = [holding(f"s{number}", ready=number) for number in range(1, 6)]
    (sentence,) = BrokerReport(broker_state(), waiting, (holding("jobs", ready=4),)).concerns()
    assert sentence == "Messages wait and nobody consumes: s5, jobs, s4 and 3 more."


def test_stranded_messages_are_named() -> None:
    stranded = holding("billing", consumers=1, stranded=2)
    in_a_queue = holding("jobs", consumers=1, stranded=1)
    assert BrokerReport(broker_state(), (stranded,), (in_a_queue,)).concerns() == (
        "Messages can't go to their dead-letter or expiry destination: billing, jobs.",
    )
