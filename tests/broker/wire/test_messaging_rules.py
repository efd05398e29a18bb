"""The rules of AMQP 1.0 parts 3 and 4 that bind the broker, each on bare frames against a running one. Each docstring
names the section of the specification.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.broker_process import BrokerProcess
from support.encoded_messages import amqp_value, described, fields, mapping, string, symbol
from support.raw_client import RawClient, symbols

from penstock_amqp.frames.frames import encode_frame
from penstock_amqp.frames.performatives import (
    Accepted,
    Attach,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Modified,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
)
from penstock_amqp.types.composites import Composite
from penstock_amqp.types.values import Described, Symbol, UInt, ULong, Value

QUEUE = symbols("queue")
BODY = amqp_value("hello")
FAILED = Modified(delivery_failed=True)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("messaging") / "data") as process:
        yield process


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.port, "messaging") as client:
        client.begin()
        yield client


def queue(name: str, *, default: Composite | None = None, outcomes: tuple[Symbol, ...] | None = None) -> Source:
    return Source(address=name, capabilities=QUEUE, default_outcome=default, outcomes=outcomes)


def credit(client: RawClient, handle: int, given: int, taken: int = 0) -> None:
    """Grant credit on a link of ours on which `taken` deliveries came, the only ones of the session."""
    client.send(
        Flow(
            next_incoming_id=taken,
            incoming_window=100,
            next_outgoing_id=0,
            outgoing_window=100,
            handle=handle,
            delivery_count=taken,
            link_credit=given,
        )
    )


def drained(client: RawClient, handle: int, taken: int) -> None:
    """Nothing more is there for a link of ours."""
    client.send(
        Flow(
            next_incoming_id=taken,
            incoming_window=100,
            next_outgoing_id=0,
            outgoing_window=100,
            handle=handle,
            delivery_count=taken,
            link_credit=1,
            drain=True,
        )
    )
    answer = client.receive().performative
    assert isinstance(answer, Flow) and answer.drain, answer


def put(client: RawClient, name: str, payload: bytes, *, settled: bool = True) -> None:
    """Send one message to a queue over a link of its own, at handle 0."""
    client.attach_sender(f"to-{name}", Target(address=name, capabilities=QUEUE))
    client.expect(Flow)
    client.send(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", settled=settled), payload=payload)


# -- 3.2: messages --------------------------------------------------------------------------------------------------

HEADER = described(0x70, fields(b"\x42", b"\x50\x07", b"\x40", b"\x42", b"\x43"))
ANNOTATIONS = described(0x72, mapping(symbol("x-opt-a"), b"\x54\x01"))
PROPERTIES = described(0x73, fields(string("id"), b"\xa0\x02me", wide=True))
APPLICATION = described(0x74, mapping(string("k"), b"\x56\x01", wide=True))
FOOTER = described(0x78, mapping(symbol("sum"), b"\x80" + bytes(8)))


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(HEADER + ANNOTATIONS + PROPERTIES + APPLICATION + BODY + FOOTER, id="every-section"),
        pytest.param(
            described(0x75, b"\xb0\x00\x00\x00\x02hi") + described(0x75, b"\xa0\x02yo"), id="two-data-sections"
        ),
        pytest.param(
            described(0x76, b"\xd0\x00\x00\x00\x06\x00\x00\x00\x02\x41\x42") + described(0x76, b"\x45"), id="lists"
        ),
        pytest.param(described(0x77, b"\x40"), id="null"),
        pytest.param(b"".join(described(code, b"\x40") for code in (0x72, 0x74)) + BODY, id="null-maps"),
        pytest.param(described(0x77, b"\x00\xa3\x03foo" + string("hi")), id="described-value"),
        pytest.param(b"\x00\x80" + (0x77).to_bytes(8, "big") + string("hi"), id="wide-descriptor"),
        pytest.param(b"\x00" + symbol("amqp:amqp-value:*") + string("hi"), id="symbolic-descriptor"),
    ],
)
def test_a_message_goes_on_byte_by_byte(client: RawClient, message: bytes, request: pytest.FixtureRequest) -> None:
    """3.2: the bare message is immutable; header and footer that nothing changes stay what they are, too."""
    name = f"bare-{request.node.callspec.id}"
    put(client, name, message)
    client.attach_receiver("r", queue(name))
    credit(client, 1, 2)
    assert client.expect_transfer()[1] == message
    client.send(Disposition(role=True, first=0, settled=True, state=Released()))
    assert client.expect_transfer()[1] == message


DATA, SEQUENCE = described(0x75, b"\xa0\x01x"), described(0x76, b"\x45")


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(HEADER + HEADER + BODY, id="two-headers"),
        pytest.param(ANNOTATIONS + ANNOTATIONS + BODY, id="message-annotations-twice"),
        pytest.param(PROPERTIES + PROPERTIES + BODY, id="properties-twice"),
        pytest.param(APPLICATION + APPLICATION + BODY, id="application-properties-twice"),
        pytest.param(BODY + BODY, id="two-values"),
        pytest.param(DATA + SEQUENCE, id="data-and-a-sequence"),
        pytest.param(SEQUENCE + BODY, id="a-sequence-and-a-value"),
        pytest.param(BODY + DATA, id="a-value-and-data"),
        pytest.param(PROPERTIES + HEADER + BODY, id="out-of-order"),
    ],
)
def test_a_message_has_each_section_once_and_one_kind_of_body(client: RawClient, message: bytes) -> None:
    """3.2: zero or one of each, and a body of data sections, of sequences, or of one value."""
    client.attach_sender("to", Target(address="sections", capabilities=QUEUE))
    client.expect(Flow)
    client.send(Transfer(handle=0, delivery_id=0, delivery_tag=b"t"), payload=message)
    state = client.expect(Disposition).state
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == "amqp:decode-error"


def test_delivery_annotations_are_for_the_next_hop_alone(client: RawClient) -> None:
    """3.2.2"""
    put(client, "hop", HEADER + described(0x71, mapping(symbol("x-opt-d"), b"\x54\x01")) + BODY)
    client.attach_receiver("r", queue("hop"))
    credit(client, 1, 1)
    assert client.expect_transfer()[1] == HEADER + BODY


def test_a_message_without_body_is_delivered_again_like_others(client: RawClient) -> None:
    """3.2.2: nothing is left of it but an empty header."""
    put(client, "hollow", described(0x70, b"\x45") + described(0x71, mapping(symbol("x-opt-d"), b"\x54\x01")))
    client.attach_receiver("r", queue("hollow"))
    credit(client, 1, 2)
    assert client.expect_transfer()[1] == described(0x70, b"\x45")
    client.send(Disposition(role=True, first=0, settled=True, state=FAILED))
    expected = described(0x70, fields(b"\x40", b"\x40", b"\x40", b"\x40", b"\x52\x01"))
    assert client.expect_transfer()[1] == expected


def test_a_failed_delivery_counts_and_is_no_first_acquisition_any_more(client: RawClient) -> None:
    """3.2.1: delivery-count, first-acquirer; durable and priority stay."""
    put(client, "again", described(0x70, fields(b"\x41", b"\x50\x09", b"\x40", b"\x41", b"\x43")) + BODY)
    client.attach_receiver("r", queue("again"))
    credit(client, 1, 2)
    client.expect_transfer()
    client.send(Disposition(role=True, first=0, settled=True, state=FAILED))
    expected = described(0x70, fields(b"\x41", b"\x50\x09", b"\x40", b"\x40", b"\x52\x01")) + BODY
    assert client.expect_transfer()[1] == expected


@pytest.mark.parametrize("outcome", [Released(), Modified()], ids=["released", "modified"])
@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param(b"", id="at-once"),
        pytest.param(described(0x72, mapping(symbol("x-opt-delivery-time"), b"\x55\x01")), id="was-delayed"),
    ],
)
def test_what_came_back_is_no_first_acquisition_although_nothing_failed(
    client: RawClient, annotations: bytes, outcome: Composite, request: pytest.FixtureRequest
) -> None:
    """3.2.1: first-acquirer promises that no other link has had the message; the delivery-count stays 0."""
    name = f"first-{request.node.callspec.id}"
    message = described(0x70, fields(b"\x41", b"\x50\x09", b"\x40", b"\x41")) + annotations + BODY
    put(client, name, message)
    client.attach_receiver("r", queue(name))
    credit(client, 1, 2)
    assert client.expect_transfer()[1] == message
    client.send(Disposition(role=True, first=0, settled=True, state=outcome))
    assert client.expect_transfer()[1] == described(0x70, fields(b"\x41", b"\x50\x09")) + annotations + BODY


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(BODY[:-1], id="cut-short"),
        pytest.param(BODY + b"xx", id="bytes-behind"),
        pytest.param(HEADER + string("between") + BODY, id="something-between"),
        pytest.param(HEADER + HEADER + BODY, id="two-headers"),
        pytest.param(PROPERTIES + ANNOTATIONS + BODY, id="out-of-order"),
        pytest.param(b"", id="nothing"),
        pytest.param(described(0x72, b"\x45") + BODY, id="annotations-in-a-list"),
        pytest.param(described(0x72, b"\xc1\x03\x01\xa3\x00") + BODY, id="key-without-value"),
        pytest.param(described(0x74, b"\xd1\x00\x00\x00\x05\x00\x00\x00\x01\x40") + BODY, id="one-item-in-a-long-map"),
        pytest.param(described(0x73, b"\xc1\x01\x00") + BODY, id="properties-in-a-map"),
        pytest.param(described(0x75, string("hello")), id="text-as-data"),
        pytest.param(described(0x76, b"\xc1\x01\x00"), id="sequence-in-a-map"),
        pytest.param(BODY + described(0x78, b"\x45"), id="footer-in-a-list"),
    ],
)
@pytest.mark.parametrize("settled", [False, True])
def test_what_is_no_message_is_refused(client: RawClient, message: bytes, settled: bool) -> None:
    """3.2: rejected; where its sender has settled it, the link is closed and names it. The session goes on."""
    put(client, "malformed", message, settled=settled)
    if settled:
        detach = client.expect(Detach)
        assert detach.closed is True and detach.error is not None
        assert detach.error.condition == "amqp:decode-error"
        assert (detach.error.info or {}).get(Symbol("delivery-tag")) == b"t"
    else:
        state = client.expect(Disposition).state
        assert isinstance(state, Rejected) and state.error is not None
        assert state.error.condition == "amqp:decode-error"
    client.attach_receiver("r", queue("malformed"))
    drained(client, 1, 0)


def test_what_is_sent_before_any_credit_and_closed_behind_is_taken(broker: BrokerProcess) -> None:
    """2.6.7 and 2.4.3: attach, transfer and close in one write. Every answer comes, in order; the message is there."""
    with RawClient(broker.port, "maker") as maker:
        maker.begin()
        maker.attach_receiver("r", queue("hasty"))
        with RawClient(broker.port, "hasty") as hasty:
            attach = Attach(
                name="s",
                handle=0,
                role=False,
                source=Source(),
                target=Target(address="hasty", capabilities=QUEUE),
                initial_delivery_count=0,
            )
            hasty.begin()
            hasty.send_bytes(
                encode_frame(attach)
                + encode_frame(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", settled=True), payload=BODY)
                + encode_frame(Close())
            )
            answers = [type(hasty.receive().performative) for _ in range(3)]
        assert answers == [Attach, Flow, Close]
        credit(maker, 0, 1)
        assert maker.expect_transfer()[1] == BODY


# -- 3.4 and 3.5: outcomes, sources, targets ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("default", "comes_back"),
    [
        pytest.param(None, BODY, id="none"),
        pytest.param(Released(), BODY, id="released"),
        pytest.param(
            FAILED, described(0x70, fields(b"\x40", b"\x40", b"\x40", b"\x40", b"\x52\x01")) + BODY, id="failed"
        ),
        pytest.param(Accepted(), None, id="accepted"),
        pytest.param(Rejected(), None, id="rejected"),
    ],
)
@pytest.mark.parametrize("state", [None, Received(section_number=0, section_offset=0)], ids=["no-state", "received"])
def test_what_is_settled_without_an_outcome_gets_the_default_one(
    client: RawClient,
    default: Composite | None,
    comes_back: bytes | None,
    state: Composite | None,
    request: pytest.FixtureRequest,
) -> None:
    """3.5.3 (default-outcome); the reply says which one holds."""
    name = f"default-{request.node.callspec.id}"
    put(client, name, BODY)
    reply = client.attach_receiver("r", queue(name, default=default))
    assert reply.source is not None and reply.source.default_outcome == default
    credit(client, 1, 1)
    client.expect_transfer()
    client.send(Disposition(role=True, first=0, settled=True, state=state))
    if comes_back is None:
        drained(client, 1, 1)
    else:
        credit(client, 1, 1, taken=1)
        assert client.expect_transfer()[1] == comes_back


@pytest.mark.parametrize("mode", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize("durable", [False, True], ids=["volatile", "durable"])
def test_what_is_accepted_and_not_settled_is_settled_by_us_at_once(client: RawClient, mode: int, durable: bool) -> None:
    """Part 2, 2.6.12: a receiver may wait for it, whatever the settle mode, and says nothing more until then."""
    name = f"kept-{mode}-{durable}"
    put(client, name, (described(0x70, fields(b"\x41")) if durable else b"") + BODY)
    client.send(Attach(name="r", handle=1, role=True, rcv_settle_mode=mode, source=queue(name), target=Target()))
    assert client.expect(Attach).rcv_settle_mode == mode
    credit(client, 1, 1)
    number = client.expect_transfer()[0].delivery_id
    client.send(Disposition(role=True, first=number or 0, state=Accepted()))
    told = client.expect(Disposition)
    assert (told.role, told.first, told.settled, told.state) == (False, number, True, Accepted())
    drained(client, 1, 1)


def test_the_reply_names_the_outcomes_of_the_source(client: RawClient) -> None:
    """3.5.3 (outcomes)"""
    reply = client.attach_receiver("r", queue("outcomes", outcomes=symbols("amqp:accepted:list")))
    assert reply.source is not None
    assert reply.source.outcomes == symbols(
        "amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list"
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [("lifetime-policy", UInt(5)), ("lifetime-policy", Described(ULong(0x77), [])), ("supported-dist-modes", UInt(0))],
    ids=["lifetime-is-a-number", "lifetime-is-of-another-type", "modes-are-a-number"],
)
@pytest.mark.parametrize("is_source", [True, False])
def test_properties_of_a_dynamic_node_have_their_types(
    client: RawClient, key: str, value: Value, is_source: bool
) -> None:
    """3.5.9"""
    properties = {Symbol(key): value}
    if is_source:
        reply = client.attach_receiver("l", Source(dynamic=True, dynamic_node_properties=properties))
        assert reply.source is None
    else:
        reply = client.attach_sender("l", Target(dynamic=True, dynamic_node_properties=properties))
        assert reply.target is None
    detach = client.expect(Detach)
    assert detach.closed is True and detach.error is not None
    assert detach.error.condition == "amqp:invalid-field"


@pytest.mark.parametrize("durable", [3, 2**31 - 1, 2**31, 2**32 - 1])
def test_a_durability_that_amqp_does_not_have_is_not_in_the_reply(client: RawClient, durable: int) -> None:
    """The numbers are 0, 1 and 2 (part 3, 3.5.5); the link is attached, as one with an unknown expiry policy is."""
    reply = client.attach_sender(
        f"to-{durable}",
        Target(address="durability", durable=UInt(durable)),
        source=Source(address="mine", durable=UInt(durable)),
    )
    assert isinstance(reply.target, Target)
    assert (reply.target.address, reply.target.durable or 0) == ("durability", 0)
    assert reply.source is not None
    assert not reply.source.durable


def test_an_echo_tells_how_many_messages_wait(client: RawClient) -> None:
    """2.6.7 (available): what waits behind the messages that the credit of the asking flow brought."""
    put(client, "available", BODY)
    for number in range(1, 5):
        client.send(Transfer(handle=0, delivery_id=number, delivery_tag=b"t", settled=True), payload=BODY)
    client.attach_receiver("r", queue("available"))
    client.flow(client.last_handle, credit=0, echo=True)
    assert client.expect(Flow).available == 5
    client.flow(client.last_handle, credit=2, echo=True)
    assert [client.expect_transfer()[0].delivery_id for _ in range(2)] == [0, 1]
    assert client.expect(Flow).available == 3


@pytest.mark.parametrize(
    "source",
    [
        Source(address="unsaid", capabilities=QUEUE, filter={Symbol("s"): Described(ULong(0x468C00000004), "a = 1")}),
        Source(address="unsaid", capabilities=QUEUE, distribution_mode=Symbol("copy")),
    ],
    ids=["selector", "browser"],
)
def test_an_echo_leaves_out_what_it_would_have_to_search_for(client: RawClient, source: Source) -> None:
    """2.6.7: available may be null."""
    put(client, "unsaid", BODY)
    client.attach_receiver("r", source)
    client.flow(client.last_handle, credit=0, echo=True)
    assert client.expect(Flow).available is None


def test_filters_that_nobody_knows_are_not_in_the_reply(client: RawClient) -> None:
    """3.5.8: the reply has the filters in place, and the receiver looks at it."""
    asked: dict[Symbol, Value] = {
        Symbol("mine"): Described(ULong(0x0000468C00000004), "colour = 'red'"),
        Symbol("odd"): Described(Symbol("nobody:knows:string"), "x"),
    }
    reply = client.attach_receiver("r", Source(address="filtered", capabilities=QUEUE, filter=asked))
    assert reply.source is not None
    assert list(reply.source.filter or {}) == ["mine"]


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(Source(address="spelled", capabilities=QUEUE), id="queue"),
        pytest.param(Source(address="amq.topic", durable=2, expiry_policy=Symbol("never")), id="subscription"),
    ],
)
def test_a_selector_comes_back_as_the_client_spells_it(client: RawClient, source: Source) -> None:
    """3.5.8: a client may compare what is in place with what it asked for."""
    for name, text in (("a", "colour='red' and size>3"), ("b", "colour = 'red'  AND (size > 3)")):
        asked: dict[Symbol, Value] = {Symbol(name): Described(Symbol("apache.org:selector-filter:string"), text)}
        shared = symbols("shared") if source.durable else ()
        capabilities = (*(source.capabilities or ()), *shared)
        reply = client.attach_receiver(f"s|{name}", replace(source, filter=asked, capabilities=capabilities))
        assert reply.source is not None
        assert reply.source.filter == asked


def test_a_selector_that_is_not_in_place_does_not_come_back(client: RawClient) -> None:
    """3.5.8 and the attach table: a lookup tells what is there."""
    there: dict[Symbol, Value] = {Symbol("mine"): Described(ULong(0x468C00000004), "a=1")}
    source = Source(address="amq.topic", durable=2, expiry_policy=Symbol("never"), capabilities=symbols("shared"))
    client.attach_receiver("looked-up|1", replace(source, filter=there))
    reply = client.attach_receiver("looked-up", None)
    assert reply.source is not None
    assert reply.source.filter == {Symbol("jms-selector"): Described(ULong(0x468C00000004), "a = 1")}


# -- 4: transactions ------------------------------------------------------------------------------------------------


def test_messages_are_not_acquired_within_a_transaction_that_is_not_there(client: RawClient) -> None:
    """4.4.3, 4.5.8: the connection has no coordinator link; the session goes on."""
    client.attach_receiver("r", queue("acquired"))
    client.send(
        Flow(
            next_incoming_id=0,
            incoming_window=100,
            next_outgoing_id=0,
            outgoing_window=100,
            handle=0,
            delivery_count=0,
            link_credit=5,
            properties={Symbol("txn-id"): b"t"},
        )
    )
    detach = client.expect(Detach)
    assert detach.closed is True and detach.error is not None
    assert detach.error.condition == "amqp:transaction:unknown-id"
    client.send(End())
    assert client.expect(End).error is None
