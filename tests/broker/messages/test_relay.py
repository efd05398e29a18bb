"""The anonymous relay on bare frames: what becomes of messages whose `to` leads nowhere, as the link's outcomes allow.

Expected values are typed from "Using the AMQP Anonymous Terminus for Message Routing", section 2.2.2, and from
docs/decisions/018-addresses.md.
"""

from __future__ import annotations

import pytest
from support.raw_client import RawClient, symbols
from support.topic_links import Connections, topic

from penstock_amqp.frames.performatives import Accepted, Detach, Disposition, Flow, Rejected, Source, Target, Transfer
from penstock_amqp.messages.message_codec import Message, Properties, decode_message, encode_message
from penstock_amqp.types.values import Byte, Symbol, Value

ALL = symbols("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list")
WITHOUT_REJECTED = symbols("amqp:accepted:list", "amqp:released:list")
NOWHERE = "no-such-node"


def relay(client: RawClient, outcomes: tuple[Symbol, ...] | None = ALL) -> int:
    """A link with a target that has no address, as the JMS client attaches it; our handle."""
    reply = client.attach_sender("anonymous", Target(), source=Source(outcomes=outcomes))
    assert isinstance(reply.target, Target)
    assert reply.target.address is None
    return client.last_handle


def send(
    client: RawClient, handle: int, number: int, to: str | None, *, settled: bool = False, dest: int | None = None
) -> None:
    head = Transfer(handle=handle, delivery_id=number, delivery_tag=b"tag-%d" % number, settled=settled)
    annotations: dict[Value, Value] = {} if dest is None else {Symbol("x-opt-jms-dest"): Byte(dest)}
    told = Message(annotations=annotations, properties=Properties(to=to), body=f"body {number}")
    client.send(head, payload=encode_message(told))


def reason_of(state: object) -> tuple[str, object]:
    assert isinstance(state, Rejected)
    assert state.error is not None
    return state.error.condition, (state.error.info or {}).get(Symbol("penstock:reason"))


def test_messages_follow_their_to(connect: Connections) -> None:
    reader, client = connect("c1"), connect("c2")
    reader.attach_receiver("sub", topic(address="news/eu"))
    reader.flow(reader.last_handle, credit=10)
    handle = relay(client)
    for number, to in enumerate(("news/eu", "topic://news/eu")):
        send(client, handle, number, to)
        assert isinstance(client.expect(Disposition).state, Accepted)
        assert decode_message(reader.expect_transfer()[1]).body == f"body {number}"


@pytest.mark.parametrize("outcomes", [ALL, None])
def test_one_that_leads_nowhere_is_rejected_and_the_link_goes_on(
    connect: Connections, outcomes: tuple[Symbol, ...] | None
) -> None:
    client = connect("c1")
    handle = relay(client, outcomes)
    for number, (to, dest, condition, reason) in enumerate(
        [
            (NOWHERE, None, "amqp:not-found", "AddressNotFound"),
            (NOWHERE, 0, "amqp:not-found", "QueueNotFound"),
            (NOWHERE, 1, "amqp:not-found", "ExchangeNotFound"),
            ("news", 0, "amqp:not-found", "QueueNotFound"),
            ("temporary-queue:gone", 2, "amqp:not-found", "AddressNotFound"),
            (None, None, "amqp:invalid-field", "InvalidAddress"),
            ("$management", None, "amqp:not-allowed", "NotAllowed"),
        ]
    ):
        send(client, handle, number, to, dest=dest)
        told = client.expect(Disposition).state
        assert reason_of(told) == (condition, reason), to
        assert isinstance(told, Rejected) and told.error is not None and told.error.info is not None
        assert told.error.info[Symbol("delivery-tag")] == b"tag-%d" % number
    send(client, handle, 7, "news")
    assert isinstance(client.expect(Disposition).state, Accepted)


def test_the_annotation_counts_less_than_a_prefix(connect: Connections) -> None:
    client = connect("c1")
    handle = relay(client)
    send(client, handle, 0, "topic://news", dest=0)
    assert isinstance(client.expect(Disposition).state, Accepted)


def test_without_the_outcome_rejected_the_link_is_closed_and_names_the_message(connect: Connections) -> None:
    client = connect("c1")
    handle = relay(client, WITHOUT_REJECTED)
    send(client, handle, 0, "news")
    assert isinstance(client.expect(Disposition).state, Accepted)
    send(client, handle, 1, NOWHERE)
    check_closed(client, handle, b"tag-1")


def test_one_that_its_sender_has_settled_closes_the_link(connect: Connections) -> None:
    client = connect("c1")
    handle = relay(client)
    send(client, handle, 0, NOWHERE, settled=True)
    check_closed(client, handle, b"tag-0")
    client.attach_sender("the-session-lives", Target(address="news"))


def check_closed(client: RawClient, handle: int, tag: bytes) -> None:
    while not isinstance(detach := client.receive().performative, Detach):
        assert isinstance(detach, Flow)  # a settlement without an outcome could be taken for success
    assert detach.closed is True
    assert detach.error is not None
    assert detach.error.condition == "amqp:not-found"
    info = detach.error.info or {}
    assert (info[Symbol("delivery-tag")], info[Symbol("penstock:reason")]) == (tag, "AddressNotFound")
    client.send(Detach(handle=handle, closed=True))


def test_replies_go_to_temporary_and_to_plain_addresses(connect: Connections) -> None:
    asking, answering = connect("c1"), connect("c2")
    replies = asking.attach_receiver("replies", Source(dynamic=True))
    asking.flow(asking.last_handle, credit=10)
    assert replies.source is not None
    handle = relay(answering)
    send(answering, handle, 0, replies.source.address, dest=2)
    assert isinstance(answering.expect(Disposition).state, Accepted)
    assert decode_message(asking.expect_transfer()[1]).body == "body 0"
    asking.close()
    send(answering, handle, 1, replies.source.address, dest=2)
    assert reason_of(answering.expect(Disposition).state) == ("amqp:not-found", "AddressNotFound")
