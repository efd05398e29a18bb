"""Batches of messages into the queues they reach, with what a message may ask for in any order within a batch."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import Delivery, Message, symbol
from support.stepped_broker import Peer, SteppedBroker

from penstock_amqp.endpoint.events import DATA, FLAGS
from penstock_api.management import DeliveryPolicy as DeliveryPolicy
from penstock_api.management import QueueLimits
from penstock_broker.queue.queue import LOGGED
from penstock_core.routing import Router


@pytest.fixture
def broker() -> Iterator[SteppedBroker]:
    made = SteppedBroker()
    yield made
    made.close()


def got(peer: Peer) -> dict[str, list[object]]:
    """The bodies that came, by link, in order."""
    peer.pump()
    by_link: dict[str, list[object]] = {}
    for message, delivery in peer.got:
        by_link.setdefault(str(delivery.link.name), []).append(message.body)
    return by_link


def test_each_message_of_a_batch_reaches_its_own_queues_in_order(broker: SteppedBroker) -> None:
    consumer, producer = broker.connect(), broker.connect()
    for key in ("a", "b.*", "#"):
        consumer.receive(f"amq.topic/{key}", name=key)
    subjects = ["a", "a", "b.x", "nobody", "a", "b.y", "b.z", "a"]
    sent = [Message(body=number, subject=subject) for number, subject in enumerate(subjects)]
    assert producer.send("amq.topic", *sent) == ["accepted"] * 8
    assert got(consumer) == {"a": [0, 1, 4, 7], "b.*": [2, 5, 6], "#": [0, 1, 2, 3, 4, 5, 6, 7]}


def test_what_a_message_asks_for_holds_for_it_alone(broker: SteppedBroker) -> None:
    broker.make_queue("q")
    producer = broker.connect()
    sent = [
        Message(body="plain"),
        Message(body="high", priority=9),
        Message(body="later", annotations={symbol("x-opt-delivery-delay"): 500}),
        Message(body="short", ttl=0.2),
        Message(body="low", priority=1),
        Message(body="high too", priority=9, durable=True),
        Message(body="plain too"),
    ]
    assert producer.send("q", *sent) == ["accepted"] * 7
    assert broker.queue("q").totals.enqueued == 7
    broker.pass_ms(300)
    consumer = broker.connect()
    consumer.receive("q", name="q")
    assert got(consumer) == {"q": ["high", "high too", "plain", "plain too", "low"]}
    broker.pass_ms(300)
    assert got(consumer)["q"][5:] == ["later"]
    assert broker.queue("q").totals.expired == 1


def test_a_queue_s_longest_time_to_live_bounds_each_message_of_a_batch(broker: SteppedBroker) -> None:
    broker.make_queue("q", DeliveryPolicy(max_ttl_ms=1000))
    later = Message(body="later", annotations={symbol("x-opt-delivery-delay"): 5000})
    sent = [Message(body="own", ttl=0.5), Message(body="none"), later]
    assert broker.connect().send("q", *sent) == ["accepted"] * 3
    broker.pass_ms(600)
    assert (broker.queue("q").totals.expired, broker.queue("q").depth) == (1, 2)
    broker.pass_ms(600)
    broker.pass_ms(6000)
    assert (broker.queue("q").totals.expired, broker.queue("q").depth, broker.queue("q").depth_bytes) == (3, 0, 0)


def test_a_queue_that_rejects_takes_of_a_batch_what_it_has_room_for(broker: SteppedBroker) -> None:
    broker.make_queue("q", limits=QueueLimits(max_messages=3, overflow="Reject"))
    told = broker.connect().send("q", *(Message(body=number) for number in range(5)))
    assert told == ["accepted"] * 3 + ["amqp:resource-limit-exceeded"] * 2
    consumer = broker.connect()
    consumer.receive("q", name="q")
    assert got(consumer) == {"q": [0, 1, 2]}


def test_durable_and_undurable_messages_of_a_batch_keep_their_order_over_a_restart(broker: SteppedBroker) -> None:
    broker.make_queue("q")
    delay = {symbol("x-opt-delivery-delay"): 500}
    sent = [
        Message(body=number, durable=number % 3 == 0, annotations=delay if number > 6 else None) for number in range(12)
    ]
    assert broker.connect().send("q", *sent) == ["accepted"] * 12
    broker.restart()
    consumer = broker.connect()
    consumer.receive("q", name="q")
    assert got(consumer) == {"q": [0, 3, 6]}
    broker.pass_ms(600)
    assert got(consumer) == {"q": [0, 3, 6, 9]}


def test_queues_share_one_entry_of_a_message_also_after_a_restart(broker: SteppedBroker) -> None:
    for name in ("first", "second"):
        broker.make_queue(name)
    bounded = broker.make_queue("bounded", DeliveryPolicy(max_ttl_ms=60_000))
    exchange = broker.broker.topology.exchanges["amq.fanout"]
    assert isinstance(exchange.router, Router)
    for name in ("first", "second", "bounded"):
        exchange.router.bind(broker.queue(name), frozenset({""}))
    exchange.version += 1
    sent = [Message(body=1, durable=True), Message(body=2, durable=True, priority=9, ttl=30.0)]
    assert broker.connect().send("amq.fanout", *sent) == ["accepted"] * 2
    before = list(bounded)
    broker.restart()
    first, second = list(broker.queue("first")), list(broker.queue("second"))
    assert len(first) == 2
    assert all(one is other for one, other in zip(first, second, strict=True))
    assert list(broker.queue("bounded")) == before
    assert all(one[DATA] is other[DATA] for one, other in zip(first, broker.queue("bounded"), strict=True))


@pytest.mark.parametrize("is_delayed", [False, True])
def test_a_queue_acknowledges_in_the_log_only_what_the_log_holds_for_it(
    broker: SteppedBroker, is_delayed: bool
) -> None:
    """Else the log takes a message that another queue still holds for gone, and its segment for free."""
    keeps, forgets = broker.make_queue("keeps"), broker.make_queue("forgets")
    volatile = broker.make_queue("volatile", durable=False)
    keeps.policy.keeps_all = True
    exchange = broker.broker.topology.exchanges["amq.fanout"]
    assert isinstance(exchange.router, Router)
    for queue in (keeps, forgets, volatile):
        exchange.router.bind(queue, frozenset({""}))
    exchange.version += 1
    delay = {symbol("x-opt-delivery-delay"): 500} if is_delayed else None
    sent = [Message(body="durable", durable=True, annotations=delay), Message(body="not", annotations=delay)]
    assert broker.connect().send("amq.fanout", *sent) == ["accepted"] * 2
    broker.pass_ms(1000)
    logged = {queue.name: [entry[FLAGS] & LOGGED for entry in queue] for queue in (keeps, forgets, volatile)}
    assert logged == {"keeps": [LOGGED, LOGGED], "forgets": [LOGGED, 0], "volatile": [0, 0]}
    consumer = broker.connect()
    for name in ("forgets", "volatile"):
        consumer.receive(name)
    for _ in range(4):
        consumer.take()
    broker.pass_ms(1000)
    broker.restart()
    assert (broker.queue("keeps").depth, broker.queue("forgets").depth) == (2, 0)


def test_priorities_come_back_and_are_settled_as_they_went_out(broker: SteppedBroker) -> None:
    broker.make_queue("q")
    consumer, producer = broker.connect(), broker.connect()
    producer.send("q", *(Message(body=number, priority=number % 3) for number in range(6)))
    consumer.receive("q", credit=4, name="q")
    assert got(consumer) == {"q": [2, 5, 1, 4]}
    consumer.take(Delivery.MODIFIED, failed=True)
    consumer.take()
    assert (broker.queue("q").in_flight, broker.queue("q").waiting) == (2, 3)
    other = broker.connect()
    other.receive("q", name="other")
    assert got(other) == {"other": [2, 0, 3]}
    assert [message.delivery_count for message, _ in other.got] == [1, 0, 0]
