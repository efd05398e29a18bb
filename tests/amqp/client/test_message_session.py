"""The session that sends or receives plain messages, against frames put together by hand."""

from __future__ import annotations

import pytest

from penstock_amqp.client.connection import Ended, Ready
from penstock_amqp.client.errors import TransportError
from penstock_amqp.client.message_session import Arrived, MessageSession, Sender, Settled, Subscriber
from penstock_amqp.frames.frames import AMQP_HEADER, FrameReader, encode_frame, read_body
from penstock_amqp.frames.performatives import (
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    Error,
    Flow,
    Modified,
    Open,
    Performative,
    Rejected,
    Source,
    Target,
    Transfer,
)
from penstock_amqp.types.composites import Composite
from penstock_amqp.types.values import Symbol

BEGUN = (
    Open(container_id="broker"),
    Begin(remote_channel=0, next_outgoing_id=0, incoming_window=100, outgoing_window=100),
)
SENDS = Attach(name="c", handle=0, role=True, source=Source(), target=Target(address="letters"))
RECEIVES = Attach(
    name="c", handle=5, role=False, source=Source(address="letters"), target=Target(), initial_delivery_count=0
)


def frames(*bodies: Composite) -> bytes:
    return b"".join(encode_frame(body) for body in bodies)


def begun(link: Sender | Subscriber, attach: Attach) -> MessageSession:
    session = MessageSession(link, "c")
    session.output()
    assert session.feed(AMQP_HEADER + frames(*BEGUN, attach)) == [Ready(None)]
    return session


def sent(session: MessageSession) -> list[Performative]:
    found = FrameReader(1 << 20).feed(session.output().removeprefix(AMQP_HEADER))
    return [read_body(frame.body, Performative)[0] for frame in found if frame.body]


def flow(credit: int, handle: int) -> Flow:
    return Flow(
        next_incoming_id=0,
        incoming_window=100,
        next_outgoing_id=0,
        outgoing_window=100,
        handle=handle,
        delivery_count=0,
        link_credit=credit,
    )


def settled(number: int, state: Composite | None) -> bytes:
    return frames(Disposition(role=True, first=number, settled=True, state=state))


def test_a_message_waits_for_credit_and_is_answered_for() -> None:
    session = begun(Sender("letters"), SENDS)
    numbers = [session.send(b"one"), session.send(b"two"), session.send(b"three")]
    assert sent(session) == []
    assert session.feed(frames(flow(3, 0))) == []
    assert [type(each) for each in sent(session)] == [Transfer, Transfer, Transfer]
    assert session.feed(settled(0, Accepted())) == [Settled(numbers[0], None)]
    (rejected,) = session.feed(settled(1, Rejected(error=Error(condition=Symbol("amqp:not-allowed")))))
    (unknown,) = session.feed(settled(2, None))
    assert isinstance(rejected, Settled)
    assert isinstance(unknown, Settled)
    assert (rejected.number, str(rejected.refusal)) == (
        numbers[1],
        "the broker rejected the request: no description (amqp:not-allowed)",
    )
    assert (unknown.number, str(unknown.refusal)) == (
        numbers[2],
        "the broker rejected the request: it was not taken, without a reason (no outcome)",
    )


def test_a_message_that_is_given_back_was_not_taken() -> None:
    session = begun(Sender("letters"), SENDS)
    session.send(b"one")
    session.feed(frames(flow(1, 0)))
    (back,) = session.feed(settled(0, Modified()))
    assert isinstance(back, Settled)
    assert back.refusal is not None
    assert back.refusal.condition == "modified"


def test_nothing_comes_before_it_is_asked_for_and_nothing_is_accepted_by_itself() -> None:
    session = begun(Subscriber(address="letters"), RECEIVES)
    assert sent(session) == []
    session.ask_for(3)
    (granted,) = sent(session)
    assert isinstance(granted, Flow)
    assert (granted.link_credit, granted.delivery_count, granted.handle) == (3, 0, 1)
    data = b"".join(
        encode_frame(Transfer(handle=5, delivery_id=number, delivery_tag=b"t"), payload=payload)
        for number, payload in enumerate((b"one", b"two"))
    )
    first, second = session.feed(data)
    assert isinstance(first, Arrived)
    assert isinstance(second, Arrived)
    assert (first.encoded, second.encoded) == (b"one", b"two")
    assert sent(session) == []
    session.accept(second.number)
    assert sent(session) == [Disposition(role=True, first=0, last=1, settled=True, state=Accepted())]


def test_what_came_behind_an_accepted_message_is_not_accepted() -> None:
    session = begun(Subscriber(address="letters"), RECEIVES)
    settled_before = Transfer(handle=5, delivery_id=1, delivery_tag=b"t", settled=True)
    first, settled_already, third = session.feed(
        encode_frame(Transfer(handle=5, delivery_id=0, delivery_tag=b"t"), payload=b"one")
        + encode_frame(settled_before, payload=b"two")
        + encode_frame(Transfer(handle=5, delivery_id=2, delivery_tag=b"t"), payload=b"three")
    )
    assert isinstance(first, Arrived)
    assert isinstance(settled_already, Arrived)
    assert isinstance(third, Arrived)
    sent(session)
    session.accept(first.number)
    assert sent(session) == [Disposition(role=True, first=0, last=0, settled=True, state=Accepted())]
    session.accept(settled_already.number)
    assert sent(session) == []
    session.accept(third.number)
    assert sent(session) == [Disposition(role=True, first=2, last=2, settled=True, state=Accepted())]


def test_the_link_of_a_subscription_has_its_name_up_to_the_bar() -> None:
    session = MessageSession(Subscriber(address="orders/eu.#", subscription="audit"), "c")
    _, _, attach = sent(session)
    assert isinstance(attach, Attach)
    assert attach.name == "audit|c"
    assert attach.source is not None
    assert (attach.source.address, attach.source.durable, attach.source.capabilities) == (
        "orders/eu.#",
        2,
        ("topic", "shared", "global"),
    )


def test_a_refused_link_ends_everything_with_the_broker_s_reason() -> None:
    session = MessageSession(Sender("nowhere"), "c")
    session.output()
    refusal = Detach(handle=0, closed=True, error=Error(condition=Symbol("amqp:not-found"), description="no such node"))
    refused = Attach(name="c", handle=0, role=True, source=Source(), target=None)
    (ended,) = session.feed(AMQP_HEADER + frames(*BEGUN, refused, refusal))
    assert isinstance(ended, Ended)
    assert str(ended.error) == "the broker detached a link of ours: no such node (amqp:not-found)"
    with pytest.raises(TransportError, match="has ended"):
        session.send(b"late")
