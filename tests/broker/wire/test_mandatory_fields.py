"""A frame without a mandatory field ends its connection (AMQP 1.0 part 1, 1.4), and does nothing before."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from support.broker_process import BrokerProcess
from support.raw_client import RawClient, symbols
from support.stepped_broker import SteppedBroker, SteppedStream

from penstock_amqp.frames.frames import AMQP_HEADER, FrameReader, encode_frame, read_body
from penstock_amqp.frames.performatives import Begin, Close, Disposition, Flow, Performative, Source, Target, Transfer
from penstock_amqp.messages.message_codec import Message, encode_message
from penstock_amqp.sasl.frames import Init, sasl_frame
from penstock_amqp.types.encoder import encode
from penstock_amqp.types.values import Described, Descriptor, Symbol, UInt, ULong, Value

HELLO = encode_message(Message(body="hello"))
ACCEPTED = Described(ULong(0x24), [])
SASL_ANONYMOUS = b"AMQP\x03\x01\x00\x00" + sasl_frame(Init(mechanism=Symbol("ANONYMOUS"), initial_response=b""))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("mandatory") / "data") as process:
        yield process


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    """On channel 0, sends on handle 0 and receives on handle 1."""
    with RawClient(broker.port, "mandatory") as client:
        client.begin()
        client.attach_sender("to", Target(address="q", capabilities=symbols("queue")))
        client.attach_receiver("from", Source(address="q", capabilities=symbols("queue")))
        yield client


def frame(descriptor: Descriptor, fields: list[Value], channel: int = 0, payload: bytes = b"") -> bytes:
    body = encode(Described(descriptor, fields)) + payload
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big") + body


def number(value: int) -> UInt:
    return UInt(value)


FLOW = encode_frame(Flow(next_incoming_id=0, incoming_window=9, next_outgoing_id=0, outgoing_window=9))
LINK_FLOW = encode_frame(
    Flow(next_incoming_id=0, incoming_window=9, next_outgoing_id=0, outgoing_window=9, handle=1, link_credit=1)
)
DISPOSITION = encode_frame(Disposition(role=True, first=77, settled=True))
TRANSFER = encode_frame(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", settled=True), payload=HELLO)

LACKING = [
    ("begin", "next-outgoing-id", frame(ULong(0x11), [None, None, number(9), number(9)], 1)),
    ("begin", "incoming-window", frame(ULong(0x11), [None, number(0), None, number(9)], 1)),
    ("begin", "outgoing-window", frame(ULong(0x11), [None, number(0), number(9)], 1)),
    ("attach", "name", frame(ULong(0x12), [None, number(7), True])),
    ("attach", "handle", frame(ULong(0x12), ["new", None, True])),
    ("attach", "role", frame(ULong(0x12), ["new", number(7)])),
    ("flow", "incoming-window", frame(ULong(0x13), [])),
    ("flow", "incoming-window", frame(ULong(0x13), [number(0), None, number(0), number(9)])),
    ("flow", "next-outgoing-id", frame(ULong(0x13), [None, number(300), None, number(9)])),
    ("flow", "outgoing-window", frame(ULong(0x13), [number(0), number(9), number(0)])),
    ("flow", "incoming-window", frame(ULong(0x13), [number(0), None, number(0), number(9), number(1), number(0)])),
    ("flow", "next-outgoing-id", frame(ULong(0x13), [number(0), number(9), None, number(9), number(1), number(0)])),
    ("flow", "outgoing-window", frame(ULong(0x13), [number(0), number(9), number(0), None, number(1), number(0)])),
    ("transfer", "handle", frame(ULong(0x14), [None, number(0), b"t"], 0, HELLO)),
    ("disposition", "role", frame(ULong(0x15), [])),
    ("disposition", "role", frame(ULong(0x15), [None, number(0), number(0), True, ACCEPTED])),
    ("disposition", "first", frame(ULong(0x15), [True, None, number(0), True, ACCEPTED])),
    ("disposition", "first", frame(ULong(0x15), [True])),
    ("detach", "handle", frame(ULong(0x16), [None, True])),
    ("detach", "handle", frame(ULong(0x16), [])),
]


@pytest.mark.parametrize("before", [b"", FLOW, LINK_FLOW, DISPOSITION, TRANSFER],
                         ids=["alone", "flow", "link-flow", "disposition", "transfer"])  # fmt: skip
@pytest.mark.parametrize(
    ("kind", "field", "data"), [pytest.param(*each, id=f"{each[0]}-{at}") for at, each in enumerate(LACKING)]
)
def test_a_frame_that_lacks_a_field_ends_the_connection(
    client: RawClient, kind: str, field: str, data: bytes, before: bytes
) -> None:
    """Whatever comes with it in one write."""
    client.send_bytes(before + data)
    seen = list[Performative]()
    while not isinstance(performative := client.receive().performative, Close):
        seen.append(performative)
    assert not [each for each in seen if not isinstance(each, Flow | Transfer)], "it did something"
    assert performative.error is not None
    assert performative.error.condition == "amqp:decode-error"
    assert f"amqp:{kind}:list lacks its mandatory field {field}" in (performative.error.description or "")


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param([None, number(0), number(0), True, ACCEPTED], id="role"),
        pytest.param([True, None, number(0), True, ACCEPTED], id="first"),
    ],
)
def test_a_disposition_lacks_a_field_wherever_it_is_cut(fields: list[Value]) -> None:
    """2.7.6 has `mandatory="true"` for role and first. It comes in two reads, in each way in which it can be cut."""
    data = frame(ULong(0x15), fields)
    timed = SteppedBroker()
    for cut in range(1, len(data)):
        stream = SteppedStream(timed)
        with RawClient(0, "cut", stream=stream) as client:
            client.begin()
            for part in (data[:cut], data[cut:]):
                client.send_bytes(part)
                timed.turn()
            error = client.expect(Close).error
            assert error is not None, cut
            assert error.condition == "amqp:decode-error", cut
    timed.close()


def test_a_sound_disposition_may_be_cut_anywhere() -> None:
    timed = SteppedBroker()
    with RawClient(0, "cut", stream=SteppedStream(timed)) as client:
        client.begin()
        for cut in range(1, len(DISPOSITION)):
            for part in (DISPOSITION[:cut], DISPOSITION[cut:] + DISPOSITION[:cut], DISPOSITION[cut:]):
                client.send_bytes(part)
                timed.turn()
        assert client.close().error is None
    timed.close()


def test_a_disposition_with_a_symbolic_descriptor_lacks_its_role(client: RawClient) -> None:
    client.send_bytes(frame(Symbol("amqp:disposition:list"), [None, number(0), number(0), True, ACCEPTED]))
    error = client.expect(Close).error
    assert error is not None
    assert error.condition == "amqp:decode-error"


def test_an_open_lacks_its_container_id(broker: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", broker.port), 300) as connection:
        connection.sendall(SASL_ANONYMOUS + AMQP_HEADER + frame(ULong(0x10), [None, "host"]))
        answered = b""
        while part := connection.recv(65_536):
            answered += part
    reader = FrameReader(65_536)
    reader.add(answered[answered.index(AMQP_HEADER) + 8 :])
    answers = list[Performative]()
    while (each := reader.next()) is not None:
        answers.append(read_body(each.body, Performative)[0])
    assert isinstance(answers[-1], Close)
    assert answers[-1].error is not None
    assert answers[-1].error.condition == "amqp:decode-error"
    assert "amqp:open:list lacks its mandatory field container-id" in (answers[-1].error.description or "")


def test_a_null_in_front_of_the_mandatory_fields_of_a_flow_is_no_lack(client: RawClient) -> None:
    """2.7.4: next-incoming-id is absent until the begin of the peer has come."""
    for first in (None, number(0), number(200), number(70_000)):
        client.send_bytes(
            frame(ULong(0x13), [first, number(9), number(0), number(9), None, None, None, None, None, True])
        )
        assert isinstance(client.receive().performative, Flow)


def test_frames_with_long_lists_are_read_in_the_same_way(client: RawClient) -> None:
    """A list may have a size of four bytes (part 1, 1.6.23)."""
    fields = b"\x41" + b"\x70\0\0\0\0"
    long = b"\0\x53\x15\xd0" + (4 + len(fields)).to_bytes(4) + (2).to_bytes(4) + fields
    client.send_bytes((len(long) + 8).to_bytes(4) + b"\x02\0\0\0" + long)
    fields = b"\x41\x40"
    lacking = b"\0\x53\x15\xd0" + (4 + len(fields)).to_bytes(4) + (2).to_bytes(4) + fields
    client.send(Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9), 1)
    client.expect(Begin)
    client.send_bytes((len(lacking) + 8).to_bytes(4) + b"\x02\0\0\0" + lacking)
    error = client.expect(Close).error
    assert error is not None
    assert error.condition == "amqp:decode-error"
