"""Fields of an attach that the broker can't do as the peer wants, on bare frames against a running broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.broker_process import BrokerProcess
from support.raw_client import RawClient, symbols

from penstock_amqp.frames.performatives import Attach, Close, Detach, Disposition, End, Flow, Source, Target, Transfer
from penstock_amqp.messages.message_codec import Message, encode_message
from penstock_amqp.types.values import Symbol

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
