"""The endpoint against proton's own client, engine to engine through memory."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import Data, Delivery, Endpoint, Link, Terminus, symbol
from support.engine_pair import EnginePair

from penstock_amqp.endpoint.events import (
    AcceptedUnsettled,
    AmqpError,
    Arrival,
    Attached,
    ConnectionClosed,
    Detached,
    Entry,
    EventKind,
    Flowed,
    Opened,
    Outcome,
    SessionEnded,
    Settled,
    TooLarge,
)
from penstock_amqp.endpoint.events import Event as EndpointEvent
from penstock_amqp.frames.performatives import Source, Target
from penstock_amqp.types.values import Symbol


@pytest.fixture
def pair() -> Iterator[EnginePair]:
    pair = EnginePair()
    yield pair
    pair.close()


def entries(*bodies: bytes) -> list[Entry]:
    return [(number, body, 0, 0, 0) for number, body in enumerate(bodies, 1)]


def arrivals(events: list[EndpointEvent]) -> list[Arrival]:
    return [arrival for event in events if event[0] is EventKind.MESSAGES for arrival in event[2]]


def received(link: Link) -> list[bytes]:
    """Take every whole message that the client's receiver holds."""
    bodies: list[bytes] = []
    while (delivery := link.current) is not None and delivery.readable and not delivery.partial:
        bodies.append(link.recv(delivery.pending) or b"")
        link.advance()
    return bodies


def test_an_open_tells_container_and_desired_capabilities(pair: EnginePair) -> None:
    pair.connection.desired_capabilities = [symbol("SHARED-SUBS"), symbol("sole-connection-for-container")]
    pair.connection.properties = {symbol("product"): "test"}
    pair.connection.hostname = "example"
    pair.connection.open()
    pair.exchange()
    assert pair.others() == [
        Opened(
            container_id="client-1",
            hostname="example",
            desired=frozenset({"SHARED-SUBS", "sole-connection-for-container"}),
            properties={"product": "test"},
        )
    ]


def test_an_open_reply_offers_and_describes(pair: EnginePair) -> None:
    pair.open()
    assert pair.connection.remote_container == "broker"
    assert list(pair.connection.remote_offered_capabilities or ()) == ["SHARED-SUBS"]
    assert pair.connection.remote_properties == {"product": "Penstock"}


def test_a_refused_open_announces_failure_and_closes_with_the_error(pair: EnginePair) -> None:
    pair.connection.open()
    pair.exchange()
    pair.endpoint.refuse_open("broker", AmqpError("amqp:invalid-field", "taken", {"invalid-field": "container-id"}))
    pair.exchange()
    assert pair.connection.remote_properties == {"amqp:connection-establishment-failed": True}
    condition = pair.connection.remote_condition
    assert condition is not None
    assert (condition.name, condition.description) == ("amqp:invalid-field", "taken")
    assert condition.info == {"invalid-field": "container-id"}


def test_an_attach_carries_what_the_engine_hides(pair: EnginePair) -> None:
    session = pair.open()
    receiver = session.receiver("sub|global")
    receiver.source.address = "x"
    receiver.source.durability = Terminus.DELIVERIES
    receiver.source.expiry_policy = Terminus.EXPIRE_NEVER
    receiver.source.capabilities.put_array(False, Data.SYMBOL)
    receiver.source.capabilities.enter()
    receiver.source.capabilities.put_symbol(symbol("shared"))
    receiver.source.capabilities.exit()
    receiver.open()
    pair.exchange()
    attach = pair.attached().attach
    assert (attach.name, attach.role) == ("sub|global", True)
    assert attach.source == Source(
        address="x",
        durable=2,
        expiry_policy=Symbol("never"),
        timeout=0,
        dynamic=False,
        capabilities=(Symbol("shared"),),
    )


def test_a_reply_tells_source_and_offers_on_the_link(pair: EnginePair) -> None:
    session = pair.open()
    receiver = session.receiver("sub")
    receiver.open()
    pair.exchange()
    source = Source(
        address="orders/a",
        durable=1,
        expiry_policy=Symbol("never"),
        distribution_mode=Symbol("move"),
        filter={Symbol("jms-selector"): "x"},
        outcomes=(Symbol("amqp:accepted:list"),),
        capabilities=(Symbol("topic"), Symbol("shared")),
    )
    pair.endpoint.attach_reply(pair.attached().link, source=source, target=Target(), offered=("SHARED-SUBS",))
    assert pair.endpoint.changes.are_pending
    raw = pair.endpoint.rewritten_output()
    assert b"\xa3\x0bSHARED-SUBS" in raw
    assert not pair.endpoint.changes.are_pending
    pair.push(raw)
    remote = receiver.remote_source
    assert (remote.address, remote.durability, remote.distribution_mode) == (
        "orders/a",
        Terminus.CONFIGURATION,
        Terminus.DIST_MODE_MOVE,
    )
    assert remote.expiry_policy == Terminus.EXPIRE_NEVER
    remote.capabilities.rewind()
    remote.capabilities.next()
    assert str(remote.capabilities.get_object()) == str(array_of_symbols("topic", "shared"))


