"""The rules of AMQP 1.0 part 2 that bind the broker, each on bare frames against a running one. Each docstring names
the section of the specification.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from support.broker_process import BrokerProcess
from support.raw_client import RawClient, symbols

from penstock_amqp.frames.frames import AMQP_HEADER, SASL_HEADER, FrameReader, encode_frame, read_body
from penstock_amqp.frames.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    Performative,
    Source,
    Target,
    Transfer,
)
from penstock_amqp.messages.message_codec import Message, encode_message
from penstock_amqp.sasl.frames import Challenge, Init, Mechanisms, SaslOutcome, sasl_frame
from penstock_amqp.types.encoder import encode
from penstock_amqp.types.values import Described, Symbol, UByte, UInt, ULong, UShort, Value

HELLO = encode_message(Message(body="hello"))
QUEUE = symbols("queue")
BEGIN = Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100)
OPEN = encode_frame(Open(container_id="c"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("rules") / "data") as process:
        yield process


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.port, "rules") as client:
        yield client


def frame(code: int, *fields: Value, channel: int = 0, payload: bytes = b"") -> bytes:
    body = encode(Described(ULong(code), list(fields))) + payload
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big") + body


def transfer(*fields: Value, payload: bytes = HELLO) -> bytes:
    return frame(0x14, *fields, payload=payload)


def flow(handle: int | None, credit: int | None = None, *, drain: bool | None = None, echo: bool | None = None) -> Flow:
    return Flow(
        next_incoming_id=0,
        incoming_window=100,
        next_outgoing_id=0,
        outgoing_window=100,
        handle=handle,
        delivery_count=None if handle is None else 0,
        link_credit=credit,
        drain=drain,
        echo=echo,
    )


def consume_from(client: RawClient, name: str) -> Attach:
    return client.attach_receiver(f"from-{name}", Source(address=name, capabilities=QUEUE))


def send_to(client: RawClient, name: str) -> Attach:
    reply = client.attach_sender(f"to-{name}", Target(address=name, capabilities=QUEUE))
    assert client.expect(Flow).link_credit == 1000
    return reply


def check_closed(client: RawClient, condition: str) -> None:
    """The next frame closes the connection with this condition, and nothing follows."""
    close = client.receive().performative
    assert isinstance(close, Close), close
    assert close.error is not None and close.error.condition == condition, close
    assert close.error.description
    with pytest.raises(EOFError):
        client.receive()


def check_session_error(client: RawClient, condition: str, channel: int = 0) -> None:
    """The session ends with this condition first, then the connection."""
    ended = client.receive()
    assert isinstance(ended.performative, End), ended
    assert ended.channel == channel
    assert ended.performative.error is not None and ended.performative.error.condition == condition
    check_closed(client, condition)


def stranger(broker: BrokerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), 60)


def read_to_end(connection: socket.socket) -> bytes:
    data = b""
    while part := connection.recv(65_536):
        data += part
    return data


def performatives(data: bytes) -> list[Performative]:
    reader = FrameReader(1 << 20)
    return [read_body(each.body, Performative)[0] for each in reader.feed(data)]


def conversation(broker: BrokerProcess, *frames: bytes) -> list[Performative]:
    """What the broker says to these bytes behind the AMQP header, up to the end of the connection."""
    with closing(stranger(broker)) as connection:
        connection.sendall(AMQP_HEADER + b"".join(frames))
        answer = read_to_end(connection)
    assert answer.startswith(AMQP_HEADER)
    return performatives(answer[8:])


# -- 2.2 and 5.3: headers and SASL ----------------------------------------------------------------------------------


@pytest.mark.parametrize("header", [b"AMQP\x00\x01\x01\x00", b"AMQP\x00\x00\x09\x01", b"HTTP/1.1", SASL_HEADER])
def test_behind_sasl_only_our_version_of_amqp_is_taken(broker: BrokerProcess, header: bytes) -> None:
    """2.2: a header that is not supported is answered with one that is, and the end of the connection."""
    with closing(stranger(broker)) as connection:
        connection.sendall(SASL_HEADER + sasl_frame(Init(mechanism=Symbol("ANONYMOUS"), initial_response=b"")))
        accepted = sasl_frame(SaslOutcome(code=0))
        answer = b""
        while not answer.endswith(accepted):
            answer += connection.recv(65_536)
        connection.sendall(header)
        assert read_to_end(connection).startswith(AMQP_HEADER)


def test_a_client_may_leave_sasl_out_where_anonymous_is_allowed(broker: BrokerProcess) -> None:
    """2.2: the header comes back, and the connection opens."""
    opened, closed = conversation(broker, OPEN, encode_frame(Close()))
    assert isinstance(opened, Open)
    assert closed == Close()


@pytest.mark.parametrize(
    "wrong",
    [
        sasl_frame(Mechanisms(sasl_server_mechanisms=symbols("X"))),
        sasl_frame(Challenge(challenge=b"")),
        sasl_frame(SaslOutcome(code=0)),
        OPEN,
    ],
    ids=["mechanisms", "challenge", "outcome", "open"],
)
def test_what_a_client_may_not_say_ends_the_dialogue(broker: BrokerProcess, wrong: bytes) -> None:
    """5.3.2: there is no way around authentication."""
    with closing(stranger(broker)) as connection:
        connection.sendall(SASL_HEADER + wrong)
        answer = read_to_end(connection)
    assert sasl_frame(SaslOutcome(code=0)) not in answer
    assert AMQP_HEADER not in answer


def test_an_unknown_mechanism_fails_with_code_auth(broker: BrokerProcess) -> None:
    """5.3.2: the connection is closed with the authentication-failure code."""
    with closing(stranger(broker)) as connection:
        connection.sendall(SASL_HEADER + sasl_frame(Init(mechanism=Symbol("NONE-SUCH"), hostname="anywhere")))
        assert read_to_end(connection).endswith(sasl_frame(SaslOutcome(code=1)))


# -- 2.4: connections -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frames", "condition"),
    [
        pytest.param([frame(0x10)], "amqp:decode-error", id="open-without-container-id"),
        pytest.param(
            [encode_frame(Open(container_id="c"), 1)], "amqp:connection:framing-error", id="open-on-channel-1"
        ),
        pytest.param([encode_frame(BEGIN)], "amqp:illegal-state", id="begin-before-open"),
        *(
            pytest.param(
                [encode_frame(Open(container_id="c", max_frame_size=size))],
                "amqp:invalid-field",
                id=f"frames-of-{size}",
            )
            for size in (0, 1, 511)
        ),
        pytest.param([OPEN, sasl_frame(SaslOutcome(code=0))], "amqp:connection:framing-error", id="sasl-frame"),
        pytest.param([OPEN, frame(0x99)], "amqp:connection:framing-error", id="unknown-performative"),
    ],
)
def test_a_faulty_beginning_is_answered_by_open_and_close(
    broker: BrokerProcess, frames: list[bytes], condition: str
) -> None:
    """2.4.1 and 1.3.4: the first frame is an Open on channel 0 that names its container; a Close follows an Open."""
    opened, closed = conversation(broker, *frames)
    assert isinstance(opened, Open)
    assert isinstance(closed, Close)
    assert closed.error is not None and closed.error.condition == condition


def test_frames_of_512_bytes_are_enough(broker: BrokerProcess) -> None:
    """2.8.19: MIN-MAX-FRAME-SIZE."""
    with RawClient(broker.port, "short", max_frame_size=512) as client:
        client.begin()
        assert client.close().error is None


@pytest.mark.parametrize("channel", [0, 5, 200])
def test_empty_frames_come_on_any_channel(client: RawClient, channel: int) -> None:
    """2.4.5"""
    client.send(None, channel)
    client.begin()


def test_a_peer_that_wants_to_hear_something_is_sent_empty_frames(broker: BrokerProcess) -> None:
    """2.4.5: within the idle time-out of the peer something is sent."""
    with closing(stranger(broker)) as connection:
        connection.sendall(AMQP_HEADER + encode_frame(Open(container_id="c", idle_time_out=400)))
        answer = b""
        while not answer.endswith(encode_frame(None)):
            part = connection.recv(65_536)
            assert part
            answer += part


@pytest.mark.parametrize("milliseconds", [1, 249])
def test_an_idle_time_out_that_the_broker_can_not_keep_is_refused(broker: BrokerProcess, milliseconds: int) -> None:
    """2.4.5: who can't support it closes the connection with an error that explains why."""
    with RawClient(broker.port, "hasty", idle_time_out=milliseconds) as client:
        error = client.expect(Close).error
        assert error is not None
        assert error.condition == "amqp:not-allowed"
        assert error.description == f"Your idle-time-out is {milliseconds} ms; allow at least 250 ms, or leave it out."


