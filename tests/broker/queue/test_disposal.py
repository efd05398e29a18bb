"""The end of a queue with very many messages: at once for everybody, and let go a slice per turn."""

# pyright: reportUnknownMemberType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from proton import Delivery, Message, Terminus, symbol, timestamp
from support.stepped_broker import Peer, SteppedBroker

from penstock_amqp.endpoint.events import Entry
from penstock_broker.attach import close, temporary_nodes
from penstock_broker.queue.disposal import FREED_PER_TURN, Disposal
from penstock_broker.queue.queue import Queue
from penstock_broker.queue.snapshots import MOST_COPIED
from penstock_broker.topology.records import Subscription
from penstock_core.binding import Binding
from penstock_core.reason import Reason, Refuse

SLICES = 5
MANY = FREED_PER_TURN * SLICES
GONE = Refuse(Reason.NODE_DELETED, "It was deleted.")


class Counted(bytes):
    """A message that is counted as long as anybody holds it."""

    alive = 0

    def __init__(self, _: bytes) -> None:
        Counted.alive += 1

    def __del__(self) -> None:
        Counted.alive -= 1


def alive() -> int:
    return Counted.alive


def fill(timed: SteppedBroker, queue: Queue, count: int = MANY, *, waits: bool = True) -> None:
    """Very many messages, without the work of sending them."""
    first = timed.broker.log.next_messages(count)
    now = timed.broker.clock.now_us
    for number in range(first, first + count):
        if waits:
            queue.ready.append((number, Counted(b"x"), now, 0, 0))
        else:
            queue.hold_back((number, Counted(b"x"), now + number * 1000, 0, 0))
    queue.depth_bytes += count


def slices(timed: SteppedBroker, least: int = 0) -> list[int]:
    """Let the broker turn until nothing remains; how many messages went in each turn."""
    gone: list[int] = []
    left = alive()
    while timed.broker.topology.disposal:
        timed.turn()
        before, left = left, alive()
        gone.append(before - left)
        assert len(gone) < 100
    assert left == least
    return gone


@pytest.mark.parametrize("waits", [True, False])
def test_a_deleted_queue_is_empty_at_once_and_goes_in_slices(timed: SteppedBroker, waits: bool) -> None:
    queue = timed.make_queue("jobs")
    fill(timed, queue, waits=waits)
    assert alive() == MANY
    close.end_queue(timed.broker, timed.broker.topology.queues["jobs"], GONE)
    assert (queue.depth, queue.depth_bytes, "jobs" in timed.broker.topology.queues) == (0, 0, False)
    assert alive() == MANY
    gone = slices(timed)
    assert SLICES <= len([each for each in gone if each]) <= SLICES + 1
    assert max(gone) <= FREED_PER_TURN + 512, "a slice, and what of its last block is beyond it"


def subscription_of(timed: SteppedBroker) -> Subscription:
    (subscription,) = timed.broker.topology.subscriptions.values()
    return subscription


def unsubscribed(timed: SteppedBroker) -> None:
    close.end_subscription(timed.broker, subscription_of(timed))


def rebound(timed: SteppedBroker) -> None:
    binding = Binding("amq.topic", frozenset(("other",)))
    timed.broker.topology.drop_and_rebind(subscription_of(timed), binding, timed.broker.clock.now_us)
    assert subscription_of(timed).queue.depth == 0


@pytest.mark.parametrize("end", [unsubscribed, rebound])
def test_a_subscription_goes_in_slices_while_a_witness_works(
    timed: SteppedBroker, end: Callable[[SteppedBroker], None]
) -> None:
    timed.make_queue("work", durable=False)
    timed.connect().receive("amq.topic", name="news")
    fill(timed, subscription_of(timed).queue, 50 * FREED_PER_TURN)
    witness = timed.connect()
    witness.receive("work")
    end(timed)
    turns = timed.broker.clock.turns
    for number in range(3):
        work(witness, number)
        assert timed.broker.topology.disposal, "the witness had its turns long before the end"
    assert alive() >= (50 - timed.broker.clock.turns + turns) * FREED_PER_TURN
    assert max(slices(timed)) <= FREED_PER_TURN


