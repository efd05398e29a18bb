"""The log has failed on a volume that takes no file either: nothing says to the next start what was delivered since."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from proton import Endpoint, Message
from support.stepped_broker import Peer, SteppedBroker

from penstock_broker.messages import storage_watch
from penstock_broker.messages.storage_watch import CHECK_MS
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import PendingWork


@pytest.fixture
def broker() -> Iterator[SteppedBroker]:
    made = SteppedBroker()
    yield made
    made.close()


def filled(broker: SteppedBroker) -> None:
    """A durable queue and a volatile one, each with two messages."""
    broker.make_queue("q")
    broker.make_queue("volatile", durable=False)
    peer = broker.connect()
    for name in ("q", "volatile"):
        assert peer.send(name, *(Message(body=body, durable=True) for body in ("a", "b"))) == ["accepted"] * 2
    peer.drop()


def fail_log(broker: SteppedBroker) -> None:
    """By a message that nobody gets, so that no delivery is under way."""
    broker.files.broken |= {"pwrite", "create"}
    peer = broker.connect("the one whose message fails")
    sender = peer.session.sender("to q")
    sender.target.address = "q"
    sender.open()
    peer.pump()
    sender.delivery("1")
    sender.send(Message("c", durable=True).encode())
    sender.advance()
    peer.flush()
    for _ in range(3):
        broker.turn()
    assert broker.log.failed is not None


def restart_on_sound_disk(broker: SteppedBroker) -> None:
    broker.files.broken.clear()
    broker.restart()


def came(peer: Peer) -> list[tuple[object, int]]:
    """Bodies and delivery-counts of what came and is not settled."""
    peer.pump()
    return [(message.body, message.delivery_count) for message, _ in peer.got]


def test_what_can_not_be_written_down_does_not_leave(broker: SteppedBroker) -> None:
    """The first write that fails is the one that would say what was delivered: its turn's output is not sent."""
    filled(broker)
    peer = broker.connect("consumer")
    broker.files.broken |= {"pwrite", "create"}
    link = peer.session.receiver("from q")
    link.source.address = "q"
    link.open()
    link.flow(10)
    peer.flush()
    for _ in range(3):
        broker.turn()
    assert broker.log.failed is not None
    peer.read()
    assert peer.got == []
    assert broker.broker.clients.connections == {}
    assert broker.queue("q").depth == 2

    restart_on_sound_disk(broker)
    peer = broker.connect()
    peer.receive("q")
    assert came(peer) == [("a", 0), ("b", 0)]  # nobody has had them


def test_a_failed_log_without_a_mark_delivers_only_what_is_not_in_it(
    broker: SteppedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    filled(broker)
    fail_log(broker)
    assert "failed can't be made, so messages of durable queues are not delivered" in caplog.text
    peer = broker.connect()
    peer.receive("q")
    peer.receive("volatile")
    assert came(peer) == [("a", 0), ("b", 0)]
    assert {delivery.link.source.address for _, delivery in peer.got} == {"volatile"}
    assert peer.connection.state & Endpoint.REMOTE_ACTIVE

    restart_on_sound_disk(broker)
    peer = broker.connect()
    peer.receive("q")
    assert came(peer)[:2] == [("a", 0), ("b", 0)]


def test_a_drain_of_a_queue_that_delivers_nothing_is_answered(broker: SteppedBroker) -> None:
    filled(broker)
    fail_log(broker)
    peer = broker.connect()
    link = peer.receive("q", credit=0)
    link.drain(10)
    peer.pump()
    assert link.drained() == 10
    assert peer.got == []


def test_it_delivers_again_once_the_mark_can_be_made(broker: SteppedBroker, caplog: pytest.LogCaptureFixture) -> None:
    filled(broker)
    fail_log(broker)
    peer = broker.connect()
    peer.receive("q")
    assert came(peer) == []
    broker.files.broken.discard("create")
    broker.pass_ms(CHECK_MS)
    assert [body for body, _ in came(peer)][:2] == ["a", "b"]
    assert "failed is made: messages of durable queues are delivered again" in caplog.text

    restart_on_sound_disk(broker)
    peer = broker.connect()
    peer.receive("q")
    assert [count for _, count in came(peer)][:2] == [1, 1]


def test_very_many_queues_deliver_again_some_in_each_turn(
    broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_watch, "QUEUES_PER_STEP", 10)
    filled(broker)
    for number in range(25):
        broker.make_queue(f"other-{number}")
    fail_log(broker)
    peer = broker.connect()
    peer.receive("q")
    assert came(peer) == []
    counts: list[int] = []
    kind = type(broker.broker.work)
    schedule = kind.schedule

    def counted(work: PendingWork, queue: Queue) -> None:
        counts.append(broker.broker.clock.turns)
        schedule(work, queue)

    monkeypatch.setattr(kind, "schedule", counted)
    broker.files.broken.discard("create")
    broker.pass_ms(CHECK_MS)
    assert sorted(Counter(counts).values()) == [7, 10, 10]  # "q", "volatile" and the others, in three turns
    assert [body for body, _ in came(peer)][:2] == ["a", "b"]