@pytest.mark.parametrize("milliseconds", [0, 250, None])
def test_no_idle_time_out_and_one_of_a_quarter_of_a_second_are_kept(
    broker: BrokerProcess, milliseconds: int | None
) -> None:
    """2.7.1: 0 is as if it were not set."""
    with RawClient(broker.port, "patient", idle_time_out=milliseconds) as client:
        assert client.close().error is None


def test_a_close_is_answered_and_carries_no_error(client: RawClient) -> None:
    """2.4.3"""
    client.begin()
    consume_from(client, "left-open")
    client.send(Close(error=Error(condition=Symbol("x:our-fault"))))
    assert client.expect(Close).error is None
    with pytest.raises(EOFError):
        client.receive()


# -- 2.5: sessions --------------------------------------------------------------------------------------------------


def test_a_begin_is_answered_by_a_begin_and_nothing_else(client: RawClient) -> None:
    """2.5.1: the answer names the channel. What comes behind it was asked for."""
    client.send(BEGIN, 37)
    answer = client.receive().performative
    assert isinstance(answer, Begin)
    assert answer.remote_channel == 37
    client.send(End(), 37)
    assert client.receive().performative == End()


def test_sessions_that_end_at_once_are_answered_by_their_channel(client: RawClient) -> None:
    """2.5.1 and 2.5.4, in one write."""
    client.send_bytes((encode_frame(BEGIN, 5) + encode_frame(End(), 5)) * 2 + encode_frame(BEGIN, 6))
    answers = [client.receive() for _ in range(5)]
    begins = [each.performative.remote_channel for each in answers if isinstance(each.performative, Begin)]
    assert begins == [5, 5, 6]
    assert [each.performative for each in answers if isinstance(each.performative, End)] == [End(), End()]


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        pytest.param(frame(0x11), "amqp:decode-error", id="begin-without-fields"),
        pytest.param(frame(0x11, None, UInt(0), None, UInt(0)), "amqp:decode-error", id="begin-without-window"),
        pytest.param(encode_frame(BEGIN, 256), "amqp:connection:framing-error", id="channel-above-channel-max"),
        pytest.param(frame(0x11, UShort(7), UInt(0), UInt(1), UInt(1)), "amqp:invalid-field", id="answer-to-nothing"),
        pytest.param(encode_frame(End(), 3), "amqp:not-allowed", id="end-without-session"),
    ],
)
def test_a_faulty_begin_or_end_closes_the_connection(client: RawClient, data: bytes, condition: str) -> None:
    """1.3.4, 2.7.1 (channel-max), 2.7.2"""
    client.send_bytes(data)
    check_closed(client, condition)


