"""A discharge that comes before the end of a message of its transaction, however little of the message has come and
whatever came in one read: the control link is closed, and the transaction is rolled back (AMQP 1.0 part 4, 4.4.1).

Over bare frames. Source: docs/concepts/transactions.md, "Errors".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from support.raw_client import symbols
from support.stepped_broker import SteppedBroker
from support.transaction_client import TransactionClient, condition_of

from penstock_amqp.endpoint.links import UNPROVEN_MESSAGES, InLink
from penstock_amqp.frames.performatives import Accepted, Attach, Disposition, End, Rejected, Source, Target, Transfer
from penstock_amqp.messages.message_codec import Message, encode_message
from penstock_amqp.messages.message_head import Header
from penstock_amqp.messages.transaction_types import Discharge, TransactionalState
from penstock_amqp.types.values import Symbol
from penstock_broker.queue.queue import Queue

ENCODED = encode_message(Message(header=Header(durable=True), body="late"))
BEGINNING, REST = ENCODED[:5], ENCODED[5:]


@pytest.fixture
def stepped() -> Iterator[SteppedBroker]:
    broker = SteppedBroker()
    broker.make_queue("jobs")
    yield broker
    broker.close()


def a_sender(client: TransactionClient, *, proven: bool) -> int:
    """A link to the queue; `proven`: the broker has looked at enough of its messages not to look closely any more."""
    sender = client.sender("jobs")
    for _ in range(UNPROVEN_MESSAGES if proven else 0):
        assert condition_of(client.state_of(client.post(sender, "x", b"nowhere"))) == "amqp:transaction:unknown-id"
    return sender


def is_rolled_back(client: TransactionClient, queue: Queue) -> bool:
    """True if the broker closes the control link with the error of the specification, and the queue is empty."""
    closed = client.detached()
    assert closed.closed is True
    assert closed.error is not None
    assert closed.error.condition == "amqp:transaction:rollback"
    assert closed.error.info == {"penstock:reason": "TransactionRolledBack", "penstock:cause": "InvalidRequest"}
    return not queue.waiting


def cause_of(state: object) -> str:
    """Why a commit was rolled back."""
    assert isinstance(state, Rejected) and state.error is not None, state
    assert state.error.condition == "amqp:transaction:rollback"
    return str((state.error.info or {})[Symbol("penstock:cause")])


@pytest.mark.parametrize("proven", [True, False])
@pytest.mark.parametrize("in_one_write", [True, False])
@pytest.mark.parametrize("parts", [[BEGINNING], [b""], [b"", b""], [b"", BEGINNING], [ENCODED]])
def test_a_discharge_before_the_end_of_a_message(
    client: TransactionClient, queue: Queue, parts: list[bytes], in_one_write: bool, proven: bool
) -> None:
    """A part may be empty, and even the last part that came may hold the rest of the message."""
    control = client.attach_coordinator("control 2")
    sender, writer, txn_id = (
        a_sender(client, proven=proven),
        client.sender("jobs", "whole"),
        client.declare(handle=control),
    )
    client.state_of(client.post(writer, "whole", txn_id))
    with client.at_once() if in_one_write else nullcontext():
        client.post_parts(sender, parts, txn_id, ends=False)
        client.request(Discharge(txn_id=txn_id), handle=control)
    assert is_rolled_back(client, queue)


@pytest.mark.parametrize("beginning", [BEGINNING, b""])
def test_a_rollback_before_the_end_of_a_message_is_one(
    client: TransactionClient, queue: Queue, beginning: bytes
) -> None:
    """4.3: the coordinator must always be able to complete it. What is still to come of the message is refused."""
    sender, txn_id = a_sender(client, proven=True), client.declare()
    with client.at_once():
        delivery = client.post_parts(sender, [beginning], txn_id, ends=False)
        number = client.request(Discharge(txn_id=txn_id, fail=True))
    assert client.state_of(number) == Accepted()
    client.post_rest(sender, [ENCODED[len(beginning) :]])
    assert condition_of(client.state_of(delivery)) == "amqp:transaction:unknown-id"
    assert not queue.waiting


@pytest.mark.parametrize("proven", [True, False])
@pytest.mark.parametrize("beginning", [BEGINNING, b""])
@pytest.mark.parametrize("came_before", [True, False])
def test_a_discharge_between_the_parts_of_a_message_in_one_write(
    client: TransactionClient, queue: Queue, came_before: bool, beginning: bytes, proven: bool
) -> None:
    """When the broker looks at what it has read, the message is complete."""
    control = client.attach_coordinator("control 2")
    sender, txn_id = a_sender(client, proven=proven), client.declare(handle=control)
    other = client.declare()
    if came_before:
        client.post_parts(sender, [beginning], txn_id, ends=False)
        assert client.nothing_came()
    with client.at_once():
        if not came_before:
            client.post_parts(sender, [beginning], txn_id, ends=False)
        client.request(Discharge(txn_id=txn_id), handle=control)
        client.post_rest(sender, [ENCODED[len(beginning) :]])
    assert is_rolled_back(client, queue)
    client.state_of(client.post(sender, "taken", other))
    client.commit(other)
    assert queue.waiting == 1


def test_a_discharge_before_and_one_behind_a_message_in_parts(client: TransactionClient, queue: Queue) -> None:
    """All in one write: only the one in between comes amid the message."""
    control, third = client.attach_coordinator("control 2"), client.attach_coordinator("control 3")
    sender, writer = a_sender(client, proven=True), client.sender("jobs", "whole")
    before, amid, behind = client.declare(), client.declare(handle=control), client.declare(handle=third)
    for txn_id in (before, amid):
        client.state_of(client.post(writer, "whole", txn_id))
    with client.at_once():
        first = client.request(Discharge(txn_id=before))
        client.post_parts(sender, [BEGINNING], behind, ends=False)
        second = client.request(Discharge(txn_id=amid), handle=control)
        client.post_rest(sender, [REST])
        last = client.request(Discharge(txn_id=behind), handle=third)
    assert [client.state_of(each) for each in (first, second, last)] == [Accepted()] * 3
    assert queue.waiting == 3


def test_a_sender_that_settles_behind_the_discharge_has_sent_all(client: TransactionClient, queue: Queue) -> None:
    """In one write: a disposition is no part of a message."""
    sender, txn_id = a_sender(client, proven=True), client.declare()
    with client.at_once():
        delivery = client.post(sender, "x", txn_id)
        number = client.request(Discharge(txn_id=txn_id))
        client.say(Disposition(role=False, first=delivery, settled=True))
    assert client.state_of(number) == Accepted()
    assert queue.waiting == 1


def test_an_empty_first_part_leaves_nothing_behind(
    stepped: SteppedBroker, client: TransactionClient, queue: Queue
) -> None:
    """The rest may come in one piece, which is a whole message for the engine."""
    sender, txn_id = a_sender(client, proven=True), client.declare()
    for number in range(3):
        delivery = client.post_parts(sender, [b""], txn_id, ends=False)
        assert client.nothing_came()
        client.post_rest(sender, [ENCODED])
        assert client.state_of(delivery) == TransactionalState(txn_id=txn_id, outcome=Accepted()), number
        (connection,) = stepped.broker.clients.connections.values()
        incoming = [link for link in connection.endpoint.all_links() if isinstance(link, InLink)]
        assert [link.partial.delivery for link in incoming] == [None] * len(incoming)
    client.commit(txn_id)
    assert queue.waiting == 3


@pytest.mark.parametrize("part", [b"", BEGINNING])
@pytest.mark.parametrize("ends_session", [True, False])
def test_a_link_that_its_client_ends_amid_a_message(
    client: TransactionClient, queue: Queue, part: bytes, ends_session: bool
) -> None:
    """What is still to come of it will not come, and nothing is committed without it."""
    client.client.begin(1)
    client.client.attach_sender("there", Target(address="jobs"), channel=1)
    handle, writer, txn_id = client.client.last_handle, client.sender("jobs"), client.declare()
    client.state_of(client.post(writer, "whole", txn_id))
    state = TransactionalState(txn_id=txn_id)
    transfer = Transfer(handle=handle, delivery_id=0, delivery_tag=b"0", message_format=0, more=True, state=state)
    client.client.send(transfer, 1, part)
    if ends_session:
        client.client.send(End(), 1)
        client.client.expect(End)
    else:
        client.client.detach(handle, closed=True, channel=1)
    assert cause_of(client.discharge(txn_id)) == "InvalidRequest"
    assert not queue.waiting


@pytest.mark.parametrize("more", [True, False])
def test_messages_that_came_with_the_attach_of_a_link_that_is_refused(
    client: TransactionClient, queue: Queue, more: bool
) -> None:
    """A client need not wait for the answer; what it sent ahead is lost, and nothing is committed without it."""
    writer, txn_id, other = client.sender("jobs"), client.declare(), client.declare()
    for name in (txn_id, other):
        client.state_of(client.post(writer, "whole", name))
    handle = 50
    with client.at_once():
        client.say(
            Attach(
                name="ahead",
                handle=handle,
                role=False,
                source=Source(),
                target=Target(address="there-is-none"),
                initial_delivery_count=0,
            )
        )
        if more:
            client.post_parts(handle, [BEGINNING], txn_id, ends=False)
        else:
            client.post(handle, "lost", txn_id)
    assert client.client.expect(Attach).target is None
    error = client.detached().error
    assert error is not None and error.condition == "amqp:not-found"
    assert cause_of(client.discharge(txn_id)) == "NotAllowed"
    client.commit(other)
    assert queue.waiting == 1


def test_messages_that_came_with_the_attach_that_steals_their_link(client: TransactionClient, queue: Queue) -> None:
    writer, sender, txn_id = client.sender("jobs"), client.sender("jobs", "twin"), client.declare()
    client.state_of(client.post(writer, "whole", txn_id))
    with client.at_once():
        client.say(
            Attach(
                name="twin",
                handle=50,
                role=False,
                source=Source(outcomes=symbols("amqp:accepted:list")),
                target=Target(address="jobs"),
                initial_delivery_count=0,
            )
        )
        client.post(sender, "lost", txn_id)
    error = client.detached().error
    assert error is not None and error.condition == "amqp:link:stolen"
    client.client.expect(Attach)
    assert condition_of(client.discharge(txn_id)) == "amqp:transaction:rollback"
    assert not queue.waiting
