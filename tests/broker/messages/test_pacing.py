"""Producers are paced by queues that the broker can't empty, and by no others.

The broker of these tests has an clock of its own: each look at it takes half a millisecond of the turn, so that a
turn brings some hundred messages in and serves few visits of queues; and each turn takes three. Source:
docs/decisions/090-intake-pace.md.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from proton import Delivery, Message, Receiver, Sender
from support.stepped_broker import SteppedBroker

import penstock_native
from penstock_broker.attach import close
from penstock_broker.messages import move, pacing
from penstock_core.reason import Reason, Refuse

WINDOW = 1000
"""Messages that a producer may send ahead: `link_credit`."""

MESSAGE = Message(body="x").encode()
NUMBERS = count()


class Pouring:
    """A producer that sends whatever it may, settled."""

    def __init__(self, timed: SteppedBroker, address: str, message: bytes = MESSAGE) -> None:
        self.message = message
        self.peer = timed.connect("producer")
        self.sender: Sender = self.peer.session.sender("pours")
        self.sender.target.address = address
        self.sender.open()
        self.peer.pump()
        self.sent = 0

    def pour(self) -> None:
        for _ in range(self.sender.credit):
            delivery = self.sender.delivery(str(self.sent))
            self.sender.stream(self.message)
            delivery.settle()
            self.sent += 1
        self.peer.flush()
        self.peer.read()


class Taking:
    """A consumer that accepts at once, and has the credit it began with again as often as it is said."""

    def __init__(self, timed: SteppedBroker, address: str, credit: int = WINDOW) -> None:
        self.peer = timed.connect(f"consumer {next(NUMBERS)}")
        self.credit = credit
        self.link: Receiver = self.peer.receive(address, credit)
        self.taken = 0

    def take(self, *, renew: bool = True) -> None:
        self.peer.read()
        for _, delivery in self.peer.got:
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()
        self.taken += len(self.peer.got)
        self.peer.got.clear()
        if renew:
            self.link.flow(self.credit - self.link.credit)
        self.peer.flush()


def make_slow(timed: SteppedBroker) -> None:
    timed.step_seconds = 0.0005


def turn(timed: SteppedBroker) -> None:
    timed.now_ms += 3
    timed.turn()


def fan_out(timed: SteppedBroker) -> list[Taking]:
    """Consumers on four subscriptions of one exchange."""
    return [Taking(timed, "amq.fanout") for _ in range(4)]


def depths(timed: SteppedBroker) -> list[int]:
    return [each.queue.waiting for each in timed.broker.topology.subscriptions.values()]


def test_what_waits_stays_little_where_the_broker_is_what_is_slow(timed: SteppedBroker) -> None:
    consumers, producer = fan_out(timed), Pouring(timed, "amq.fanout")
    make_slow(timed)
    deepest: list[int] = []
    for number in range(240):
        producer.pour()
        turn(timed)
        for each in consumers:
            each.take()
        if number >= 100:
            deepest.append(max(depths(timed)))
    assert max(deepest) <= WINDOW
    assert sum(deepest) / len(deepest) <= WINDOW / 2
    assert producer.sent >= 240 * 16  # about what four consumers get of a visit or two of 64 in each turn
    assert min(each.taken for each in consumers) >= producer.sent - 2 * WINDOW


@pytest.mark.parametrize("renews", [False, True], ids=["never gets credit again", "gets a little now and then"])
def test_a_backlog_builds_as_fast_as_messages_come_where_the_consumer_is_slow(
    timed: SteppedBroker, renews: bool
) -> None:
    timed.make_queue("q", durable=False)
    consumer, producer = Taking(timed, "q", 100), Pouring(timed, "q")
    make_slow(timed)
    for number in range(40):
        producer.pour()
        turn(timed)
        consumer.take(renew=renews and number % 10 == 0)
    others = SteppedBroker()
    others.make_queue("q", durable=False)
    alone = Pouring(others, "q")
    make_slow(others)
    for _ in range(40):
        alone.pour()
        turn(others)
    others.close()
    assert producer.sent >= 0.95 * alone.sent
    assert timed.queue("q").waiting >= 4_000


def test_a_queue_stays_behind_while_the_next_credit_of_its_consumer_is_on_the_way(timed: SteppedBroker) -> None:
    """A fast consumer has no credit at the end of many turns; the producer is not given all of its window each time."""
    timed.make_queue("q", durable=False)
    producer = Pouring(timed, "q")
    build(timed, producer, 5_000)
    consumer = Taking(timed, "q")
    make_slow(timed)
    until_paced(timed, producer, [consumer])
    renewals = 0
    while renewals < 3:
        producer.pour()
        timed.now_ms += 1
        timed.turn()
        assert timed.broker.credit_hold.behind
        consumer.peer.read()
        is_empty = consumer.link.credit == 0
        consumer.take(renew=is_empty)
        renewals += is_empty
    assert timed.queue("q").waiting < 5_000


def test_many_producers_do_not_get_ahead_of_a_consumer_that_takes_all_it_is_sent(timed: SteppedBroker) -> None:
    """Each turn reads several producers, and the consumer gets its window once: so turns are short meanwhile."""
    timed.make_queue("q", durable=False)
    producers = [Pouring(timed, "q") for _ in range(10)]
    consumer = Taking(timed, "q")
    timed.step_seconds = 0.0001
    waiting = taken = 0
    for number in range(60):
        for each in producers:
            each.pour()
        timed.now_ms += 1
        timed.turn()
        consumer.take()
        if number == 20:
            waiting, taken = timed.queue("q").waiting, consumer.taken
    assert timed.queue("q").waiting - waiting <= 2 * (consumer.taken - taken)


@pytest.mark.parametrize(
    ("credits", "are_short"),
    [
        pytest.param((900,), True, id="it used up its credit"),
        pytest.param((1_000,), True, id="it has credit for some more"),
        pytest.param((2_000,), False, id="it has credit for another turn"),
        pytest.param((1_000, 20), True, id="two have credit for some more"),
        pytest.param((1_000, 2_000), False, id="one of two has credit for another turn"),
    ],
)
def test_turns_are_short_where_the_next_one_uses_up_the_credit_of_consumers(
    timed: SteppedBroker, credits: tuple[int, ...], are_short: bool
) -> None:
    """A turn gives a connection 128 KiB, and whole visits: 960 of these messages if it is alone."""
    timed.make_queue("q", durable=False)
    build(timed, Pouring(timed, "q", Message(body=124 * "x").encode()), 5_000)
    timed.now_ms += 20
    visits = timed.loop._visits  # pyright: ignore[reportPrivateUsage]
    assert visits.short_until == 0
    consumers = [timed.connect(f"consumer {number}") for number in range(len(credits))]
    for consumer, credit in zip(consumers, credits, strict=True):
        link = consumer.session.receiver("takes")
        link.source.address = "q"
        link.open()
        link.flow(credit)
        consumer.flush()
    timed.turn()
    assert timed.queue("q").totals.delivered >= 900
    assert visits.short_until == (0.004 if are_short else 0), "in seconds of a clock that stands still at 0"


@pytest.mark.parametrize(
    ("renews_each", "step_seconds", "are_short"),
    [
        pytest.param(1, 0.0005, True, id="it gives credit for each turn, and a turn takes long"),
        pytest.param(4, 0.0005, True, id="it gives credit for every fourth turn"),
        pytest.param(9, 0.0005, False, id="it gives credit now and then"),
        pytest.param(1, 0.00001, False, id="turns take no time"),
    ],
)
def test_turns_are_short_where_a_consumer_with_little_credit_waits_for_long_turns(
    timed: SteppedBroker, renews_each: int, step_seconds: float, are_short: bool
) -> None:
    """It has a window of ten messages, far from a whole visit's 64, and thousands wait."""
    timed.make_queue("q", durable=False)
    build(timed, Pouring(timed, "q"), 5_000)
    consumer = Taking(timed, "q", 10)
    consumer.take(renew=False)
    timed.step_seconds = step_seconds
    for number in range(18):
        consumer.take(renew=number % renews_each == 0)
        turn(timed)
    assert consumer.taken >= 10
    visits = timed.loop._visits  # pyright: ignore[reportPrivateUsage]
    assert (visits.short_until > 0) is are_short


