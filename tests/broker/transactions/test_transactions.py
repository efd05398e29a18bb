"""Transactions over bare frames: nothing is sent that a test did not ask for. Outcomes and conditions are those of AMQP
part 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from support.broker_process import BrokerProcess
from support.encoded_messages import amqp_value, described, fields, mapping, symbol
from support.raw_client import RawClient
from support.transaction_client import ReceivedDelivery, TransactionClient, condition_of

from penstock_amqp.client.management import ManagementClient
from penstock_amqp.frames.performatives import (
    Accepted,
    Coordinator,
    Disposition,
    Modified,
    Rejected,
    Released,
    Source,
    Transfer,
)
from penstock_amqp.messages.message_codec import Message, encode_message
from penstock_amqp.messages.transaction_types import Declare, Discharge, TransactionalState
from penstock_amqp.types.composites import to_value
from penstock_amqp.types.values import Described, Symbol, ULong
from penstock_api.management import (
    EntityType,
    ExchangeDeclaration,
    QueueDeclaration,
    QueueLimits,
    SubscriptionDeclaration,
)
from penstock_api.state_documents import ExchangeState

SMALL = {"maxMessages": 5, "maxBytes": 4096, "maxOpenPerConnection": 3, "maxAgeSeconds": 3600}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose transactions are small."""
    with BrokerProcess(tmp_path_factory.mktemp("tx") / "data", settings={"transactions": SMALL}) as broker:
        yield broker


@pytest.fixture
def client(process: BrokerProcess) -> Iterator[TransactionClient]:
    with RawClient(process.port, "mine") as raw:
        yield TransactionClient(raw)


@pytest.fixture
def other(process: BrokerProcess) -> Iterator[TransactionClient]:
    """Somebody else."""
    with RawClient(process.port, "other") as raw:
        yield TransactionClient(raw)


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue of this test's own."""
    return f"queue-{request.node.name}"


def in_flight(client: TransactionClient, queue: str, *bodies: str) -> list[ReceivedDelivery]:
    """Deliveries of these messages, which were sent before, outside a transaction."""
    sender = client.sender(queue)
    for body in bodies:
        assert client.state_of(client.post(sender, body, None)) == Accepted()
    client.receiver(queue)
    return client.get(len(bodies))


# -- the coordinator link -------------------------------------------------------------------------------------------


def test_the_attach_of_a_coordinator_link_tells_what_it_can_do(client: TransactionClient) -> None:
    names = ("amqp:local-transactions", "amqp:multi-txns-per-ssn", "amqp:multi-ssns-per-txn")
    assert client.reply.target == Coordinator(capabilities=tuple(Symbol(name) for name in names))


def test_every_transaction_has_a_name_of_its_own(client: TransactionClient, other: TransactionClient) -> None:
    names = {client.declare(), client.declare(), other.declare()}
    assert len(names) == 3
    assert all(1 <= len(name) <= 32 for name in names)


def test_distributed_transactions_are_refused(client: TransactionClient) -> None:
    state = client.state_of(client.request(Declare(global_id=b"xid")))
    assert condition_of(state) == "amqp:not-implemented"


def test_a_discharge_of_what_is_not_there_is_rejected(client: TransactionClient) -> None:
    assert condition_of(client.discharge(b"nowhere")) == "amqp:transaction:unknown-id"
    txn_id = client.declare()
    client.commit(txn_id)
    assert condition_of(client.discharge(txn_id)) == "amqp:transaction:unknown-id"


def test_a_link_that_knows_no_rejected_outcome_is_closed_instead(process: BrokerProcess) -> None:
    with RawClient(process.port, "plain") as raw:
        client = TransactionClient(raw, outcomes=("amqp:accepted:list",))
        client.request(Discharge(txn_id=b"nowhere"))
        error = client.detached().error
        assert error is not None
        assert error.condition == "amqp:transaction:unknown-id"


def test_a_transaction_belongs_to_the_link_that_declared_it(client: TransactionClient) -> None:
    second = client.attach_coordinator("second")
    txn_id = client.declare()
    assert condition_of(client.discharge(txn_id, handle=second)) == "amqp:transaction:unknown-id"
    client.commit(txn_id)


