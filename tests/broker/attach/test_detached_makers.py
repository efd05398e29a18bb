"""Dynamic nodes whose link is detached and not closed: the link goes on to exist, and its node with it.

Expected values are typed from AMQP 1.0 part 3, sections 3.5.6 (expiry policies) and 3.5.10 (delete-on-close).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.raw_client import RawClient, symbols
from support.topic_links import Connections

from penstock_amqp.frames.performatives import Attach, Begin, Detach, Disposition, End, Flow, Source, Target, Transfer
from penstock_amqp.messages.message_codec import Message, decode_message, encode_message
from penstock_amqp.types.values import Symbol

POLICIES = [None, "session-end", "connection-close", "never"]
NODE = Source(dynamic=True)


def expiring(policy: str | None) -> Symbol | None:
    return None if policy is None else Symbol(policy)


def make(client: RawClient, name: str, source: Source = NODE, *, channel: int = 0, handle: int | None = None) -> str:
    """Attach a receiver to a node of its own; the node's address."""
    reply = client.attach_receiver(name, source, channel=channel, handle=handle)
    assert reply.source is not None
    assert reply.source.address is not None
    return reply.source.address


def make_target(client: RawClient, name: str, policy: str | None = None) -> str:
    """The same for a sender."""
    reply = client.attach_sender(name, Target(dynamic=True, expiry_policy=expiring(policy)))
    assert isinstance(reply.target, Target)
    assert reply.target.address is not None
    return reply.target.address


def detach(client: RawClient, handle: int, *, closed: bool = False) -> None:
    client.send(Detach(handle=handle, closed=closed))
    while not isinstance(performative := client.receive().performative, Detach):
        assert isinstance(performative, Flow | Disposition)
    assert performative == Detach(handle=performative.handle, closed=closed or None)


def end(client: RawClient, channel: int = 0) -> None:
    client.send(End(), channel)
    while not isinstance(performative := client.receive().performative, End):
        assert isinstance(performative, Flow | Disposition)


def begin(client: RawClient, channel: int) -> None:
    client.send(Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100), channel)
    client.expect(Begin)


def is_there(connect: Connections, address: str, body: str | None = None) -> bool:
    """A sender of another connection finds it, and sends this."""
    client = connect("asks")
    reply: Attach = client.attach_sender("to", Target(address=address))
    if reply.target is None:
        return False
    if body is not None:
        head = Transfer(handle=client.last_handle, delivery_id=0, delivery_tag=b"t")
        client.send(head, payload=encode_message(Message(body=body)))
        assert client.expect(Disposition).settled is True
    client.close()
    return True


@pytest.mark.parametrize("policy", POLICIES)
def test_the_node_of_a_receiver_waits_for_it(connect: Connections, policy: str | None) -> None:
    source = replace(NODE, expiry_policy=expiring(policy))
    owner = connect("c1")
    address = make(owner, "reader", source)
    detach(owner, 0)
    assert is_there(connect, address, "meanwhile")
    assert make(owner, "reader", source) == address
    owner.flow(1, credit=1)
    assert decode_message(owner.expect_transfer()[1]).body == "meanwhile"
    detach(owner, 1, closed=True)
    assert not is_there(connect, address)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_node_of_a_sender_waits_for_it(connect: Connections, policy: str | None) -> None:
    owner = connect("c1")
    address = make_target(owner, "writer", policy)
    detach(owner, 0)
    assert is_there(connect, address)
    assert make_target(owner, "writer", policy) == address
    detach(owner, 1, closed=True)
    assert not is_there(connect, address)


def test_a_topic_waits_too(connect: Connections) -> None:
    source = replace(NODE, capabilities=symbols("temporary-topic"))
    owner = connect("c1")
    address = make(owner, "reader", source)
    detach(owner, 0)
    assert is_there(connect, address)
    assert make(owner, "reader", source) == address
    detach(owner, 1, closed=True)
    assert not is_there(connect, address)


def test_it_waits_for_that_link_alone(connect: Connections) -> None:
    """A link is its name, its direction and its containers (2.6.1)."""
    owner = connect("c1")
    address = make(owner, "link")
    detach(owner, 0)
    assert make(owner, "other") != address
    assert make_target(owner, "link") != address
    assert make(connect("c2"), "link") != address
    detach(owner, 1)
    assert make(owner, "other", replace(NODE, capabilities=symbols("topic"))).startswith("temporary-topic:")
    assert is_there(connect, address)
    assert make(owner, "link") == address


@pytest.mark.parametrize("policy", [None, "session-end"])
@pytest.mark.parametrize("is_attached", [False, True])
def test_it_goes_with_the_session_that_its_link_was_in(
    connect: Connections, policy: str | None, is_attached: bool
) -> None:
    owner = connect("c1")
    begin(owner, 1)
    address = make(owner, "reader", replace(NODE, expiry_policy=expiring(policy)))
    if not is_attached:
        detach(owner, 0)
    end(owner, 1)
    assert is_there(connect, address)
    end(owner)
    assert not is_there(connect, address)


@pytest.mark.parametrize("policy", ["connection-close", "never"])
@pytest.mark.parametrize("is_attached", [False, True])
def test_it_waits_longer_than_its_session_if_its_terminus_does(
    connect: Connections, policy: str, is_attached: bool
) -> None:
    source = replace(NODE, expiry_policy=Symbol(policy))
    owner = connect("c1")
    address = make(owner, "reader", source)
    if not is_attached:
        detach(owner, 0)
    end(owner)
    assert is_there(connect, address)
    begin(owner, 3)
    assert make(owner, "reader", source, channel=3, handle=0) == address
    end(owner, 3)
    assert is_there(connect, address)
    owner.close()
    assert not is_there(connect, address)
