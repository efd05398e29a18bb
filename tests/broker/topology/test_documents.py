"""What the topology leaves in the log comes back as it was."""

from __future__ import annotations

import math

import pytest

from penstock_api import management
from penstock_broker.queue.queue import Queue
from penstock_broker.topology import documents
from penstock_broker.topology.records import Exchange, PointToPointQueue, Subscription
from penstock_core.binding import Binding, ByContainer, Filter
from penstock_core.existing_subscription import OwnerMark
from penstock_core.header_bindings import HeaderMatch, HeaderValue, header_binding
from penstock_core.identity import GLOBAL, Identity, LinkKey, Scope
from penstock_core.routing import Router
from penstock_core.terms import ExchangeType, Exclusivity, Lifetime, Persistence, Unroutable

OWNER = management.Owner(cluster_id="c", kind="Subscription", namespace="n", name="s", uid="u")


def test_an_exchange_comes_back() -> None:
    exchange = Exchange(
        name="orders",
        type=ExchangeType.DIRECT,
        unroutable=Unroutable.ALTERNATE,
        alternate="dead",
        persistence=Persistence.ALWAYS,
        owner=OWNER,
        made_by_name=True,
        publishers=("ann", "shop-*"),
        router=Router(ExchangeType.DIRECT),
    )
    again = documents.load_exchange("orders", documents.dump(exchange))
    assert (again.type, again.unroutable, again.alternate, again.persistence, again.owner) == (
        ExchangeType.DIRECT,
        Unroutable.ALTERNATE,
        "dead",
        Persistence.ALWAYS,
        OWNER,
    )
    assert (again.made_by_name, again.publishers) == (True, ("ann", "shop-*"))


@pytest.mark.parametrize("scope", [GLOBAL, Scope("app"), Scope("")], ids=str)
def test_a_subscription_comes_back(scope: Scope) -> None:
    subscription = Subscription(
        identity=Identity(scope, "a|b", True),
        exclusivity=Exclusivity.LINK,
        lifetime=Lifetime.PERMANENT,
        binding=Binding("orders", frozenset({"b", "a.#"}), Filter("x = 1", True)),
        exchange_type=ExchangeType.TOPIC,
        queue=Queue("", 7, is_logged=True, now_us=0),
        owner_link=LinkKey("app", "a|b"),
        user="ann",
        persistence=Persistence.AS_SENT,
        limits=management.QueueLimits(max_bytes=5, overflow="Reject"),
        delivery=management.DeliveryPolicy(max_deliveries=3, dead_letter="dead", max_ttl_ms=9, exclusive_consumer=True),
        rebind_policy="Never",
        client_overrides="Ignore",
        owner=OWNER,
        declared_consumers=("bob", "system:serviceaccount:shop:*"),
    )
    again = documents.load_subscription(documents.dump(subscription), 7, 0)
    assert again.identity == subscription.identity
    assert again.queue.name == again.name
    assert (again.queue.incarnation, again.queue.is_logged) == (7, True)
    assert (again.binding, again.exclusivity, again.owner_link, again.user) == (
        subscription.binding,
        Exclusivity.LINK,
        LinkKey("app", "a|b"),
        "ann",
    )
    assert (again.persistence, again.limits, again.rebind_policy) == (
        Persistence.AS_SENT,
        management.QueueLimits(max_bytes=5, overflow="Reject"),
        "Never",
    )
    assert again.declared_consumers == ("bob", "system:serviceaccount:shop:*")
    assert again.delivery == management.DeliveryPolicy(
        max_deliveries=3, dead_letter="dead", max_ttl_ms=9, exclusive_consumer=True
    )
    assert again.managed is not None
    assert isinstance(again.managed, OwnerMark)
    assert (again.managed.resource, again.managed.uid, again.managed.client_overrides.value) == ("n/s", "u", "Ignore")


@pytest.mark.parametrize(("written", "since"), [(5_000, 5_000), (0, 9_000)], ids=["unused", "it-had-a-consumer"])
def test_since_when_a_subscription_is_unused_comes_back(written: int, since: int) -> None:
    """One that had a consumer is unused since the broker has started, which is at 9,000 here."""
    subscription = Subscription(
        identity=Identity(GLOBAL, "s", True),
        exclusivity=Exclusivity.SHARED,
        lifetime=Lifetime.PERMANENT,
        binding=Binding("orders", frozenset({"#"}), Filter(None, False)),
        exchange_type=ExchangeType.TOPIC,
        queue=Queue("", 1, is_logged=True, now_us=1_000),
    )
    subscription.queue.links.unused_since_us = written
    subscription.queue.totals.lost_at_restart = 4
    again = documents.load_subscription(documents.dump(subscription), 1, 9_000)
    assert (again.queue.links.unused_since_us, again.noted_unused_us, again.is_recorded) == (since, written, True)
    assert (again.queue.totals.lost_at_restart, again.owner, again.managed) == (4, None, None)