def test_consumers_with_a_credit_of_one_do_not_wait_for_one_read_of_a_producer_each(timed: SteppedBroker) -> None:
    """Where turns are short, the read of one producer takes a turn's time. Each look at the clock takes 0.03 ms here,
    so that the 1 ms of those who send little are enough for all ten consumers.
    """
    timed.make_queue("q", durable=False)
    producers = [Pouring(timed, "q") for _ in range(5)]
    build(timed, producers[0], 5_000)
    consumers = [Taking(timed, "q", 1) for _ in range(10)]
    timed.step_seconds = 0.00003
    visits = timed.loop._visits  # pyright: ignore[reportPrivateUsage]
    taken = 0
    for number in range(60):
        visits.short_until = 1e9
        for producer in producers:
            producer.pour()
        for consumer in consumers:
            consumer.take()
        if number == 20:
            taken = sum(consumer.taken for consumer in consumers)
        turn(timed)
    assert sum(consumer.taken for consumer in consumers) - taken >= 8 * 39


def test_in_short_turns_those_who_sent_much_at_once_do_not_go_on_one_by_one(timed: SteppedBroker) -> None:
    """Twelve links of a connection are more than one turn takes of it (64 units of work, eight for a link)."""
    peers = [timed.connect(f"attaches {number}") for number in range(10)]
    timed.step_seconds = 0.0001
    visits = timed.loop._visits  # pyright: ignore[reportPrivateUsage]
    visits.short_until = 1e9
    for peer in peers:
        for number in range(12):
            link = peer.session.receiver(f"link {number}")
            link.source.address = "amq.fanout"
            link.open()
        peer.flush()
    turns = 0
    while len(timed.broker.topology.subscriptions) < 120:
        turn(timed)
        turns += 1
    assert turns <= 6