def test_a_channel_carries_one_session(client: RawClient) -> None:
    """2.5.1: a begin uses a channel that is free."""
    client.begin()
    client.send(BEGIN)
    check_closed(client, "amqp:not-allowed")


def test_nothing_is_sent_beyond_the_incoming_window(client: RawClient) -> None:
    """2.5.6: the window of the receiver opens frame by frame."""
    client.send(Begin(next_outgoing_id=0, incoming_window=0, outgoing_window=10))
    client.expect(Begin)
    send_to(client, "windowed")
    for number in range(3):
        client.send(Transfer(handle=0, delivery_id=number, delivery_tag=b"%d" % number, settled=True), payload=HELLO)
    handle = consume_from(client, "windowed").handle
    shut = Flow(next_incoming_id=0, incoming_window=0, next_outgoing_id=3, outgoing_window=10, echo=True)
    client.send(replace(shut, handle=1, delivery_count=0, link_credit=10))
    client.expect(Flow)  # and no transfer before it
    client.send(Flow(next_incoming_id=0, incoming_window=2, next_outgoing_id=3, outgoing_window=10))
    assert [client.expect_transfer()[0].delivery_id for _ in range(2)] == [0, 1]
    client.send(Flow(next_incoming_id=2, incoming_window=0, next_outgoing_id=3, outgoing_window=10, echo=True))
    client.expect(Flow)
    client.send(Flow(next_incoming_id=2, incoming_window=1, next_outgoing_id=3, outgoing_window=10))
    last = client.expect_transfer()[0]
    assert (last.delivery_id, last.handle) == (2, handle)


# -- 2.6 and 2.7: links ---------------------------------------------------------------------------------------------


def test_a_handle_in_use_ends_the_session(client: RawClient) -> None:
    """2.7.3"""
    client.begin()
    consume_from(client, "taken")
    client.send(Attach(name="other", handle=0, role=False, target=Target(address="taken"), initial_delivery_count=0))
    check_session_error(client, "amqp:session:handle-in-use")