def test_no_local_of_a_container_s_subscription_comes_back() -> None:
    subscription = Subscription(
        identity=Identity(Scope("app"), "s", True),
        exclusivity=Exclusivity.LINK,
        lifetime=Lifetime.PERMANENT,
        binding=Binding("orders", frozenset({"#"}), Filter(None, True)),
        exchange_type=ExchangeType.TOPIC,
        queue=Queue("", 1, is_logged=True, now_us=0),
    )
    assert documents.load_subscription(documents.dump(subscription), 1, 0).no_local == ByContainer("app")


def test_a_queue_comes_back() -> None:
    node = PointToPointQueue(
        name="q",
        durable=True,
        queue=Queue("q", 3, is_logged=True, now_us=0),
        persistence=Persistence.ALWAYS,
        limits=management.QueueLimits(max_messages=9),
        delivery=management.DeliveryPolicy(expiry="orders/late"),
        made_by_name=True,
        owner=OWNER,
    )
    node.queue.totals.lost_at_restart = 4
    again = documents.load_queue("q", documents.dump(node), 3, 0)
    assert (again.queue.totals.lost_at_restart, again.made_by_name, again.owner) == (4, True, OWNER)
    assert (again.queue.name, again.queue.incarnation, again.queue.is_logged) == ("q", 3, True)
    assert (again.name, again.durable, again.persistence, again.limits, again.delivery) == (
        "q",
        True,
        Persistence.ALWAYS,
        management.QueueLimits(max_messages=9),
        management.DeliveryPolicy(expiry="orders/late"),
    )


def test_header_bindings_come_back_with_the_type_of_each_value() -> None:
    headers: dict[str, HeaderValue] = {
        "b": True,
        "i": 1,
        "f": 1.5,
        "s": "x",
        "n": None,
        "big": 2**63 - 1,
        "inf": math.inf,
    }
    subscription = Subscription(
        identity=Identity(GLOBAL, "s", True),
        exclusivity=Exclusivity.SHARED,
        lifetime=Lifetime.PERMANENT,
        binding=Binding(
            "orders", frozenset(), Filter(None, False), frozenset({header_binding(HeaderMatch.ANY, headers)})
        ),
        exchange_type=ExchangeType.HEADERS,
        queue=Queue("", 1, is_logged=True, now_us=0),
    )
    (binding,) = documents.load_subscription(documents.dump(subscription), 1, 0).binding.headers
    assert binding.match is HeaderMatch.ANY
    assert {name: (type(value), value) for name, value in binding.headers.items()} == {
        name: (type(value), value) for name, value in headers.items()
    }


FIRST_VERSION = b"""{"binding":"unknown","clientOverrides":"Refuse","exchange":"orders","exchangeType":"Topic",
"exclusivity":"Shared","keys":["a.#","b"],"limits":{"maxBytes":5,"overflow":"Reject"},"lostAtRestart":4,"name":"billing",
"noLocal":false,"owner":{"clusterId":"c","kind":"Subscription","namespace":"n","name":"s","uid":"u","later":1},
"ownerLink":null,"persistence":"Always","rebindPolicy":"Never","scope":null,"selector":"x = 1","user":"ann"}"""


def test_a_subscription_of_the_first_version_comes_back() -> None:
    subscription = documents.load_subscription(FIRST_VERSION, 7, 1_000)
    assert subscription.identity == Identity(GLOBAL, "billing", True)
    assert subscription.binding == Binding("orders", frozenset({"a.#", "b"}), Filter("x = 1", False))
    assert subscription.limits == management.QueueLimits(max_bytes=5, overflow="Reject")
    assert subscription.delivery is None
    assert subscription.owner == OWNER
    assert (subscription.user, subscription.persistence, subscription.rebind_policy) == (
        "ann",
        Persistence.ALWAYS,
        "Never",
    )
    assert subscription.queue.totals.lost_at_restart == 4
    assert subscription.queue.links.unused_since_us == 1_000


def test_a_release_before_reads_what_is_written_now() -> None:
    """It takes these keys without a default, so none of them may be left out."""
    exchange = Exchange(name="orders", type=ExchangeType.TOPIC, router=Router(ExchangeType.TOPIC))
    assert documents.dump(exchange) == (
        b'{"alternate":null,"madeByName":false,"owner":null,"persistence":null,"publishers":[],"type":"Topic",'
        b'"unroutable":"Accept"}'
    )


def test_documents_of_the_first_version_say_nothing_of_delivery() -> None:
    queue = documents.load_queue("q", b'{"durable":true,"persistence":null,"limits":{}}', 3, 0)
    assert queue.delivery is None
    assert queue.queue.totals.lost_at_restart == 0
