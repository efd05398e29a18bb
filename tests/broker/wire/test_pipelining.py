"""What a client may send before it has heard of anything, in one write or in any pieces: AMQP 1.0 part 2, 2.4.1.

No credit and no window is known to it; the windows of the broker are wide enough for what comes.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from support.broker_process import BrokerProcess
from support.raw_client import RawClient, symbols
from support.stepped_broker import SteppedBroker, SteppedStream
from support.transaction_client import TransactionClient

from penstock_amqp.frames.frames import AMQP_HEADER, FrameReader, encode_frame, frame_of, read_body
from penstock_amqp.frames.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Performative,
    Rejected,
    Source,
    Target,
    Transfer,
)
from penstock_amqp.messages.message_codec import Message, encode_message
from penstock_amqp.messages.transaction_types import Declared, TransactionalState
from penstock_amqp.types.composites import Composite, to_value
from penstock_amqp.types.encoder import encode
from penstock_amqp.types.values import Described, Symbol, Value
from penstock_broker.messages import delivery_returns

HELLO = encode_message(Message(body="hello"))
OPEN = encode_frame(Open(container_id="hasty"))
BEGIN = Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100)
CLOSE = encode_frame(Close())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("pipelining") / "data") as process:
        yield process


def sender(queue: str, handle: int = 0, name: str = "to") -> Attach:
    target = Target(address=queue, capabilities=symbols("queue"))
    return Attach(name=name, handle=handle, role=False, source=Source(), target=target, initial_delivery_count=0)


def receiver(queue: str, handle: int = 1) -> Attach:
    source = Source(address=queue, capabilities=symbols("queue"))
    return Attach(name="from", handle=handle, role=True, source=source, target=Target())


def transfer(number: int, handle: int = 0) -> Transfer:
    return Transfer(handle=handle, delivery_id=number, delivery_tag=bytes((number,)))


def grant(handle: int = 1) -> Flow:
    return Flow(
        next_incoming_id=0,
        incoming_window=100,
        next_outgoing_id=0,
        outgoing_window=100,
        handle=handle,
        delivery_count=0,
        link_credit=10,
    )


def whole_conversation(queue: str) -> bytes:
    """Everything that a message needs to come back, and an end."""
    return b"".join(
        (
            AMQP_HEADER,
            OPEN,
            encode_frame(BEGIN),
            encode_frame(sender(queue)),
            encode_frame(transfer(0), payload=HELLO),
            encode_frame(transfer(1), payload=HELLO),
            encode_frame(receiver(queue)),
            encode_frame(grant()),
        )
    )


def answers(connection: socket.socket, count: int) -> list[Performative]:
    """What is said up to the `count`th transfer."""
    reader, said = FrameReader(1 << 20), list[Performative]()
    data = b""
    while len(data) < 8:
        data += connection.recv(65_536)
    assert data[:8] == AMQP_HEADER
    reader.add(data[8:])
    while sum(isinstance(each, Transfer) for each in said) < count:
        frame = reader.next()
        if frame is not None:
            said.append(read_body(frame.body, Performative)[0])
            assert not isinstance(said[-1], Close | End), said[-1]
        else:
            part = connection.recv(65_536)
            assert part, said
            reader.add(part)
    return said


@pytest.mark.parametrize("step", [1 << 20, 1, 7, 64, 150])
def test_all_up_to_the_credit_may_come_before_any_answer(broker: BrokerProcess, step: int) -> None:
    """2.4.1 and 2.5.6, however TCP cuts it."""
    data = whole_conversation(f"hasty-{step}")
    with closing(socket.create_connection(("127.0.0.1", broker.port), 60)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(data), step):
            connection.sendall(data[at : at + step])
        said = answers(connection, 2)
    assert [type(each) for each in said if isinstance(each, Open | Begin | Attach)] == [Open, Begin, Attach, Attach]


def test_a_conversation_may_be_over_before_it_is_answered(broker: BrokerProcess) -> None:
    """2.4.1: up to the Close, in one write. The message is there for others, though nobody hears of its accept."""
    with closing(socket.create_connection(("127.0.0.1", broker.port), 60)) as connection:
        ahead = AMQP_HEADER + OPEN + encode_frame(BEGIN) + encode_frame(sender("over"))
        connection.sendall(ahead + encode_frame(transfer(0), payload=HELLO) + encode_frame(End()) + CLOSE)
        while connection.recv(65_536):
            pass
    with RawClient(broker.port, "later") as client:
        client.begin()
        client.attach_receiver("l", Source(address="over", capabilities=symbols("queue")))
        client.flow(0, credit=1)
        assert client.expect_transfer()[1] == HELLO


@pytest.mark.parametrize(("credit", "drain"), [(0, True), (0, None), (10, None)])
def test_a_question_may_come_before_its_link_is_attached(
    broker: BrokerProcess, credit: int, drain: bool | None
) -> None:
    """2.6.7: a flow that drains, or asks for an echo, is answered behind the attach that it followed at once."""
    question = replace(grant(), link_credit=credit, drain=drain, echo=drain is None or None)
    with RawClient(broker.port, "asks") as client:
        client.begin()
        client.send_bytes(encode_frame(receiver("nothing-there")) + encode_frame(question))
        handle = client.expect(Attach).handle
        told = client.expect(Flow)
    assert (told.handle, told.delivery_count, told.link_credit, told.available) == (handle, 0, credit, 0)


@pytest.mark.parametrize("closed", [None, True])
def test_a_durable_subscription_is_attached_and_left_in_one_write(broker: BrokerProcess, closed: bool | None) -> None:
    """2.6.5 and 2.6.6: the answers come in this order, once the subscription is on disk, and the session goes on."""
    source = Source(address="amq.topic", durable=2, expiry_policy=Symbol("never"), capabilities=symbols("topic"))
    attach = Attach(name=f"brief-{closed}", handle=0, role=True, source=source, target=Target())
    with RawClient(broker.port, "brief") as client:
        client.begin()
        for _ in range(2):  # at first it is made, then it is there already, unless it ended
            client.send_bytes(encode_frame(attach) + encode_frame(Detach(handle=0, closed=closed)))
            handle = client.expect(Attach).handle
            told = client.expect(Detach)
            assert (told.handle, told.closed or None, told.error) == (handle, closed, None)


def test_sessions_follow_each_other_in_one_write(broker: BrokerProcess) -> None:
    """2.5.1 and 2.5.6: each has a window when its transfers come."""
    with RawClient(broker.port, "again") as client:
        one = encode_frame(BEGIN) + encode_frame(sender("again")) + encode_frame(transfer(0), payload=HELLO)
        client.send_bytes((one + encode_frame(End())) * 20)
        ended = 0
        while ended < 20:
            said = client.receive().performative
            assert not isinstance(said, Close), said
            ended += isinstance(said, End)
        client.begin()
        client.attach_receiver("l", Source(address="again", capabilities=symbols("queue")))
        client.flow(0, credit=20)
        for _ in range(20):
            client.expect_transfer()


BEFORE = {
    "transfer": encode_frame(replace(transfer(0), settled=True), payload=HELLO),
    "flow": encode_frame(Flow(next_incoming_id=0, incoming_window=100, next_outgoing_id=0, outgoing_window=100)),
    "disposition": encode_frame(Disposition(role=True, first=0, settled=True, state=Accepted())),
}


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("channel", [0, 1])
def test_a_session_begins_behind_other_frames_of_one_write(broker: BrokerProcess, before: str, channel: int) -> None:
    """2.5.1 and 2.5.6: on another channel, or in the place of the session on which they came."""
    queue = f"behind-{before}-{channel}"
    with RawClient(broker.port, "behind") as client:
        client.begin()
        client.attach_sender("first", Target(address=f"{queue}-first", capabilities=symbols("queue")))
        client.expect(Flow)
        client.send_bytes(
            BEFORE[before]
            + (b"" if channel else encode_frame(End()))
            + encode_frame(BEGIN, channel)
            + encode_frame(sender(queue), channel)
            + encode_frame(transfer(0), channel, HELLO)
            + encode_frame(transfer(1), channel, HELLO)
        )
        settled, others = 0, {Begin, Attach} if channel else {End, Begin, Attach}
        while settled < 2 or others:  # the attach waits for the log of the queue it makes, the messages don't
            told = client.receive().performative
            assert not isinstance(told, Close), told
            others.discard(type(told))
            settled += (told.last or told.first) - told.first + 1 if isinstance(told, Disposition) else 0
        assert client.close().error is None


def test_a_transaction_is_declared_behind_an_attach_that_has_no_answer(broker: BrokerProcess) -> None:
    """2.4.1 and part 4, 4.1."""
    declare = encode(Described(Symbol("amqp:amqp-value:*"), Described(Symbol("amqp:declare:list"), [])))
    coordinator = Attach(
        name="c", handle=0, role=False, source=Source(), target=Coordinator(), initial_delivery_count=0
    )
    with RawClient(broker.port, "declares") as client:
        client.send_bytes(encode_frame(BEGIN) + encode_frame(coordinator) + encode_frame(transfer(0), payload=declare))
        client.expect(Begin)
        client.expect(Attach)
        answered = client.expect(Disposition)
        assert answered.settled
        assert isinstance(answered.state, Declared), answered


MALFORMED = b"\x00\x53\x77\xa1\x05hell"
"""A section whose value is cut short."""


@pytest.mark.parametrize("second", [None, 1])
@pytest.mark.parametrize(("payload", "outcome"), [(HELLO, Accepted), (MALFORMED, Rejected)])
def test_a_message_is_answered_behind_the_attach_of_its_link(
    broker: BrokerProcess, payload: bytes, outcome: type[Composite], second: int | None
) -> None:
    """The attach waits for the log of the queue that it makes, and the message, which is not durable, for nothing. A
    disposition before it would speak of a link of which the client knows no answer, and of its settle modes.
    """
    attach = replace(sender(f"early-{outcome.__name__}-{second}"), rcv_settle_mode=second)
    with RawClient(broker.port, "early") as client:
        client.begin()
        client.send_bytes(encode_frame(attach) + encode_frame(transfer(0), payload=payload))
        said = [client.receive().performative]
        while not isinstance(said[-1], Disposition):
            said.append(client.receive().performative)
        assert [type(each) for each in said if not isinstance(each, Flow)] == [Attach, Disposition]
        assert isinstance(said[-1].state, outcome)
        assert bool(said[-1].settled) is (second is None)


@pytest.mark.parametrize(("payload", "outcome"), [(HELLO, Accepted), (MALFORMED, Rejected)])
def test_a_message_of_a_transaction_is_answered_behind_the_attach_of_its_link(
    broker: BrokerProcess, payload: bytes, outcome: type[Composite]
) -> None:
    with RawClient(broker.port, "early") as raw:
        client = TransactionClient(raw)
        state = TransactionalState(txn_id=client.declare())
        attach = sender(f"early-in-one-{outcome.__name__}", handle=1)
        posted = replace(transfer(1, handle=1), state=state)
        raw.send_bytes(encode_frame(attach) + encode_frame(posted, payload=payload))
        said = [raw.receive().performative]
        while not isinstance(said[-1], Disposition):
            said.append(raw.receive().performative)
        assert [type(each) for each in said if not isinstance(each, Flow)] == [Attach, Disposition]
        assert isinstance(said[-1].state, TransactionalState)
        assert isinstance(said[-1].state.outcome, outcome)


def test_what_is_no_message_is_refused_however_early_it_comes(broker: BrokerProcess) -> None:
    """To a queue, settled: its link is closed. To a coordinator, and to $management: it is rejected."""
    coordinator = Attach(name="c", handle=1, role=False, target=Coordinator(), initial_delivery_count=0)
    management = Attach(name="m", handle=2, role=False, target=Target(address="$management"), initial_delivery_count=0)
    with RawClient(broker.port, "malformed") as client:
        client.begin()
        client.send_bytes(
            encode_frame(sender("malformed"))
            + encode_frame(replace(transfer(0), settled=True), payload=MALFORMED)
            + encode_frame(coordinator)
            + encode_frame(transfer(1, handle=1), payload=MALFORMED)
            + encode_frame(management)
            + encode_frame(transfer(2, handle=2), payload=MALFORMED)
        )
        ended: list[object] = []
        while len(ended) < 3:
            said = client.receive().performative
            assert not isinstance(said, Close), said
            if isinstance(said, Detach):
                assert said.error is not None
                ended.append(said.error.condition)
            elif isinstance(said, Disposition):
                assert isinstance(said.state, Rejected)
                ended += [said.state.error and said.state.error.condition] * (
                    (said.last or said.first) - said.first + 1
                )
        assert ended == ["amqp:decode-error"] * 3


@pytest.mark.parametrize("highest", [0, 1, None])
def test_a_session_follows_another_whatever_channels_the_client_has(broker: BrokerProcess, highest: int | None) -> None:
    """2.5.5 and 2.7.1: with its End a client gives a channel up, and may use it at once; we use none above its
    channel-max, and none that we have not given up.
    """
    queue = f"follows-{highest}"
    with RawClient(broker.port, "follows", channel_max=highest) as client:
        client.begin()
        client.attach_receiver("first", Source(address=queue, capabilities=symbols("queue")))
        client.send_bytes(
            encode_frame(End())
            + encode_frame(BEGIN)
            + encode_frame(sender(queue))
            + encode_frame(transfer(0), payload=HELLO)
        )
        in_use, said = {0}, list[type[Performative]]()
        while Disposition not in said:
            came = client.receive()
            said.append(type(came.performative))
            assert not isinstance(came.performative, Close), came
            if isinstance(came.performative, End):
                in_use.remove(came.channel)
            elif isinstance(came.performative, Begin):
                assert came.performative.remote_channel == 0
                assert came.channel not in in_use
                assert came.channel <= (65_535 if highest is None else highest)
                in_use.add(came.channel)
        assert client.close().error is None
        assert {End, Begin, Attach} <= set(said)


def test_a_begin_waits_while_what_a_session_held_goes_back(
    timed: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only channel of the client is free once its session has ended, which takes several turns. What comes behind
    the Begin waits with it, in whatever pieces it comes.
    """
    monkeypatch.setattr(delivery_returns, "AT_ONCE", 5)
    queue = timed.make_queue("held")
    stream = SteppedStream(timed)
    with RawClient(0, "one", channel_max=0, stream=stream) as client:
        client.begin()
        client.send_bytes(encode_frame(sender("held")) + encode_frame(receiver("held")))
        client.expect(Attach)
        client.expect(Attach)
        for number in range(20):
            client.send(transfer(number), payload=HELLO)
            assert client.expect(Disposition).settled
        client.flow(1, credit=20)
        for _ in range(20):
            client.expect_transfer()
        client.send_bytes(encode_frame(End()) + encode_frame(BEGIN)[:9])
        timed.turn()
        assert timed.broker.work.delivery_returns
        client.send_bytes(
            encode_frame(BEGIN)[9:] + encode_frame(sender("held")) + encode_frame(transfer(0), payload=HELLO)[:4]
        )
        timed.turn()
        client.send_bytes(encode_frame(transfer(0), payload=HELLO)[4:] + encode_frame(transfer(1), payload=HELLO))
        assert timed.broker.work.delivery_returns
        said: list[type[Performative]] = []
        while Disposition not in said:
            told = client.receive().performative
            if not (isinstance(told, Flow) or (isinstance(told, Disposition) and not told.role)):
                said.append(type(told))
        assert said == [End, Begin, Attach, Disposition]
        timed.turn()
        assert queue.depth == 22


