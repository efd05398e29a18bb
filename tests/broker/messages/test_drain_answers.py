"""A drain is answered by a flow, also when messages use up the credit or more was sent than the peer still allows.

go-amqp waits for that flow; fe2o3-amqp drains with credit 0. The numbers are typed from part 2, 2.6.7.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.broker_process import BrokerProcess
from support.raw_client import RawClient

from penstock_amqp.frames.performatives import Disposition, Flow, Source, Target, Transfer
from penstock_amqp.messages.message_codec import Message, Properties, encode_message
from penstock_amqp.types.values import Symbol

QUEUE = Source(address="drained")
LONG = encode_message(Message(body=b"x" * 100_000))
VERY_LONG = encode_message(Message(body=b"x" * 1_200_000))
"""It is sent from where it is stored, piece by piece."""
USUAL = encode_message(Message(body=b"x" * 1_000))
"""The compiled engine keeps messages of this length from proton, which then knows no byte of them."""


@pytest.fixture
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawClient]:
    """Three messages wait in the queue; the link attached last consumes from it and has no credit."""
    with (
        BrokerProcess(tmp_path_factory.mktemp("drains") / "data") as broker,
        RawClient(broker.port, "drains") as client,
    ):
        client.begin()
        client.attach_sender("to", Target(address="drained"))
        for number in range(3):
            sent = Transfer(handle=client.last_handle, delivery_id=number, delivery_tag=bytes((number,)), settled=True)
            client.send(sent, payload=encode_message(Message(body=number)))
        client.attach_receiver("from", QUEUE)
        yield client


def allow(client: RawClient, count: int, credit: int, *, drain: bool | None = None, window: int = 100) -> None:
    """The receiver has seen `count` deliveries and takes `credit` more."""
    client.send(
        Flow(
            next_incoming_id=count,
            incoming_window=window,
            next_outgoing_id=3,
            outgoing_window=100,
            handle=client.last_handle,
            delivery_count=count,
            link_credit=credit,
            drain=drain,
        )
    )


def told(client: RawClient) -> tuple[int | None, int | None, bool | None, int | None]:
    """The next flow of the link: delivery-count, credit, drain, transfers sent on the session."""
    while (flow := client.expect(Flow)).handle is None or not flow.drain:
        pass
    return flow.delivery_count, flow.link_credit, flow.drain, flow.next_outgoing_id


@pytest.mark.parametrize("credit", [1, 3])
def test_credit_that_messages_used_up_is_told(client: RawClient, credit: int) -> None:
    allow(client, 0, credit, drain=True)
    for _ in range(credit):
        client.expect_transfer()
    assert told(client) == (credit, 0, True, credit)


def test_messages_and_the_rest_of_the_credit_are_told(client: RawClient) -> None:
    allow(client, 0, 5, drain=True)
    for _ in range(3):
        client.expect_transfer()
    assert told(client)[:3] == (5, 0, True)


def test_a_drain_that_crosses_messages_takes_none_of_them_back(client: RawClient) -> None:
    """The peer had seen one of two when it took its credit back: two were sent, and no third one follows."""
    allow(client, 0, 2)
    client.expect_transfer()
    client.expect_transfer()
    allow(client, 1, 0, drain=True)
    assert told(client) == (2, 0, True, 2)
    allow(client, 2, 0, drain=True)
    answer = client.receive().performative
    assert isinstance(answer, Flow), answer
    assert (answer.delivery_count, answer.link_credit, answer.drain) == (2, 0, True)
    allow(client, 2, 1)
    client.expect_transfer()


def test_credit_that_a_message_of_several_frames_used_up_is_told(client: RawClient) -> None:
    """65,536 bytes are the longest frame: 100,000 take two, and our next-outgoing-id counts both."""
    allow(client, 0, 3)
    for _ in range(3):
        client.expect_transfer()
    client.send(Transfer(handle=0, delivery_id=3, delivery_tag=b"long", settled=True, more=True), payload=LONG[:60_000])
    client.send(Transfer(handle=0), payload=LONG[60_000:])
    allow(client, 3, 1, drain=True)
    assert client.expect_transfer()[0].more
    assert not client.expect_transfer()[0].more
    assert told(client) == (4, 0, True, 5)


@pytest.mark.parametrize("credit", [3, 5])
def test_a_drain_is_answered_behind_messages_that_a_shut_window_kept_back(client: RawClient, credit: int) -> None:
    allow(client, 0, credit, drain=True, window=1)
    client.expect_transfer()
    client.send(Flow(next_incoming_id=1, incoming_window=2, next_outgoing_id=3, outgoing_window=100))
    client.expect_transfer()
    client.expect_transfer()
    assert told(client) == (credit, 0, True, 3)


def test_so_is_that_of_a_browser(client: RawClient) -> None:
    client.attach_receiver("browser", Source(address="drained", distribution_mode=Symbol("copy")))
    allow(client, 0, 5, drain=True, window=1)
    client.expect_transfer()
    client.send(Flow(next_incoming_id=1, incoming_window=2, next_outgoing_id=3, outgoing_window=100))
    client.expect_transfer()
    client.expect_transfer()
    assert told(client) == (5, 0, True, 3)


def test_so_is_one_behind_messages_of_which_the_engine_holds_no_byte(client: RawClient) -> None:
    allow(client, 0, 3)
    for _ in range(3):
        client.expect_transfer()
    for number in range(3, 6):
        sent = Transfer(handle=0, delivery_id=number, delivery_tag=bytes((number,)), settled=True)
        client.send(sent, payload=USUAL)
    allow(client, 3, 3, drain=True, window=1)
    client.expect_transfer()
    client.send(Flow(next_incoming_id=4, incoming_window=2, next_outgoing_id=6, outgoing_window=100))
    assert isinstance(client.receive().performative, Transfer)
    assert isinstance(client.receive().performative, Transfer)
    assert told(client) == (6, 0, True, 6)


@pytest.mark.parametrize("credit", [3, 5])
def test_so_is_that_of_a_link_for_management_responses(client: RawClient, credit: int) -> None:
    client.attach_sender("requests", Target(address="$management"))
    requests = client.last_handle
    client.attach_receiver("responses", Source(address="$management"), target=Target(address="here"))
    allow(client, 0, credit, window=1)
    asked = Message(properties=Properties(message_id="1", reply_to="here"), application_properties={"operation": "?"})
    for number in range(3, 6):
        sent = Transfer(handle=requests, delivery_id=number, delivery_tag=bytes((number,)), settled=True)
        client.send(sent, payload=encode_message(asked))
    client.expect_transfer()
    allow(client, 0, credit, drain=True, window=1)
    client.send(Flow(next_incoming_id=1, incoming_window=0, next_outgoing_id=6, outgoing_window=100, echo=True))
    while client.expect(Flow).handle is not None:
        pass  # new credit for requests may come before: then the drain has been read, and the window is shut
    client.send(Flow(next_incoming_id=1, incoming_window=2, next_outgoing_id=6, outgoing_window=100))
    client.expect_transfer()
    client.expect_transfer()
    assert told(client) == (credit, 0, True, 3)


@pytest.mark.parametrize("credit", [1, 5])
def test_so_is_one_behind_a_message_that_is_sent_in_pieces(client: RawClient, credit: int) -> None:
    allow(client, 0, 3)
    for _ in range(3):
        client.expect_transfer()
    pieces = [VERY_LONG[at : at + 60_000] for at in range(0, len(VERY_LONG), 60_000)]
    for number, piece in enumerate(pieces):
        client.send(
            Transfer(handle=0, delivery_id=3, delivery_tag=b"long", more=number < len(pieces) - 1), payload=piece
        )
    client.expect(Disposition)
    allow(client, 3, credit, drain=True, window=1)
    frames, more = 0, True
    while more:
        more = bool(client.expect_transfer()[0].more)
        frames += 1
        client.send(Flow(next_incoming_id=3 + frames, incoming_window=1, next_outgoing_id=99, outgoing_window=100))
    assert told(client) == (3 + credit, 0, True, 3 + frames)