def test_a_link_name_with_a_nul_ends_the_session_and_the_error_says_so(client: RawClient) -> None:
    """2.7.3: a name is any string, but the engine keeps those of C."""
    client.begin()
    client.send(Attach(name="a\0b", handle=0, role=True, source=Source(address="nul")))
    check_session_error(client, "amqp:invalid-field")


def test_a_handle_is_free_once_it_is_detached(client: RawClient) -> None:
    """2.6.4: also if the broker has not answered the detach yet."""
    client.begin()
    consume_from(client, "taken")
    client.send_bytes(
        encode_frame(Detach(handle=0, closed=True))
        + encode_frame(
            Attach(name="other", handle=0, role=False, target=Target(address="taken"), initial_delivery_count=0)
        )
    )
    assert client.expect(Detach).closed is True
    assert client.expect(Attach).name == "other"


def test_a_handle_above_handle_max_is_a_framing_error(client: RawClient) -> None:
    """2.7.2 (handle-max)"""
    begin = client.begin()
    assert begin.handle_max is not None
    client.send(Attach(name="l", handle=begin.handle_max + 1, role=True, source=Source(address="x"), target=Target()))
    check_closed(client, "amqp:connection:framing-error")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(encode_frame(flow(4, 1), 2), id="flow"),
        pytest.param(encode_frame(Transfer(handle=4, delivery_id=0, delivery_tag=b"t"), 2, HELLO), id="transfer"),
        pytest.param(encode_frame(Detach(handle=4), 2), id="detach"),
    ],
)
def test_a_handle_of_no_link_ends_the_session(client: RawClient, data: bytes) -> None:
    """2.7.4 and 2.8.17 (unattached-handle): the session that the frame came on, among several."""
    client.begin(0)
    client.send(BEGIN, 2)
    client.expect(Begin)
    client.send_bytes(data)
    check_session_error(client, "amqp:session:unattached-handle", channel=1)


def test_a_peer_that_takes_no_more_handles_is_told_so(client: RawClient) -> None:
    """2.7.2 (handle-max): there is none left to answer with. Those of links that are detached are free again."""
    client.send(replace(BEGIN, handle_max=1), 1)
    client.expect(Begin)
    for number in range(4):
        client.attach_receiver("a", Source(address="few", capabilities=QUEUE), channel=1, handle=0)
        client.send(Detach(handle=0, closed=True), 1)
        client.send(Attach(name=f"b{number}", handle=1, role=True, source=Source(address="few"), target=Target()), 1)
        client.expect(Detach)
        assert client.expect(Attach).name == f"b{number}"
        client.detach(1, closed=True, channel=1)
    for handle in (0, 1):
        client.attach_receiver(f"c{handle}", Source(address="few"), channel=1, handle=handle)
    client.send(Attach(name="c2", handle=2, role=True, source=Source(address="few"), target=Target()), 1)
    check_session_error(client, "amqp:resource-limit-exceeded")


def test_a_name_is_a_link_in_each_direction(client: RawClient) -> None:
    """2.6.1: a link is named by its containers, in order, and its name."""
    client.begin()
    client.attach_receiver("both", Source(address="both-ways", capabilities=QUEUE))
    assert client.attach_sender("both", Target(address="both-ways", capabilities=QUEUE)).role is True


@pytest.mark.parametrize("closed", [False, True])
def test_a_detach_is_answered_in_kind(client: RawClient, closed: bool) -> None:
    """2.6.4 and 2.6.6, for a link in each direction."""
    client.begin()
    consume_from(client, "in-kind")
    send_to(client, "in-kind")
    for handle in (0, 1):
        assert client.detach(handle, closed=closed) == Detach(handle=handle, closed=closed or None)


def test_what_came_behind_a_refused_attach_harms_nobody(client: RawClient) -> None:
    """2.6.3: the flow was sent before its sender could know. 2.6.5 would end the session (errant-link)."""
    client.begin()
    refused = Attach(name="no", handle=0, role=True, source=Source(address="$no"), target=Target())
    client.send_bytes(encode_frame(refused) + encode_frame(flow(0, 5)) + encode_frame(Detach(handle=0, closed=True)))
    assert client.expect(Attach).source is None
    assert client.expect(Detach).closed is True
    consume_from(client, "afterwards")


