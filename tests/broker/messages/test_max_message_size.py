"""A receiver that says how long a message it takes gets no longer one (AMQP 1.0 part 2, 2.7.3), and nothing is lost."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from support.broker_process import BrokerProcess
from support.raw_client import RawClient, symbols

from penstock_amqp.frames.performatives import (
    Accepted,
    Attach,
    Detach,
    Disposition,
    Flow,
    Modified,
    Source,
    Target,
    Transfer,
)
from penstock_amqp.messages.message_codec import Message, Properties, decode_message, encode_message

QUEUE = symbols("queue")
SHORT, LONG = (encode_message(Message(body=b"x" * size)) for size in (100, 3000))
FITS = len(SHORT)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("sizes") / "data") as process:
        yield process


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.port, "sizes") as client:
        client.begin()
        yield client


@pytest.fixture
def manager(broker: BrokerProcess) -> Iterator[RawClient]:
    """A connection that may ask for everything."""
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(60)
    stream.connect(broker.management.removeprefix("unix:"))
    with RawClient(0, "manager", stream=stream) as client:
        client.begin()
        yield client


def limited(client: RawClient, name: str, source: Source, most: int | None) -> int:
    """A receiver with a limit; our handle of it."""
    taken = client.attach_receiver(name, source, max_message_size=most)
    assert taken.source is not None, client.expect(Detach)
    return client.last_handle


def publish(client: RawClient, address: str, *messages: bytes) -> None:
    client.attach_sender(f"to {address}", Target(address=address))
    client.expect(Flow)
    for number, message in enumerate(messages):
        tag = bytes((number,))
        client.send(Transfer(handle=client.last_handle, delivery_id=number, delivery_tag=tag), payload=message)
        while client.expect(Disposition).last not in (None, number):
            pass


def drained(client: RawClient, handle: int, received: int, credit: int = 10) -> list[bytes]:
    """What comes until the link has nothing more; `received`: deliveries of the link before."""
    client.send(
        Flow(
            next_incoming_id=None,
            incoming_window=10_000,
            next_outgoing_id=0,
            outgoing_window=10_000,
            handle=handle,
            delivery_count=received,
            link_credit=credit,
            drain=True,
        )
    )
    came: list[bytes] = []
    while True:
        frame = client.receive()
        if isinstance(frame.performative, Transfer):
            came.append(frame.payload)
        elif isinstance(frame.performative, Flow) and frame.performative.drain:
            return came


@pytest.mark.parametrize(
    ("address", "capabilities"),
    [("sizes", ("queue",)), ("amq.topic/sizes", ("topic", "shared"))],
    ids=["queue", "topic"],
)
def test_a_longer_message_waits_for_another_consumer(
    client: RawClient, address: str, capabilities: tuple[str, ...]
) -> None:
    source = Source(address=address, durable=0, expiry_policy=symbols("never")[0], capabilities=symbols(*capabilities))
    small = limited(client, "s|small", source, FITS)
    publish(client, address, LONG, SHORT, LONG, SHORT)
    assert drained(client, small, 0) == [SHORT, SHORT]
    any_size = limited(client, "s|any", source, None)
    assert drained(client, any_size, 0) == [LONG, LONG]


@pytest.mark.parametrize("most", [0, FITS, 1 << 63])
def test_what_fits_is_sent(client: RawClient, most: int) -> None:
    """0 is no limit."""
    address = f"fits-{most}"
    handle = limited(client, address, Source(address=address, capabilities=QUEUE), most)
    publish(client, address, SHORT)
    assert drained(client, handle, 0) == [SHORT]


def test_a_selector_holds_too(client: RawClient) -> None:
    """The limit stands beside it, and beside a message called undeliverable here."""
    source = Source(address="both", capabilities=QUEUE)
    handle = limited(client, "both", source, FITS)
    publish(client, "both", SHORT, LONG, SHORT)
    assert drained(client, handle, 0, credit=1) == [SHORT]
    client.send(Disposition(role=True, first=0, settled=True, state=Modified(undeliverable_here=True)))
    assert drained(client, handle, 1) == [SHORT]
    assert drained(client, limited(client, "other", source, None), 0) == [SHORT, LONG]


def test_a_delivery_count_may_make_it_too_long(client: RawClient) -> None:
    """What is written into its header counts."""
    source = Source(address="grown", capabilities=QUEUE)
    handle = limited(client, "grown", source, FITS)
    publish(client, "grown", SHORT)
    assert drained(client, handle, 0) == [SHORT]
    client.send(Disposition(role=True, first=0, settled=True, state=Modified(delivery_failed=True)))
    assert drained(client, handle, 1) == []
    (grown,) = drained(client, limited(client, "other", source, None), 0)
    assert len(grown) > FITS


def test_a_browser_does_without_it(client: RawClient) -> None:
    publish(client, "browsed", LONG, SHORT, LONG)
    source = Source(address="browsed", capabilities=QUEUE, distribution_mode=symbols("copy")[0])
    assert drained(client, limited(client, "browses", source, FITS), 0) == [SHORT]


def test_an_answer_that_is_too_long_becomes_one_that_says_so(manager: RawClient) -> None:
    manager.attach_receiver("answers", Source(address="$management"), target=Target(address="a"), max_message_size=350)
    manager.flow(manager.last_handle, credit=10)
    ask(manager)
    answer = decode_message(manager.expect_transfer()[1])
    assert answer.application_properties["penstock:reason"] == "LimitExceeded"
    assert "350" in str(answer.application_properties["statusDescription"])


def test_where_no_answer_fits_the_link_is_closed(manager: RawClient) -> None:
    manager.attach_receiver("answers", Source(address="$management"), target=Target(address="a"), max_message_size=20)
    manager.flow(manager.last_handle, credit=10)
    ask(manager)
    said = manager.receive().performative
    while not isinstance(said, Detach):
        assert isinstance(said, Flow | Attach | Disposition), said
        said = manager.receive().performative
    assert said.error is not None and said.error.condition == "amqp:link:message-size-exceeded"


def ask(client: RawClient) -> None:
    """Ask for all exchanges."""
    client.attach_sender("asks", Target(address="$management"))
    client.expect(Flow)
    request = Message(
        properties=Properties(message_id="1", reply_to="a"),
        application_properties={"operation": "QUERY", "entityType": "penstock.exchange", "name": "self"},
        body={},
    )
    client.send(
        Transfer(handle=client.last_handle, delivery_id=0, delivery_tag=b"t", settled=True),
        payload=encode_message(request),
    )


def test_what_is_accepted_is_gone(client: RawClient) -> None:
    """A consumer with a limit settles as others do."""
    source = Source(address="gone", capabilities=QUEUE)
    handle = limited(client, "gone", source, FITS)
    publish(client, "gone", LONG, SHORT)
    assert drained(client, handle, 0) == [SHORT]
    client.send(Disposition(role=True, first=0, settled=True, state=Accepted()))
    client.send(Detach(handle=handle, closed=True))
    client.expect(Detach)
    assert drained(client, limited(client, "other", source, None), 0) == [LONG]
