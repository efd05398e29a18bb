"""Detach, and what else a reply to an attach says, on bare frames, against a broker process.

Expected values are typed from the attach table ("Link Detach") and docs/decisions/009-closing-detach.md.
"""

from __future__ import annotations

import pytest
from support.raw_client import symbols
from support.topic_links import (
    CONNECTION_CLOSE,
    LINK_DETACH,
    NEVER,
    SESSION_END,
    Connections,
    check_refusal,
    check_reply,
    publish,
    topic,
)

from penstock_amqp.frames.performatives import Attach, Target
from penstock_amqp.messages.message_codec import Message, encode_message
from penstock_amqp.types.values import Symbol


def test_closing_a_permanent_shared_subscription_in_use_is_refused(connect: Connections, name: str) -> None:
    first, second = connect("c1"), connect("c1")
    source = topic("shared", durable=2, expiry=NEVER)
    first.attach_receiver(f"{name}|1", source)
    second.attach_receiver(f"{name}|2", source)
    detach = first.detach(first.last_handle, closed=True)
    assert detach.error is not None
    assert detach.error.condition == "amqp:resource-locked"
    assert (detach.error.info or {}).get(Symbol("penstock:reason")) == "ConsumersActive"
    assert second.detach(second.last_handle, closed=True).error is None
    reply = first.attach_receiver(f"{name}|1", None, desired=symbols("shared"))
    check_refusal(first, reply, condition="amqp:not-found", reason="SubscriptionNotFound")


@pytest.mark.parametrize("expiry", [LINK_DETACH, SESSION_END, CONNECTION_CLOSE, None])
def test_closing_any_other_lifetime_in_use_detaches_without_error(
    connect: Connections, name: str, expiry: Symbol | None
) -> None:
    first, second = connect("c1"), connect("c1")
    source = topic("shared", expiry=expiry)
    first.attach_receiver(f"{name}|1", source)
    second.attach_receiver(f"{name}|2", source)
    assert first.detach(first.last_handle, closed=True).error is None
    second.flow(second.last_handle, credit=1)
    publish(connect("publisher"), "news", name)
    assert second.expect_transfer()[1] == encode_message(Message(body=name))


def test_an_unsettled_map_gets_an_empty_one_back(connect: Connections, name: str) -> None:
    client = connect("c1")
    attach = Attach(
        name=name,
        handle=0,
        role=True,
        source=topic(durable=2, expiry=NEVER),
        target=Target(),
        unsettled={b"tag": None},
    )
    client.send(attach)
    assert client.expect(Attach).unsettled == {}


def test_an_absent_expiry_policy_is_session_end(connect: Connections, name: str) -> None:
    reply = connect("c1").attach_receiver(f"{name}|1", topic("shared", expiry=None))
    check_reply(reply, capabilities={"topic", "shared"}, durable=0, expiry="session-end")


def test_the_open_reply_offers_what_works(connect: Connections) -> None:
    offered = set(connect("c1").open.offered_capabilities or ())
    assert {"SHARED-SUBS", "ANONYMOUS-RELAY"} <= offered
    assert offered <= {"SHARED-SUBS", "ANONYMOUS-RELAY", "DELAYED_DELIVERY", "sole-connection-for-container"}