def test_an_unknown_distribution_mode_of_a_sender_says_nothing(client: RawClient) -> None:
    """3.5.3: the source is the sender's own."""
    client.begin()
    odd = Source(address="mine", distribution_mode=Symbol("wherever"), expiry_policy=Symbol("whenever"), durable=9)
    reply = client.attach_sender("l", Target(address="odd-source", capabilities=QUEUE), source=odd)
    assert reply.target is not None


# -- 2.6.7 to 2.6.10: flow control ----------------------------------------------------------------------------------


def test_a_flow_without_its_mandatory_fields_is_a_decode_error(client: RawClient) -> None:
    """1.3.4"""
    client.begin()
    client.send_bytes(frame(0x13))
    check_closed(client, "amqp:decode-error")


def test_a_session_that_asks_for_an_echo_gets_one(client: RawClient) -> None:
    """2.7.4: without a handle, of the session alone; also behind other frames of the same write."""
    client.begin()
    client.send(flow(None, echo=True))
    answer = client.receive().performative
    assert isinstance(answer, Flow)
    assert (answer.handle, answer.echo, answer.next_incoming_id) == (None, None, 0)
    client.send_bytes(encode_frame(Disposition(role=True, first=0, settled=True)) + encode_frame(flow(None, echo=True)))
    assert client.expect(Flow).handle is None


def test_a_link_echoes_its_credit_and_a_false_drain(client: RawClient) -> None:
    """2.6.8 and 2.6.10"""
    client.begin()
    handle = consume_from(client, "nothing-here").handle
    for credit in (1, 0):
        client.send(flow(0, credit, drain=False, echo=True))
        answer = client.receive().performative
        assert isinstance(answer, Flow)
        assert (answer.handle, answer.link_credit, answer.delivery_count) == (handle, credit, 0)
        assert (answer.drain, answer.echo) == (False, None)


def test_each_link_that_asks_is_answered_once(client: RawClient) -> None:
    """2.7.4, two in one write."""
    client.begin()
    handles = [consume_from(client, name).handle for name in ("one-here", "two-here")]
    client.send_bytes(encode_frame(flow(0, 3, echo=True)) + encode_frame(flow(1, 4, echo=True)))
    answers = [client.expect(Flow) for _ in range(2)]
    assert [(answer.handle, answer.link_credit) for answer in answers] == list(zip(handles, (3, 4), strict=True))
    client.send(End())
    assert client.receive().performative == End()


@pytest.mark.parametrize("credit", [2**31 - 1, 2**31, 2**32 - 1])
def test_credit_may_be_as_high_as_its_type(client: RawClient, credit: int) -> None:
    """2.6.7 and 2.7.4: an uint. It holds for what comes later too, and may be taken back."""
    client.begin()
    send_to(client, f"credit-{credit}")
    consume_from(client, f"credit-{credit}")
    client.send(flow(1, credit))
    for number in range(3):
        client.send_bytes(transfer(UInt(0), UInt(number), bytes((number,)), UInt(0), True))
        client.expect_transfer()
    client.send(replace(flow(1, 0), next_incoming_id=3, delivery_count=3))
    client.send_bytes(transfer(UInt(0), UInt(3), b"3", UInt(0), True))
    client.send(flow(None, echo=True))
    answer = client.receive().performative
    assert isinstance(answer, Flow), answer


@pytest.mark.parametrize("credit", [0, 1, 7])
def test_a_drain_uses_all_credit_and_says_so(client: RawClient, credit: int) -> None:
    """2.6.7: the delivery-count is advanced, and the flow state is sent, whatever the credit was."""
    client.begin()
    handle = consume_from(client, "nothing-here").handle
    client.send(flow(0, credit, drain=True))
    answer = client.receive().performative
    assert isinstance(answer, Flow)
    assert (answer.handle, answer.link_credit, answer.delivery_count, answer.drain) == (handle, 0, credit, True)
    client.send(End())
    assert client.receive().performative == End()


