"""The rows of the attach table with a source, on bare frames, against a broker process.

For each row: the reply's source fields and capabilities and the link's offered capability; for each refusal a null
source, then a detach with closed=true, the condition and `penstock:reason`. Expected values are typed from the page
"JMS 2.0 shared subscription support" and docs/decisions 001 and 003.
"""

from __future__ import annotations

import pytest
from support.topic_links import (
    LINK_DETACH,
    NEVER,
    SESSION_END,
    Connections,
    asked,
    check_refusal,
    check_reply,
    publish,
    topic,
)

from penstock_amqp.frames.performatives import Detach
from penstock_amqp.messages.message_codec import Message, encode_message
from penstock_amqp.types.values import Symbol

# Rows with a source: SHARED, GLOBAL, DURABLE -> capabilities of the reply's source.
ROWS = [
    pytest.param(False, False, False, {"topic"}, id="row-1"),
    pytest.param(False, False, True, {"topic"}, id="row-2-durable"),
    pytest.param(False, True, False, {"topic"}, id="row-3-global"),
    pytest.param(False, True, True, {"topic", "global"}, id="row-4-global-durable"),
    pytest.param(True, False, False, {"topic", "shared"}, id="row-5-shared"),
    pytest.param(True, False, True, {"topic", "shared"}, id="row-6-shared-durable"),
    pytest.param(True, True, False, {"topic", "shared", "global"}, id="row-7-shared-global"),
    pytest.param(True, True, True, {"topic", "shared", "global"}, id="row-8-shared-global-durable"),
]


@pytest.mark.parametrize(("shared", "global_", "durable", "capabilities"), ROWS)
def test_each_row_is_answered_with_its_source_and_the_offer(
    connect: Connections, name: str, shared: bool, global_: bool, durable: bool, capabilities: set[str]
) -> None:
    source = topic(
        *asked(shared=shared, global_=global_),
        durable=2 if durable else 0,
        expiry=NEVER if durable else LINK_DETACH,
        mode="copy" if durable else None,
    )
    reply = connect("c1").attach_receiver(f"{name}|1" if shared else name, source)
    expiry = "never" if durable else "link-detach"
    check_reply(reply, capabilities=capabilities, durable=1 if durable else 0, expiry=expiry)


@pytest.mark.parametrize(("shared", "global_", "durable", "capabilities"), ROWS)
def test_each_row_shows_its_binding_and_its_filter(
    connect: Connections, name: str, shared: bool, global_: bool, durable: bool, capabilities: set[str]
) -> None:
    source = topic(
        *asked(shared=shared, global_=global_),
        durable=1 if durable else 0,
        expiry=NEVER if durable else SESSION_END,
        address="news/eu.#",
        selector="colour = 'red'",
    )
    reply = connect("c1").attach_receiver(f"{name}|1" if shared else name, source)
    check_reply(
        reply,
        capabilities=capabilities,
        durable=1 if durable else 0,
        expiry="never" if durable else "session-end",
        address="news/eu.#",
        selector="colour = 'red'",
    )


@pytest.mark.parametrize(("shared", "global_", "durable", "capabilities"), ROWS)
def test_each_row_gets_messages(
    connect: Connections, name: str, shared: bool, global_: bool, durable: bool, capabilities: set[str]
) -> None:
    client = connect("c1")
    key = f"row.{name}"
    source = topic(*asked(shared=shared, global_=global_), durable=2 * durable, address=f"news/{key}")
    client.attach_receiver(f"{name}|1" if shared else name, source)
    client.flow(client.last_handle, credit=5)
    publish(connect("publisher"), f"news/{key}", "hello")
    _, payload = client.expect_transfer()
    assert payload == encode_message(Message(body="hello"))


@pytest.mark.parametrize(("shared", "global_", "durable", "capabilities"), ROWS)
def test_each_row_refuses_an_exchange_that_does_not_exist(
    connect: Connections, name: str, shared: bool, global_: bool, durable: bool, capabilities: set[str]
) -> None:
    client = connect("c1")
    source = topic(*asked(shared=shared, global_=global_), durable=2 * durable, address="absent/eu")
    reply = client.attach_receiver(name, source)
    check_refusal(client, reply, condition="amqp:not-found", reason="ExchangeNotFound")


