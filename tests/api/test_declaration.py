"""What a resource declares on the broker, field by field as it is sent; default values are left out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.resources import exchange, queue, subscription

from penstock_amqp.types.encoder import encode
from penstock_api import declaration
from penstock_api.resources.header_bindings import as_text


def test_an_exchange_with_all_its_defaults() -> None:
    assert declaration.exchange_declaration(exchange(), cluster_id="c1").to_wire() == {
        "exchangeType": "Topic",
        "persistence": "Always",
        "owner": {
            "clusterId": "c1",
            "kind": "Exchange",
            "namespace": "shop",
            "name": "orders",
            "uid": "uid-orders",
            "deletionPolicy": "DeleteWhenUnused",
        },
    }


def test_an_exchange_with_an_alternate() -> None:
    made = exchange(
        unroutable="Alternate", alternateExchangeRef={"name": "rest"}, type="Direct", durability="NonDurable"
    )
    sent = declaration.exchange_declaration(made, alternate="the-rest").to_wire()
    assert (sent["unroutable"], sent["alternateExchange"], sent["exchangeType"], sent["durable"]) == (
        "Alternate",
        "the-rest",
        "Direct",
        False,
    )


def test_a_queue_with_all_its_defaults() -> None:
    assert declaration.queue_name(queue()) == "invoices"
    assert declaration.queue_declaration(queue(), cluster_id="c1").to_wire() == {
        "persistence": "Always",
        "owner": {
            "clusterId": "c1",
            "kind": "Queue",
            "namespace": "shop",
            "name": "invoices",
            "uid": "uid-invoices",
        },
    }


def test_a_queue_with_every_field() -> None:
    made = queue(
        queueName="shop.invoices",
        durability="NonDurable",
        deletionPolicy="DeleteWhenEmpty",
        persistence="AsSent",
        delivery={
            "maxDeliveries": 5,
            "deadLetter": "dead",
            "expiry": "late",
            "maxTtlSeconds": 90,
            "exclusiveConsumer": True,
        },
        limits={"maxBytes": "1Mi", "maxMessages": 10, "overflow": "Reject"},
    )
    assert declaration.queue_name(made) == "shop.invoices"
    assert declaration.queue_declaration(made, cluster_id="c1", adoption="Orphans").to_wire() == {
        "durable": False,
        "persistence": "AsSent",
        "limits": {"maxBytes": 1_048_576, "maxMessages": 10, "overflow": "Reject"},
        "delivery": {
            "maxDeliveries": 5,
            "deadLetter": "dead",
            "expiry": "late",
            "maxTtlMs": 90_000,
            "exclusiveConsumer": True,
        },
        "owner": {
            "clusterId": "c1",
            "kind": "Queue",
            "namespace": "shop",
            "name": "invoices",
            "uid": "uid-invoices",
            "deletionPolicy": "DeleteWhenEmpty",
        },
        "adoption": "Orphans",
    }


def test_a_subscription_with_every_field() -> None:
    made = subscription(
        subscriptionName="for/billing",
        scope="Container",
        clientId="billing 1",
        sharing="Exclusive",
        bindingKeys=["orders.us", "orders.eu"],
        filter={"selector": "region = 'eu'", "noLocal": True},
        rebindPolicy="WhenIdle",
        deletionPolicy="DeleteWhenEmpty",
        clientOverrides="Ignore",
        persistence="AsSent",
        delivery={
            "maxDeliveries": 5,
            "deadLetter": "dead",
            "expiry": "orders/expired",
            "maxTtlSeconds": 90,
            "exclusiveConsumer": True,
        },
        limits={"maxBytes": "1Mi", "maxMessages": 10, "overflow": "Reject"},
    )
    assert declaration.subscription_declaration(made, exchange="orders", cluster_id="c1").to_wire() == {
        "subscriptionName": "for/billing",
        "scope": "Container",
        "clientId": "billing 1",
        "sharing": "Exclusive",
        "exchange": "orders",
        "bindingKeys": ["orders.eu", "orders.us"],
        "selector": "region = 'eu'",
        "noLocal": True,
        "rebindPolicy": "WhenIdle",
        "clientOverrides": "Ignore",
        "persistence": "AsSent",
        "limits": {"maxBytes": 1048576, "maxMessages": 10, "overflow": "Reject"},
        "delivery": {
            "maxDeliveries": 5,
            "deadLetter": "dead",
            "expiry": "orders/expired",
            "maxTtlMs": 90_000,
            "exclusiveConsumer": True,
        },
        "owner": {
            "clusterId": "c1",
            "kind": "Subscription",
            "namespace": "shop",
            "name": "billing",
            "uid": "uid-billing",
            "deletionPolicy": "DeleteWhenEmpty",
        },
    }
    assert declaration.queue_name(made) == "psub:durable:container:billing%201:for%2Fbilling"


def test_headers_are_declared_with_values_of_their_type() -> None:
    bindings = [
        {"headers": [{"name": "region", "string": "eu"}, {"name": "amount", "integer": 5}]},
        {"match": "Any", "headers": [{"name": "paid", "boolean": False}, {"name": "trace"}]},
    ]
    made = subscription(headerBindings=bindings)
    told = declaration.subscription_declaration(made, exchange="orders").header_bindings
    assert [(it.match, it.headers) for it in told] == [
        ("All", {"region": "eu", "amount": 5}),
        ("Any", {"paid": False, "trace": None}),
    ]


def test_bindings_are_told_in_words_whatever_they_are_made_of() -> None:
    assert as_text({"match": "All", "headers": {"region": "eu", "amount": 5}}) == "All: amount = 5, region = 'eu'"
    assert as_text({"match": "Any", "headers": {"trace": None, "paid": False}}) == "Any: paid = False, trace"
    assert as_text({"match": "Any", "headers": {1: b"x"}}) == "Any: 1 = b'x'"
    assert as_text({}) == "All: every message"


def test_names_come_from_the_resource_where_the_spec_has_none() -> None:
    assert declaration.exchange_name(exchange()) == "orders"
    assert declaration.exchange_name(exchange(exchangeName="Orders EU")) == "Orders EU"
    assert declaration.subscription_name(subscription()) == "billing"
    assert declaration.queue_name(subscription()) == "psub:durable:global:billing"
    assert declaration.queue_name(subscription(durability="NonDurable")) == "psub:volatile:global:billing"


def test_references_default_to_the_resource_s_own_namespace() -> None:
    assert declaration.broker_key(subscription()) == ("shop", "main")
    assert declaration.exchange_key(subscription()) == ("shop", "orders")
    away = subscription(
        brokerRef={"name": "main", "namespace": "infra"}, exchangeRef={"name": "all", "namespace": "hub"}
    )
    assert declaration.broker_key(away) == ("infra", "main")
    assert declaration.exchange_key(away) == ("hub", "all")


def test_a_file_without_uid_is_marked_by_its_name() -> None:
    owner = declaration.owner_of(subscription(metadata={"uid": ""}))
    assert (owner.cluster_id, owner.uid) == ("local", "shop/billing")


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        pytest.param({}, {"overflow": "DropOldest"}, id="none: nothing of it is sent"),
        pytest.param({"overflow": "DropOldest"}, {"overflow": "DropOldest"}, id="as API servers have stored none"),
        pytest.param({"overflow": "Reject"}, {"overflow": "DropOldest"}, id="overflow says nothing without a limit"),
        pytest.param(
            {"maxBytes": "1Ki"}, {"maxBytes": 1024, "overflow": "Reject"}, id="what is not said loses nothing"
        ),
        pytest.param({"maxMessages": 7}, {"maxMessages": 7, "overflow": "Reject"}, id="of messages"),
        pytest.param(
            {"maxBytes": "1Ki", "overflow": "DropOldest"}, {"maxBytes": 1024, "overflow": "DropOldest"}, id="said"
        ),
    ],
)
def test_only_a_limit_that_is_written_is_declared(limits: dict[str, Any], expected: dict[str, Any]) -> None:
    found = declaration.subscription_declaration(subscription(limits=limits), exchange="orders").limits
    assert found.to_wire() == expected


def test_a_limit_that_means_none_can_be_written_on_the_wire() -> None:
    made = subscription(limits={"maxBytes": "100E"})
    sent = declaration.subscription_declaration(made, exchange="orders").to_wire()
    assert sent["limits"] == {"maxBytes": 2**63 - 1, "overflow": "Reject"}
    assert encode(sent)


@given(st.dictionaries(st.integers(0, 12).map(str), st.none() | st.integers(0, 15).map(str)))
def test_an_exchange_comes_behind_its_alternate(exchanges: dict[str, str | None]) -> None:
    ordered = declaration.alternates_first(exchanges)
    assert sorted(ordered) == sorted(exchanges)
    for name in exchanges:
        alternate, way = exchanges[name], {name}
        while alternate in exchanges and alternate not in way:
            way.add(alternate)
            alternate = exchanges[alternate]
        if alternate not in way:  # else it is in a circle, or leads to one
            following = exchanges[name]
            assert following not in exchanges or ordered.index(str(following)) < ordered.index(name)


def test_a_circle_of_alternates_keeps_all_of_its_exchanges() -> None:
    circle = {"a": "b", "b": "c", "c": "a", "d": "a", "e": "e"}
    assert declaration.alternates_first(circle) == ["c", "b", "a", "d", "e"]


def test_a_long_chain_of_alternates_is_put_in_order_in_one_walk() -> None:
    """Each name is asked for a few times, not once for each other exchange."""

    class Counted(dict[str, str | None]):
        asked = 0

        def __contains__(self, name: object) -> bool:
            self.asked += 1
            return super().__contains__(name)

    chain = Counted({f"e{number:04}": f"e{number + 1:04}" for number in range(3_000)})
    assert declaration.alternates_first(chain) == [f"e{number:04}" for number in reversed(range(3_000))]
    assert chain.asked == 3_000 + 3_000
