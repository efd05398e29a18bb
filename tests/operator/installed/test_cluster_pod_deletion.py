"""JMS clients on a cluster while the broker's pod is deleted: they are back when its successor serves.

For a moment the Service still leads to the address of the deleted pod, which does not answer any more. The clients here
have the options that docs/how-to/jms.md recommends, which limit such an attempt
(docs/decisions/107-addresses-of-deleted-pods.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from e2e import jms_tool, local_demo
from e2e.jms_tool import Board
from e2e.kube import ROOT, pick, wait_for
from support.installed_operator import MINUTE, Team, open_installation

pytestmark = pytest.mark.cluster

BACK_SECONDS = 3
DELETIONS = 2
MANY = 10_000_000
"""More than a producer sends during the test."""


@pytest.fixture
def team() -> Iterator[Team]:
    with open_installation() as installation, installation.team() as made:
        made.apply_whole(listeners={"amqp": True}, authentication={"anonymous": True})
        made.wait_ready()
        yield made


def documented_uri(address: str) -> str:
    """The failover URI of the documentation, for a broker at HOST:PORT without TLS."""
    page = (ROOT / "docs/how-to/jms.md").read_text()
    found = re.search(r"^\| `(failover:\(amqps://host:5671.*?)` \|", page, re.MULTILINE)
    assert found is not None
    return found[1].replace("amqps://host:5671", f"amqp://{address}")


def replace_pod(team: Team) -> None:
    """Delete the broker's pod as a drain does, and wait until its successor serves."""
    before = team.field("pod", "main-0", "metadata", "uid")
    team.kube.kubectl("delete", "pod", "main-0", "--wait=false")

    def serves() -> bool:
        pod = team.kube.get("pod", "main-0")
        statuses = cast("list[Any]", pick(pod, "status", "containerStatuses") or [])
        ready = any(pick(each, "name") == "broker" and pick(each, "ready") for each in statuses)
        return pick(pod, "metadata", "uid") not in (None, before) and ready

    wait_for("the pod's successor to serve", serves, 5 * MINUTE)


def go_on(board: Board, seconds: float) -> None:
    """Return when the producer has sent more than now and the consumer received more; raise if that takes longer."""
    with board.lock:
        accepted, received = len(board.tally.accepted), len(board.tally.receipts)
    board.wait_for(
        "producer and consumer to be back",
        lambda tally: len(tally.accepted) > accepted and len(tally.receipts) > received,
        seconds,
    )


def test_jms_clients_are_back_when_the_successor_of_a_deleted_pod_serves(team: Team, tmp_path: Path) -> None:
    local_demo.build_clients(tmp_path / "maven.log")
    address = f"{team.field('service', 'main-amqp', 'spec', 'clusterIP')}:5672"
    uri, board = documented_uri(address), Board()
    (inner,) = re.findall(r"failover:\((.*?)\)", uri)
    consumer = jms_tool.consume(board, "one", ["--uri", uri], "orders", "billing", tmp_path / "one.log")
    # Without failover it tries again each tenth of a second: one of its attempts meets the address that is gone.
    producer = jms_tool.publish(
        board, "p", ["--uri", inner], "orders", MANY, tmp_path / "p.log", connections=1, size=20
    )  # fmt: skip
    with consumer, producer:
        consumer.wait_ready()
        for _ in range(DELETIONS):
            go_on(board, MINUTE)
            replace_pod(team)
            go_on(board, BACK_SECONDS)