@pytest.mark.parametrize("channel", [0, 1])
def test_a_begin_that_can_not_be_answered_is_an_error(broker: BrokerProcess, channel: int) -> None:
    """2.7.1: we may not use a channel above the client's channel-max. A Begin in an unusual encoding does not wait."""
    with RawClient(broker.port, "two", channel_max=0) as client:
        client.begin()
        client.send_bytes(encode_frame(End()) + by_symbol(BEGIN) if channel == 0 else encode_frame(BEGIN, channel))
        said = client.receive().performative
        while not isinstance(said, Close):
            said = client.receive().performative
        assert said.error is not None
        expected = ("amqp:resource-limit-exceeded", "amqp:connection:framing-error")
        assert said.error.condition == expected[channel]


def by_symbol(body: Composite, payload: bytes = b"") -> bytes:
    """A frame that describes its performative and what is in it by symbols."""

    def symbolic(value: Value) -> Value:
        if not isinstance(value, Described):
            return value
        fields = value.value
        if isinstance(fields, list):
            fields = [symbolic(each) for each in fields]
        return Described(Symbol(SYMBOLS[int(str(value.descriptor))]), fields)

    return frame_of(encode(symbolic(to_value(body))) + payload)


SYMBOLS = {
    0x10: "amqp:open:list",
    0x11: "amqp:begin:list",
    0x12: "amqp:attach:list",
    0x13: "amqp:flow:list",
    0x14: "amqp:transfer:list",
    0x15: "amqp:disposition:list",
    0x17: "amqp:end:list",
    0x18: "amqp:close:list",
    0x24: "amqp:accepted:list",
    0x28: "amqp:source:list",
    0x29: "amqp:target:list",
}
"""Typed from parts 2 and 3."""


def test_descriptors_may_be_symbols(broker: BrokerProcess) -> None:
    """Part 1, 1.3.2: a descriptor is an ulong or a symbol. What is accepted so is gone."""
    with closing(socket.create_connection(("127.0.0.1", broker.port), 60)) as connection:
        connection.sendall(
            AMQP_HEADER
            + by_symbol(Open(container_id="by-symbol"))
            + by_symbol(BEGIN)
            + by_symbol(sender("by-symbol"))
            + by_symbol(transfer(0), HELLO)
            + by_symbol(receiver("by-symbol"))
            + by_symbol(grant())
        )
        answers(connection, 1)
        connection.sendall(by_symbol(Disposition(role=True, first=0, settled=True, state=Accepted())))
        connection.sendall(by_symbol(End()) + by_symbol(Close()))
        while connection.recv(65_536):
            pass
    with RawClient(broker.port, "later") as client:
        client.begin()
        client.attach_receiver("l", Source(address="by-symbol", capabilities=symbols("queue")))
        client.flow(0, credit=1, drain=True)
        told = client.receive().performative
        while not isinstance(told, Flow) or told.handle is None:
            assert isinstance(told, Flow), told
            told = client.receive().performative
