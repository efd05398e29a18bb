"""Deep queues with windows of sixteen messages: nothing that clients or administrators see differs from others."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import pytest
from proton import Delivery, Described, Message, Receiver, Terminus, symbol, ulong
from support.stepped_broker import Peer, SteppedBroker
from support.tight_memory import tighten

from penstock_amqp.types.values import Value
from penstock_api.management import DeliveryPolicy, EntityType, Operation, QueueLimits
from penstock_broker.log import Reading
from penstock_broker.management import queue_messages
from penstock_broker.management.logged_operations import Caller
from penstock_broker.messages import browse, move, paging
from penstock_broker.state.links import Browser

DEEP = 300


@pytest.fixture
def broker() -> Iterator[SteppedBroker]:
    made = SteppedBroker()
    yield made
    made.close()


def page(broker: SteppedBroker) -> None:
    """From now on each queue that holds something is paged."""
    tighten(broker.broker, window=16)
    settle_down(broker)


def settle_down(broker: SteppedBroker) -> None:
    for _ in range(4):
        broker.pass_ms(paging.LOOK_MS)


def fill(broker: SteppedBroker, name: str, count: int = DEEP, **properties: object) -> None:
    peer = broker.connect()
    for first in range(0, count, 50):
        sent = [Message(body=number, durable=True, **properties) for number in range(first, min(first + 50, count))]
        assert peer.send(name, *sent) == ["accepted"] * len(sent)
    peer.drop()


def in_memory(broker: SteppedBroker, name: str) -> int:
    return sum(1 for _ in broker.queue(name).everything_in_memory())


def take_all(peer: Peer) -> list[object]:
    """Accept everything that comes, also what comes later because of that."""
    taken: list[object] = []
    peer.pump()
    while peer.got:
        taken.append(peer.take().body)
    return taken


def deep(broker: SteppedBroker, name: str = "q", count: int = DEEP, **properties: object) -> None:
    broker.make_queue(name)
    page(broker)
    fill(broker, name, count, **properties)
    settle_down(broker)
    assert in_memory(broker, name) <= 64
    assert broker.queue(name).depth == count


def test_a_deep_queue_keeps_few_bodies_and_hands_all_out_in_order(broker: SteppedBroker) -> None:
    deep(broker)
    consumer = broker.connect()
    consumer.receive("q", credit=1000)
    assert take_all(consumer) == list(range(DEEP))
    queue = broker.queue("q")
    assert (queue.depth, queue.depth_bytes, queue.totals.acked) == (0, 0, DEEP)
    settle_down(broker)
    assert queue.backlog.normal.tail is None
    assert queue.arrivals is queue.ready
    assert not broker.broker.paging.queues


def test_a_queue_that_was_deep_before_is_paged_in_place(broker: SteppedBroker) -> None:
    broker.make_queue("q")
    fill(broker, "q")
    assert in_memory(broker, "q") == DEEP
    page(broker)
    assert in_memory(broker, "q") <= 64
    consumer = broker.connect()
    consumer.receive("q", credit=1000)
    assert take_all(consumer) == list(range(DEEP))


def test_messages_that_come_while_others_are_taken_stay_behind_them(broker: SteppedBroker) -> None:
    deep(broker, count=100)
    consumer, producer = broker.connect(), broker.connect()
    consumer.receive("q", credit=10)
    taken: list[object] = []
    for number in range(100, 200):
        producer.send("q", Message(body=number, durable=number % 3 != 0))
        consumer.pump()
        if consumer.got:
            taken.append(consumer.take().body)
    consumer.session.receiver("more").open()
    consumer.receive("q", credit=500, name="further")
    taken += take_all(consumer)
    assert taken == list(range(200))


def test_all_come_back_after_a_restart(broker: SteppedBroker) -> None:
    deep(broker)
    consumer = broker.connect()
    consumer.receive("q", credit=20)
    assert [consumer.take().body for _ in range(5)] == [0, 1, 2, 3, 4]
    broker.restart()
    page(broker)
    again = broker.connect()
    again.receive("q", credit=1000)
    assert take_all(again) == list(range(5, DEEP))


def test_what_comes_back_goes_first(broker: SteppedBroker) -> None:
    deep(broker)
    consumer = broker.connect()
    consumer.receive("q", credit=3)
    assert consumer.bodies() == [0, 1, 2]
    consumer.drop()
    again = broker.connect()
    again.receive("q", credit=1000)
    assert take_all(again) == list(range(DEEP))


def test_a_browser_sees_all_and_reads_a_little_at_a_time(broker: SteppedBroker) -> None:
    deep(broker)
    peer = broker.connect()
    link = peer.session.receiver("browser")
    link.source.address = "q"
    link.source.distribution_mode = Terminus.DIST_MODE_COPY
    link.open()
    link.flow(1000)
    peer.pump()
    assert peer.bodies() == list(range(DEEP))
    assert in_memory(broker, "q") <= 64
    assert broker.queue("q").depth == DEEP


def test_a_browser_steps_over_what_it_can_not_take_a_little_at_a_time(
    broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a million of them would be read from the log in one turn."""
    monkeypatch.setattr(browse, "EXAMINED_PER_VISIT", 20)
    deep(broker)
    peer = broker.connect()
    link = peer.session.receiver("browser")
    link.source.address = "q"
    link.source.distribution_mode = Terminus.DIST_MODE_COPY
    link.max_message_size = 5
    link.open()
    link.flow(10)
    for _ in range(3):
        peer.flush()
        broker.turn()
        peer.read()
    (browser,) = broker.queue("q").links.browsers
    assert isinstance(browser, Browser)
    assert browser.pending, "a turn has looked at all"
    for _ in range(DEEP // 20):
        broker.turn()
    assert not browser.pending
    assert peer.bodies() == []


def test_who_selects_finds_what_lies_deep_and_leaves_the_rest_in_order(broker: SteppedBroker) -> None:
    broker.make_queue("q")
    page(broker)
    producer = broker.connect()
    for number in range(DEEP):
        colour = "red" if number % 100 == 99 else "blue"
        producer.send("q", Message(body=number, durable=True, properties={"colour": colour}))
    settle_down(broker)
    peer = broker.connect()
    link = peer.session.receiver("selecting")
    link.source.address = "q"
    selector = Described(ulong(0x0000468C_00000004), "colour = 'red'")
    link.source.filter.put_dict({symbol("selector"): selector})
    link.open()
    link.flow(1000)
    peer.pump()
    assert take_all(peer) == [99, 199, 299]
    peer.drop()
    rest = broker.connect()
    rest.receive("q", credit=1000)
    assert take_all(rest) == [number for number in range(DEEP) if number % 100 != 99]


def test_higher_and_lower_priorities_keep_their_places_around_a_tail(broker: SteppedBroker) -> None:
    deep(broker)
    producer = broker.connect()
    producer.send("q", Message(body="low", durable=True, priority=1), Message(body="high", durable=True, priority=9))
    consumer = broker.connect()
    consumer.receive("q", credit=1000)
    assert take_all(consumer) == ["high", *range(DEEP), "low"]


def test_lower_priorities_do_not_wait_for_a_tail_of_which_all_has_expired(broker: SteppedBroker) -> None:
    broker.make_queue("q")
    tighten(broker.broker, window=2)
    producer = broker.connect()
    producer.send("q", Message(body="gone", durable=True, priority=9, ttl=0.4))
    producer.send("q", *[Message(body=body, durable=True, priority=9) for body in ("high 1", "high 2")])
    producer.send("q", Message(body="low", durable=True))
    settle_down(broker)
    consumer = broker.connect()
    consumer.receive("q", credit=10)
    assert take_all(consumer) == ["high 1", "high 2", "low"]


def test_messages_expire_though_they_are_not_in_memory(broker: SteppedBroker) -> None:
    broker.make_queue("dead")
    broker.make_queue("q", DeliveryPolicy(expiry="dead"))
    page(broker)
    producer = broker.connect()
    for number in range(DEEP):
        producer.send("q", Message(body=number, durable=True, ttl=5.0 if number % 3 == 0 else 0))
    settle_down(broker)
    assert in_memory(broker, "q") <= 64
    broker.pass_ms(5000)
    settle_down(broker)
    broker.pass_ms(5000)
    queue = broker.queue("q")
    assert (queue.totals.expired, queue.depth, broker.queue("dead").depth) == (100, 200, 100)
    consumer = broker.connect()
    consumer.receive("q", credit=1000)
    assert take_all(consumer) == [number for number in range(DEEP) if number % 3]
    assert (queue.depth, queue.depth_bytes) == (0, 0)


def test_the_longest_time_to_live_of_delayed_messages_counts_from_when_they_came(broker: SteppedBroker) -> None:
    """docs/concepts/messages.md: "The time to live goes on meanwhile"."""
    broker.make_queue("q", DeliveryPolicy(max_ttl_ms=5000))
    page(broker)
    fill(broker, "q", annotations={symbol("x-opt-delivery-delay"): 3000})
    broker.pass_ms(3000)
    settle_down(broker)
    queue = broker.queue("q")
    assert (in_memory(broker, "q") <= 64, queue.waiting) == (True, DEEP)
    broker.pass_ms(1999 - 4 * paging.LOOK_MS)
    assert queue.depth == DEEP
    broker.pass_ms(1)
    settle_down(broker)
    assert (queue.depth, queue.totals.expired) == (0, DEEP)


@pytest.mark.parametrize(("overflow", "kept"), [("DropOldest", range(200, 300)), ("DropNewest", range(100))])
def test_a_limit_holds_though_what_it_drops_is_not_in_memory(
    broker: SteppedBroker, overflow: Literal["DropOldest", "DropNewest"], kept: range
) -> None:
    broker.make_queue("q", limits=QueueLimits(max_messages=100, overflow=overflow))
    page(broker)
    fill(broker, "q")
    settle_down(broker)
    queue = broker.queue("q")
    assert (queue.depth, queue.totals.dropped) == (100, 200)
    consumer = broker.connect()
    consumer.receive("q", credit=1000)
    assert take_all(consumer) == list(kept)
    assert (queue.depth, queue.depth_bytes) == (0, 0)


def test_what_is_purged_from_the_middle_is_gone_also_after_a_restart(broker: SteppedBroker) -> None:
    deep(broker)
    queue = broker.queue("q")
    entries = list(queue.everything())
    passed = {entry[0] for _, entry in entries}
    chosen = {entry[0]: entry for at, (_, entry) in enumerate(entries) if at % 2}
    taken = queue.take_out(chosen, passed)
    assert len(taken) == DEEP // 2
    for entry in taken:
        move.purge(broker.broker, queue, entry)
    assert queue.depth == DEEP // 2
    settle_down(broker)
    broker.restart()
    assert broker.queue("q").depth == DEEP // 2
    consumer = broker.connect()
    consumer.receive("q", credit=1000)
    assert take_all(consumer) == list(range(0, DEEP, 2))


def test_what_a_consumer_added_is_not_lost_by_paging(broker: SteppedBroker) -> None:
    """The log holds it beside the message: after a restart it waits among the fresh ones."""
    broker.make_queue("q")
    fill(broker, "q", 100)
    consumer = broker.connect()
    consumer.receive("q", credit=30)
    consumer.pump()
    _, delivery = consumer.got.pop(29)
    delivery.local.annotations = {symbol("x-opt-note"): "seen"}
    delivery.update(Delivery.MODIFIED)
    delivery.settle()
    consumer.pump()
    consumer.drop()
    broker.restart()
    page(broker)
    again = broker.connect()
    again.receive("q", credit=1000)
    again.pump()
    notes: dict[object, object] = {}
    while again.got:
        message = again.take()
        notes[message.body] = dict(message.annotations or {}).get(symbol("x-opt-note"))
    assert len(notes) == 100
    assert [body for body, note in notes.items() if note == "seen"] == [29]


def test_the_end_of_a_deep_queue_reads_nothing(broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    deep(broker)
    queue = broker.queue("q")
    snapshot = queue.backlog.snapshot()
    broker.broker.topology.disposal.add(*queue.end())
    monkeypatch.setattr(broker.broker.log._messages, "read", None)  # pyright: ignore[reportPrivateUsage]
    settle_down(broker)
    assert len(list(snapshot)) <= 64
    assert queue.depth == 0


def selecting(peer: Peer, text: str, *, name: str = "selecting", credit: int = 1000) -> Receiver:
    link = peer.session.receiver(name)
    link.source.address = "q"
    link.source.filter.put_dict({symbol("selector"): Described(ulong(0x0000468C_00000004), text)})
    link.open()
    link.flow(credit)
    peer.pump()
    return link


def coloured(broker: SteppedBroker, colours: Callable[[int], str], numbers: range = range(DEEP)) -> None:
    producer = broker.connect()
    for number in numbers:
        producer.send("q", Message(body=number, durable=True, properties={"colour": colours(number)}))
    producer.drop()
    settle_down(broker)


def count_reads(broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each read of the log gave."""
    counts: list[int] = []
    read = broker.broker.log.read

    def counted(incarnation: int, first: int, last: int, most: int, most_bytes: int) -> Reading:
        reading = read(incarnation, first, last, most, most_bytes)
        counts.append(len(reading.puts))
        return reading

    monkeypatch.setattr(broker.broker.log, "read", counted)
    return counts


def test_who_selects_little_keeps_nothing_of_what_it_passed_by(
    broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the log once, also if it takes the messages one by one, and later only what came later."""
    broker.make_queue("q")
    page(broker)
    coloured(broker, lambda number: "red" if number % 100 == 99 else "blue")
    counts = count_reads(broker, monkeypatch)
    peer = broker.connect()
    link = selecting(peer, "colour = 'red'", credit=1)
    assert peer.take().body == 99
    link.flow(1)
    peer.pump()
    assert peer.take().body == 199
    link.flow(2)
    peer.pump()
    assert [peer.take().body] == [299]
    settle_down(broker)
    assert in_memory(broker, "q") <= 64
    assert not broker.queue("q").returned.blocks
    assert sum(counts) <= DEEP
    counts.clear()
    coloured(broker, lambda _: "red", range(DEEP, DEEP + 1))
    assert peer.take().body == DEEP
    assert sum(counts) <= 2
    settle_down(broker)
    peer.drop()
    rest = broker.connect()
    rest.receive("q", credit=1000)
    assert take_all(rest) == [number for number in range(DEEP) if number % 100 != 99]


def test_two_who_select_and_one_who_takes_all_share_a_deep_queue(broker: SteppedBroker) -> None:
    broker.make_queue("q")
    page(broker)
    coloured(broker, lambda number: ("red", "green", "blue")[number % 3])
    red, green, everything = broker.connect(), broker.connect(), broker.connect()
    selecting(red, "colour = 'red'", name="red", credit=10)
    selecting(green, "colour <> 'blue'", name="green", credit=10)
    got = {"red": take_all(red), "green": take_all(green)}
    assert got["red"] == list(range(0, 300, 3))[: len(got["red"])]
    everything.receive("q", credit=1000)
    rest = take_all(everything)
    assert rest == [number for number in range(DEEP) if number in rest]
    taken = [*got["red"], *got["green"], *rest, *take_all(red), *take_all(green)]
    assert len(taken) == len(set(taken)) == DEEP
    assert (broker.queue("q").depth, broker.queue("q").depth_bytes) == (0, 0)


def test_a_delayed_message_that_is_due_behind_what_was_searched_is_found(broker: SteppedBroker) -> None:
    broker.make_queue("q")
    page(broker)
    producer = broker.connect()
    late = Message(body="late", durable=True, properties={"colour": "red"})
    late.annotations = {symbol("x-opt-delivery-delay"): 3000}
    producer.send("q", late)
    coloured(broker, lambda _: "blue")
    peer = broker.connect()
    selecting(peer, "colour = 'red'")
    assert take_all(peer) == []
    broker.pass_ms(3000)
    settle_down(broker)
    peer.pump()
    assert take_all(peer) == ["late"]


def test_who_selects_waits_while_the_log_cannot_be_read(broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is its connection closed nor does it miss anything."""
    broker.make_queue("q")
    page(broker)
    coloured(broker, lambda number: "red" if number == 250 else "blue")
    read = broker.broker.log.read

    def fails(*_: int) -> Reading:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(broker.broker.log, "read", fails)
    peer = broker.connect()
    selecting(peer, "colour = 'red'")
    settle_down(broker)
    peer.pump()
    assert not peer.got
    monkeypatch.setattr(broker.broker.log, "read", read)
    broker.pass_ms(1000)
    broker.pass_ms(200)
    peer.pump()
    assert take_all(peer) == [250]


@pytest.mark.parametrize("priority", [0, 4, 9])
def test_messages_of_every_priority_are_paged(broker: SteppedBroker, priority: int) -> None:
    """4 is what every JMS client sets."""
    deep(broker, priority=priority)
    consumer = broker.connect()
    consumer.receive("q", credit=1000)
    assert take_all(consumer) == list(range(DEEP))
    assert (broker.queue("q").depth, broker.queue("q").depth_bytes) == (0, 0)


def test_priorities_that_alternate_are_paged_and_handed_out_by_priority(broker: SteppedBroker) -> None:
    broker.make_queue("q")
    page(broker)
    producer = broker.connect()
    for number in range(DEEP):
        producer.send("q", Message(body=number, durable=True, priority=(2, 4, 8)[number % 3]))
    settle_down(broker)
    assert in_memory(broker, "q") <= 3 * 33
    broker.restart()
    page(broker)
    settle_down(broker)
    assert in_memory(broker, "q") <= 3 * 33
    consumer = broker.connect()
    consumer.receive("q", credit=1000)
    assert take_all(consumer) == [number for first in (2, 1, 0) for number in range(first, DEEP, 3)]
    assert (broker.queue("q").depth, broker.queue("q").depth_bytes) == (0, 0)


def test_messages_of_groups_are_paged_and_each_group_has_one_consumer(broker: SteppedBroker) -> None:
    broker.make_queue("q")
    page(broker)
    producer = broker.connect()
    for number in range(DEEP):
        producer.send("q", Message(body=number, durable=True, group_id=f"g{number % 4}"))
    settle_down(broker)
    assert in_memory(broker, "q") <= 64
    first, second = broker.connect(), broker.connect()
    first.receive("q", credit=5)
    second.receive("q", credit=1000, name="second")
    assert first.bodies() == [0, 1, 2, 3, 4]
    for _ in range(5):
        first.take()
    assert take_all(second) == []
    first.drop()
    assert take_all(second) == list(range(5, DEEP))


def test_only_what_has_expired_is_read_for_it_and_once(broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of a run is not read again before the next of it expires."""
    broker.make_queue("q")
    page(broker)
    producer = broker.connect()
    for number in range(DEEP):
        producer.send("q", Message(body=number, durable=True, ttl=2.0 if number == 200 else 3600))
    settle_down(broker)
    counts = count_reads(broker, monkeypatch)
    broker.pass_ms(2500)
    settle_down(broker)
    assert broker.queue("q").totals.expired == 1
    assert sum(counts) <= DEEP
    counts.clear()
    producer.send("q", Message(body="soon", durable=False, ttl=1.0))
    settle_down(broker)
    broker.pass_ms(6000)
    settle_down(broker)
    assert broker.queue("q").totals.expired == 2
    assert sum(counts) == 0


CALLER = Caller("somebody", "127.0.0.1:1", "main")


def ask(broker: SteppedBroker, operation: Operation, **asked: Value) -> dict[Value, Value]:
    """The answer to a request for the queue `q`."""
    body: dict[Value, Value] = {}
    for key, value in asked.items():
        body[key] = value
    task = queue_messages.handle(broker.broker, CALLER, operation, EntityType.QUEUE, "q", body)
    assert isinstance(task, queue_messages.PeekTask | queue_messages.MessagesTask)
    while (answer := task.step(0)) is None:
        broker.pass_ms(task.pause_ms)
    broker.turn()
    assert isinstance(answer.body, dict)
    return answer.body


def test_a_purge_reads_nothing_and_is_in_the_log(broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.make_queue("q")
    page(broker)
    fill(broker, "q", count=2500)
    settle_down(broker)
    counts = count_reads(broker, monkeypatch)
    assert ask(broker, Operation.PURGE)["messages"] == 2500
    assert not counts
    queue = broker.queue("q")
    assert (queue.depth, queue.depth_bytes, queue.totals.purged) == (0, 0, 2500)
    fill(broker, "q", count=3)
    broker.restart()
    assert broker.queue("q").depth == 3


def test_a_purge_takes_all_bytes_of_what_it_does_not_read(broker: SteppedBroker) -> None:
    """At a start one message stays in memory: those before it are short, those behind it long. The first are read."""
    broker.make_queue("q")
    fill(broker, "q", count=50)
    fill(broker, "q", count=1, group_id="in memory")
    fill(broker, "q", count=600, subject="x" * 100)
    broker.restart(kept_bytes=0)
    broker.turn()
    assert ask(broker, Operation.PURGE)["messages"] == 651
    assert (broker.queue("q").depth, broker.queue("q").depth_bytes) == (0, 0)


def test_a_purge_ends_with_its_queue(broker: SteppedBroker) -> None:
    deep(broker)
    count, forgotten = move.purge_unread(broker.broker, broker.queue("q"))
    next(forgotten)
    assert count > 200
    broker.broker.topology.delete_queue("q")
    assert list(forgotten) == []


class Failing:
    """The log can't be read for a while: for so many reads."""

    def __init__(self, broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch, reads: int) -> None:
        self._read, self.left = broker.broker.log.read, reads
        monkeypatch.setattr(broker.broker.log, "read", self)

    def __call__(self, incarnation: int, first: int, last: int, most: int, most_bytes: int) -> Reading:
        self.left -= 1
        if self.left >= 0:
            raise OSError(5, "Input/output error")
        return self._read(incarnation, first, last, most, most_bytes)


def test_a_browser_goes_on_when_the_log_can_be_read_again(
    broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep(broker)
    failing = Failing(broker, monkeypatch, 1000)
    peer = broker.connect()
    link = peer.session.receiver("browser")
    link.source.address = "q"
    link.source.distribution_mode = Terminus.DIST_MODE_COPY
    link.open()
    link.flow(1000)
    broker.pass_ms(5000)
    peer.pump()
    assert len(peer.bodies()) < 64
    failing.left = 0
    broker.pass_ms(1000)
    peer.pump()
    assert peer.bodies() == list(range(DEEP))


@pytest.mark.parametrize("asked", [{"count": 40, "offset": 200}, {"count": 1, "selector": "JMSPriority = 9"}])
def test_a_peek_goes_on_when_the_log_can_be_read_again(
    broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Value]
) -> None:
    deep(broker)
    failing = Failing(broker, monkeypatch, 2)
    found = ask(broker, Operation.PEEK, **asked)["messages"]
    assert isinstance(found, list)
    assert len(found) == (40 if "offset" in asked else 0)
    assert failing.left < 0


def test_a_move_goes_on_when_the_log_can_be_read_again(broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    deep(broker)
    broker.make_queue("other")
    Failing(broker, monkeypatch, 2)
    assert ask(broker, Operation.MOVE, destination="other")["messages"] == DEEP
    assert (broker.queue("q").depth, broker.queue("other").depth) == (0, DEEP)


def test_messages_expire_when_the_log_can_be_read_again(broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    deep(broker, ttl=5.0)
    Failing(broker, monkeypatch, 1)
    broker.pass_ms(6000)
    settle_down(broker)
    broker.pass_ms(6000)
    settle_down(broker)
    assert broker.queue("q").totals.expired == DEEP


def test_messages_that_the_log_holds_in_parts_stay_in_memory(broker: SteppedBroker) -> None:
    """They are larger than half a segment, and yet not so large that they are read in parts by consumers."""
    broker.make_queue("q")
    page(broker)
    peer = broker.connect()
    for number in range(8):
        assert peer.send("q", Message(body=str(number) * 40_000, durable=True)) == ["accepted"]
    peer.drop()
    settle_down(broker)
    consumer = broker.connect()
    consumer.receive("q", credit=1000)
    assert [str(body)[0] for body in take_all(consumer)] == list("01234567")
    assert broker.queue("q").totals.dropped == 0


def test_what_a_selecting_consumer_left_before_the_queue_was_deep_leaves_memory_too(broker: SteppedBroker) -> None:
    """It is there from the beginning, so that it has looked at all that waits before anything is paged."""
    broker.make_queue("q")
    peer = broker.connect()
    selecting(peer, "colour = 'red'")
    coloured(broker, lambda _: "blue")
    assert len(broker.queue("q").returned) == DEEP
    page(broker)
    assert in_memory(broker, "q") <= 64
    coloured(broker, lambda number: "red" if number == DEEP + 250 else "blue", range(DEEP, 2 * DEEP))
    settle_down(broker)
    assert in_memory(broker, "q") <= 64
    assert take_all(peer) == [DEEP + 250]
    peer.drop()
    rest = broker.connect()
    rest.receive("q", credit=1000)
    assert take_all(rest) == [number for number in range(2 * DEEP) if number != DEEP + 250]
    assert (broker.queue("q").depth, broker.queue("q").depth_bytes) == (0, 0)


def test_what_was_given_back_leaves_memory_too_and_comes_first(broker: SteppedBroker) -> None:
    broker.make_queue("q")
    fill(broker, "q")
    consumer = broker.connect()
    consumer.receive("q", credit=DEEP)
    consumer.pump()
    assert broker.queue("q").in_flight == DEEP
    consumer.drop()
    assert len(broker.queue("q").returned) == DEEP
    page(broker)
    assert in_memory(broker, "q") <= 64
    fill(broker, "q", count=3)
    again = broker.connect()
    again.receive("q", credit=1000)
    assert take_all(again) == [*range(DEEP), 0, 1, 2]