def test_a_declaration_that_its_sender_settled_closes_the_link(client: TransactionClient) -> None:
    client.request(Declare(), settled=True)
    error = client.detached().error
    assert error is not None
    assert error.condition == "amqp:invalid-field"


@pytest.mark.parametrize("fail", [True, False])
def test_a_discharge_that_its_sender_settled_closes_the_link_and_is_none(
    client: TransactionClient, other: TransactionClient, queue: str, fail: bool
) -> None:
    """4.3: it is an error, as it is for a declare."""
    sender, txn_id = client.sender(queue), client.declare()
    client.state_of(client.post(sender, "x", txn_id))
    client.request(Discharge(txn_id=txn_id, fail=fail), settled=True)
    error = client.detached().error
    assert error is not None
    assert error.condition == "amqp:invalid-field"
    other.receiver(queue)
    assert other.nothing_came()


def test_what_is_neither_is_rejected(client: TransactionClient) -> None:
    assert condition_of(client.state_of(client.post(client.coordinator, "text", None))) == "amqp:decode-error"


def test_a_connection_has_so_many_transactions_at_most(client: TransactionClient) -> None:
    names = [client.declare() for _ in range(3)]
    assert condition_of(client.state_of(client.request(Declare()))) == "amqp:resource-limit-exceeded"
    client.commit(names[1])
    client.declare()


# -- sending --------------------------------------------------------------------------------------------------------


def test_messages_are_seen_at_the_commit_in_sending_order(client: TransactionClient, queue: str) -> None:
    one, two = client.sender(queue, "one"), client.sender(queue, "two")
    client.receiver(queue)
    txn_id = client.declare()
    provisional = [client.post(one, "a", txn_id), client.post(two, "b", txn_id), client.post(one, "c", txn_id)]
    for delivery in provisional:
        assert client.state_of(delivery) == TransactionalState(txn_id=txn_id, outcome=Accepted())
    assert client.nothing_came()
    client.commit(txn_id)
    assert client.bodies(3) == [("a", 0), ("b", 0), ("c", 0)]


def test_messages_of_a_transaction_rolled_back_are_never_seen(client: TransactionClient, queue: str) -> None:
    sender = client.sender(queue)
    client.receiver(queue)
    txn_id = client.declare()
    client.state_of(client.post(sender, "undone", txn_id))
    assert client.discharge(txn_id, fail=True) == Accepted()
    client.state_of(client.post(sender, "done", None))
    assert client.bodies(1) == [("done", 0)]


def test_several_transactions_of_a_session_end_independently(client: TransactionClient, queue: str) -> None:
    sender = client.sender(queue)
    client.receiver(queue)
    first, second = client.declare(), client.declare()
    for txn_id, body in ((first, "1a"), (second, "2a"), (None, "plain"), (first, "1b"), (second, "2b")):
        client.state_of(client.post(sender, body, txn_id))
    assert client.bodies(1) == [("plain", 0)]
    client.commit(second)
    assert client.bodies(2) == [("2a", 0), ("2b", 0)]
    client.discharge(first, fail=True)
    assert client.nothing_came()


def test_it_is_routed_to_the_subscriptions_that_exist_at_the_commit(client: TransactionClient) -> None:
    sender = client.sender("amq.topic/late")
    txn_id = client.declare()
    client.state_of(client.post(sender, "x", txn_id))
    client.receiver("amq.topic/late")
    client.commit(txn_id)
    assert client.bodies(1) == [("x", 0)]


def test_a_sender_may_leave_before_the_commit(client: TransactionClient, queue: str) -> None:
    sender = client.sender(queue)
    client.receiver(queue)
    txn_id = client.declare()
    client.state_of(client.post(sender, "x", txn_id))
    client.detach(sender)
    client.commit(txn_id)
    assert client.bodies(1) == [("x", 0)]


def test_sending_under_an_unknown_name_is_rejected(client: TransactionClient, queue: str) -> None:
    sender = client.sender(queue)
    assert condition_of(client.state_of(client.post(sender, "x", b"nowhere"))) == "amqp:transaction:unknown-id"
    client.post(sender, "y", b"nowhere", settled=True)
    error = client.detached().error
    assert error is not None
    assert error.condition == "amqp:transaction:unknown-id"


