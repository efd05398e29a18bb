"""JMS beside other AMQP 1.0 clients: one subscription shared by both kinds, and a ClientID that nobody else can use.

The other client is the example that users copy, or proton.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e import jms_tool
from e2e.jms_tool import Board
from e2e.local_demo import build_clients
from proton.utils import ConnectionClosed
from support.broker_process import BrokerProcess
from support.proton_client import connected

pytestmark = pytest.mark.jms

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "clients" / "python"
SECONDS = 300


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker in development mode; the JMS clients are compiled."""
    build_clients(tmp_path / "maven.log")
    with BrokerProcess(tmp_path / "data") as process:
        yield process


def example(name: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a Python example."""
    command = [sys.executable, "-u", str(EXAMPLES / name), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def publish(url: str, count: int) -> None:
    with example("publish.py", url, str(count)) as publisher:
        assert publisher.communicate(timeout=SECONDS)[0] == f"{count} accepted\n"


def test_jms_and_the_python_examples_share_one_subscription(broker: BrokerProcess, tmp_path: Path) -> None:
    """Each leaves after half of the messages: together they have all, and each message went to one of them."""
    board = Board()
    access = ["--uri", f"{broker.url}?jms.prefetchPolicy.all=10"]
    log = tmp_path / "jms.log"
    url = broker.url.replace("amqp://", "amqp://guest:guest@")  # the JMS tool's user: a subscription has one
    with (
        jms_tool.consume(board, "jms", access, "orders", "billing", log, max=50) as jms,
        example("consume.py", url, "50") as python,
    ):
        jms.wait_ready()
        publish(url, 100)
        lines = python.communicate(timeout=SECONDS)[0].splitlines()
        jms.finish(SECONDS)
    assert len(lines) == 50
    assert len(board.tally.receipts) == 50
    assert len({line.removesuffix(" (again)") for line in lines}) == 50


def test_the_java_example_consumes_what_waits_for_its_subscription(broker: BrokerProcess) -> None:
    url = broker.url.replace("amqp://", "amqp://guest:guest@")
    with example("share.py", url, "billing", "1") as sharing:  # makes the subscription, and leaves after a message
        assert sharing.stdout is not None
        assert sharing.stdout.readline() == "ready\n"
        publish(url, 1)
    publish(url, 3)
    source = EXAMPLES.parent / "java" / "Consumer.java"
    command = ["java", "-cp", f"{jms_tool.BUILD}/lib/*", str(source), broker.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as java:
        assert java.stdout is not None
        try:
            assert [java.stdout.readline() for _ in range(3)] == ["order 0\n", "order 1\n", "order 2\n"]
        finally:
            java.kill()


def test_nobody_takes_a_jms_clients_client_id(broker: BrokerProcess, tmp_path: Path) -> None:
    """A JMS client is its container's sole connection, also against clients that don't ask to be (decision 13)."""
    board = Board()
    access = ["--uri", broker.url]
    with jms_tool.consume(board, "jms", access, "orders", "s", tmp_path / "jms.log", client_id="app", max=1) as jms:
        jms.wait_ready()
        with pytest.raises(ConnectionClosed, match="ClientID"), connected(broker.url, container="app"):
            pass
        with jms_tool.publish(board, "m", access, "orders", 1, tmp_path / "publish.log") as producer:
            producer.finish()
        jms.finish(SECONDS)
    assert [receipt.id for receipt in board.tally.receipts] == ["m-0.1"]
