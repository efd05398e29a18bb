"""Rows that are encoded by hand are those that the encoder makes of the documents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stepped_broker import SteppedBroker

from penstock_amqp.types.decoder import decode_one
from penstock_amqp.types.values import Value
from penstock_api.management import EntityType, Owner, SubscriptionDeclaration
from penstock_api.state_documents import SubscriptionState
from penstock_broker.management import declare, encoded_states, entity_states
from penstock_broker.management.replies import to_value
from penstock_broker.queue.totals import Histogram
from penstock_broker.topology.records import Subscription
from penstock_core.binding import Binding

NAMES = [field.alias or name for name, field in SubscriptionState.model_fields.items()]


@pytest.fixture
def orders() -> Iterator[Subscription]:
    """A declared subscription without messages."""
    site = SteppedBroker()
    body = SubscriptionDeclaration(subscription_name="orders", exchange="amq.topic", binding_keys=("a", "b"))
    assert declare.declare(site.broker, EntityType.SUBSCRIPTION, None, to_value(body), update=False).status == 201
    yield next(iter(site.broker.topology.subscriptions.values()))
    site.close()


def told(subscription: Subscription) -> dict[str, Value]:
    """The row that a reader gets, by attribute."""
    row = cast(list[Value], decode_one(encoded_states.encoded_state(subscription, {})))
    return dict(zip(NAMES, row, strict=True))


def test_a_row_has_all_attributes_in_the_order_of_the_model(orders: Subscription) -> None:
    assert sorted(map(str, entity_states.subscription_state(orders, {}))) == sorted(NAMES)
    assert told(orders) == entity_states.subscription_state(orders, {})
    assert (told(orders)["queueName"], told(orders)["bindingKeys"]) == ("psub:durable:global:orders", ["a", "b"])


OWNER = Owner(cluster_id="c", kind="Subscription", namespace="n", name="m", uid="u")


@pytest.mark.parametrize(
    ("where", "changes", "name", "value"),
    [
        ("subscription", {"revision": 77}, "revision", 77),
        ("subscription", {"user": "ann"}, "user", "ann"),
        ("subscription", {"binding": Binding("other", frozenset("c"))}, "exchange", "other"),
        ("subscription", {"binding": Binding("other", frozenset("c"))}, "bindingKeys", ["c"]),
        ("subscription", {"owner": OWNER}, "owner", OWNER.to_wire()),
        ("queue", {"incarnation": 99}, "incarnation", 99),
        ("policy", {"dead_letter": "dlq"}, "deadLetter", "dlq"),
    ],
)
def test_what_is_kept_is_made_anew_when_a_value_is_another_one(
    orders: Subscription, where: str, changes: dict[str, object], name: str, value: Value
) -> None:
    """It was told once before."""
    assert told(orders)[name] != value
    places = {"subscription": orders, "queue": orders.queue, "policy": orders.queue.policy}
    for attribute, changed in changes.items():
        setattr(places[where], attribute, changed)
    assert told(orders)[name] == value
    assert told(orders) == entity_states.subscription_state(orders, {})


@pytest.mark.parametrize("number", [0, 1, 127, 128, 255, 256, 2**31, 2**63 - 1])
def test_numbers_of_any_size(orders: Subscription, number: int) -> None:
    orders.queue.totals.enqueued = number
    assert told(orders)["enqueued"] == number


@given(st.lists(st.lists(st.tuples(st.integers(-5, 10**9), st.integers(1, 10**6)), max_size=30), max_size=4))
def test_a_histogram_is_told_as_it_is_after_each_addition(parts: list[list[tuple[int, int]]]) -> None:
    """What was kept is not told once more has been counted, also if that adds nothing to the sum."""
    histogram = Histogram()
    for part in parts:
        for microseconds, count in part:
            histogram.add(microseconds, count)
        for _ in range(2):
            found = histogram.snapshot()
            expected = {"indexes": list(found.indexes), "counts": list(found.counts), "sumMs": found.sum_ms}
            assert decode_one(encoded_states.encoded_histogram(histogram)) == expected