def test_a_name_of_a_transaction_without_any_coordinator_link_is_unknown_too(
    process: BrokerProcess, client: TransactionClient, queue: str
) -> None:
    with RawClient(process.port, "bare") as raw:
        bare = TransactionClient(raw, coordinator=False)
        sender = bare.sender(queue)
        state = bare.state_of(bare.post(sender, "x", client.declare()))
        assert condition_of(state) == "amqp:transaction:unknown-id"


@pytest.mark.parametrize("settled", [False, True])
def test_what_goes_over_the_limit_makes_the_commit_fail_as_a_whole(
    client: TransactionClient, queue: str, settled: bool
) -> None:
    sender = client.sender(queue)
    client.receiver(queue)
    txn_id = client.declare()
    for number in range(5):
        client.state_of(client.post(sender, str(number), txn_id))
    over = client.post(sender, "5", txn_id, settled=settled)
    if not settled:
        assert condition_of(client.state_of(over)) == "amqp:resource-limit-exceeded"
    outcome = client.discharge(txn_id)
    assert condition_of(outcome) == "amqp:transaction:rollback"
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    assert outcome.error.info == {"penstock:reason": "TransactionRolledBack", "penstock:cause": "LimitExceeded"}
    assert client.nothing_came()


def test_requests_to_the_management_node_are_refused_in_a_transaction(client: TransactionClient) -> None:
    sender = client.sender("$management")
    txn_id = client.declare()
    assert condition_of(client.state_of(client.post(sender, "x", txn_id))) == "amqp:not-allowed"
    assert condition_of(client.discharge(txn_id)) == "amqp:transaction:rollback"


def test_an_unroutable_message_of_an_anonymous_sender_dooms_the_transaction(client: TransactionClient) -> None:
    sender = client.sender(None)
    txn_id = client.declare()
    client.post(sender, "x", txn_id, settled=True)
    assert condition_of(client.discharge(txn_id)) == "amqp:transaction:rollback"


# -- settling -------------------------------------------------------------------------------------------------------


def test_what_is_accepted_is_gone_at_the_commit(
    client: TransactionClient, other: TransactionClient, queue: str
) -> None:
    a, b = in_flight(client, queue, "a", "b")
    txn_id = client.declare()
    client.settle(a, Accepted(), txn_id)
    client.settle(b, Accepted(), txn_id)
    client.commit(txn_id)
    client.client.close()
    other.receiver(queue)
    assert other.nothing_came()


def test_a_rollback_returns_what_was_settled_in_order_with_its_count(client: TransactionClient, queue: str) -> None:
    a, b, c = in_flight(client, queue, "a", "b", "c")
    txn_id = client.declare()
    client.settle(b, Accepted(), txn_id)
    client.settle(a, Accepted(), txn_id)
    client.settle(c, Released(), txn_id)
    assert client.discharge(txn_id, fail=True) == Accepted()
    assert client.bodies(3) == [("a", 1), ("b", 1), ("c", 1)]


def test_the_other_outcomes_take_effect_at_the_commit(client: TransactionClient, queue: str) -> None:
    released, modified, rejected = in_flight(client, queue, "released", "modified", "rejected")
    txn_id = client.declare()
    client.settle(released, Released(), txn_id)
    client.settle(modified, Modified(delivery_failed=True), txn_id)
    client.settle(rejected, Rejected(), txn_id)
    assert client.nothing_came()
    client.commit(txn_id)
    assert client.bodies(2) == [("released", 0), ("modified", 1)]
    assert client.nothing_came()


def test_what_was_settled_stays_with_its_transaction_when_its_link_goes(
    client: TransactionClient, other: TransactionClient, queue: str
) -> None:
    a, b = in_flight(client, queue, "a", "b")
    txn_id = client.declare()
    client.settle(a, Accepted(), txn_id)
    client.detach(a.handle)
    other.receiver(queue)
    assert other.bodies(1) == [(b.body, 1)]
    assert other.nothing_came()
    client.discharge(txn_id, fail=True)
    assert other.bodies(1) == [("a", 1)]


