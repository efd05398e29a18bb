"""Fields of an attach that the broker can't do as the peer wants, on bare frames against a running broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from support.broker_process import BrokerProcess
from support.raw_client import RawClient, symbols

from penstock_amqp.frames.frames import frame_of
from penstock_amqp.frames.performatives import (
    Accepted,
    Attach,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Source,
    Target,
    Transfer,
)
from penstock_amqp.messages.message_codec import Message, encode_message
from penstock_amqp.types.composites import to_value
from penstock_amqp.types.encoder import encode
from penstock_amqp.types.values import Array, Described, Symbol, UInt, ULong, UShort, Value

HELLO = encode_message(Message(body="hello"))
QUEUE = symbols("queue")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("fields") / "data") as process:
        yield process


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.port, "fields") as client:
        client.begin()
        yield client


@pytest.mark.parametrize("role", [True, False])
@pytest.mark.parametrize(("sender", "receiver"), [(3, 0), (255, 0), (0, 2), (0, 255)])
def test_a_settle_mode_that_does_not_exist_ends_the_session(
    client: RawClient, role: bool, sender: int, receiver: int
) -> None:
    """2.8.2 and 2.8.3: the answer can't have it either."""
    attach = Attach(
        name="odd",
        handle=0,
        role=role,
        snd_settle_mode=sender,
        rcv_settle_mode=receiver,
        source=Source(address="odd"),
        target=Target(address="odd"),
        initial_delivery_count=None if role else 0,
    )
    client.send(attach)
    for error in (client.expect(End).error, client.expect(Close).error):
        assert error is not None
        assert error.condition == "amqp:invalid-field"
        assert error.description is not None
        assert error.description.startswith("There is no ")


def test_who_tells_a_part_of_what_is_unsettled_is_sent_nothing_new(client: RawClient) -> None:
    """2.7.3 (incomplete-unsettled): only deliveries that are resumed may be sent, and none is."""
    client.attach_sender("to", Target(address="resumed", capabilities=QUEUE))
    client.send(Transfer(handle=0, delivery_id=0, delivery_tag=b"t"), payload=HELLO)
    assert client.expect(Disposition).settled is True
    attach = Attach(
        name="from",
        handle=1,
        role=True,
        source=Source(address="resumed", capabilities=QUEUE),
        target=Target(),
        unsettled={b"tag": None},
        incomplete_unsettled=True,
    )
    client.send(attach)
    assert client.expect(Attach).source is None
    closed = client.expect(Detach)
    assert closed.closed is True
    assert closed.error is not None
    assert closed.error.condition == "amqp:not-implemented"
    client.attach_receiver("again", Source(address="resumed", capabilities=QUEUE), handle=2)
    client.send(Flow(next_incoming_id=0, incoming_window=10, next_outgoing_id=1, outgoing_window=10,
                     handle=2, delivery_count=0, link_credit=1))  # fmt: skip
    assert client.expect_transfer()[1] == HELLO


@pytest.mark.parametrize(
    ("address", "asked", "true"),
    [
        ("a-queue", ("queue",), ("queue",)),
        ("a-topic", ("topic", "x-flies"), ("topic",)),
        (None, ("x-flies", "queue"), ()),
        ("$management", ("x-flies",), ()),
    ],
)
def test_the_target_of_a_producer_has_the_capabilities_that_are_in_force(
    client: RawClient, address: str | None, asked: tuple[str, ...], true: tuple[str, ...]
) -> None:
    """2.6.3 and 3.5.4: what the reply says is what there is."""
    reply = client.attach_sender("to", Target(address=address, capabilities=symbols(*asked)))
    assert isinstance(reply.target, Target)
    assert (reply.target.capabilities or ()) == symbols(*true)


@pytest.mark.parametrize(("durable", "expiry"), [(2, "never"), (1, "connection-close"), (0, "session-end")])
def test_nothing_of_a_producers_target_outlives_its_link(client: RawClient, durable: int, expiry: str) -> None:
    """3.5.5 and 3.5.6: no state is retained, so the terminus is not durable and ends as the link is detached."""
    asked = Target(address="a-queue", durable=durable, expiry_policy=Symbol(expiry), timeout=60, capabilities=QUEUE)
    reply = client.attach_sender("to", asked)
    assert isinstance(reply.target, Target)
    told = (reply.target.durable or 0, reply.target.expiry_policy, reply.target.timeout or 0)
    assert told == (0, "link-detach", 0)


@pytest.mark.parametrize(
    ("asked", "true"), [("never", "connection-close"), ("session-end", "session-end"), ("link-detach", "link-detach")]
)
def test_the_target_that_made_its_node_waits_for_its_link(client: RawClient, asked: str, true: str) -> None:
    """3.5.6: at the latest it goes with the connection, as its node does."""
    reply = client.attach_sender("to", Target(dynamic=True, expiry_policy=Symbol(asked)))
    assert isinstance(reply.target, Target)
    assert (reply.target.expiry_policy or "session-end") == true


