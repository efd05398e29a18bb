"""What the broker says, and what it keeps silent, at the corners of AMQP 1.0 where clients differ: on bare frames.

Expected values are typed from AMQP 1.0, parts 2 to 4, and from "Enforcing Connection Uniqueness" 1.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from support.raw_client import RawClient, symbols
from support.stepped_broker import SteppedBroker, SteppedStream
from support.transaction_client import TransactionClient

from penstock_amqp.frames.performatives import (
    Accepted,
    Attach,
    Detach,
    Disposition,
    Flow,
    Source,
    Target,
    Transfer,
)
from penstock_amqp.messages.message_codec import Message, Properties, encode_message
from penstock_amqp.messages.transaction_types import TransactionalState
from penstock_amqp.types.values import Symbol, UInt

SOLE = symbols("sole-connection-for-container")
POLICY = Symbol("sole-connection-enforcement-policy")
WITHOUT_REJECTED = Source(outcomes=symbols("amqp:accepted:list", "amqp:released:list"))

Connect = Callable[..., RawClient]


@pytest.fixture
def timed() -> Iterator[SteppedBroker]:
    timed = SteppedBroker({"maxMessageBytes": 2000})
    timed.make_queue("q")
    yield timed
    timed.close()


@pytest.fixture
def connect(timed: SteppedBroker) -> Iterator[Connect]:
    with ExitStack() as clients:

        def connect(container_id: str, policy: int | None = None, *, sole: bool = True) -> RawClient:
            client = RawClient(
                0,
                container_id,
                stream=SteppedStream(timed),
                desired=SOLE if sole else None,
                properties={POLICY: UInt(policy)} if policy is not None else None,
            )
            return clients.enter_context(client)

        yield connect


# -- a message that is refused by closing its link ------------------------------------------------------------------


def test_only_the_detach_tells_of_a_message_that_closes_its_link(connect: Connect) -> None:
    """Part 2, 2.6.12: a settlement without an outcome could be taken for success."""
    client = connect("c")
    client.begin()
    client.attach_sender("relay", Target(), source=WITHOUT_REJECTED)
    client.expect(Flow)
    for number, to in enumerate(("q", "nowhere", "q")):
        head = Transfer(handle=0, delivery_id=number, delivery_tag=b"tag-%d" % number, message_format=0)
        client.send(head, payload=encode_message(Message(properties=Properties(to=to), body="x")))
    accepted = client.expect(Disposition)
    assert (accepted.first, accepted.last or accepted.first, accepted.state) == (0, 0, Accepted())
    detach = client.expect(Detach)
    assert detach.error is not None
    assert (detach.error.condition, (detach.error.info or {})[Symbol("delivery-tag")]) == ("amqp:not-found", b"tag-1")
    client.attach_sender("the-session-lives", Target(address="q"))


def test_only_the_detach_tells_of_a_message_that_is_too_long(connect: Connect) -> None:
    """Part 2, 2.7.3: `max-message-size`. What comes before the peer knows of the detach has no answer either."""
    client = connect("c")
    client.begin()
    most = client.attach_sender("long", Target(address="q")).max_message_size
    assert most is not None
    client.attach_sender("other", Target(address="q"))
    client.expect(Flow)
    for number, body in enumerate((b"x", b"x" * most)):
        head = Transfer(handle=0, delivery_id=number, delivery_tag=b"%d" % number)
        client.send(head, payload=encode_message(Message(body=body)))
    accepted = client.expect(Disposition)
    assert (accepted.first, accepted.last or accepted.first, accepted.state) == (0, 0, Accepted())
    detach = client.expect(Detach)
    assert detach.error is not None and detach.error.condition == "amqp:link:message-size-exceeded"
    for handle, number in ((0, 2), (1, 3), (0, 4), (1, 5)):
        head = Transfer(handle=handle, delivery_id=number, delivery_tag=b"%d" % number)
        client.send(head, payload=encode_message(Message(body="x")))
        if handle:
            accepted = client.expect(Disposition)
            assert (accepted.first, accepted.last or accepted.first, accepted.state) == (number, number, Accepted())


# -- rcv-settle-mode second in a transaction ------------------------------------------------------------------------


def test_in_a_transaction_we_settle_second_too(connect: Connect, timed: SteppedBroker) -> None:
    """Part 2, 2.8.3: what the attach echoes is done: we answer, the sender settles, then we do."""
    client = connect("c")
    transactions = TransactionClient(client)
    client.send(
        Attach(
            name="careful",
            handle=7,
            role=False,
            rcv_settle_mode=1,
            source=Source(),
            target=Target(address="q"),
            initial_delivery_count=0,
        )
    )
    assert client.expect(Attach).rcv_settle_mode == 1
    txn_id = transactions.declare()
    number = transactions.post(7, "posted", txn_id)
    told = client.expect(Disposition)
    assert (told.first, told.role, told.settled or False) == (number, True, False)
    assert told.state == TransactionalState(txn_id=txn_id, outcome=Accepted())
    client.send(Disposition(role=False, first=number, settled=True, state=told.state))
    transactions.commit(txn_id)
    assert timed.queue("q").depth == 1


# -- one connection per container -----------------------------------------------------------------------------------


def test_the_open_reply_names_the_policy_that_holds(connect: Connect) -> None:
    for policy, told in ((None, 0), (0, 0), (1, 1)):
        client = connect(f"c-{policy}", policy)
        assert client.open.properties is not None
        assert client.open.properties[POLICY] == UInt(told)
    client = connect("other", 1, sole=False)
    assert POLICY not in (client.open.properties or {})


# -- a name is one kind of node -------------------------------------------------------------------------------------


@pytest.fixture
def making() -> Iterator[SteppedBroker]:
    timed = SteppedBroker({"autoCreate": True})
    yield timed
    timed.close()


def test_a_topic_that_was_published_to_first_as_a_queue_is_refused_with_the_cure(making: SteppedBroker) -> None:
    with RawClient(0, "c", stream=SteppedStream(making)) as client:
        client.begin()
        assert client.attach_sender("untyped", Target(address="orders")).target is not None
        reply = client.attach_receiver("sub|1", Source(address="orders", capabilities=symbols("topic", "shared")))
        assert reply.source is None
        error = client.expect(Detach).error
        assert error is not None and error.condition == "amqp:not-found"
        assert (error.info or {})[Symbol("penstock:reason")] == "OtherKindOfNode"
        assert "queue://orders" in (error.description or "") and "topic://orders" in (error.description or "")
        assert "orders" not in making.broker.topology.exchanges


@pytest.mark.parametrize("publishes_first", [True, False])
def test_clients_that_name_the_topic_meet_in_any_order(making: SteppedBroker, publishes_first: bool) -> None:
    with RawClient(0, "c", stream=SteppedStream(making)) as client:
        client.begin()

        def publish() -> None:
            assert client.attach_sender("typed", Target(address="topic://orders")).target is not None

        def consume() -> None:
            source = Source(address="orders", capabilities=symbols("topic", "shared", "global"))
            assert client.attach_receiver("sub|1", source).source is not None

        for act in (publish, consume) if publishes_first else (consume, publish):
            act()
        exchange = making.broker.topology.exchanges["orders"]
        assert (len(exchange.producers), len(exchange.router.handles)) == (1, 1)
        assert "orders" not in making.broker.topology.queues


# -- dynamic nodes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capabilities", "granted", "is_shared"),
    [(None, "queue", True), ("queue", "queue", True), ("temporary-queue", "temporary-queue", False)],
)
def test_a_dynamic_node_is_for_its_connection_alone_if_it_is_called_temporary(
    connect: Connect, capabilities: str | None, granted: str, is_shared: bool
) -> None:
    """Part 3, 3.5.9, leaves it open; the JMS mapping asks for it by the capability."""
    maker, other = connect("maker"), connect("other")
    maker.begin()
    other.begin()
    asked = symbols(capabilities) if capabilities else None
    made = maker.attach_receiver("dynamic", Source(dynamic=True, capabilities=asked)).source
    assert made is not None
    assert made.capabilities == symbols(granted)
    reply = other.attach_receiver("theirs", Source(address=made.address))
    assert (reply.source is not None) is is_shared
    if not is_shared:
        refused = other.expect(Detach)
        assert refused.error is not None and refused.error.condition == "amqp:resource-locked"
