"""What a broker does with peers that break the protocol: a clear error for that connection, and nobody else notices."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import socket
from collections.abc import Iterator

import pytest
from support.broker_process import BrokerProcess
from support.raw_client import RawClient, symbols

from penstock_amqp.frames.frames import AMQP_HEADER, SASL_HEADER, encode_frame
from penstock_amqp.frames.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
)
from penstock_amqp.messages.message_codec import Message, encode_message
from penstock_amqp.sasl.client import Login, NotAuthenticated
from penstock_amqp.sasl.frames import Init, SaslCode, sasl_frame
from penstock_amqp.types.composites import to_value
from penstock_amqp.types.encoder import encode
from penstock_amqp.types.values import Described, Descriptor, Symbol, UInt, ULong, UShort, Value

ATTACH = Attach(
    name="link",
    handle=0,
    role=True,
    source=Source(address="news", capabilities=symbols("topic")),
    target=Target(),
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("faults") / "data") as process:
        yield process


class Witness:
    """A connection that is there before a fault and must not notice it."""

    def __init__(self, port: int) -> None:
        self.client = RawClient(port, "witness")
        self.client.begin()
        self.client.attach_receiver("seen", ATTACH.source)
        self.client.flow(self.client.last_handle, credit=1000)
        self.client.attach_sender("said", Target(address="news"))
        self._count = 0

    def check(self) -> None:
        """Publish, and get what was published."""
        payload = encode_message(Message(body=f"message {self._count}"))
        head = Transfer(
            handle=self.client.last_handle, delivery_id=self._count, delivery_tag=b"%d" % self._count, settled=True
        )
        self.client.send(head, payload=payload)
        self._count += 1
        assert self.client.expect_transfer()[1] == payload


@pytest.fixture(scope="module")
def witness(broker: BrokerProcess) -> Iterator[Witness]:
    witness = Witness(broker.port)
    witness.check()
    yield witness
    witness.client.socket.close()


def frame(descriptor: Descriptor, fields: Value, channel: int = 0) -> bytes:
    body = encode(Described(descriptor, fields))
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big") + body


def attach(*fields: Value) -> bytes:
    return frame(ULong(0x12), list(fields))


def source(*fields: Value) -> Described:
    return Described(ULong(0x28), list(fields))


FAULTS = [
    pytest.param(attach("x", UShort(1), True), "amqp:decode-error", id="handle-is-a-ushort"),
    pytest.param(attach("x", UInt(1)), "amqp:decode-error", id="no-role"),
    pytest.param(attach("x", UInt(1), True, None, None, "t"), "amqp:decode-error", id="source-is-text"),
    pytest.param(
        attach("x", UInt(1), True, None, None, source("t", UShort(2))), "amqp:decode-error", id="durable-is-a-ushort"
    ),
    pytest.param(
        attach("x", UInt(1), True, None, None, source("t", *[None] * 6, [])), "amqp:decode-error", id="filter-is-a-list"
    ),
    pytest.param(
        frame(Symbol("amqp:attached:list"), to_value(ATTACH).value), "amqp:connection:framing-error", id="other-symbol"
    ),
    pytest.param(b"\0\0\0\x04\x02\0\0\0", "amqp:connection:framing-error", id="frame-shorter-than-its-header"),
    pytest.param(b"\x7f\0\0\x04\x02\0\0\0", "amqp:connection:framing-error", id="frame-too-long"),
    pytest.param(b"\0\0\0\x0c\x02\0\0\0\xff\xff\xff\xff", "amqp:connection:framing-error", id="no-performative"),
    pytest.param(encode_frame(ATTACH, 9), "amqp:not-allowed", id="channel-without-session"),
    pytest.param(encode_frame(Open(container_id="again")), "amqp:connection:framing-error", id="second-open"),
    pytest.param(
        encode_frame(Transfer(handle=5, delivery_id=0, delivery_tag=b"t"), payload=b"\0\x53\x77\x40"),
        "amqp:session:unattached-handle",
        id="transfer-without-link",
    ),
]


@pytest.mark.parametrize(("data", "condition"), FAULTS)
def test_a_fault_closes_its_connection_with_a_condition(
    broker: BrokerProcess, witness: Witness, data: bytes, condition: str
) -> None:
    with RawClient(broker.port, "faulty") as client:
        client.begin()
        client.send_bytes(data)
        while not isinstance(performative := client.receive().performative, Close):
            assert isinstance(performative, Flow | Attach | End)
        assert performative.error is not None
        assert performative.error.condition == condition
        assert performative.error.description
        with pytest.raises(EOFError):
            client.receive()
    witness.check()


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(b"HTTP/1.1", id="http"),
        pytest.param(b"AMQP\x02\x01\x00\x00", id="tls-in-band"),
        pytest.param(b"AMQP\x00\x00\x09\x01", id="amqp-0-9-1"),
        pytest.param(b"\x16\x03\x01\x00", id="tls"),
    ],
)
def test_another_header_is_answered_with_ours_and_the_connection_ends(
    broker: BrokerProcess, witness: Witness, header: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", broker.port), 20) as connection:
        connection.sendall(header)
        assert read_all(connection) == SASL_HEADER
    witness.check()


def read_all(connection: socket.socket) -> bytes:
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            data += part
    return data


def test_wrong_credentials_are_refused(broker: BrokerProcess, witness: Witness) -> None:
    with RawClient(broker.port, "c", login=Login("guest", "guest")):
        pass
    for login in (Login("guest", "wrong"), Login("nobody", "guest")):
        with pytest.raises(NotAuthenticated) as caught:
            RawClient(broker.port, "c", login=login)
        assert caught.value.code is SaslCode.AUTH
    witness.check()


def test_everything_up_to_the_attach_may_come_in_one_write(broker: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", broker.port), 20) as connection:
        init = sasl_frame(Init(mechanism=Symbol("ANONYMOUS"), initial_response=b""))
        begin = Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10)
        opening = encode_frame(Open(container_id="hasty")) + encode_frame(begin) + encode_frame(ATTACH)
        connection.sendall(SASL_HEADER + init + AMQP_HEADER + opening)
        answered = b""
        while b"\x00\x53\x12" not in answered:
            answered += connection.recv(65_536)
    places = [answered.index(mark) for mark in (AMQP_HEADER, b"\x00\x53\x10", b"\x00\x53\x11", b"\x00\x53\x12")]
    assert places == sorted(places)


def test_an_attach_may_come_byte_by_byte(broker: BrokerProcess) -> None:
    with RawClient(broker.port, "slow") as client:
        client.begin()
        assert isinstance(client.socket, socket.socket)
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in encode_frame(dataclasses.replace(ATTACH, desired_capabilities=symbols("SHARED-SUBS"))):
            client.send_bytes(bytes((byte,)))
        assert client.expect(Attach).offered_capabilities == ("SHARED-SUBS",)


def test_a_flow_that_asks_for_an_echo_gets_one(broker: BrokerProcess) -> None:
    with RawClient(broker.port, "echo") as client:
        client.begin()
        client.attach_receiver("l", dataclasses.replace(ATTACH.source or Source(), address="quiet"))
        client.flow(client.last_handle, credit=7, echo=True)
        told = client.expect(Flow)
        while told.handle is None:
            told = client.expect(Flow)
        assert told.link_credit == 7


def test_mutated_traffic_harms_nobody(broker: BrokerProcess, witness: Witness) -> None:
    """Two hundred seeded mutations of a whole conversation."""
    numbers = random.Random(20_261_121)
    init = sasl_frame(Init(mechanism=Symbol("ANONYMOUS"), initial_response=b""))
    payload = encode_message(Message(application_properties={"colour": "red"}, body="hello"))
    conversation = b"".join(
        [
            encode_frame(Open(container_id="mutant", desired_capabilities=symbols("SHARED-SUBS"))),
            encode_frame(Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10)),
            encode_frame(ATTACH),
            encode_frame(Flow(incoming_window=9, next_outgoing_id=0, outgoing_window=9, handle=0, link_credit=5)),
            encode_frame(Attach(name="out", handle=1, role=False, target=Target(address="mutants"))),
            encode_frame(Transfer(handle=1, delivery_id=0, delivery_tag=b"t"), payload=payload),
            encode_frame(Disposition(role=True, first=0, settled=True)),
            encode_frame(Detach(handle=0, closed=True)),
            encode_frame(Close()),
        ]
    )
    for turn in range(200):
        mutant = bytearray(conversation)
        for _ in range(numbers.randrange(1, 4)):
            at = numbers.randrange(len(mutant))
            match numbers.randrange(3):
                case 0:
                    mutant[at] = numbers.randrange(256)
                case 1:
                    del mutant[at : at + numbers.randrange(1, 9)]
                case _:
                    mutant[at:at] = numbers.randbytes(numbers.randrange(1, 9))
        with socket.create_connection(("127.0.0.1", broker.port), 20) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(SASL_HEADER + init + AMQP_HEADER + bytes(mutant))
                connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                read_all(connection)
        if turn % 20 == 19:
            witness.check()