def array_of_symbols(*names: str) -> object:
    data = Data()
    data.put_array(False, Data.SYMBOL)
    data.enter()
    for name in names:
        data.put_symbol(symbol(name))
    data.exit()
    data.rewind()
    data.next()
    return data.get_object()


def test_a_refused_attach_has_a_null_source_and_a_closing_detach(pair: EnginePair) -> None:
    session = pair.open()
    receiver = session.receiver("sub")
    receiver.source.address = "nowhere"
    receiver.open()
    pair.exchange()
    link = pair.attached().link
    pair.endpoint.refuse_attach(link, AmqpError("amqp:not-found", "gone", {"penstock:reason": "ExchangeNotFound"}))
    pair.exchange()
    assert receiver.remote_source.type == Terminus.UNSPECIFIED
    assert receiver.state & Endpoint.REMOTE_CLOSED
    condition = receiver.remote_condition
    assert condition is not None
    assert (condition.name, condition.info) == ("amqp:not-found", {"penstock:reason": "ExchangeNotFound"})
    assert not link.is_open


def test_a_description_that_does_not_fit_a_frame_of_the_peer_is_cut_short(pair: EnginePair) -> None:
    """AMQP 1.0 part 2, 2.7.1: the client closes the connection for a frame beyond its 512 bytes."""
    pair.transport.max_frame_size = 512
    session = pair.open()
    receiver, link = pair.attach_receiver(session)
    pair.endpoint.detach(link, closed=True, error=AmqpError("amqp:not-found", "é" * 600))
    pair.exchange()
    condition = receiver.remote_condition
    assert condition is not None
    # 512 less 128 for the frame around it, less 14 of the condition, in characters of two bytes
    assert (condition.name, condition.description) == ("amqp:not-found", "é" * 185)


def test_messages_come_in_one_batch_and_are_accepted(pair: EnginePair) -> None:
    session = pair.open()
    sender, link = pair.attach_sender(session)
    deliveries = []
    for number in range(3):
        deliveries.append(sender.delivery(f"t{number}"))
        sender.stream(b"message %d" % number)
        sender.advance()
    (event,) = pair.exchange()
    assert event[0] is EventKind.MESSAGES
    assert event[1] is link
    assert [(data, settled) for _, data, settled in event[2]] == [
        (b"message 0", False),
        (b"message 1", False),
        (b"message 2", False),
    ]
    pair.endpoint.accept([delivery for delivery, _, _ in event[2]])
    pair.exchange()
    assert [(each.remote_state, each.settled) for each in deliveries] == [(Delivery.ACCEPTED, True)] * 3


def test_a_message_the_sender_settled_says_so(pair: EnginePair) -> None:
    session = pair.open()
    sender, _ = pair.attach_sender(session)
    sender.delivery("t").settle()
    delivery = sender.delivery("u")
    sender.stream(b"body")
    delivery.settle()
    pair.exchange()
    assert arrivals(pair.events)[-1][2] is True


def test_a_rejected_message_tells_why(pair: EnginePair) -> None:
    session = pair.open()
    sender, _ = pair.attach_sender(session)
    delivery = sender.delivery("t")
    sender.stream(b"x")
    sender.advance()
    pair.exchange()
    pair.endpoint.reject([arrivals(pair.events)[0][0]], AmqpError("amqp:resource-limit-exceeded", "full"))
    pair.exchange()
    assert delivery.remote_state == Delivery.REJECTED
    condition = delivery.remote.condition
    assert condition is not None
    assert condition.name == "amqp:resource-limit-exceeded"


@pytest.mark.parametrize("chunk", [1, 7, 4096, 1 << 30])
def test_a_message_of_many_frames_arrives_whole_however_it_is_cut(chunk: int) -> None:
    pair = EnginePair(max_message_bytes=400_000)
    session = pair.open()
    sender, _ = pair.attach_sender(session)
    body = bytes(range(256)) * 1200  # 307,200 bytes in frames of 64 KiB
    sender.delivery("t")
    sender.stream(body)
    sender.advance()
    sender.delivery("u")
    sender.stream(b"behind")
    sender.advance()
    pair.exchange(chunk=chunk)
    assert [data for _, data, _ in arrivals(pair.events)] == [body, b"behind"]
    pair.close()