def test_nothing_of_a_queues_source_outlives_its_link(client: RawClient) -> None:
    """3.5.5 and 3.5.6"""
    source = Source(address="a-queue", durable=2, expiry_policy=Symbol("never"), timeout=60, capabilities=QUEUE)
    told = client.attach_receiver("from", source).source
    assert told is not None
    assert (told.durable or 0, told.expiry_policy, told.timeout or 0) == (0, "link-detach", 0)


NAME, HANDLE, ROLE, SOURCE, TARGET, UNSETTLED, INITIAL, MAX_SIZE, DESIRED, PROPERTIES = 0, 1, 2, 5, 6, 7, 9, 10, 12, 13
"""Positions in an Attach (2.7.3)."""
ADDRESS, DURABLE, EXPIRY, FILTER, OUTCOMES, CAPABILITIES = 0, 1, 2, 7, 9, 10
"""Positions in a source (3.5.3)."""


def source(position: int, value: Value) -> Described:
    before: list[Value] = ["typed" if at == ADDRESS else None for at in range(position)]
    return Described(ULong(0x28), [*before, value])


def raw_attach(position: int, value: Value) -> bytes:
    """That of a receiver on a queue, with another value in one place."""
    queue = Source(address="typed", capabilities=QUEUE)
    fields = to_value(Attach(name="typed", handle=7, role=True, source=queue, target=Target())).value
    assert isinstance(fields, list)
    fields += [None] * (14 - len(fields))
    fields[position] = value
    return frame_of(encode(Described(ULong(0x12), fields)), 0)


@pytest.mark.parametrize(
    ("position", "value", "told"),
    [
        (NAME, Symbol("typed"), "field name: string expected, not symbol"),
        (HANDLE, ULong(7), "field handle: uint expected, not ulong"),
        (ROLE, UInt(1), "field role: boolean expected, not uint"),
        (SOURCE, "typed", "field source: a described list was expected, not string"),
        (SOURCE, Described(ULong(0x29), ["typed"]), "field source: amqp:target:list describes nothing"),
        (SOURCE, Described(ULong(0x99), ["typed"]), "field source: 0x99 describes nothing"),
        (SOURCE, Described(Symbol("x:y:list"), ["typed"]), "field source: 'x:y:list' describes nothing"),
        (SOURCE, Described(ULong(0x28), {}), "field source: amqp:source:list is a list, not map"),
        (SOURCE, source(DURABLE, UShort(2)), "field durable: uint expected, not ushort"),
        (SOURCE, source(EXPIRY, "never"), "field expiry-policy: symbol expected, not string"),
        (SOURCE, source(FILTER, [Symbol("s")]), "field filter: map expected, not list"),
        (SOURCE, source(FILTER, {UInt(1): None}), "field filter: the keys of this map are symbols, not uint"),
        (SOURCE, source(OUTCOMES, "x"), "field outcomes: a symbol or an array of symbols expected, not string"),
        (
            SOURCE,
            source(CAPABILITIES, [Symbol("queue")]),
            "capabilities: a symbol or an array of symbols expected, not list",
        ),
        (TARGET, Described(ULong(0x29), ["a", 2]), "target: amqp:target:list, field durable: uint expected, not long"),
        (UNSETTLED, [b"t"], "field unsettled: map expected, not list"),
        (INITIAL, "0", "field initial-delivery-count: uint expected, not string"),
        (MAX_SIZE, UInt(9), "field max-message-size: ulong expected, not uint"),
        (DESIRED, "shared", "field desired-capabilities: a symbol or an array of symbols expected, not string"),
        (PROPERTIES, {UInt(1): 1}, "field properties: the keys of this map are symbols, not uint"),
    ],
)
def test_a_field_of_another_type_ends_the_connection_and_is_named(
    broker: BrokerProcess, client: RawClient, position: int, value: Value, told: str
) -> None:
    """2.8.15 (decode-error). What came before in the same write is kept, and others are not disturbed."""
    client.attach_sender("to", Target(address="typed", capabilities=QUEUE))
    client.expect(Flow)
    with RawClient(broker.port, "other") as other:
        other.begin()
        other.attach_receiver("other", Source(address="typed", capabilities=QUEUE))
        transfer = to_value(Transfer(handle=0, delivery_id=0, delivery_tag=b"t"))
        client.send_bytes(frame_of(encode(transfer) + HELLO, 0) + raw_attach(position, value))
        said = client.receive().performative
        while not isinstance(said, Close):
            assert isinstance(said, Disposition | Flow), said
            said = client.receive().performative
        assert said.error is not None
        assert said.error.condition == "amqp:decode-error"
        assert told in (said.error.description or "")
        other.flow(0, credit=1)
        assert other.expect_transfer()[1] == HELLO
        other.send(Disposition(role=True, first=0, settled=True, state=Accepted()))
        assert other.detach(0, closed=True).error is None