# -- 2.6.12 to 2.6.14: transfers and dispositions -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frames", "condition"),
    [
        pytest.param([transfer(None, UInt(0), b"t", UInt(0))], "amqp:decode-error", id="no-handle"),
        pytest.param([transfer(UInt(0), None, b"t", UInt(0))], "amqp:invalid-field", id="no-delivery-id"),
        pytest.param([transfer(UInt(0), UInt(0), None, UInt(0))], "amqp:invalid-field", id="no-delivery-tag"),
        pytest.param([transfer(UInt(0), UInt(0), bytes(33), UInt(0))], "amqp:invalid-field", id="tag-too-long"),
        pytest.param(
            [transfer(UInt(0), UInt(0), b"t", UInt(0), False, False, UByte(1))],
            "amqp:invalid-field",
            id="settles-second",
        ),
        pytest.param(
            [
                transfer(UInt(0), UInt(0), b"t", UInt(0), False, True, payload=HELLO[:4]),
                transfer(UInt(0), None, None, UInt(1), False, False, payload=HELLO[4:]),
            ],
            "amqp:invalid-field",
            id="format-changes",
        ),
        pytest.param(
            [
                transfer(UInt(0), UInt(0), b"t", UInt(0), True, True, payload=HELLO[:4]),
                transfer(UInt(0), UInt(1), b"u", UInt(0), True, True, payload=HELLO[:4]),
            ],
            "amqp:invalid-field",
            id="interleaved-on-one-link",
        ),
    ],
)
def test_a_faulty_transfer_closes_the_connection_and_leaves_no_message(
    broker: BrokerProcess, frames: list[bytes], condition: str
) -> None:
    """2.6.14, 2.7.5 and 2.8.7"""
    with RawClient(broker.port, "faulty") as client:
        client.begin()
        send_to(client, "untouched")
        client.send_bytes(b"".join(frames))
        check_closed(client, condition)
    with RawClient(broker.port, "looking") as client:
        client.begin()
        consume_from(client, "untouched")
        client.send(flow(0, 1, drain=True))
        assert client.expect(Flow).link_credit == 0


def test_a_gap_in_the_delivery_ids_ends_the_session(client: RawClient) -> None:
    """2.6.12: delivery-ids are a sequence."""
    client.begin()
    send_to(client, "gaps")
    client.send_bytes(transfer(UInt(0), UInt(5), b"t", UInt(0), True) + transfer(UInt(0), UInt(7), b"u", UInt(0)))
    check_session_error(client, "amqp:invalid-field")


def test_delivery_ids_wrap(client: RawClient) -> None:
    """2.8.10: a sequence number of 32 bits."""
    client.send(Begin(next_outgoing_id=0xFFFF_FFFE, incoming_window=100, outgoing_window=100))
    client.expect(Begin)
    send_to(client, "wrapping")
    numbers = [0xFFFF_FFFE, 0xFFFF_FFFF, 0, 1]
    client.send_bytes(b"".join(transfer(UInt(0), UInt(each), b"%d" % each, UInt(0)) for each in numbers))
    settled: list[int] = []
    while len(settled) < 4:
        disposition = client.expect(Disposition)
        last = disposition.first if disposition.last is None else disposition.last
        settled += [(disposition.first + step) % 2**32 for step in range((last - disposition.first) % 2**32 + 1)]
    assert settled == numbers


def test_continuations_may_leave_out_what_they_repeat(client: RawClient) -> None:
    """2.7.5: delivery-id, delivery-tag and message-format."""
    client.begin()
    send_to(client, "in-four")
    parts = [
        transfer(UInt(0), UInt(0), b"t", UInt(0), False, True, payload=HELLO[:2]),
        transfer(UInt(0), UInt(0), None, None, None, True, payload=HELLO[2:4]),
        transfer(UInt(0), None, b"t", UInt(0), None, True, payload=b""),
        transfer(UInt(0), payload=HELLO[4:]),
    ]
    for part in parts:
        client.send_bytes(part)
    accepted = client.expect(Disposition)
    assert (accepted.first, accepted.settled) == (0, True)
    consume_from(client, "in-four")
    client.send(flow(1, 1))
    assert client.expect_transfer()[1] == HELLO


@pytest.mark.parametrize("last", [3, 0xFFFF_FFFF])
def test_a_range_that_goes_backwards_is_not_allowed(client: RawClient, last: int) -> None:
    """2.7.6: last is behind first, as sequence numbers of 32 bits go."""
    client.begin()
    client.send(Disposition(role=True, first=5 if last == 3 else 0, last=last, settled=True))
    check_session_error(client, "amqp:not-allowed")


@pytest.mark.parametrize("role", [True, False])
def test_deliveries_that_are_not_there_are_passed_over(client: RawClient, role: bool) -> None:
    """2.7.6: half of all numbers in one disposition take no time and change nothing."""
    client.begin()
    consume_from(client, "nothing-here")
    client.send(Disposition(role=role, first=0, last=0x7FFF_FFFF, settled=True))
    client.send(flow(0, 1, drain=True))
    assert client.expect(Flow).link_credit == 0
