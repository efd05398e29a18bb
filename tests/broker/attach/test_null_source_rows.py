"""The rows of the attach table with a null source, on bare frames, against a broker process: look-up and the end by
detach.

Expected values are typed from the page "JMS 2.0 shared subscription support" and docs/decisions 001 and 003.
"""

from __future__ import annotations

import pytest
from support.raw_client import symbols
from support.topic_links import NEVER, Connections, asked, check_refusal, check_reply, publish, topic

from penstock_amqp.frames.performatives import Detach
from penstock_amqp.messages.message_codec import Message, encode_message
from penstock_amqp.types.values import Symbol

# Rows with a null source: SHARED and GLOBAL come from the link's desired capabilities.
NULL_ROWS = [
    pytest.param(False, False, id="row-9"),
    pytest.param(False, True, id="row-10-global"),
    pytest.param(True, False, id="row-11-shared"),
    pytest.param(True, True, id="row-12-shared-global"),
]


@pytest.mark.parametrize(("shared", "global_"), NULL_ROWS)
def test_a_null_source_finds_its_durable_subscription(
    connect: Connections, name: str, shared: bool, global_: bool
) -> None:
    capabilities = asked(shared=shared, global_=global_)
    client = connect("c1")
    link = f"{name}|1" if shared else name
    source = topic(*capabilities, durable=2, expiry=NEVER, address="news/a", selector="a = 1")
    client.attach_receiver(link, source)
    client.detach(client.last_handle, closed=False)
    reply = client.attach_receiver(link, None, desired=symbols(*capabilities) or None)
    check_reply(
        reply,
        capabilities={"topic", *capabilities},
        durable=1,
        expiry="never",
        address="news/a",
        selector="a = 1",
    )


@pytest.mark.parametrize(("shared", "global_"), NULL_ROWS)
def test_a_null_source_that_finds_nothing_is_refused(
    connect: Connections, name: str, shared: bool, global_: bool
) -> None:
    client = connect("c1")
    desired = symbols(*asked(shared=shared, global_=global_)) or None
    reply = client.attach_receiver(name, None, desired=desired)
    check_refusal(client, reply, condition="amqp:not-found", reason="SubscriptionNotFound")


@pytest.mark.parametrize(("shared", "global_"), NULL_ROWS)
def test_a_null_source_does_not_find_what_is_volatile(
    connect: Connections, name: str, shared: bool, global_: bool
) -> None:
    client = connect("c1")
    capabilities = asked(shared=shared, global_=global_)
    client.attach_receiver(f"{name}|1" if shared else name, topic(*capabilities))
    other = connect("c1")
    reply = other.attach_receiver(f"{name}|2" if shared else f"{name}2", None, desired=symbols(*capabilities) or None)
    check_refusal(other, reply, condition="amqp:not-found", reason="SubscriptionNotFound")


@pytest.mark.parametrize(("shared", "global_"), NULL_ROWS)
def test_closing_a_null_source_ends_the_subscription(
    connect: Connections, name: str, shared: bool, global_: bool
) -> None:
    capabilities = asked(shared=shared, global_=global_)
    client = connect("c1")
    link = f"{name}|1" if shared else name
    client.attach_receiver(link, topic(*capabilities, durable=2, expiry=NEVER))
    client.detach(client.last_handle, closed=False)
    desired = symbols(*capabilities) or None
    client.attach_receiver(link, None, desired=desired)
    assert client.detach(client.last_handle, closed=True).error is None
    reply = client.attach_receiver(link, None, desired=desired)
    check_refusal(client, reply, condition="amqp:not-found", reason="SubscriptionNotFound")


@pytest.mark.parametrize("global_", [pytest.param(False, id="row-11"), pytest.param(True, id="row-12")])
def test_closing_a_null_source_in_use_is_refused_and_changes_nothing(
    connect: Connections, name: str, global_: bool
) -> None:
    capabilities = asked(shared=True, global_=global_)
    consumer, client = connect("c1"), connect("c1")
    consumer.attach_receiver(f"{name}|1", topic(*capabilities, durable=2, expiry=NEVER))
    reply = client.attach_receiver(f"{name}|2", None, desired=symbols(*capabilities))
    check_reply(reply, capabilities={"topic", *capabilities}, durable=1, expiry="never")
    detach = client.detach(client.last_handle, closed=True)
    assert detach.closed is True
    assert detach.error is not None
    assert detach.error.condition == "amqp:resource-locked"
    assert (detach.error.info or {}).get(Symbol("penstock:reason")) == "ConsumersActive"
    consumer.flow(consumer.last_handle, credit=1)
    publish(connect("publisher"), "news", name)
    assert consumer.expect_transfer()[1] == encode_message(Message(body=name))


def test_without_a_capability_a_null_source_is_found_by_the_suffix(connect: Connections, name: str) -> None:
    # What the JMS client does without a ClientID when it unsubscribes (decision 3).
    connect("c1").attach_receiver(f"{name}|global2", topic("shared", "global", durable=2, expiry=NEVER))
    client = connect("c2")
    reply = client.attach_receiver(f"{name}|global", None)
    check_reply(reply, capabilities={"topic", "shared", "global"}, durable=1, expiry="never")


def test_credit_on_a_null_source_is_not_allowed(connect: Connections, name: str) -> None:
    client = connect("c1")
    client.attach_receiver(f"{name}|1", topic("shared", durable=2, expiry=NEVER))
    client.attach_receiver(f"{name}|2", None, desired=symbols("shared"))
    client.flow(client.last_handle, credit=1)
    detach = client.expect(Detach)
    assert detach.closed is True
    assert detach.error is not None
    assert detach.error.condition == "amqp:not-allowed"