@pytest.mark.parametrize(("shared", "global_", "durable", "capabilities"), ROWS)
def test_each_row_refuses_a_selector_that_is_none(
    connect: Connections, name: str, shared: bool, global_: bool, durable: bool, capabilities: set[str]
) -> None:
    client = connect("c1")
    source = topic(*asked(shared=shared, global_=global_), durable=2 * durable, selector="colour = = 'red'")
    reply = client.attach_receiver(name, source)
    check_refusal(client, reply, condition="amqp:invalid-field", reason="InvalidSelector")


# What exists already: the shared rows.
SHARED_ROWS = [
    pytest.param((), 0, id="row-5"),
    pytest.param((), 2, id="row-6"),
    pytest.param(("global",), 0, id="row-7"),
    pytest.param(("global",), 2, id="row-8"),
]


@pytest.mark.parametrize(("space", "durable"), SHARED_ROWS)
def test_a_shared_subscription_takes_further_links(
    connect: Connections, name: str, space: tuple[str, ...], durable: int
) -> None:
    source = topic("shared", *space, durable=durable, selector="a = 1")
    capabilities = {"topic", "shared", *space}
    for container, link in (("c1", f"{name}|1"), ("c1", f"{name}|2"), ("c2" if space else "c1", f"{name}|x")):
        reply = connect(container).attach_receiver(link, source)
        check_reply(reply, capabilities=capabilities, durable=min(durable, 1), expiry="link-detach", selector="a = 1")


@pytest.mark.parametrize(("space", "durable"), SHARED_ROWS)
@pytest.mark.parametrize(
    ("address", "selector"),
    [
        pytest.param("sport", None, id="exchange"),
        pytest.param("news/eu", None, id="binding"),
        pytest.param("news", "a = 1", id="filter"),
    ],
)
def test_a_shared_subscription_in_use_refuses_another_binding_or_filter(
    connect: Connections, name: str, space: tuple[str, ...], durable: int, address: str, selector: str | None
) -> None:
    connect("c1").attach_receiver(f"{name}|1", topic("shared", *space, durable=durable))
    client = connect("c1")
    other = topic("shared", *space, durable=durable, address=address, selector=selector)
    reply = client.attach_receiver(f"{name}|2", other)
    check_refusal(client, reply, condition="amqp:resource-locked", reason="SubscriptionInUse")


@pytest.mark.parametrize("space", [pytest.param((), id="row-6"), pytest.param(("global",), id="row-8")])
def test_an_idle_shared_subscription_is_bound_anew(connect: Connections, name: str, space: tuple[str, ...]) -> None:
    client = connect("c1")
    client.attach_receiver(f"{name}|1", topic("shared", *space, durable=2, expiry=NEVER))
    assert client.detach(client.last_handle, closed=False).error is None
    source = topic("shared", *space, durable=2, expiry=NEVER, address="sport/tennis", selector="a = 1")
    reply = client.attach_receiver(f"{name}|2", source)
    capabilities = {"topic", "shared", *space}
    check_reply(reply, capabilities=capabilities, durable=1, expiry="never", address="sport/tennis", selector="a = 1")


@pytest.mark.parametrize(("space", "durable"), SHARED_ROWS)
def test_another_lifetime_is_granted_and_the_reply_says_what_is_there(
    connect: Connections, name: str, space: tuple[str, ...], durable: int
) -> None:
    connect("c1").attach_receiver(f"{name}|1", topic("shared", *space, durable=durable, expiry=NEVER))
    reply = connect("c1").attach_receiver(f"{name}|2", topic("shared", *space, durable=durable, expiry=SESSION_END))
    check_reply(reply, capabilities={"topic", "shared", *space}, durable=min(durable, 1), expiry="never")