def test_what_was_settled_is_gone_by_a_commit_after_its_link(
    client: TransactionClient, other: TransactionClient, queue: str
) -> None:
    a, _ = in_flight(client, queue, "a", "b")
    txn_id = client.declare()
    client.settle(a, Accepted(), txn_id)
    client.detach(a.handle)
    client.commit(txn_id)
    other.receiver(queue)
    assert other.bodies(1) == [("b", 1)]
    assert other.nothing_came()


def test_what_is_settled_after_the_broker_has_ended_its_link_comes_again(
    client: TransactionClient, other: TransactionClient, queue: str
) -> None:
    """fe2o3-amqp commits this way what it got before the broker refused its link."""
    a, b = in_flight(client, queue, "a", "b")
    txn_id = client.declare()
    client.settle(b, Accepted(), b"nowhere")  # for which the broker ends the link
    client.detached()
    client.settle(a, Accepted(), txn_id)
    client.commit(txn_id)
    other.receiver(queue)
    assert other.bodies(1) == [("a", 1)]
    assert other.bodies(1) == [("b", 0)]


def test_what_is_settled_after_the_client_has_left_its_link_comes_again(
    client: TransactionClient, other: TransactionClient, queue: str
) -> None:
    """Its suspended link keeps nothing: the detach returned what was not settled."""
    sender = client.sender(queue)
    client.state_of(client.post(sender, "a", None))
    receiver = client.receiver(queue)
    (a,) = client.get(1)
    txn_id = client.declare()
    client.detach(receiver, closed=False)
    client.settle(a, Accepted(), txn_id)
    client.commit(txn_id)
    other.receiver(queue)
    assert other.bodies(1) == [("a", 1)]


def test_an_outcome_without_settlement_is_confirmed_by_the_commit(client: TransactionClient, queue: str) -> None:
    (a,) = in_flight(client, queue, "a")
    txn_id = client.declare()
    client.settle(a, Accepted(), txn_id, settled=False)
    client.commit(txn_id)
    assert client.concluded(a) == Accepted()


def test_after_a_rollback_what_was_not_settled_is_the_client_s_again(client: TransactionClient, queue: str) -> None:
    (a,) = in_flight(client, queue, "a")
    txn_id = client.declare()
    client.settle(a, Accepted(), txn_id, settled=False)
    client.discharge(txn_id, fail=True)
    assert client.nothing_came()
    client.settle(a, Modified(delivery_failed=True), None)
    assert client.bodies(1) == [("a", 1)]


def test_an_outcome_without_settlement_stays_when_the_link_goes(
    client: TransactionClient, other: TransactionClient, queue: str
) -> None:
    (a,) = in_flight(client, queue, "a")
    txn_id = client.declare()
    client.settle(a, Accepted(), txn_id, settled=False)
    client.detach(a.handle)
    other.receiver(queue)
    assert other.nothing_came()
    client.commit(txn_id)
    assert other.nothing_came()


def test_a_client_may_change_its_mind_before_the_commit(client: TransactionClient, queue: str) -> None:
    (a,) = in_flight(client, queue, "a")
    txn_id = client.declare()
    client.settle(a, Accepted(), txn_id, settled=False)
    client.settle(a, Released(), None)
    assert client.bodies(1) == [("a", 0)]
    client.commit(txn_id)
    assert client.nothing_came()


def test_settling_under_an_unknown_name_closes_the_link_and_returns_it(
    client: TransactionClient, other: TransactionClient, queue: str
) -> None:
    (a,) = in_flight(client, queue, "a")
    client.settle(a, Accepted(), b"nowhere")
    error = client.detached().error
    assert error is not None
    assert error.condition == "amqp:transaction:unknown-id"
    other.receiver(queue)
    assert other.bodies(1) == [("a", 0)]


def test_too_many_settled_make_the_commit_fail_and_return(client: TransactionClient, queue: str) -> None:
    bodies = [str(number) for number in range(6)]
    deliveries = in_flight(client, queue, *bodies)
    txn_id = client.declare()
    for got in deliveries:
        client.settle(got, Accepted(), txn_id)
    assert condition_of(client.discharge(txn_id)) == "amqp:transaction:rollback"
    assert client.bodies(6) == [(body, 1) for body in bodies]