def test_a_message_beyond_the_maximum_is_reported_once(pair: EnginePair) -> None:
    session = pair.open()
    sender, link = pair.attach_sender(session)
    link.max_bytes = 100_000
    sender.delivery("t")
    sender.stream(b"x" * 300_000)
    sender.advance()
    pair.exchange()
    assert pair.others() == [TooLarge(link)]
    assert arrivals(pair.events) == []


def test_an_aborted_message_is_forgotten(pair: EnginePair) -> None:
    session = pair.open()
    sender, _ = pair.attach_sender(session)
    delivery = sender.delivery("t")
    sender.stream(b"x" * 100_000)
    pair.exchange()
    delivery.abort()
    sender.delivery("u")
    sender.stream(b"whole")
    sender.advance()
    pair.exchange()
    assert [data for _, data, _ in arrivals(pair.events)] == [b"whole"]


def test_messages_go_out_and_accepts_come_back_in_one_batch(pair: EnginePair) -> None:
    session = pair.open()
    receiver, link = pair.attach_receiver(session)
    sent = entries(b"one", b"two", b"three")
    pair.endpoint.send(link, sent, 77)
    pair.exchange()
    deliveries = []
    while (delivery := receiver.current) is not None:
        deliveries.append((delivery, receiver.recv(delivery.pending)))
        receiver.advance()
    assert [body for _, body in deliveries] == [b"one", b"two", b"three"]
    assert len(pair.endpoint.unsettled.held_by(link)) == 3
    for delivery, _ in deliveries:
        delivery.update(Delivery.ACCEPTED)
        delivery.settle()
    pair.exchange()
    batches = [event[2] for event in pair.events if event[0] is EventKind.ACCEPTED]
    assert batches == [[(link, entry, 77) for entry in sent]]
    assert pair.endpoint.unsettled.held_by(link) == []


def test_settled_sends_are_not_heard_of_again(pair: EnginePair) -> None:
    session = pair.open()
    receiver, link = pair.attach_receiver(session)
    link.presettled = True
    pair.endpoint.send(link, entries(b"one"), 0)
    pair.exchange()
    assert received(receiver) == [b"one"]
    assert pair.endpoint.unsettled.held_by(link) == []


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        pytest.param(Delivery.RELEASED, Outcome.RELEASED, id="released"),
        pytest.param(Delivery.REJECTED, Outcome.REJECTED, id="rejected"),
        pytest.param(0, Outcome.NONE, id="settled without outcome"),
    ],
)
def test_other_outcomes_come_one_by_one(pair: EnginePair, state: int, outcome: Outcome) -> None:
    session = pair.open()
    receiver, link = pair.attach_receiver(session)
    pair.endpoint.send(link, entries(b"one"), 0)
    pair.exchange()
    delivery = receiver.current
    assert delivery is not None
    receiver.recv(delivery.pending)
    receiver.advance()
    if state:
        delivery.update(state)
    delivery.settle()
    pair.exchange()
    (event,) = pair.others()
    assert isinstance(event, Settled)
    assert (event.outcome, event.held[1][1]) == (outcome, b"one")


def test_modified_tells_failure_and_undeliverable_here(pair: EnginePair) -> None:
    session = pair.open()
    receiver, link = pair.attach_receiver(session)
    pair.endpoint.send(link, entries(b"one"), 0)
    pair.exchange()
    delivery = receiver.current
    assert delivery is not None
    receiver.recv(delivery.pending)
    receiver.advance()
    delivery.local.failed = True
    delivery.local.undeliverable = True
    delivery.update(Delivery.MODIFIED)
    delivery.settle()
    pair.exchange()
    (event,) = pair.others()
    assert isinstance(event, Settled)
    assert (event.outcome, event.failed, event.undeliverable_here) == (Outcome.MODIFIED, True, True)


def test_an_accept_that_is_not_settled_is_settled_by_us(pair: EnginePair) -> None:
    """Whatever the settle mode of its link: the receiver may wait for our settlement (part 2, 2.6.12)."""
    session = pair.open()
    receiver, link = pair.attach_receiver(session)
    pair.endpoint.send(link, entries(b"one"), 0)
    pair.exchange()
    delivery = receiver.current
    assert delivery is not None
    receiver.recv(delivery.pending)
    receiver.advance()
    delivery.update(Delivery.ACCEPTED)
    pair.exchange()
    (event,) = pair.others()
    assert isinstance(event, AcceptedUnsettled)
    assert event.held[1][1] == b"one"
    assert not delivery.settled
    pair.endpoint.unsettled.confirm(event)
    pair.exchange()
    assert delivery.settled


def test_a_flow_tells_credit_and_drain(pair: EnginePair) -> None:
    session = pair.open()
    receiver, link = pair.attach_receiver(session, credit=10)
    assert link.credit == 10
    receiver.drain(5)
    pair.exchange()
    assert Flowed(link) in pair.records()
    assert (link.credit, link.drain) == (15, True)
    pair.endpoint.drained(link)
    pair.exchange()
    assert (receiver.credit, link.credit, link.drain) == (0, 0, False)


