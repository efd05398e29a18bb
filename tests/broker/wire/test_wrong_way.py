"""Transfers that come on a link on which the broker sends, on bare frames against a running broker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.broker_process import BrokerProcess
from support.raw_client import RawClient, symbols

from penstock_amqp.frames.frames import encode_frame
from penstock_amqp.frames.performatives import (
    Begin,
    Close,
    Disposition,
    End,
    Flow,
    Released,
    Source,
    Target,
    Transfer,
)
from penstock_amqp.messages.message_codec import Message, encode_message

HELLO = encode_message(Message(body="hello"))
QUEUE = symbols("queue")
FRAME = 60_000
ASTRAY = Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("wrong-way") / "data") as process:
        yield process


def begin(client: RawClient, *, window: int) -> None:
    client.send(Begin(next_outgoing_id=0, incoming_window=window, outgoing_window=100))
    client.expect(Begin)


def consume(client: RawClient, name: str) -> None:
    client.attach_receiver("reader", Source(address=name, capabilities=QUEUE), handle=0)


def put_long(broker: BrokerProcess, name: str) -> None:
    """A message of 25 frames, which leaves its queue in pieces."""
    body = encode_message(Message(body="x" * FRAME * 25))
    with RawClient(broker.port, "writer") as client:
        client.begin()
        client.attach_sender("writer", Target(address=name, capabilities=QUEUE))
        for start in range(0, len(body), FRAME):
            more = start + FRAME < len(body)
            client.send(replace(ASTRAY, more=more), payload=body[start : start + FRAME])
        assert client.expect(Disposition).settled is True


def check_refused(client: RawClient) -> None:
    """The session ends with the condition, then the connection; nothing comes back that we sent."""
    for error in (client.expect(End).error, client.expect(Close).error):
        assert error is not None
        assert error.condition == "amqp:not-allowed"
        assert error.description == "A transfer came on a link on which you receive; attach a link on which you send."
    with pytest.raises(EOFError):
        client.receive()


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("more", [False, True])
def test_a_receiver_sends_no_messages(broker: BrokerProcess, settled: bool, more: bool) -> None:
    """2.6.12 and 2.7.5: transfers go from the sender to the receiver. The engine would keep them for as long as the
    link lives, whatever their size, and send them back at its end.
    """
    with RawClient(broker.port, "wrong-way") as client:
        begin(client, window=100)
        consume(client, "nothing-here")
        client.send(replace(ASTRAY, settled=settled, more=more), payload=HELLO)
        check_refused(client)


def test_nor_does_one_that_has_received(broker: BrokerProcess) -> None:
    """A delivery that it was sent and has not settled changes nothing, and goes to another."""
    with RawClient(broker.port, "wrong-way") as client:
        begin(client, window=100)
        client.attach_sender("writer", Target(address="one-here", capabilities=QUEUE), channel=0)
        client.send(ASTRAY, payload=HELLO)
        assert client.expect(Disposition).settled is True
        client.attach_receiver("reader", Source(address="one-here", capabilities=QUEUE), handle=1)
        client.flow(1, credit=10)
        client.expect_transfer()
        client.send(replace(ASTRAY, handle=1, delivery_id=1), payload=HELLO)
        check_refused(client)
    with RawClient(broker.port, "another") as client:
        begin(client, window=100)
        consume(client, "one-here")
        client.flow(0, credit=1)
        assert client.expect_transfer()[1].endswith(HELLO)


def test_nor_does_one_that_is_sent_a_long_message(broker: BrokerProcess) -> None:
    """The engine would add it to what is being sent."""
    put_long(broker, "long-here")
    with RawClient(broker.port, "wrong-way") as client:
        begin(client, window=2)
        consume(client, "long-here")
        client.send(Flow(next_incoming_id=0, incoming_window=2, next_outgoing_id=0, outgoing_window=100,
                         handle=0, delivery_count=0, link_credit=1))  # fmt: skip
        assert [client.expect_transfer()[0].more for _ in range(2)] == [True, True]
        client.send(ASTRAY, payload=HELLO)
        check_refused(client)


def test_what_it_says_of_a_long_message_is_heard_before_the_end(broker: BrokerProcess) -> None:
    """2.6.14: also without a state, which says nothing."""
    put_long(broker, "given-back")
    with RawClient(broker.port, "reader") as client:
        begin(client, window=2)
        consume(client, "given-back")
        client.send(Flow(next_incoming_id=0, incoming_window=2, next_outgoing_id=0, outgoing_window=100,
                         handle=0, delivery_count=0, link_credit=1))  # fmt: skip
        assert [client.expect_transfer()[0].more for _ in range(2)] == [True, True]
        client.send_bytes(
            encode_frame(Disposition(role=True, first=0))
            + encode_frame(Disposition(role=True, first=0, settled=True, state=Released()))
            + encode_frame(Flow(next_incoming_id=2, incoming_window=100, next_outgoing_id=0, outgoing_window=100))
        )
        while not client.expect_transfer()[0].aborted:
            pass