def test_consuming_and_sending_commit_together(client: TransactionClient, queue: str) -> None:
    (a,) = in_flight(client, queue, "a")
    onward = client.sender(f"{queue}-out")
    client.receiver(f"{queue}-out", name="out")
    first = client.declare()
    client.settle(a, Accepted(), first)
    client.state_of(client.post(onward, "A", first))
    client.discharge(first, fail=True)
    (again,) = client.get()
    assert (again.body, again.delivery_count) == ("a", 1)
    second = client.declare()
    client.settle(again, Accepted(), second)
    client.state_of(client.post(onward, "A", second))
    client.commit(second)
    assert client.bodies(1) == [("A", 0)]
    assert client.nothing_came()


NAMELESS = Described(ULong(0x34), [])
"""A transactional state that lacks its mandatory txn-id."""


def test_a_state_without_a_name_is_refused_and_harms_nobody(client: TransactionClient, queue: str) -> None:
    (a,) = in_flight(client, queue, "a")
    sender = client.sender(queue, "again")
    message = encode_message(Message(body="b"))
    client.client.send(
        Transfer(handle=sender, delivery_id=1, delivery_tag=b"nameless", message_format=0, state=NAMELESS),
        payload=message,
    )
    assert condition_of(client.state_of(1)) == "amqp:decode-error"
    client.client.send(Disposition(role=True, first=a.delivery_id, settled=True, state=NAMELESS))
    assert client.bodies(1) == [("a", 0)]


def test_a_message_of_delivery_annotations_alone_is_refused_and_the_commit_says_why(
    client: TransactionClient, queue: str
) -> None:
    sender, txn_id = client.sender(queue), client.declare()
    client.client.send(
        Transfer(
            handle=sender,
            delivery_id=1,
            delivery_tag=b"hop",
            message_format=0,
            state=TransactionalState(txn_id=txn_id),
        ),
        payload=described(0x71, mapping(symbol("x-opt-hop"), b"\x41")),
    )
    state = client.state_of(1)
    assert isinstance(state, TransactionalState)
    assert condition_of(state.outcome) == "amqp:decode-error"
    client.client.send(
        Transfer(handle=0, delivery_id=2, delivery_tag=b"end", message_format=0),
        payload=encode_message(Message(body=to_value(Discharge(txn_id=txn_id)))),
    )
    assert condition_of(client.state_of(2)) == "amqp:transaction:rollback"


def test_a_message_that_can_not_be_routed_makes_the_commit_fail_and_nothing_else(
    process: BrokerProcess, client: TransactionClient, queue: str
) -> None:
    """Its subject is not UTF-8, which only a topic looks at, and at the commit."""
    (a,) = in_flight(client, queue, "a")
    with RawClient(process.port, "reader") as reader:
        reader.begin()
        reader.attach_receiver("by-key", Source(address="amq.topic/a.*"))
        sender, txn_id = client.sender("amq.topic"), client.declare()
        client.client.send(
            Transfer(
                handle=sender,
                delivery_id=2,
                delivery_tag=b"key",
                message_format=0,
                state=TransactionalState(txn_id=txn_id),
            ),
            payload=described(0x73, fields(b"\x40", b"\x40", b"\x40", b"\xa1\x01\xff")) + amqp_value("b"),
        )
        assert isinstance(client.state_of(2), TransactionalState)
        client.settle(a, Accepted(), txn_id)
        client.client.send(
            Transfer(handle=0, delivery_id=3, delivery_tag=b"end", message_format=0),
            payload=encode_message(Message(body=to_value(Discharge(txn_id=txn_id)))),
        )
        assert condition_of(client.state_of(3)) == "amqp:transaction:rollback"
    assert client.bodies(1) == [("a", 1)]


# -- who leaves -----------------------------------------------------------------------------------------------------


def test_the_end_of_the_coordinator_link_rolls_back(client: TransactionClient, queue: str) -> None:
    (a,) = in_flight(client, queue, "a")
    second = client.attach_coordinator("second")
    txn_id = client.declare(handle=second)
    client.settle(a, Accepted(), txn_id)
    client.state_of(client.post(client.sender(f"{queue}-out"), "A", txn_id))
    client.detach(second)
    assert client.bodies(1) == [("a", 1)]