def test_a_detach_is_told_with_its_kind_and_answered(pair: EnginePair) -> None:
    session = pair.open()
    receiver, link = pair.attach_receiver(session)
    receiver.detach()
    pair.exchange()
    assert pair.others() == [Detached(link, False, None)]
    pair.endpoint.detach(link, closed=False)
    pair.exchange()
    other, second = pair.attach_receiver(session, "other")
    other.close()
    pair.exchange()
    assert pair.others() == [Detached(second, True, None)]
    pair.endpoint.detach(second, closed=True, error=AmqpError("amqp:resource-locked"))
    pair.exchange()
    condition = other.remote_condition
    assert condition is not None
    assert condition.name == "amqp:resource-locked"


def test_a_detached_link_can_be_attached_again(pair: EnginePair) -> None:
    session = pair.open()
    receiver, link = pair.attach_receiver(session)
    receiver.close()
    pair.exchange()
    pair.endpoint.detach(link, closed=True)
    pair.exchange()
    receiver.free()
    again, second = pair.attach_receiver(session)
    pair.endpoint.send(second, entries(b"one"), 0)
    pair.exchange()
    assert received(again) == [b"one"]


def test_messages_for_a_link_that_we_closed_are_thrown_away(pair: EnginePair) -> None:
    session = pair.open()
    sender, link = pair.attach_sender(session)
    pair.endpoint.detach(link, closed=True)
    sender.delivery("t")
    sender.stream(b"late")
    sender.advance()
    pair.exchange()
    assert pair.events == []
    _, second = pair.attach_sender(session, "second")
    assert second.is_open


def test_the_end_of_a_session_returns_what_its_links_held(pair: EnginePair) -> None:
    session = pair.open()
    _, link = pair.attach_receiver(session)
    pair.endpoint.send(link, entries(b"one", b"two"), 5)
    pair.exchange()
    session.close()
    pair.exchange()
    (event,) = pair.others()
    assert isinstance(event, SessionEnded)
    assert event.session.links == [link]
    assert [held[1][1] for held in pair.endpoint.unsettled.all_held()] == [b"one", b"two"]
    pair.endpoint.end(event.session)
    assert not link.is_open
    assert pair.endpoint.engine.unsettled == {}
    assert pair.endpoint.all_links() == ()


def test_a_close_is_told_and_answered(pair: EnginePair) -> None:
    pair.open()
    pair.connection.close()
    pair.exchange()
    assert pair.others() == [ConnectionClosed(None)]
    pair.endpoint.close(None)
    pair.exchange()
    assert pair.connection.state & Endpoint.REMOTE_CLOSED


def test_rubbish_closes_the_connection(pair: EnginePair) -> None:
    pair.open()
    pair.events = []
    pair.endpoint.receive_bytes(b"\x00\x00\x00\x0c\x02\x00\x00\x00rubb", pair.events)
    (event,) = pair.others()
    assert isinstance(event, ConnectionClosed)
    assert event.error is not None
    assert pair.endpoint.closed


def test_a_performative_by_its_symbol_closes_with_an_error(pair: EnginePair) -> None:
    """The engine gives up on it without a condition of its own."""
    pair.open()
    pair.events = []
    symbol_begin = b"\x00\xa3\x0famqp:begin:list\xc0\x01\x00"
    frame = (8 + len(symbol_begin)).to_bytes(4, "big") + b"\x02\x00\x00\x05" + symbol_begin
    pair.endpoint.receive_bytes(frame, pair.events)
    (event,) = pair.others()
    assert isinstance(event, ConnectionClosed)
    assert event.error is not None


def test_silence_is_noticed_and_told(pair: EnginePair) -> None:
    pair.open()
    events: list[EndpointEvent] = []
    due = pair.endpoint.tick(1_000, events)
    assert due == 61_000
    assert events == []
    pair.endpoint.tick(61_001, events)
    (event,) = events
    assert event[0] is EventKind.OTHER
    assert isinstance(event[2], ConnectionClosed)
    assert event[2].error is not None
    assert event[2].error.condition == "amqp:resource-limit-exceeded"


def test_many_links_attach_in_one_chunk(pair: EnginePair) -> None:
    session = pair.open()
    for number in range(50):
        receiver = session.receiver(f"link-{number}")
        receiver.source.address = f"address-{number}"
        receiver.open()
    pair.exchange()
    attached = [event for event in pair.others() if isinstance(event, Attached)]
    assert [(event.attach.name, event.attach.source and event.attach.source.address) for event in attached] == [
        (f"link-{number}", f"address-{number}") for number in range(50)
    ]