def test_many_producers_of_one_exchange_share_what_one_of_its_queues_earns(timed: SteppedBroker) -> None:
    """Each queue that is behind earns credit for those who wait for it; if each producer waited for another queue, all
    together would get as many times too much.
    """
    consumers = [Taking(timed, "amq.fanout", 4_000) for _ in range(8)]
    producers = [Pouring(timed, "amq.fanout") for _ in range(8)]
    make_slow(timed)
    deepest: list[int] = []
    for _ in range(200):
        for producer in producers:
            producer.pour()
        turn(timed)
        for consumer in consumers:
            consumer.take()
        deepest.append(max(depths(timed)))
    assert deepest[-1] <= deepest[60] - WINDOW / 2


@pytest.mark.skipif(penstock_native.proton is None, reason="the engine in Python does not tell who sends little")
@pytest.mark.parametrize(
    ("many", "every", "are_short"),
    [
        pytest.param(3, 1, True, id="beside three who send much"),
        pytest.param(1, 1, False, id="beside one"),
        pytest.param(3, 0, False, id="nobody sends little"),
        pytest.param(0, 1, False, id="nobody sends much"),
    ],
)
def test_turns_are_short_where_somebody_sends_little_beside_several_who_send_much(
    timed: SteppedBroker, many: int, every: int, are_short: bool
) -> None:
    """Nobody consumes: a backlog builds, and whoever waits for each accept waits for long turns."""
    timed.make_queue("q", durable=False)
    timed.make_queue("other", durable=False)
    pouring = [Pouring(timed, "q") for _ in range(many)]
    little = timed.connect("sends little")
    sender = little.session.sender("little")
    sender.target.address = "other"
    sender.open()
    little.pump()
    timed.step_seconds = 0.0001
    for number in range(8):
        for producer in pouring:
            producer.pour()
        if every:
            delivery = sender.delivery(str(number))
            sender.stream(MESSAGE)
            delivery.settle()
            little.flush()
        turn(timed)
    visits = timed.loop._visits  # pyright: ignore[reportPrivateUsage]
    assert (visits.short_until > 0) is are_short


def overload(timed: SteppedBroker) -> tuple[list[Taking], Pouring]:
    """A producer waits for a queue that is behind."""
    consumers, producer = fan_out(timed), Pouring(timed, "amq.fanout")
    make_slow(timed)
    until_paced(timed, producer, consumers)
    return consumers, producer


def until_paced(timed: SteppedBroker, producer: Pouring, consumers: list[Taking]) -> None:
    for _ in range(200):
        producer.pour()
        turn(timed)
        for each in consumers:
            each.take()
        if timed.broker.credit_hold.paced:
            return
    raise AssertionError("nobody is paced")


def build(timed: SteppedBroker, producer: Pouring, waiting: int) -> None:
    """Let so many messages wait in `q`."""
    for _ in range(200):
        producer.pour()
        timed.turn()
        if timed.queue("q").waiting >= waiting:
            return
    raise AssertionError("no backlog builds")


def ended(timed: SteppedBroker, consumers: list[Taking]) -> None:
    for each in list(timed.broker.topology.subscriptions.values()):
        close.end_subscription(timed.broker, each)


def purged(timed: SteppedBroker, consumers: list[Taking]) -> None:
    for each in timed.broker.topology.subscriptions.values():
        for entry in list(each.queue):
            move.purge(timed.broker, each.queue, entry)


def gone(timed: SteppedBroker, consumers: list[Taking]) -> None:
    for each in consumers:
        each.peer.drop()


def without_credit(timed: SteppedBroker, consumers: list[Taking]) -> None:
    for each in consumers:
        each.link.flow(-each.link.credit)
        each.link.drain(0)
        each.peer.flush()


