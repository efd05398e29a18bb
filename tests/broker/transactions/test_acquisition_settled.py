"""Messages that are acquired in a transaction on a link on which everything is sent settled: what of it is not sent yet
when the transaction, the link or the session ends. Nothing is lost, and nothing comes twice but what its transaction
gave back.

Source: AMQP 1.0 part 4, 4.4.2 and 4.4.3; part 2, 2.5.6 (the session's window); docs/concepts/transactions.md,
"Acquiring"; docs/decisions/143-acquired-and-sent-settled.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.large_messages import Downloading, Uploading, digest, encoded
from support.raw_client import RawClient
from support.stepped_broker import SteppedBroker, SteppedStream
from support.transaction_client import TransactionClient, condition_of

from penstock_amqp.frames.performatives import Accepted, Detach, Disposition, End, Flow, Performative, Transfer
from penstock_amqp.messages.message_codec import Message
from penstock_amqp.messages.transaction_types import Discharge, TransactionalState
from penstock_broker.attach import close
from penstock_broker.errors import amqp_error
from penstock_broker.queue.queue import Queue
from penstock_broker.state.links import Consumer
from penstock_core.reason import Reason, Refuse

AGE_MS = 60_000
LONG = 300_000
STREAMED = 2_000_000


@pytest.fixture
def stepped() -> Iterator[SteppedBroker]:
    broker = SteppedBroker({"transactions": {"maxAgeSeconds": 60}}, segment_bytes=16 << 20)
    broker.make_queue("jobs")
    yield broker
    broker.close()


def put(client: TransactionClient, *bodies: str) -> None:
    """Send messages outside a transaction."""
    sender = client.sender("jobs", f"to jobs: {bodies[0]}")
    for body in bodies:
        assert client.state_of(client.send(sender, Message(body=body))) == Accepted()


def put_long(stepped: SteppedBroker, *sizes: int) -> None:
    """Send long messages, of which the second is `encoded(..., seed=1)`, and so on."""
    with RawClient(0, "sender", stream=SteppedStream(stepped)) as raw:
        raw.begin()
        uploading = Uploading.to(raw, "jobs")
        for seed, size in enumerate(sizes):
            uploading.send(encoded(size, seed=seed))
            assert uploading.outcome() == "Accepted"


def in_(txn_id: bytes) -> TransactionalState:
    return TransactionalState(txn_id=txn_id)


def told(client: TransactionClient, count: int) -> list[tuple[object, int, object]]:
    """The next deliveries: body, delivery-count and state. All are settled."""
    got = client.get(count)
    assert all(each.settled for each in got)
    return [(each.body, each.delivery_count, each.state) for each in got]


def with_shut_window(client: TransactionClient, txn_id: bytes, credit: int) -> int:
    """A link that acquires, in a session that takes one frame; its handle."""
    link = client.settled_receiver("jobs")
    client.acquire(link, txn_id, credit=credit, window=1)
    return link


def first_of_three(client: TransactionClient) -> tuple[bytes, int]:
    """A transaction that has acquired "a", "b" and "c" where only "a" could be sent, and the handle of its link."""
    put(client, "a", "b", "c")
    txn_id = client.declare()
    link = with_shut_window(client, txn_id, credit=3)
    assert told(client, 1) == [("a", 0, in_(txn_id))]
    return txn_id, link


def open_window(client: TransactionClient) -> None:
    """Let the session take more frames. The links keep the credit that they have."""
    client.client.send(Flow(next_incoming_id=1, incoming_window=100, next_outgoing_id=0, outgoing_window=100))


def whole_message(client: TransactionClient) -> list[Transfer]:
    """The transfers of the next message, or of what is left of it."""
    found = [client.client.expect(Transfer)]
    while found[-1].more:
        found.append(client.client.expect(Transfer))
    return found


def counted(queue: Queue) -> tuple[int, int, int]:
    """What the queue holds, in messages and in bytes, and what of it is in flight."""
    return queue.depth, queue.depth_bytes, queue.in_flight


def frames_until(raw: RawClient, kind: type[Performative]) -> list[Performative]:
    """What comes, up to the first frame of this kind."""
    found = [raw.receive().performative]
    while not isinstance(found[-1], kind):
        found.append(raw.receive().performative)
    return found


def roll_back(client: TransactionClient, txn_id: bytes) -> None:
    """Roll back where parts of messages may come before the answer."""
    client.request(Discharge(txn_id=txn_id, fail=True))
    (answer,) = [each for each in frames_until(client.client, Disposition) if isinstance(each, Disposition)]
    assert answer.state == Accepted()


def test_after_a_rollback_what_the_window_keeps_comes_once_outside_of_the_transaction(
    client: TransactionClient, other: TransactionClient, queue: Queue
) -> None:
    txn_id, link = first_of_three(client)
    assert queue.in_flight == 3
    assert client.discharge(txn_id, fail=True) == Accepted()
    assert queue.in_flight == 0
    client.acquire(link, None, credit=2, delivery_count=1)
    assert told(client, 2) == [("b", 0, None), ("a", 1, None)]
    other.receiver("jobs")
    assert other.bodies(1) == [("c", 0)]
    assert client.nothing_came()
    assert (queue.depth, queue.in_flight) == (1, 1)


def test_a_commit_returns_what_waits_behind_the_one_message_that_the_window_keeps(
    client: TransactionClient, other: TransactionClient, queue: Queue
) -> None:
    """The client has reduced its credit to 0 before the discharge, as 4.4.3 advises, and does not get more after it."""
    put(client, "a", "b", "c", "d")
    txn_id = client.declare()
    link = with_shut_window(client, txn_id, credit=4)
    assert told(client, 1) == [("a", 0, in_(txn_id))]
    client.acquire(link, None, credit=0, delivery_count=1, window=1)
    client.commit(txn_id)
    assert (queue.depth, queue.in_flight, queue.totals.acked) == (2, 0, 2)
    other.receiver("jobs")
    assert other.bodies(2) == [("c", 0), ("d", 0)]
    client.acquire(link, None, credit=1, delivery_count=1)
    assert told(client, 1) == [("b", 0, in_(txn_id))]
    assert client.nothing_came()
    assert (queue.depth, queue.in_flight) == (2, 2)


@pytest.mark.parametrize("ends", ["link", "session"])
def test_what_a_commit_returns_is_not_lost_with_the_link(
    client: TransactionClient, other: TransactionClient, queue: Queue, ends: str
) -> None:
    put(client, "a", "b", "c")
    txn_id = client.declare()
    raw = client.client
    raw.begin(channel=1)
    link = client.settled_receiver("jobs", channel=1)
    client.acquire(link, txn_id, credit=3, window=1, channel=1)
    assert told(client, 1) == [("a", 0, in_(txn_id))]
    client.acquire(link, None, credit=0, delivery_count=1, window=1, channel=1)
    client.commit(txn_id)
    raw.send(Detach(handle=link, closed=True) if ends == "link" else End(), channel=1)
    frames_until(raw, Detach if ends == "link" else End)
    other.receiver("jobs")
    assert other.bodies(1) == [("c", 0)]
    assert other.nothing_came()
    assert (queue.depth, queue.in_flight) == (1, 1)


def test_a_commit_sends_what_the_window_keeps_outside_of_the_transaction_if_there_is_credit(
    client: TransactionClient, other: TransactionClient, queue: Queue
) -> None:
    txn_id, link = first_of_three(client)
    client.commit(txn_id)
    assert (queue.depth, queue.in_flight) == (1, 0)
    client.acquire(link, None, credit=2, delivery_count=1)
    assert told(client, 2) == [("b", 0, in_(txn_id)), ("c", 0, None)]
    assert counted(queue) == (0, 0, 0)
    other.receiver("jobs")
    assert other.nothing_came()


def test_many_messages_come_in_one_go_while_the_window_is_open(client: TransactionClient, queue: Queue) -> None:
    bodies = [f"{number}" for number in range(200)]
    put(client, *bodies)
    txn_id = client.declare()
    client.acquire(client.settled_receiver("jobs"), txn_id, credit=200)
    assert told(client, 200) == [(body, 0, in_(txn_id)) for body in bodies]
    client.commit(txn_id)
    assert counted(queue) == (0, 0, 0)


@pytest.mark.parametrize("size", [pytest.param(LONG, id="in-memory"), pytest.param(STREAMED, id="from-the-log")])
def test_a_rollback_aborts_what_was_sent_in_part_and_brings_it_back(
    stepped: SteppedBroker, client: TransactionClient, queue: Queue, size: int
) -> None:
    put_long(stepped, size)
    txn_id = client.declare()
    link = with_shut_window(client, txn_id, credit=1)
    first = client.client.expect(Transfer)
    assert (first.more, first.state) == (True, in_(txn_id))
    roll_back(client, txn_id)
    assert (queue.depth, queue.in_flight) == (1, 0)
    client.acquire(link, None, credit=0, delivery_count=1)
    assert client.client.expect(Transfer).aborted
    with RawClient(0, "another", stream=SteppedStream(stepped)) as raw:
        raw.begin()
        download = Downloading(raw, "jobs", credit=2).receive()
        assert (download.digest, download.is_aborted) == (digest(encoded(size)), False)
        assert queue.in_flight == 1


@pytest.mark.parametrize("size", [pytest.param(LONG, id="in-memory"), pytest.param(STREAMED, id="from-the-log")])
def test_what_is_left_of_a_long_message_is_sent_after_a_commit(
    stepped: SteppedBroker, client: TransactionClient, queue: Queue, size: int
) -> None:
    put_long(stepped, size)
    put(client, "short")
    txn_id = client.declare()
    link = with_shut_window(client, txn_id, credit=2)
    begun = client.client.expect(Transfer)
    assert begun.more
    client.request(Discharge(txn_id=txn_id, fail=False))
    frames_until(client.client, Disposition)
    assert (queue.depth, queue.in_flight) == (1, 0)
    client.acquire(link, None, credit=2)
    frames: list[Performative] = []
    while sum(isinstance(each, Transfer) and not each.more for each in frames) < 2:
        frames += frames_until(client.client, Transfer)
    assert not any(isinstance(each, Transfer) and each.aborted for each in frames)
    ends = [each for each in frames if isinstance(each, Transfer) and not each.more]
    assert ends[-1].settled
    settled = [each for each in frames if isinstance(each, Disposition) and each.settled and not each.role]
    assert [each.first for each in settled] == [begun.delivery_id]
    assert counted(queue) == (0, 0, 0)


def test_what_waits_behind_a_long_message_returns_with_it(
    stepped: SteppedBroker, client: TransactionClient, queue: Queue
) -> None:
    put_long(stepped, LONG)
    put(client, "short")
    txn_id = client.declare()
    link = with_shut_window(client, txn_id, credit=2)
    assert client.client.expect(Transfer).more
    assert queue.in_flight == 2
    client.acquire(link, None, credit=1, window=1)  # a client that takes its credit back
    roll_back(client, txn_id)
    assert queue.in_flight == 0
    with RawClient(0, "another", stream=SteppedStream(stepped)) as raw:
        raw.begin()
        downloading = Downloading(raw, "jobs", credit=3)
        long, short = downloading.receive(), downloading.receive()
        assert (long.digest, short.size < 100) == (digest(encoded(LONG)), True)
        downloading.accept(long.delivery_id)
        downloading.accept(short.delivery_id)
        stepped.turn()
    client.acquire(link, None, credit=0, delivery_count=1)
    assert client.client.expect(Transfer).aborted
    assert client.nothing_came()
    assert counted(queue) == (0, 0, 0)


def test_what_waits_behind_a_long_message_returns_with_it_also_if_it_is_not_sent_settled(
    stepped: SteppedBroker, client: TransactionClient, queue: Queue
) -> None:
    put_long(stepped, STREAMED, STREAMED)
    txn_id = client.declare()
    client.acquire(client.receiver("jobs", credit=0), txn_id, credit=2, window=1)
    assert client.client.expect(Transfer).more
    client.client.send(Flow(next_incoming_id=0, incoming_window=1, next_outgoing_id=0, outgoing_window=9, handle=1,
                            delivery_count=0, link_credit=1))  # fmt: skip
    roll_back(client, txn_id)
    assert (queue.depth, queue.in_flight) == (2, 0)
    with RawClient(0, "another", stream=SteppedStream(stepped)) as raw:
        raw.begin()
        downloading = Downloading(raw, "jobs", credit=2)
        found = {downloading.receive().digest for _ in range(2)}
        assert found == {digest(encoded(STREAMED, seed=seed)) for seed in range(2)}


def test_a_long_message_of_which_nothing_was_sent_comes_once_outside_of_the_transaction(
    stepped: SteppedBroker, client: TransactionClient, other: TransactionClient, queue: Queue
) -> None:
    put(client, "short")
    put_long(stepped, STREAMED)
    txn_id = client.declare()
    link = with_shut_window(client, txn_id, credit=2)
    assert told(client, 1) == [("short", 0, in_(txn_id))]
    roll_back(client, txn_id)
    assert queue.in_flight == 0
    other.receiver("jobs")
    assert other.bodies(1) == [("short", 1)]
    client.acquire(link, None, credit=1, delivery_count=1)
    begun = whole_message(client)
    assert ({each.state for each in begun}, begun[-1].aborted) == ({None}, None)
    assert other.nothing_came()


@pytest.mark.parametrize("ends", ["link", "session"])
@pytest.mark.parametrize("fails", [pytest.param(False, id="commit"), pytest.param(True, id="rollback")])
def test_what_was_not_sent_returns_with_its_link_and_the_rest_ends_with_its_transaction(
    client: TransactionClient, other: TransactionClient, queue: Queue, ends: str, fails: bool
) -> None:
    put(client, "a", "b", "c")
    txn_id = client.declare()
    raw = client.client
    raw.begin(channel=1)
    link = client.settled_receiver("jobs", channel=1)
    client.acquire(link, txn_id, credit=3, window=1, channel=1)
    assert told(client, 1) == [("a", 0, in_(txn_id))]
    raw.send(Detach(handle=link, closed=True) if ends == "link" else End(), channel=1)
    frames_until(raw, Detach if ends == "link" else End)
    assert queue.in_flight == 1
    other.receiver("jobs")
    assert other.bodies(2) == [("b", 1), ("c", 1)]
    assert client.discharge(txn_id, fail=fails) == Accepted()
    if fails:
        assert other.bodies(1) == [("a", 1)]
    assert other.nothing_came()
    assert (queue.depth, queue.in_flight) == (2 + fails, 2 + fails)


@pytest.mark.parametrize("fails", [pytest.param(False, id="commit"), pytest.param(True, id="rollback")])
def test_a_long_message_sent_in_part_returns_with_its_link(
    stepped: SteppedBroker, client: TransactionClient, queue: Queue, fails: bool
) -> None:
    put_long(stepped, STREAMED)
    txn_id = client.declare()
    link = with_shut_window(client, txn_id, credit=1)
    assert client.client.expect(Transfer).more
    client.client.send(Detach(handle=link, closed=True))
    frames_until(client.client, Detach)
    assert queue.in_flight == 0
    assert client.discharge(txn_id, fail=fails) == Accepted()
    with RawClient(0, "another", stream=SteppedStream(stepped)) as raw:
        raw.begin()
        download = Downloading(raw, "jobs", credit=2).receive()
        assert (download.size > STREAMED, download.is_aborted) == (True, False)
    stepped.turn()
    assert (queue.depth, queue.in_flight) == (1, 0)


def test_what_is_not_sent_of_a_transaction_that_is_too_old_returns_and_what_is_kept_is_sent_once(
    stepped: SteppedBroker, client: TransactionClient, other: TransactionClient, queue: Queue
) -> None:
    txn_id, _ = first_of_three(client)
    stepped.pass_ms(AGE_MS)
    assert queue.in_flight == 0
    other.receiver("jobs")
    assert other.bodies(2) == [("a", 1), ("c", 0)]
    open_window(client)
    assert told(client, 1) == [("b", 0, None)]
    error = client.detached().error
    assert error is not None
    assert error.condition == "amqp:transaction:timeout"
    assert condition_of(client.discharge(txn_id)) == "amqp:transaction:timeout"
    assert other.nothing_came()


def test_a_long_message_of_a_transaction_that_is_too_old_returns(
    stepped: SteppedBroker, client: TransactionClient, other: TransactionClient, queue: Queue
) -> None:
    """Nothing of it was sent, and nothing will be: its link is closed."""
    put(client, "short")
    put_long(stepped, STREAMED)
    txn_id = client.declare()
    with_shut_window(client, txn_id, credit=2)
    assert told(client, 1) == [("short", 0, in_(txn_id))]
    stepped.pass_ms(AGE_MS)
    assert (queue.depth, queue.in_flight) == (2, 0)


def test_what_waits_behind_a_long_message_is_of_the_transaction_that_acquired_it(
    stepped: SteppedBroker, client: TransactionClient, other: TransactionClient, queue: Queue
) -> None:
    """Although the link acquires in another one by the time it is sent."""
    put_long(stepped, LONG)
    put(client, "short")
    first, second = client.declare(), client.declare()
    link = with_shut_window(client, first, credit=2)
    assert client.client.expect(Transfer).more
    client.acquire(link, second, credit=2)
    whole_message(client)
    frames = [each for each in frames_until(client.client, Transfer) if isinstance(each, Transfer)]
    assert [each.state for each in frames] == [in_(first)]
    assert client.discharge(second, fail=True) == Accepted()
    assert queue.in_flight == 2
    client.commit(first)
    assert counted(queue) == (0, 0, 0)


def test_a_lost_connection_brings_back_what_was_sent_and_what_was_not(
    stepped: SteppedBroker, other: TransactionClient, queue: Queue
) -> None:
    put(other, "a", "b", "c")
    with RawClient(0, "lost", stream=SteppedStream(stepped)) as raw:
        client = TransactionClient(raw)
        txn_id = client.declare()
        with_shut_window(client, txn_id, credit=3)
        assert told(client, 1) == [("a", 0, in_(txn_id))]
    stepped.turn()
    assert (queue.depth, queue.in_flight) == (3, 0)
    other.receiver("jobs")
    assert other.bodies(3) == [("a", 1), ("b", 1), ("c", 1)]


def test_a_peer_that_settles_a_part_of_what_is_sent_settled_changes_no_count(
    stepped: SteppedBroker, client: TransactionClient, queue: Queue
) -> None:
    """Outside of any transaction: it was settled, and gone, when it was sent."""
    put_long(stepped, STREAMED)
    link = client.settled_receiver("jobs")
    client.acquire(link, None, credit=1, window=1)
    begun = client.client.expect(Transfer)
    assert begun.more
    client.client.send(Disposition(role=True, first=begun.delivery_id or 0, settled=True, state=Accepted()))
    client.acquire(link, None, credit=0, delivery_count=1)
    assert client.client.expect(Transfer).aborted
    assert counted(queue) == (0, 0, 0)
    assert queue.totals.acked == 1


def test_a_drain_is_answered_behind_what_the_window_kept(client: TransactionClient, queue: Queue) -> None:
    put(client, "a", "b", "c")
    txn_id = client.declare()
    client.acquire(client.settled_receiver("jobs"), txn_id, credit=5, drain=True, window=1)
    assert told(client, 1) == [("a", 0, in_(txn_id))]
    open_window(client)
    assert told(client, 2) == [("b", 0, in_(txn_id)), ("c", 0, in_(txn_id))]
    answer = client.told_of_link(2)  # by the handle that the broker gave it, its third
    assert (answer.delivery_count, answer.link_credit) == (5, 0)
    client.commit(txn_id)
    assert counted(queue) == (0, 0, 0)


def test_a_rollback_gives_the_credit_of_what_was_not_sent_to_others(
    client: TransactionClient, other: TransactionClient, queue: Queue
) -> None:
    """The link drains: what returned is not sent on it before its window opens, and then its credit is used for it."""
    put(client, "a", "b", "c")
    txn_id = client.declare()
    client.acquire(client.settled_receiver("jobs"), txn_id, credit=4, drain=True, window=1)
    assert told(client, 1) == [("a", 0, in_(txn_id))]
    assert client.discharge(txn_id, fail=True) == Accepted()
    other.receiver("jobs")
    assert other.bodies(2) == [("a", 1), ("c", 0)]
    open_window(client)
    assert told(client, 1) == [("b", 0, None)]
    answer = client.told_of_link(2)  # by the handle that the broker gave it, its third
    assert (answer.delivery_count, answer.link_credit) == (4, 0)
    assert other.nothing_came()


def test_a_window_that_stays_shut_for_days_costs_no_turn(
    stepped: SteppedBroker, client: TransactionClient, queue: Queue
) -> None:
    put(client, "a", "b", "c")
    with_shut_window(client, client.declare(), credit=3)
    assert client.get(1)
    for _ in range(3):
        stepped.turn()
    work = stepped.broker.work
    assert (list(work.streaming), list(work.dirty), list(work.ready)) == ([], [], [])


def test_a_short_message_that_the_window_keeps_stays_with_its_link(
    stepped: SteppedBroker, client: TransactionClient, queue: Queue
) -> None:
    """Not sent settled; a long message that was acquired before it has left the transaction."""
    put_long(stepped, LONG)
    put(client, "short")
    txn_id = client.declare()
    link = client.receiver("jobs", credit=0)
    client.acquire(link, txn_id, credit=1)
    frames = whole_message(client)
    client.client.send(Disposition(role=True, first=0, settled=True, state=Accepted()))
    for _ in range(3):
        stepped.turn()
    client.acquire(link, txn_id, credit=2, delivery_count=1, window=len(frames))
    for _ in range(3):
        stepped.turn()
    assert (queue.depth, queue.in_flight) == (1, 1)
    assert client.discharge(txn_id, fail=True) == Accepted()
    assert (queue.depth, queue.in_flight) == (1, 1)  # it stays with the link
    client.acquire(link, None, credit=1, delivery_count=1, drain=True)
    (got,) = client.get()
    assert (got.body, got.state) == ("short", None)
    client.settle(got, Accepted(), None)
    assert client.nothing_came()
    assert counted(queue) == (0, 0, 0)


def test_a_long_message_returns_with_its_link_also_where_its_connection_holds_very_many(
    stepped: SteppedBroker, client: TransactionClient, queue: Queue
) -> None:
    stepped.make_queue("many")
    sender = client.sender("many")
    for _ in range(22):
        sent = [client.send(sender, Message(body="x")) for _ in range(50)]
        assert {str(client.state_of(each)) for each in sent} == {str(Accepted())}
    client.receiver("many", credit=1100)
    assert len(client.get(1100)) == 1100
    put_long(stepped, STREAMED)
    txn_id = client.declare()
    raw = client.client
    raw.begin(channel=1)
    link = client.settled_receiver("jobs", channel=1)
    client.acquire(link, txn_id, credit=1, window=1, channel=1)
    assert raw.expect(Transfer).more
    raw.send(Detach(handle=link, closed=True), channel=1)
    frames_until(raw, Detach)
    assert (queue.depth, queue.in_flight) == (1, 0)
    client.commit(txn_id)
    assert (queue.depth, queue.in_flight) == (1, 0)
    assert stepped.queue("many").in_flight == 1100


def test_a_link_goes_on_behind_what_a_rollback_aborted(
    stepped: SteppedBroker, client: TransactionClient, queue: Queue
) -> None:
    put_long(stepped, STREAMED)
    txn_id = client.declare()
    link = with_shut_window(client, txn_id, credit=1)
    assert client.client.expect(Transfer).more
    roll_back(client, txn_id)
    client.acquire(link, None, credit=1, delivery_count=1)
    assert client.client.expect(Transfer).aborted
    frames = whole_message(client)
    assert (frames[-1].settled, {each.state for each in frames}) == (True, {None})
    assert counted(queue) == (0, 0, 0)


def test_a_rollback_takes_nothing_of_another_transaction(
    client: TransactionClient, other: TransactionClient, queue: Queue
) -> None:
    put(client, "a", "b", "c")
    first, second = client.declare(), client.declare()
    other_link = client.receiver("jobs", credit=0)
    client.acquire(other_link, first, credit=1)
    (one,) = client.get()
    link = client.settled_receiver("jobs")
    client.acquire(link, second, credit=2, window=2)
    assert told(client, 1) == [("b", 0, in_(second))]
    assert queue.in_flight == 3
    assert client.discharge(first, fail=True) == Accepted()
    assert queue.in_flight == 2
    client.acquire(link, None, credit=2)
    assert told(client, 1) == [("c", 0, in_(second))]
    client.commit(second)
    other.receiver("jobs")
    assert other.bodies(1) == [(one.body, 0)]
    assert (queue.depth, queue.in_flight) == (1, 1)


def test_a_long_message_of_which_nothing_was_sent_stays_in_flight_if_it_is_not_sent_settled(
    stepped: SteppedBroker, client: TransactionClient, queue: Queue
) -> None:
    put(client, "short")
    put_long(stepped, STREAMED)
    txn_id = client.declare()
    client.acquire(client.receiver("jobs", credit=0), txn_id, credit=2, window=1)
    assert client.get(1)
    assert client.discharge(txn_id, fail=True) == Accepted()
    assert (queue.depth, queue.in_flight) == (2, 1)
    client.client.socket.close()
    for _ in range(3):
        stepped.turn()
    assert (queue.depth, queue.in_flight) == (2, 0)


def test_what_the_window_keeps_is_still_sent_if_the_broker_closes_the_link_and_stays_with_the_transaction(
    stepped: SteppedBroker, client: TransactionClient, other: TransactionClient, queue: Queue
) -> None:
    txn_id, _ = first_of_three(client)
    (consumer,) = queue.links.consumers
    assert isinstance(consumer, Consumer)
    refused = amqp_error(Refuse(Reason.NOT_ALLOWED, "It is closed."))
    close.close_link(stepped.broker, consumer.connection, consumer.link, refused)
    assert queue.in_flight == 2
    open_window(client)
    assert told(client, 1) == [("b", 0, in_(txn_id))]
    assert client.detached().closed
    client.commit(txn_id)
    other.receiver("jobs")
    assert other.bodies(1) == [("c", 1)]
    assert other.nothing_came()
    assert (queue.depth, queue.in_flight) == (1, 1)


def test_the_credit_of_what_returned_is_there_again(client: TransactionClient, queue: Queue) -> None:
    """The client gives no other: it only opens its window."""
    txn_id, _ = first_of_three(client)
    assert client.discharge(txn_id, fail=True) == Accepted()
    open_window(client)
    assert told(client, 2) == [("b", 0, None), ("a", 1, None)]
    assert (queue.depth, queue.in_flight) == (1, 0)