def test_the_end_of_the_connection_rolls_back(client: TransactionClient, other: TransactionClient, queue: str) -> None:
    a, _ = in_flight(client, queue, "a", "b")
    txn_id = client.declare()
    client.settle(a, Accepted(), txn_id)
    assert client.nothing_came()  # the disposition has arrived
    client.client.socket.close()
    other.receiver(queue)
    assert other.bodies(2) == [("a", 1), ("b", 1)]


def test_a_subscription_that_ended_meanwhile_does_not_hinder_the_commit(client: TransactionClient, queue: str) -> None:
    sender = client.sender("amq.topic/ended")
    receiver = client.receiver("amq.topic/ended")
    client.state_of(client.post(sender, "x", None))
    (x,) = client.get()
    onward = client.sender(queue)
    client.receiver(queue, name="out")
    txn_id = client.declare()
    client.settle(x, Accepted(), txn_id)
    client.state_of(client.post(onward, "X", txn_id))
    client.detach(receiver)  # a volatile subscription goes with its link
    client.commit(txn_id)
    assert client.bodies(1) == [("X", 0)]


# -- what others do meanwhile ---------------------------------------------------------------------------------------


def managed(process: BrokerProcess, act: Callable[[ManagementClient], Awaitable[object]]) -> None:
    """Do something over $management."""

    async def run() -> None:
        node = await ManagementClient.connect(process.management)
        await act(node)
        await node.close()

    asyncio.run(run())


@pytest.mark.parametrize(("settled", "room"), [(0, 2), (1, 3)])
def test_a_queue_that_rejects_takes_all_of_a_commit_or_nothing(
    process: BrokerProcess, client: TransactionClient, queue: str, settled: int, room: int
) -> None:
    declaration = QueueDeclaration(limits=QueueLimits(max_messages=3, overflow="Reject"))
    managed(process, lambda node: node.create(declaration, queue))
    (first,) = in_flight(client, queue, "first")
    sender = client.sender(queue, "again")
    for count, expected in ((room + 1, "amqp:transaction:rollback"), (room, None)):
        txn_id = client.declare()
        if settled:
            client.settle(first, Accepted(), txn_id, settled=False)
        for number in range(count):
            client.state_of(client.post(sender, str(number), txn_id))
        outcome = client.discharge(txn_id)
        assert (condition_of(outcome) if expected else outcome) == (expected or Accepted())
    assert client.bodies(room) == [(str(number), 0) for number in range(room)]


def test_a_commit_counts_what_every_selector_refuses(
    process: BrokerProcess, client: TransactionClient, queue: str
) -> None:
    managed(process, lambda node: node.create(ExchangeDeclaration(exchange_type="Fanout"), queue))
    picky = SubscriptionDeclaration(subscription_name=queue, exchange=queue, selector="region = 'eu'")
    managed(process, lambda node: node.create(picky))
    sender = client.sender(queue)
    txn_id = client.declare()
    for body in ("x", "y"):
        client.state_of(client.post(sender, body, txn_id))
    assert client.discharge(txn_id) == Accepted()
    found: list[ExchangeState] = []

    async def look(node: ManagementClient) -> None:
        found.append(await node.read_state(ExchangeState, queue))

    managed(process, look)
    assert (found[0].received, found[0].unroutable_messages, found[0].unselected_messages) == (2, 0, 2)


def test_an_exchange_that_was_deleted_makes_the_commit_fail(
    process: BrokerProcess, client: TransactionClient, queue: str
) -> None:
    managed(process, lambda node: node.create(ExchangeDeclaration(exchange_type="Fanout"), queue))
    sender = client.sender(queue)
    txn_id = client.declare()
    client.state_of(client.post(sender, "x", txn_id))
    managed(process, lambda node: node.delete(EntityType.EXCHANGE, queue))
    outcome = client.discharge(txn_id)
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    assert outcome.error.info is not None
    assert (outcome.error.condition, outcome.error.info[Symbol("penstock:cause")]) == (
        "amqp:transaction:rollback",
        "ExchangeNotFound",
    )