def work(witness: Peer, number: int) -> None:
    assert witness.send("work", Message(body=number)) == ["accepted"]
    assert witness.take().body == number


def test_a_temporary_queue_goes_in_slices(timed: SteppedBroker) -> None:
    peer = timed.connect()
    link = peer.session.receiver("mine")
    link.source.dynamic = True
    link.open()
    peer.pump()
    (name,) = timed.broker.topology.queues
    fill(timed, timed.queue(name))
    connection = next(iter(timed.broker.clients.connections.values()))
    temporary_nodes.connection_ended(timed.broker, connection)
    assert (alive(), timed.broker.topology.queues) == (MANY, {})
    assert max(slices(timed)) <= FREED_PER_TURN


def test_a_browser_that_goes_lets_its_copies_go_in_slices(timed: SteppedBroker) -> None:
    queue = timed.make_queue("jobs", durable=False)
    copied = FREED_PER_TURN * 3
    assert copied <= MOST_COPIED
    fill(timed, queue, copied)
    peer = timed.connect()
    link = peer.session.receiver("look")
    link.source.address = "jobs"
    link.source.distribution_mode = Terminus.DIST_MODE_COPY
    link.open()
    peer.pump()
    queue.ready.clear()
    assert alive() == copied
    link.close()
    peer.pump()
    gone = slices(timed)
    assert not gone or max(gone) <= FREED_PER_TURN


def test_what_a_kill_in_the_middle_leaves_is_nothing(timed: SteppedBroker) -> None:
    """One record ends the queue; what is let go afterwards is memory."""
    timed.make_queue("jobs")
    peer = timed.connect()
    peer.send("jobs", *(Message(body=f"m{number}", durable=True) for number in range(50)))
    later = timestamp(timed.now_ms + 60_000)
    peer.send("jobs", Message(body="late", durable=True, annotations={symbol("x-opt-delivery-time"): later}))
    fill(timed, timed.queue("jobs"))
    close.end_queue(timed.broker, timed.broker.topology.queues["jobs"], GONE)
    timed.turn()
    assert timed.broker.topology.disposal
    timed.restart()
    assert "jobs" not in timed.broker.topology.queues
    jobs = timed.make_queue("jobs")
    peer = timed.connect()
    peer.receive("jobs")
    timed.pass_ms(61_000)
    assert (peer.bodies(), jobs.depth) == ([], 0)
    assert timed.recovered.messages == {}


def test_a_delivery_of_an_ended_queue_returns_to_nobody(timed: SteppedBroker) -> None:
    queue = timed.make_queue("jobs")
    peer = timed.connect()
    peer.send("jobs", Message(body="m1", durable=True), Message(body="m2", durable=True))
    peer.receive("jobs", credit=1)
    close.end_queue(timed.broker, timed.broker.topology.queues["jobs"], GONE)
    peer.got[0][1].update(Delivery.RELEASED)
    peer.pump()
    timed.make_queue("jobs")
    other = timed.connect()
    other.receive("jobs")
    assert other.bodies() == []
    assert queue.depth <= 1


def test_all_kinds_of_piles_go() -> None:
    remains = Disposal()
    entry: Entry = (1, b"", 0, 0, 0)
    numbers, attempts = {1, 2}, {1: 1, 2: 1}
    passing = iter([entry, entry])
    blocks: list[list[Entry]] = [[entry], [entry]]
    remains.add(numbers, attempts, {}, passing, blocks)
    assert remains
    remains.free_slice()
    assert (bool(remains), numbers, attempts, list(passing), blocks) == (False, set[int](), {}, [], [])


def test_very_many_piles_of_nothing_are_looked_at_in_slices_too() -> None:
    """As many empty queues end at once as two turns can take."""
    remains = Disposal()
    remains.add(*(set[int]() for _ in range(8000)))
    remains.free_slice()
    assert len(remains.piles) == 4000
    remains.free_slice()
    assert not remains


def test_what_can_not_be_freed_in_slices_does_not_end_the_broker(timed: SteppedBroker) -> None:
    def fails() -> Iterator[int]:
        yield 1
        raise RuntimeError("a mistake")

    piles = timed.broker.topology.disposal.piles
    piles.append(fails())
    timed.turn()
    assert not piles