@pytest.mark.parametrize("space", [pytest.param((), id="container"), pytest.param(("global",), id="global")])
def test_shared_and_not_shared_of_one_durable_name_refuse_each_other(
    connect: Connections, name: str, space: tuple[str, ...]
) -> None:
    first = connect("c1")
    first.attach_receiver(name, topic("shared", *space, durable=2, expiry=NEVER))
    second = connect("c1" if not space else "c2")
    reply = second.attach_receiver(f"{name}", topic(*space, durable=2, expiry=NEVER))
    reason = "ExclusivityMismatch" if space else "LinkLiveForOtherKind"
    check_refusal(second, reply, condition="amqp:resource-locked", reason=reason)
    # Also when nobody consumes, and the other way round.
    first.detach(first.last_handle, closed=False)
    reply = second.attach_receiver(name, topic(*space, durable=2, expiry=NEVER))
    check_refusal(second, reply, condition="amqp:resource-locked", reason="ExclusivityMismatch")
    other = f"{name}other"
    first.attach_receiver(other, topic(*space, durable=2, expiry=NEVER))
    first.detach(first.last_handle, closed=False)
    reply = second.attach_receiver(f"{other}|1", topic("shared", *space, durable=2, expiry=NEVER))
    check_refusal(second, reply, condition="amqp:resource-locked", reason="ExclusivityMismatch")


# What exists already: the rows that are not shared.


def test_a_global_durable_subscription_belongs_to_the_link_that_made_it(connect: Connections, name: str) -> None:
    source = topic("global", durable=2, expiry=NEVER)
    first, second = connect("c1"), connect("c2")
    first.attach_receiver(name, source)
    check_refusal(
        second, second.attach_receiver(name, source), condition="amqp:resource-locked", reason="OwnedByOtherLink"
    )
    first.detach(first.last_handle, closed=False)
    check_refusal(
        second, second.attach_receiver(name, source), condition="amqp:resource-locked", reason="OwnedByOtherLink"
    )
    check_reply(first.attach_receiver(name, source), capabilities={"topic", "global"}, durable=1, expiry="never")


def test_a_durable_link_that_attaches_again_gets_its_subscription(connect: Connections, name: str) -> None:
    client = connect("c1")
    client.attach_receiver(name, topic(durable=2, expiry=NEVER, address="news/a", selector="a = 1"))
    client.detach(client.last_handle, closed=False)
    reply = client.attach_receiver(name, topic(durable=2, expiry=NEVER, address="news/a", selector="a = 1"))
    check_reply(reply, capabilities={"topic"}, durable=1, expiry="never", address="news/a", selector="a = 1")
    client.detach(client.last_handle, closed=False)
    reply = client.attach_receiver(name, topic(durable=2, expiry=NEVER, address="sport"))
    check_reply(reply, capabilities={"topic"}, durable=1, expiry="never", address="sport")


def test_the_same_link_on_another_connection_steals(connect: Connections, name: str) -> None:
    first, second = connect("c1"), connect("c1")
    source = topic(durable=2, expiry=NEVER)
    first.attach_receiver(name, source)
    check_reply(second.attach_receiver(name, source), capabilities={"topic"}, durable=1, expiry="never")
    stolen = first.expect(Detach)
    assert stolen.error is not None
    assert stolen.error.condition == "amqp:link:stolen"
    assert (stolen.error.info or {}).get(Symbol("penstock:reason")) == "LinkStolen"


def test_containers_have_name_spaces_of_their_own(connect: Connections, name: str) -> None:
    source = topic("shared", durable=2, expiry=NEVER)
    connect("c1").attach_receiver(f"{name}|1", source)
    other = topic("shared", durable=2, expiry=NEVER, address="sport")
    reply = connect("c2").attach_receiver(f"{name}|1", other)
    check_reply(reply, capabilities={"topic", "shared"}, durable=1, expiry="never", address="sport")


def test_volatile_and_durable_names_are_apart(connect: Connections, name: str) -> None:
    client = connect("c1")
    client.attach_receiver(f"{name}|1", topic("shared", durable=2, expiry=NEVER))
    reply = client.attach_receiver(f"{name}|volatile1", topic("shared", address="sport"))
    check_reply(reply, capabilities={"topic", "shared"}, durable=0, expiry="link-detach", address="sport")
