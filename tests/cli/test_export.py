"""`penstock export`: the manifests of a real broker declare what is there, and the broker adopts it unchanged."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import command_forks
from support.broker_process import BrokerProcess
from support.proton_client import Subscribed, connected, publish
from support.proton_node import Asked, Node, Reply, serving

from penstock_amqp.client.errors import ManagementError
from penstock_amqp.client.management import ManagementClient
from penstock_api.delegation import rights_of
from penstock_api.management import (
    DeliveryPolicy,
    ExchangeDeclaration,
    Owner,
    QueueDeclaration,
    QueueLimits,
    SubscriptionDeclaration,
)
from penstock_api.manifest_export import ResourcePlace, resource_name
from penstock_api.resources import Broker, Exchange, parse
from penstock_cli.export import Found, exported, found_on
from penstock_cli.up import declarations
from penstock_cli.up.manifest_folder import read
from penstock_cli.up.topology import declared

SETTINGS: dict[str, object] = {"delivery": {"maxDeliveries": 4, "deadLetter": "dead"}, "autoCreate": True}
BROKER = """
apiVersion: penstock.dev/v1alpha1
kind: Broker
metadata: {name: main, namespace: shop}
spec: {authentication: {anonymous: true}}
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as process:
        yield process


def penstock(broker: BrokerProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    return command_forks.penstock(*arguments, "--broker", broker.management)


def fill(broker: BrokerProcess) -> None:
    """A client's subscription with a message, one that a person declared, one of a client-id, and a volatile one."""
    for line in (
        "exchange Orders.V1 --type Topic",
        "subscription fraud --exchange Orders.V1 --selector a>1 --max-bytes 16Mi --dead-letter graves",
        "subscription Own.Name --exchange Orders.V1 --binding-key b.# --binding-key a --client-id c1 --exclusive",
    ):
        made = penstock(broker, "declare", *line.split())
        assert made.returncode == 0, made.stderr
    with connected(broker.url) as connection:
        connection.create_receiver("Orders.V1/eu.#", name="billing", credit=0, options=Subscribed())
        connection.create_receiver("Orders.V1", name="brief", credit=0, options=Subscribed(durable=False))
        publish(connection.create_sender("Orders.V1/eu.fr"), ["waits"], properties={"a": 0})
        said = penstock(broker, "export", "--namespace", "shop")
        assert said.returncode == 0, said.stderr
        assert said.stderr == "6 exported, 0 left out; 1 subscriptions end with their client\n"


def manifests(broker: BrokerProcess) -> list[dict[str, Any]]:
    said = penstock(broker, "export", "--namespace", "shop")
    return list(yaml.safe_load_all(said.stdout))


def test_the_manifests_say_what_is_there(broker: BrokerProcess) -> None:
    fill(broker)
    exchange, own, billing, fraud, dead, graves = manifests(broker)
    common = {"brokerRef": {"name": "main"}, "exchangeRef": {"name": "orders-v1"}}
    assert exchange["metadata"] == {"name": "orders-v1", "namespace": "shop"}
    assert exchange["spec"] == {
        "brokerRef": {"name": "main"},
        "type": "Topic",
        "exchangeName": "Orders.V1",
        "persistence": "AsSent",
    }
    assert billing["spec"] == {
        **common,
        "bindingKeys": ["eu.#"],
        "persistence": "AsSent",
        "delivery": {"maxDeliveries": 4, "deadLetter": "dead"},
    }
    assert fraud["spec"] == {
        **common,
        "persistence": "AsSent",
        "bindingKeys": ["#"],
        "filter": {"selector": "a > 1"},
        "limits": {"maxBytes": "16Mi", "overflow": "Reject"},
        "delivery": {"deadLetter": "graves"},
    }
    assert own["metadata"]["name"] == "own-name"
    assert own["spec"] == {
        **common,
        "subscriptionName": "Own.Name",
        "scope": "Container",
        "clientId": "c1",
        "sharing": "Exclusive",
        "bindingKeys": ["a", "b.#"],
        "persistence": "AsSent",
    }
    assert (dead["kind"], dead["metadata"]) == ("Queue", {"name": "dead", "namespace": "shop"})
    assert dead["spec"] == {"brokerRef": {"name": "main"}, "persistence": "AsSent"}
    assert graves["spec"] == dead["spec"]


async def test_the_broker_adopts_what_they_declare_and_loses_nothing(broker: BrokerProcess, tmp_path: Path) -> None:
    fill(broker)
    folder = tmp_path / "manifests"
    folder.mkdir()
    (folder / "broker.yaml").write_text(BROKER)
    (folder / "adopted.yaml").write_text(penstock(broker, "export", "--namespace", "shop").stdout)
    before = {each["subscriptionName"]: each for each in states(broker)}
    socket = Path(broker.management.removeprefix("unix:"))
    lines = [str(line) for line in await declarations.declare(socket, declared(read(folder)), 60)]
    assert lines == [
        "Exchange shop/orders-v1: Adopted",
        "Queue shop/dead: Adopted",
        "Queue shop/graves: Adopted",
        "Subscription shop/own-name: Adopted",
        "Subscription shop/billing: Adopted",
        "Subscription shop/fraud: Adopted",
    ]
    after = {each["subscriptionName"]: each for each in states(broker) if each["owner"] is not None}
    assert set(after) == {"billing", "fraud", "Own.Name"}
    for name, state in after.items():
        for key in ("incarnation", "depth", "bindingKeys", "selector", "deadLetter", "enqueued"):
            assert state[key] == before[name][key], (name, key)
    assert after["billing"]["depth"] == 1
    again = penstock(broker, "export")
    assert (again.returncode, again.stdout) == (0, "")


def states(broker: BrokerProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in penstock(broker, "subscriptions", "--json").stdout.splitlines()]


def test_a_queue_that_clients_made_is_no_destination_of_its_own() -> None:
    """The policy of what clients make names the queue `dead`, which clients have made, too."""
    policy = DeliveryPolicy(max_deliveries=4, dead_letter="dead", expiry="late")
    limits = QueueLimits(max_messages=5, overflow="DropOldest")
    queues = {"dead": QueueDeclaration(delivery=policy), "Jobs/1": QueueDeclaration(durable=False, limits=limits)}
    jobs, dead = exported(Found({}, (), queues=queues), ResourcePlace("shop", "main")).manifests
    assert dead["spec"] == {"brokerRef": {"name": "main"}, "delivery": {"expiry": "late"}}
    assert jobs["metadata"] == {"name": "jobs-1", "namespace": "shop"}
    assert jobs["spec"] == {
        "brokerRef": {"name": "main"},
        "queueName": "Jobs/1",
        "durability": "NonDurable",
        "limits": {"maxMessages": 5, "overflow": "DropOldest"},
    }


def test_what_no_resource_can_declare_is_left_out_with_the_reason() -> None:
    owner = Owner(cluster_id="c", kind="Exchange", namespace="other", name="news", uid="u")
    found = Found(
        {
            "events": ExchangeDeclaration(exchange_type="Topic", owner=owner),
            "gone": ExchangeDeclaration(exchange_type="Fanout", unroutable="Alternate", alternate_exchange="events"),
        },
        (
            SubscriptionDeclaration(subscription_name="a", exchange="events"),
            SubscriptionDeclaration(subscription_name="b", exchange="gone"),
            SubscriptionDeclaration(subscription_name="c", exchange="events", sharing="Exclusive", durable=False),
        ),
        ("subscription 'd'",),
    )
    export = exported(found, ResourcePlace("shop", "main"))
    (manifest,) = export.manifests
    assert manifest["spec"] == {
        "brokerRef": {"name": "main"},
        "exchangeRef": {"name": "news", "namespace": "other"},
    }
    assert export.left_out == [
        "subscription 'd': its values fit no declaration.",
        "exchange 'gone': Its alternate exchange 'events' has no resource beside it.",
        "subscription 'b': Its exchange 'gone' is not exported.",
        "subscription 'c': Subscription c: spec: an `Exclusive` `NonDurable` subscription ends with its link and can't "
        "be declared.",
    ]


def test_who_may_use_what_is_exported_stays_in_the_manifests() -> None:
    """Programs have said so; a declaration without them would take these rights away."""
    publishers = ("system:serviceaccount:shop:web", "ann", "system:serviceaccount:eu:*")
    found = Found(
        {"orders": ExchangeDeclaration(exchange_type="Topic", publishers=publishers)},
        (
            SubscriptionDeclaration(subscription_name="billing", exchange="orders", consumers=("bob",)),
            SubscriptionDeclaration(subscription_name="fraud", exchange="orders", consumers=("shop-*",)),
        ),
    )
    export = exported(found, ResourcePlace("shop", "main"))
    exchange, billing = export.manifests
    assert exchange["spec"] == {
        "brokerRef": {"name": "main"},
        "type": "Topic",
        "publishers": [
            {"serviceAccounts": ["*"], "namespace": "eu"},
            {"serviceAccounts": ["web"]},
            {"users": ["ann"]},
        ],
    }
    assert billing["spec"] == {
        "brokerRef": {"name": "main"},
        "exchangeRef": {"name": "orders"},
        "consumers": [{"users": ["bob"]}],
    }
    assert export.left_out == [
        "subscription 'fraud': It gives a right to the users 'shop-*', and a resource names each user in full."
    ]
    spec = {
        "authentication": {"anonymous": True},
        "permissions": [],
        "delegatedPermissions": {"users": ["*"]},
        "allowedNamespaces": ["eu"],
    }
    broker = parse({**exchange, "kind": "Broker", "metadata": {"name": "main", "namespace": "shop"}, "spec": spec})
    declared_again = parse(exchange)
    assert isinstance(broker, Broker)
    assert isinstance(declared_again, Exchange)
    assert rights_of(broker, declared_again).users == tuple(sorted(publishers))


def test_an_alternate_exchange_comes_first_and_is_named_by_its_resource() -> None:
    found = Found(
        {
            "a": ExchangeDeclaration(exchange_type="Topic", unroutable="Alternate", alternate_exchange="The.Rest"),
            "b": ExchangeDeclaration(exchange_type="Direct", unroutable="Reject", durable=False),
            "The.Rest": ExchangeDeclaration(exchange_type="Fanout"),
        },
        (),
    )
    made: list[Any] = [*exported(found, ResourcePlace("shop", "main")).manifests]
    assert [each["metadata"]["name"] for each in made] == ["the-rest", "a", "b"]
    broker = {"brokerRef": {"name": "main"}}
    assert [each["spec"] for each in made] == [
        broker | {"type": "Fanout", "exchangeName": "The.Rest"},
        broker | {"type": "Topic", "unroutable": "Alternate", "alternateExchangeRef": {"name": "the-rest"}},
        broker | {"type": "Direct", "durability": "NonDurable", "unroutable": "Reject"},
    ]


@pytest.mark.parametrize(
    ("octets", "told"),
    [
        (1_073_741_824, "1Gi"),
        (1_610_612_736, "1536Mi"),
        (1_572_864, "1536Ki"),
        (2_097_152, "2Mi"),
        (1_000_000, "1000000"),
    ],
)
def test_a_size_is_told_in_the_largest_unit_that_it_is_a_multiple_of(octets: int, told: str) -> None:
    queues = {"q": QueueDeclaration(limits=QueueLimits(max_bytes=octets))}
    (manifest,) = exported(Found({}, (), queues=queues), ResourcePlace("shop", "main")).manifests
    spec: Any = manifest["spec"]
    assert spec["limits"]["maxBytes"] == told


def test_many_users_are_named_in_several_entries() -> None:
    users = tuple(f"u{number:02}" for number in range(40))
    found = Found({"orders": ExchangeDeclaration(exchange_type="Topic", publishers=users)}, ())
    (exchange,) = exported(found, ResourcePlace("shop", "main")).manifests
    spec: Any = exchange["spec"]
    assert [(len(each["users"]), each["users"][0]) for each in spec["publishers"]] == [(32, "u00"), (8, "u32")]


def test_what_every_broker_has_is_exported_only_where_it_is_needed() -> None:
    topic = ExchangeDeclaration(exchange_type="Topic")
    exchanges = {"amq.topic": topic, "amq.direct": ExchangeDeclaration(exchange_type="Direct")}
    found = Found(exchanges, (SubscriptionDeclaration(subscription_name="a", exchange="amq.topic"),))
    export = exported(found, ResourcePlace("shop", "main"))
    assert [each["metadata"] for each in export.manifests] == [
        {"name": "amq-topic", "namespace": "shop"},
        {"name": "a", "namespace": "shop"},
    ]
    assert exported(Found(exchanges, ()), ResourcePlace("shop", "main")).manifests == []


@pytest.mark.parametrize(
    ("name", "taken", "resource"),
    [
        ("billing", set[str](), "billing"),
        ("Billing.EU_1", set[str](), "billing-eu-1"),
        ("billing", {"billing"}, "billing-2"),
        ("billing", {"billing", "billing-2"}, "billing-3"),
        ("4711", set[str](), "x-4711"),
        ("…", set[str](), "unnamed"),
        ("n" * 200, set[str](), "n" * 57),
    ],
)
def test_names_of_resources(name: str, taken: set[str], resource: str) -> None:
    assert resource_name(name, taken) == resource


OK = {"statusCode": 200, "statusDescription": "OK"}
FANOUT = Reply(OK, {"declaration": {"exchangeType": "Fanout"}})
GONE = Reply({"statusCode": 404, "statusDescription": "There is none."}, {})


async def found_where(listed: dict[str, list[str]], answers: dict[str, Reply]) -> Found:
    """What is found on a broker that lists these names, by type, and answers so when one of them is read."""

    def answer(asked: Asked) -> Reply:
        if "entityType" not in asked.properties:
            return answers[asked.properties["name"]]
        rows = [[name] for name in listed.get(asked.properties["entityType"], [])]
        body = {"attributeNames": asked.body["attributeNames"], "results": rows}
        return Reply({**OK, "totalCount": len(rows), "revision": 1}, body)

    async with serving(Node(answer)) as node:
        client = await ManagementClient.connect(node.address)
        try:
            return await found_on(client)
        finally:
            await client.close()


async def test_what_ends_between_the_list_and_its_reading_is_left_out() -> None:
    """It is not called a subscription whose values fit no declaration: that is one of which none is told."""
    listed = {
        "penstock.exchange": ["e", "ended"],
        "penstock.subscription": ["left", "strange"],
        "penstock.queue": ["q1", "q2"],
    }
    answers = {"e": FANOUT, "ended": GONE, "left": GONE, "strange": Reply(OK, {}), "q1": GONE}
    found = await found_where(listed, answers | {"q2": Reply(OK, {"declaration": {}})})
    assert (list(found.exchanges), list(found.queues)) == (["e"], ["q2"])
    assert (found.subscriptions, found.unreadable) == ((), ("subscription 'strange'",))


async def test_what_the_broker_refuses_to_tell_ends_the_export() -> None:
    """A file without it would be taken for the whole."""
    answers = {"e": FANOUT, "q1": Reply({"statusCode": 403, "statusDescription": "Not for you."}, {})}
    with pytest.raises(ManagementError, match="Not for you"):
        await found_where({"penstock.exchange": ["e"], "penstock.queue": ["q1"]}, answers)
