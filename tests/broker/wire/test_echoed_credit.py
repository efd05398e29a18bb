"""What an echo says of a link's credit, in either direction: delivery-count and credit that belong together.

Source: AMQP 1.0 part 2, 2.6.7 and 2.7.4 (echo).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.broker_process import BrokerProcess
from support.raw_client import RawClient, symbols

from penstock_amqp.frames.frames import encode_frame
from penstock_amqp.frames.performatives import Attach, Detach, Flow, Source, Target, Transfer
from penstock_amqp.messages.message_codec import Message, encode_message

MESSAGE = encode_message(Message(body="hello"))
QUEUE = symbols("queue")
SERIAL = 2**32


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("echoes") / "data") as process:
        yield process


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.port, "echoes") as client:
        client.begin()
        yield client


def flow(
    handle: int | None, count: int = 0, credit: int = 0, *, drain: bool | None = None, echo: bool | None = None
) -> Flow:
    """A flow of a session that has received nothing and takes 100 frames."""
    return Flow(
        next_incoming_id=0,
        incoming_window=100,
        next_outgoing_id=0,
        outgoing_window=100,
        handle=handle,
        delivery_count=None if handle is None else count,
        link_credit=None if handle is None else credit,
        drain=drain,
        echo=echo,
    )


def consume_from(client: RawClient, name: str) -> None:
    client.attach_receiver(f"from-{name}", Source(address=name, capabilities=QUEUE))


def send_to(client: RawClient, name: str) -> None:
    client.attach_sender(f"to-{name}", Target(address=name, capabilities=QUEUE))


def message(number: int, *, aborted: bool = False) -> bytes:
    """The delivery of a sender's link, handle 0, whose delivery-id is `number`."""
    tag = b"%d" % number
    head = Transfer(handle=0, delivery_id=number, delivery_tag=tag, settled=True, aborted=aborted or None)
    return encode_frame(head, payload=b"" if aborted else MESSAGE)


def test_an_echo_counts_from_the_last_flow_of_its_link(client: RawClient) -> None:
    """Whatever the flow that asked had allowed; all of them come in one write."""
    consume_from(client, "empty")
    flows = (flow(0, 0, 1, echo=True), flow(0, 0, 5, echo=True), flow(0, 0, 10))
    client.send_bytes(b"".join(encode_frame(each) for each in flows))
    for _ in range(2):
        answer = client.expect(Flow)
        assert (answer.delivery_count, answer.link_credit) == (0, 10)


def test_an_echo_does_not_speak_of_a_drain_that_was_taken_back(client: RawClient) -> None:
    consume_from(client, "empty")
    flows = (flow(0, 0, 5, drain=True, echo=True), flow(0, 0, 5, drain=False))
    client.send_bytes(b"".join(encode_frame(each) for each in flows))
    answer = client.expect(Flow)
    assert (answer.delivery_count, answer.link_credit, answer.drain) == (0, 5, False)


def test_a_drain_that_asks_for_an_echo_is_answered_behind_its_messages(client: RawClient) -> None:
    """Clients take a flow with drain for the end of it, and these messages wait for the session's window."""
    send_to(client, "waiting")
    client.send_bytes(message(0) + message(1))
    consume_from(client, "waiting")
    shut = Flow(
        next_incoming_id=0,
        incoming_window=0,
        next_outgoing_id=2,
        outgoing_window=100,
        handle=1,
        delivery_count=0,
        link_credit=9,
        drain=True,
        echo=True,
    )
    client.send(shut)
    client.send(Flow(next_incoming_id=0, incoming_window=0, next_outgoing_id=2, outgoing_window=100, echo=True))
    answer = client.expect(Flow)
    while answer.handle is not None:  # the credit of the sender's link
        assert answer.drain is not True
        answer = client.expect(Flow)
    client.send(flow(None))
    assert [client.expect_transfer()[1] for _ in range(2)] == [MESSAGE] * 2
    answer = client.expect(Flow)
    assert (answer.delivery_count, answer.link_credit, answer.drain) == (9, 0, True)


@pytest.mark.parametrize("first", [0, 7, SERIAL - 100])
@pytest.mark.parametrize("sent", [1, 600, 2500])
def test_a_sender_that_asks_may_use_the_credit_that_it_is_told(client: RawClient, first: int, sent: int) -> None:
    """`first`: its delivery-count when it attaches. What it aborts counts as well."""
    target = Target(address=f"sent-{sent}-{first}", capabilities=QUEUE)
    client.send(Attach(name="to", handle=0, role=False, source=Source(), target=target, initial_delivery_count=first))
    handle = client.expect(Attach).handle
    limit = 0
    for number in range(sent):
        while number == limit:
            given = client.expect(Flow)
            limit = ((given.delivery_count or 0) + (given.link_credit or 0) - first) % SERIAL
        client.send_bytes(message(number, aborted=number % 10 == 9))
    asked = flow(0, (first + sent) % SERIAL, echo=True)
    client.send_bytes(encode_frame(asked) + encode_frame(flow(None, echo=True)))
    answers = [client.expect(Flow)]
    while answers[-1].handle is not None:
        answers.append(client.expect(Flow))
    answer = answers[-2]
    assert (answer.handle, answer.delivery_count) == (handle, (first + sent) % SERIAL)
    assert answer.link_credit is not None and 0 < answer.link_credit <= 1000
    rest = b"".join(message(sent + number) for number in range(answer.link_credit))
    client.send_bytes(rest + encode_frame(Detach(handle=0, closed=True)))
    assert client.expect(Detach) == Detach(handle=handle, closed=True)
