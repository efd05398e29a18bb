"""Starts that leave the bodies of a backlog in the log: clients see what they would see if all were in memory."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import Delivery, Message, symbol
from support.stepped_broker import Peer, SteppedBroker

from penstock_api.management import DeliveryPolicy


@pytest.fixture
def broker() -> Iterator[SteppedBroker]:
    made = SteppedBroker()
    yield made
    made.close()


def send(broker: SteppedBroker, *messages: Message) -> None:
    peer = broker.connect()
    assert peer.send("q", *messages) == ["accepted"] * len(messages)
    peer.drop()


def numbered(first: int, count: int, **properties: object) -> list[Message]:
    return [Message(body=number, durable=True, **properties) for number in range(first, first + count)]


def restart(broker: SteppedBroker) -> None:
    """No body that the queue can leave in the log stays in memory."""
    broker.restart(kept_bytes=0)


def take_all(broker: SteppedBroker) -> list[object]:
    peer = broker.connect()
    peer.receive("q", credit=1000)
    return [message.body for message in taken(peer)]


def taken(peer: Peer) -> list[Message]:
    """Accept everything that comes, also what comes later because of that."""
    found: list[Message] = []
    peer.pump()
    while peer.got:
        found.append(peer.take())
    return found


def test_a_backlog_is_left_in_the_log_and_handed_out_in_order(broker: SteppedBroker) -> None:
    broker.make_queue("q")
    send(broker, *numbered(0, 300))
    before = broker.queue("q").depth_bytes
    restart(broker)
    queue = broker.queue("q")
    assert (queue.depth, queue.depth_bytes, queue.totals.enqueued) == (300, before, 300)
    assert broker.recovered.messages[queue.incarnation] == []
    assert [run.messages for run in broker.recovered.paged[queue.incarnation].runs] == [300]
    send(broker, *numbered(300, 20))
    assert take_all(broker) == list(range(320))
    assert (queue.depth, queue.depth_bytes) == (0, 0)
    restart(broker)
    assert broker.queue("q").depth == 0


def test_what_was_settled_before_the_restart_does_not_come_back(broker: SteppedBroker) -> None:
    broker.make_queue("q")
    send(broker, *numbered(0, 100))
    peer = broker.connect()
    peer.receive("q", credit=40)
    assert [peer.take().body for _ in range(40)] == list(range(40))
    peer.drop()
    restart(broker)
    assert broker.queue("q").depth == 60
    assert take_all(broker) == list(range(40, 100))


def test_messages_that_need_memory_keep_their_places_among_those_in_the_log(broker: SteppedBroker) -> None:
    broker.make_queue("q")
    for first in range(0, 40, 10):
        send(broker, *numbered(first, 9))
        send(broker, Message(body=first + 9, durable=True, group_id="g"))
    restart(broker)
    assert take_all(broker) == list(range(40))


def test_higher_priorities_come_first(broker: SteppedBroker) -> None:
    broker.make_queue("q")
    send(broker, *numbered(0, 30))
    send(broker, *numbered(30, 3, priority=9))
    restart(broker)
    assert take_all(broker) == [30, 31, 32, *range(30)]


def test_a_delayed_message_that_is_due_comes_behind_what_waited_then(broker: SteppedBroker) -> None:
    broker.make_queue("q")
    annotations = {symbol("x-opt-delivery-time"): broker.now_ms + 50}
    send(broker, Message(body="delayed", durable=True, annotations=annotations))
    send(broker, *numbered(0, 10))
    broker.pass_ms(100)
    restart(broker)
    assert take_all(broker) == [*range(10), "delayed"]


def test_messages_in_the_log_expire(broker: SteppedBroker) -> None:
    broker.make_queue("q")
    send(broker, *numbered(0, 10, ttl=0.5), *numbered(10, 10, ttl=3600), *numbered(20, 10))
    restart(broker)
    broker.pass_ms(2000)
    broker.pass_ms(2000)
    assert take_all(broker) == list(range(10, 30))
    assert broker.queue("q").totals.expired == 10


def test_failed_deliveries_still_count(broker: SteppedBroker) -> None:
    broker.make_queue("dead")
    broker.make_queue("q", DeliveryPolicy(max_deliveries=2, dead_letter="dead"))
    send(broker, *numbered(0, 5))
    peer = broker.connect()
    peer.receive("q", credit=1)
    assert peer.take(Delivery.MODIFIED, failed=True).body == 0
    peer.drop()
    restart(broker)
    peer = broker.connect()
    peer.receive("q", credit=1)
    assert peer.take(Delivery.MODIFIED, failed=True).body == 0
    peer.drop()
    assert take_all(broker) == [1, 2, 3, 4]
    assert broker.queue("dead").depth == 1


def test_all_messages_may_have_been_delivered_if_the_machine_was_restarted(
    broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.make_queue("q")
    send(broker, *numbered(0, 20))
    monkeypatch.setattr(broker.files, "boot_id", lambda: b"another boot of ")
    restart(broker)
    peer = broker.connect()
    peer.receive("q", credit=1000)
    assert broker.queue("q").redelivery.seen
    found = taken(peer)
    assert [(each.body, each.delivery_count > 0) for each in found] == [(number, True) for number in range(20)]
    assert not broker.queue("q").redelivery.seen, "what comes now takes the usual path"