def test_an_address_may_be_a_symbol(client: RawClient) -> None:
    """3.5.3 and 3.5.4: its type is up to the broker, to which it means the same as a string."""
    symbol, queue = Symbol("by-symbol"), Symbol("queue")
    target = Described(ULong(0x29), [symbol, None, None, None, None, None, queue])
    attach = Described(ULong(0x12), ["to", UInt(0), False, None, None, None, target, None, None, UInt(0)])
    client.send_bytes(frame_of(encode(attach), 0))
    reply = client.expect(Attach)
    assert isinstance(reply.target, Target)
    assert reply.target.address == "by-symbol"
    client.send(Transfer(handle=0, delivery_id=0, delivery_tag=b"t"), payload=HELLO)
    assert client.expect(Disposition).settled
    described = Described(ULong(0x28), [symbol, *[None] * 9, queue])
    client.send_bytes(raw_attach(SOURCE, described))
    told = client.expect(Attach).source
    assert told is not None
    assert told.address == "by-symbol"
    client.flow(7, credit=1)
    assert client.expect_transfer()[1] == HELLO


OTHERS: list[tuple[Value, str]] = [
    (b"typed", "binary"),
    (7, "long"),
    (True, "boolean"),
    (["typed"], "list"),
    ({Symbol("name"): "typed"}, "map"),
    (Described(Symbol("x:address:list"), ["typed"]), "described value"),
    (Array(0xA1, ("typed",)), "array"),
    (uuid.UUID(int=1), "uuid"),
]


@pytest.mark.parametrize(("address", "told"), OTHERS)
@pytest.mark.parametrize("receives", [True, False])
@pytest.mark.parametrize("dynamic", [None, True])
def test_an_address_of_another_type_refuses_its_link(
    client: RawClient, address: Value, told: str, receives: bool, dynamic: bool | None
) -> None:
    """3.5.3 and 3.5.4: an address may be of any type; that the broker knows strings only concerns one link."""
    asked = Described(ULong(0x28 if receives else 0x29), [address, None, None, None, dynamic])
    if receives:
        client.send_bytes(raw_attach(SOURCE, asked))
    else:
        attach: list[Value] = [
            "typed",
            UInt(7),
            False,
            None,
            None,
            Described(ULong(0x28), []),
            asked,
            None,
            None,
            UInt(0),
        ]
        client.send_bytes(frame_of(encode(Described(ULong(0x12), attach)), 0))
    reply = client.expect(Attach)
    assert (reply.source if receives else reply.target) is None
    detach = client.expect(Detach)
    assert detach.closed
    assert detach.error is not None
    assert detach.error.condition == "amqp:invalid-field"
    assert detach.error.description == f"The address is of type {told}; write it as a string."
    assert (detach.error.info or {})[Symbol("invalid-field")] == "address"
    client.send(Detach(handle=7, closed=True))
    assert client.attach_receiver("again", Source(address="typed", capabilities=QUEUE)).source is not None


@pytest.mark.parametrize(("address", "told"), OTHERS)
@pytest.mark.parametrize("receives", [True, False])
def test_the_address_of_the_clients_own_end_may_be_of_any_type(
    client: RawClient, address: Value, told: str, receives: bool
) -> None:
    """It names a node of the client's."""
    own = Described(ULong(0x29 if receives else 0x28), [address])
    if receives:
        client.send_bytes(raw_attach(TARGET, own))
    else:
        target = to_value(Target(address="typed", capabilities=QUEUE))
        attach: list[Value] = ["typed", UInt(7), False, None, None, own, target, None, None, UInt(0)]
        client.send_bytes(frame_of(encode(Described(ULong(0x12), attach)), 0))
    reply = client.expect(Attach)
    assert reply.source is not None
    assert isinstance(reply.target, Target)
    assert (reply.source.address, reply.target.address) == (("typed", None) if receives else (None, "typed"))


@pytest.mark.parametrize(("value", "told"), [(UInt(1), "uint"), (b"a = 1", "binary"), (["a = 1"], "list")])
def test_a_selector_that_is_no_text_is_refused(client: RawClient, value: Value, told: str) -> None:
    """Its link would get what the client does not want."""
    selector = Described(Symbol("apache.org:selector-filter:string"), value)
    source = Source(address="selected", capabilities=QUEUE, filter={Symbol("s"): selector})
    assert client.attach_receiver("from", source).source is None
    error = client.expect(Detach).error
    assert error is not None
    assert error.condition == "amqp:invalid-field"
    assert f"The selector is of type {told}; write it as a string." in (error.description or "")
    assert client.attach_receiver("again", Source(address="selected", capabilities=QUEUE)).source is not None