def nothing(timed: SteppedBroker, consumers: list[Taking]) -> None:
    """They do not even read."""


@pytest.mark.parametrize("happens", [ended, purged, gone, without_credit, nothing])
def test_who_waits_gets_all_of_its_credit_again_whatever_becomes_of_the_queue(
    timed: SteppedBroker, happens: Callable[[SteppedBroker, list[Taking]], None]
) -> None:
    consumers, producer = overload(timed)
    happens(timed, consumers)
    for _ in range(300):
        turn(timed)
        producer.peer.read()
    assert producer.sender.credit > WINDOW / 2
    assert not timed.broker.credit_hold.paced
    turn(timed)
    assert not timed.broker.credit_hold.behind


def test_who_waits_and_leaves_is_forgotten(timed: SteppedBroker) -> None:
    consumers, producer = overload(timed)
    producer.peer.drop()
    for _ in range(300):
        turn(timed)
        for each in consumers:
            each.take()
    assert not timed.broker.credit_hold.paced
    assert not timed.broker.credit_hold.behind
    assert depths(timed) == [0, 0, 0, 0]


def test_a_consumer_of_a_deep_backlog_does_not_keep_producers_waiting(timed: SteppedBroker) -> None:
    timed.make_queue("q", durable=False)
    producer = Pouring(timed, "q")
    build(timed, producer, 15_000)
    consumer = Taking(timed, "q")
    make_slow(timed)
    before, least = producer.sent, 0
    for _ in range(100):
        producer.pour()
        turn(timed)
        consumer.take()
        least = max(least, len(timed.broker.credit_hold.behind))
    assert least == 1
    came = producer.sent - before
    assert consumer.taken / 4 <= came - WINDOW / 2 <= consumer.taken / 2 + WINDOW


def test_a_producer_to_another_exchange_is_not_paced(timed: SteppedBroker) -> None:
    timed.make_queue("other", durable=False)
    beside = Pouring(timed, "other")
    consumers, producer = overload(timed)
    for _ in range(10):
        before = beside.sent
        for _ in range(10):
            turn(timed)
            producer.pour()
            beside.pour()
            for each in consumers:
                each.take()
        assert beside.sent - before >= WINDOW / 2


def test_a_link_that_waits_for_a_queue_of_its_own_ends_with_it(timed: SteppedBroker) -> None:
    timed.make_queue("q", durable=False)
    producer = Pouring(timed, "q")
    build(timed, producer, 5_000)
    consumer = Taking(timed, "q")
    make_slow(timed)
    until_paced(timed, producer, [consumer])
    close.end_queue(timed.broker, timed.broker.topology.queues["q"], Refuse(Reason.NODE_DELETED, "deleted"))
    for _ in range(10):
        turn(timed)
        producer.peer.read()
    condition = producer.sender.remote_condition
    assert condition is not None
    assert condition.name == "amqp:resource-deleted"
    assert not timed.broker.credit_hold.paced
    assert not timed.broker.credit_hold.behind


class Mistake(Exception):
    """What a bug of ours raises."""


def fail(*_: object, **__: object) -> bool:
    raise Mistake


def test_a_queue_whose_progress_can_not_be_found_out_paces_nobody(
    timed: SteppedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The messages go on, and each queue is told of once, not in each turn."""
    monkeypatch.setattr(pacing, "_progress", fail)
    consumers, producer = fan_out(timed), Pouring(timed, "amq.fanout")
    make_slow(timed)
    for _ in range(60):
        producer.pour()
        turn(timed)
        for each in consumers:
            each.take()
    told = [each.getMessage() for each in caplog.records if "can't be asked how far it is" in each.getMessage()]
    assert 1 <= len(told) == len(set(told)) <= 4
    timed.step_seconds = 0.0
    while any(depths(timed)):
        turn(timed)
        for each in consumers:
            each.take()
    assert {each.taken for each in consumers} == {producer.sent}


def test_a_producer_that_can_not_be_given_its_credit_is_closed_and_no_other(
    timed: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumers, producer = fan_out(timed), Pouring(timed, "amq.fanout")
    make_slow(timed)
    while not timed.broker.credit_hold.paced:
        producer.pour()
        turn(timed)
        for each in consumers:
            each.take()
    monkeypatch.setattr(pacing, "takes_credit", fail)
    turn(timed)
    producer.peer.read()
    told = producer.peer.connection.remote_condition
    assert told is not None
    assert told.name == "amqp:internal-error"
    assert not timed.broker.credit_hold.paced
    assert len(timed.broker.clients.connections) == len(consumers)
