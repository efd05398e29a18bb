"""A Queue on a real cluster: declared, used by a client, kept over the death of its pod, protected, deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from e2e.kube import ROOT, wait_for
from e2e.story import StoryError
from support.installed_operator import MINUTE, Installation, Team, whole
from support.proton_client import connected, publish, take

from penstock_api.management import EntityType

pytestmark = pytest.mark.cluster

BROKER = {"listeners": {"amqp": True}, "authentication": {"anonymous": True}}


@pytest.fixture(scope="module")
def team(installation: Installation) -> Iterator[Team]:
    """A Broker and the Queue of the example."""
    with installation.team() as made:
        made.apply(queue(), whole(**BROKER)[0])
        made.wait_ready("broker/main", "queue.penstock.dev/invoices")
        yield made


def queue(**spec: Any) -> dict[str, Any]:
    """The Queue of the example."""
    made: dict[str, Any] = yaml.safe_load((ROOT / "examples/kubernetes/queue.yaml").read_text())
    made["spec"].update(spec)
    return made


def url(team: Team) -> str:
    """Of the broker, without TLS."""
    return f"amqp://{team.field('service', 'main-amqp', 'spec', 'clusterIP')}:5672"


async def rows(team: Team) -> dict[str, Any]:
    """The queues that the broker has, by name."""
    management = await team.management()
    try:
        found = await management.query_all(EntityType.QUEUE, attributes=["name", "owner", "depth"])
        return {str(row["name"]): row for row in found}
    finally:
        await management.close()


def test_it_is_declared_with_its_dead_letter_queue_and_shown_by_its_short_name(team: Team) -> None:
    found = asyncio.run(rows(team))
    assert set(found) == {"invoices", "invoices-dead"}
    assert (found["invoices"]["owner"]["kind"], found["invoices-dead"]["owner"]) == ("Queue", None)
    table = [line.split() for line in team.kube.kubectl("get", "pq").splitlines()]
    assert table[0] == ["NAME", "BROKER", "STATE", "LAG", "OLDEST", "FRESH", "READY", "REASON", "AGE"]
    assert table[1][:2] == ["invoices", "main"]
    address = team.field("queue.penstock.dev", "invoices", "status", "address")
    assert address == f"amqps://main-amqp.{team.kube.namespace}.svc:5671/invoices"
    wait_for("the Broker to count it", lambda: team.field("broker", "main", "status", "queues") == 1, MINUTE)


def test_its_messages_outlive_the_pod_and_show_as_lag(team: Team) -> None:
    with connected(url(team)) as connection:
        publish(connection.create_sender("invoices"), ["1", "2", "3"], durable=False)
    before = team.field("pod", "main-0", "metadata", "uid")
    team.kube.kubectl("delete", "pod", "main-0", "--grace-period=0", "--force")
    wait_for("another pod", lambda: team.field("pod", "main-0", "metadata", "uid") not in (None, before), 3 * MINUTE)
    team.kube.kubectl("wait", "pod/main-0", "--for=condition=Ready", "--timeout=180s")

    def lag() -> Any:
        return team.field("queue.penstock.dev", "invoices", "status", "lag", "messages")

    wait_for("the lag of three messages", lambda: lag() == 3, 3 * MINUTE)
    with connected(url(team)) as connection:
        receiver = connection.create_receiver("invoices", credit=3)
        first: Any = receiver.receive(timeout=MINUTE)
        assert first.body == "1"
        receiver.reject()
        assert [body for body, _ in take(receiver, 2)] == ["2", "3"]
    assert asyncio.run(rows(team))["invoices-dead"]["depth"] == 1
    wait_for("no lag", lambda: lag() == 0, 3 * MINUTE)


def test_a_second_one_of_its_name_is_a_duplicate(team: Team) -> None:
    twin = queue(queueName="invoices")
    twin["metadata"] = {"name": "twin"}
    team.apply(twin)
    wait_for(
        "it to be refused",
        lambda: team.reason("queue.penstock.dev", "twin", "Accepted") == ("False", "DuplicateQueue"),
        MINUTE,
    )
    team.kube.kubectl("delete", "queue.penstock.dev", "twin", "--timeout=60s")
    assert "invoices" in asyncio.run(rows(team))


def test_its_deletion_is_refused_while_it_is_protected_and_waits_for_consumers(team: Team) -> None:
    named = ("queue.penstock.dev", "invoices")
    team.kube.kubectl("annotate", *named, "penstock.dev/delete-protection=true")
    with pytest.raises(StoryError, match="is protected"):
        team.kube.kubectl("delete", *named, "--timeout=30s")
    team.kube.kubectl("annotate", *named, "penstock.dev/delete-protection-")
    with connected(url(team), container="till-1") as connection:
        connection.create_receiver("invoices")
        team.kube.kubectl("delete", *named, "--wait=false")
        wait_for(
            "the deletion to wait",
            lambda: team.reason(*named, "DeletionBlocked") == ("True", "ConsumersActive"),
            MINUTE,
        )
        assert "till-1" in team.message(*named, "DeletionBlocked")
    wait_for("the deletion", lambda: team.are_gone("queues.penstock.dev"), 2 * MINUTE)
    assert "invoices" not in asyncio.run(rows(team))
