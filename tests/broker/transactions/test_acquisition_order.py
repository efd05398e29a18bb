"""Messages that are acquired in a transaction where they are not all alike: selectors, groups, priorities, times to
live, lengths; and the age of such a transaction. Source: AMQP 1.0 part 4, 4.4.3; docs/concepts/transactions.md,
"Acquiring"; docs/concepts/messages.md, "Who gets which message".
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.stepped_broker import SteppedBroker
from support.transaction_client import ReceivedDelivery, TransactionClient, condition_of

from penstock_amqp.frames.performatives import Accepted, End, Released, Source
from penstock_amqp.messages.message_codec import Message, Properties
from penstock_amqp.messages.message_head import Header
from penstock_amqp.messages.transaction_types import TransactionalState
from penstock_amqp.types.values import Described, Symbol
from penstock_broker.state.open_transactions import transactions_of

AGE_MS = 60_000


@pytest.fixture
def stepped() -> Iterator[SteppedBroker]:
    broker = SteppedBroker({"transactions": {"maxMessages": 5, "maxAgeSeconds": 60}})
    broker.make_queue("jobs")
    yield broker
    broker.close()


def put(client: TransactionClient, *messages: Message) -> None:
    """Send messages to the queue, outside of any transaction."""
    sender = client.sender("jobs", f"to jobs: {messages[0].body!r}")
    for message in messages:
        assert client.state_of(client.send(sender, message)) == Accepted()


def coloured(body: str, colour: str) -> Message:
    return Message(application_properties={"colour": colour}, body=body)


def prior(body: str, priority: int) -> Message:
    return Message(header=Header(durable=True, priority=priority), body=body)


def grouped(body: str, group: str) -> Message:
    return Message(properties=Properties(group_id=group), body=body)


def acquired(client: TransactionClient, txn_id: bytes, count: int) -> list[ReceivedDelivery]:
    """The next deliveries, which belong to the transaction."""
    got = client.get(count)
    assert {each.state for each in got} == {TransactionalState(txn_id=txn_id)}
    return got


def bodies(got: list[ReceivedDelivery]) -> list[object]:
    return [each.body for each in got]


def red(client: TransactionClient) -> int:
    """A link that selects what is red, without credit."""
    chosen = {Symbol("jms-selector"): Described(Symbol("apache.org:selector-filter:string"), "colour = 'red'")}
    return client.receiver("jobs", credit=0, name="red", source=Source(address="jobs", filter=chosen))


def find_too_long(client: TransactionClient, txn_id: bytes) -> None:
    """See that a link whose credit is in the transaction does not acquire the one message, which is too long for it."""
    put(client, Message(body="x" * 1000))
    client.client.attach_receiver("short", Source(address="jobs"), max_message_size=500)
    client.acquire(client.client.last_handle, txn_id, credit=1)
    assert client.nothing_came()


def test_a_link_with_a_selector_acquires_what_it_selects_and_a_rollback_puts_it_in_its_place(
    client: TransactionClient, other: TransactionClient
) -> None:
    put(
        client,
        coloured("b0", "blue"),
        coloured("r1", "red"),
        coloured("b2", "blue"),
        coloured("r3", "red"),
        coloured("b4", "blue"),
    )
    txn_id = client.declare()
    client.acquire(red(client), txn_id, credit=2)
    one, three = acquired(client, txn_id, 2)
    assert bodies([one, three]) == ["r1", "r3"]
    client.settle(three, Accepted(), txn_id)
    assert client.discharge(txn_id, fail=True) == Accepted()
    assert client.concluded(one) == Released()
    other.receiver("jobs")
    assert other.bodies(5) == [("b0", 0), ("r1", 0), ("b2", 0), ("r3", 1), ("b4", 0)]


def test_what_a_link_with_a_selector_acquired_is_not_for_another_before_the_rollback(
    client: TransactionClient, other: TransactionClient
) -> None:
    put(client, coloured("r0", "red"), coloured("b1", "blue"), coloured("r2", "red"))
    first, second = client.declare(), client.declare()
    link = red(client)
    client.acquire(link, first, credit=1)
    (zero,) = acquired(client, first, 1)
    client.acquire(link, second, credit=2)
    (two,) = acquired(client, second, 1)
    other.receiver("jobs")
    assert other.bodies(1) == [("b1", 0)]
    client.settle(zero, Accepted(), first)
    client.commit(first)
    assert other.nothing_came()
    assert client.discharge(second, fail=True) == Accepted()
    assert client.concluded(two) == Released()
    assert other.bodies(1) == [("r2", 0)]


def test_higher_priorities_are_acquired_first_and_keep_their_places(
    client: TransactionClient, other: TransactionClient
) -> None:
    put(client, prior("low", 1), prior("normal", 4), prior("high", 9))
    txn_id = client.declare()
    client.acquire(client.receiver("jobs", credit=0), txn_id, credit=3)
    assert bodies(acquired(client, txn_id, 3)) == ["high", "normal", "low"]
    put(client, prior("later", 9), prior("last", 4))
    assert client.discharge(txn_id, fail=True) == Accepted()
    other.receiver("jobs")
    assert other.bodies(5) == [("high", 0), ("later", 0), ("normal", 0), ("last", 0), ("low", 0)]


def test_a_transaction_that_is_full_acquires_no_more_of_any_priority(
    client: TransactionClient, other: TransactionClient
) -> None:
    put(client, *(prior(body, 4) for body in "abc"), *(prior(body, 5) for body in "ABC"))
    txn_id = client.declare()
    client.acquire(client.receiver("jobs", credit=0), txn_id, credit=6)
    got = acquired(client, txn_id, 5)
    assert bodies(got) == ["A", "B", "C", "a", "b"]
    assert client.nothing_came()
    for each in got:
        client.settle(each, Accepted(), txn_id)
    client.commit(txn_id)
    (last,) = client.get()
    assert (last.body, last.state) == ("c", None)


def test_a_group_stays_with_the_link_that_acquired_its_first_message(
    client: TransactionClient, other: TransactionClient
) -> None:
    put(client, grouped("a1", "a"), grouped("a2", "a"), grouped("b1", "b"))
    first, second = client.declare(), client.declare()
    link = client.receiver("jobs", credit=0)
    client.acquire(link, first, credit=1)
    (one,) = acquired(client, first, 1)
    assert one.body == "a1"
    other.receiver("jobs")
    assert other.bodies(1) == [("b1", 0)]
    assert client.discharge(first, fail=True) == Accepted()
    assert client.concluded(one) == Released()
    assert other.nothing_came()  # the link is still there, and has the group
    client.acquire(link, second, credit=2, delivery_count=1)
    got = acquired(client, second, 2)
    assert bodies(got) == ["a1", "a2"]
    client.settle(got[0], Accepted(), second)
    client.detach(link)
    assert other.bodies(1) == [("a2", 1)]
    assert client.discharge(second, fail=True) == Accepted()
    assert other.bodies(1) == [("a1", 1)]


def test_what_expires_while_it_is_acquired_leaves_with_the_rollback_and_not_before(
    stepped: SteppedBroker, client: TransactionClient, other: TransactionClient
) -> None:
    queue = stepped.queue("jobs")
    put(client, Message(header=Header(durable=True, ttl=5_000), body="brief"), Message(body="lasting"))
    txn_id = client.declare()
    stepped.pass_ms(2_000)
    client.acquire(client.receiver("jobs", credit=0), txn_id, credit=2)
    got = acquired(client, txn_id, 2)
    assert [(each.body, each.ttl) for each in got] == [("brief", 3_000), ("lasting", None)]
    stepped.pass_ms(20_000)
    assert (queue.depth, queue.totals.expired) == (2, 0)
    assert client.discharge(txn_id, fail=True) == Accepted()
    stepped.pass_ms(0)
    assert (queue.depth, queue.totals.expired) == (1, 1)
    other.receiver("jobs")
    assert other.bodies(1) == [("lasting", 0)]
    assert other.nothing_came()


def test_what_expires_while_it_is_acquired_is_still_accepted_by_a_commit(
    stepped: SteppedBroker, client: TransactionClient
) -> None:
    queue = stepped.queue("jobs")
    put(client, Message(header=Header(durable=True, ttl=5_000), body="brief"))
    txn_id = client.declare()
    client.acquire(client.receiver("jobs", credit=0), txn_id, credit=1)
    (brief,) = acquired(client, txn_id, 1)
    stepped.pass_ms(20_000)
    client.settle(brief, Accepted(), txn_id)
    client.commit(txn_id)
    assert (queue.depth, queue.totals.acked, queue.totals.expired) == (0, 1, 0)


def test_the_age_counts_from_what_was_acquired_and_not_from_what_was_too_long_for_the_link(
    stepped: SteppedBroker, client: TransactionClient
) -> None:
    txn_id, older = client.declare(), client.declare()
    find_too_long(client, txn_id)
    stepped.pass_ms(1_000)
    client.state_of(client.post(client.sender("jobs", "in older"), "posted", older))
    stepped.pass_ms(29_000)
    put(client, Message(body="short"))
    (short,) = acquired(client, txn_id, 1)
    stepped.pass_ms(AGE_MS - 29_000)
    assert condition_of(client.discharge(older)) == "amqp:transaction:timeout"
    client.settle(short, Accepted(), txn_id)
    client.commit(txn_id)


def test_a_transaction_that_looked_at_a_long_message_only_has_no_age(
    stepped: SteppedBroker, client: TransactionClient
) -> None:
    txn_id, worker = client.declare(), client.declare()
    find_too_long(client, txn_id)
    stepped.pass_ms(AGE_MS - 1)
    client.state_of(client.post(client.sender("jobs", "in worker"), "posted", worker))
    client.state_of(client.post(client.sender("jobs", "in both"), "posted too", txn_id))
    stepped.pass_ms(AGE_MS - 1)
    client.commit(txn_id)
    client.commit(worker)


@pytest.mark.parametrize("ends", ["link", "session"])
def test_a_link_that_held_nothing_when_it_ended_does_not_count_when_its_transaction_is_too_old(
    stepped: SteppedBroker, client: TransactionClient, other: TransactionClient, ends: str
) -> None:
    put(client, Message(body="a"))
    txn_id = client.declare()
    channel = 0
    if ends == "session":  # another one, so that the control link stays
        channel = 1
        client.client.begin(channel=channel)
    client.client.attach_receiver("acquiring", Source(address="jobs"), channel=channel)
    link = client.client.last_handle
    client.acquire(link, txn_id, credit=1, channel=channel)
    (one,) = acquired(client, txn_id, 1)
    client.settle(one, Accepted(), txn_id, channel=channel)
    if ends == "link":
        client.detach(link)
    else:
        client.client.send(End(), channel=channel)
        client.client.expect(End)
    stepped.pass_ms(AGE_MS)
    assert condition_of(client.discharge(txn_id)) == "amqp:transaction:timeout"
    other.receiver("jobs")
    assert other.bodies(1) == [("a", 1)]


def test_what_a_link_acquired_before_it_acquires_in_another_transaction_is_forgotten_with_it(
    client: TransactionClient, other: TransactionClient
) -> None:
    put(client, Message(body="a"), Message(body="b"))
    first, second = client.declare(), client.declare()
    link = client.receiver("jobs", credit=0)
    client.acquire(link, first, credit=1)
    acquired(client, first, 1)
    client.acquire(link, second, credit=2)
    acquired(client, second, 1)
    client.detach(link)
    other.receiver("jobs")
    assert other.bodies(2) == [("a", 1), ("b", 1)]
    assert client.discharge(first, fail=True) == Accepted()
    assert client.discharge(second, fail=True) == Accepted()
    assert other.nothing_came()


def test_the_end_of_one_link_leaves_what_another_acquired_in_the_same_transaction(
    stepped: SteppedBroker, client: TransactionClient, other: TransactionClient
) -> None:
    put(client, Message(body="a"), Message(body="b"))
    txn_id = client.declare()
    first, second = (client.receiver("jobs", credit=0, name=name) for name in ("first", "second"))
    client.acquire(first, txn_id, credit=1)
    (one,) = acquired(client, txn_id, 1)
    client.acquire(second, txn_id, credit=1)
    (two,) = acquired(client, txn_id, 1)
    client.detach(first)
    other.receiver("jobs")
    assert other.bodies(1) == [(one.body, 1)]
    assert client.discharge(txn_id, fail=True) == Accepted()
    assert client.concluded(two) == Released()
    assert other.bodies(1) == [(two.body, 0)]
    assert stepped.queue("jobs").in_flight == 2


def test_a_delivery_that_has_left_a_transaction_is_not_taken_for_a_later_one(
    client: TransactionClient, other: TransactionClient
) -> None:
    """The engine gives the later one the address of the earlier one."""
    put(client, *(Message(body=body) for body in "abcd"))
    first, second = client.declare(), client.declare()
    link = client.receiver("jobs", credit=0)
    client.acquire(link, first, credit=2)
    for each in acquired(client, first, 2):
        client.settle(each, Accepted(), None)
    assert client.nothing_came()
    client.acquire(link, second, credit=2, delivery_count=2)
    for each in acquired(client, second, 2):
        client.settle(each, Accepted(), second)
    client.commit(second)
    assert client.discharge(first, fail=True) == Accepted()
    other.receiver("jobs")
    assert other.nothing_came()


def test_what_a_link_acquired_is_settled_for_its_age_also_if_it_acquires_no_more(
    stepped: SteppedBroker, client: TransactionClient, other: TransactionClient
) -> None:
    put(client, Message(body="a"))
    txn_id = client.declare()
    link = client.receiver("jobs", credit=0)
    client.acquire(link, txn_id, credit=1)
    (one,) = acquired(client, txn_id, 1)
    client.acquire(link, {}, credit=0, delivery_count=1)
    assert client.nothing_came()
    stepped.pass_ms(AGE_MS)
    assert client.concluded(one) == Released()
    (connection,) = (each for each in stepped.broker.clients.connections.values() if each.client.container_id == "mine")
    ledger = transactions_of(connection)
    assert ledger is not None
    assert ledger.by_id[txn_id].acquisition is None  # the client may never discharge it
    other.receiver("jobs")
    assert other.bodies(1) == [("a", 0)]
    assert condition_of(client.discharge(txn_id)) == "amqp:transaction:timeout"


def test_what_is_sent_settled_counts_among_what_a_transaction_may_settle(
    stepped: SteppedBroker, client: TransactionClient
) -> None:
    put(client, *(Message(body=body) for body in "abcdefg"))
    txn_id = client.declare()
    link = client.settled_receiver("jobs")
    client.acquire(link, txn_id, credit=7)
    assert bodies(acquired(client, txn_id, 5)) == [*"abcde"]
    put(client, Message(body="h"))  # the queue is looked at again
    assert client.nothing_came()
    assert stepped.queue("jobs").in_flight == 5
    client.commit(txn_id)
    assert [(each.body, each.state) for each in client.get(2)] == [("f", None), ("g", None)]
    assert (stepped.queue("jobs").depth, stepped.queue("jobs").in_flight) == (1, 0)
