"""Memory that becomes short: what the log says and when, how producers are held back, and who is refused.

The process of these tests may have 1,000 bytes, and has what a test says; messages may take 16 MiB. Source:
docs/decisions/084-memory.md.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import Delivery, Message
from support.proton_transactions import ProtonTransactionClient
from support.stepped_broker import Peer, SteppedBroker

from penstock_broker.management.entity_states import broker_state
from penstock_broker.messages import paging
from penstock_broker.messages.memory_account import memory_of
from penstock_broker.queue.queue import Queue
from penstock_core.memory_level import MemoryLevel

MIB = 1024 * 1024
REFUSED = "amqp:resource-limit-exceeded"


class StatedProcess:
    """A process that has what a test says."""

    def __init__(self) -> None:
        self.bytes = 0
        self.trims = 0

    def resident(self) -> int:
        return self.bytes

    def trim(self) -> None:
        self.trims += 1


@pytest.fixture
def process() -> StatedProcess:
    return StatedProcess()


@pytest.fixture
def timed(process: StatedProcess) -> Iterator[SteppedBroker]:
    broker = SteppedBroker({"memory": {"max_bytes": 16 * MIB}}, process=process, process_limit=1000)
    yield broker
    broker.close()


@pytest.fixture
def roomy() -> Iterator[SteppedBroker]:
    """A broker of which only the account counts."""
    broker = SteppedBroker({"memory": {"max_bytes": 16 * MIB}}, segment_bytes=MIB)
    yield broker
    broker.close()


def take(timed: SteppedBroker, process: StatedProcess, percent: int) -> None:
    """The process has so much of what it may have, and the broker notices."""
    process.bytes = 10 * percent
    timed.pass_ms(200)


def messages(count: int, size: int = 10, *, durable: bool = False) -> list[Message]:
    return [Message(body="x" * size, durable=durable) for _ in range(count)]


def send_long(peer: Peer, address: str, size: int) -> None:
    """Send a message that is too long for the socket at once."""
    sender = peer.session.sender(f"long to {address}")
    sender.target.address = address
    sender.open()
    peer.pump()
    delivery = sender.delivery("long")
    encoded = messages(1, size, durable=True)[0].encode()
    for at in range(0, len(encoded), 50_000):
        sender.stream(encoded[at : at + 50_000])
        peer.pump()
    sender.advance()
    peer.pump()
    assert delivery.remote_state == Delivery.ACCEPTED, (delivery.remote.condition, sender.remote_condition)
    sender.close()


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Severity of what was logged of memory, and what it means."""
    told = [(each.levelname, each.getMessage()) for each in caplog.records if "of memory, " in each.getMessage()]
    caplog.clear()
    return [(level, text.partition(": ")[2].partition(".")[0]) for level, text in told]


def test_each_mark_is_told_once_on_the_way_up_and_once_on_the_way_down(
    timed: SteppedBroker, process: StatedProcess, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for percent in (50, 69, 71, 69, 71, 81, 79, 96, 92):
        take(timed, process, percent)
    assert lines(caplog) == [
        ("WARNING", "producers get credit only for what there is room for"),
        ("WARNING", "messages that were sent as not durable are written to the log, too"),
        ("ERROR", "messages are refused until consumers have taken some"),
    ]
    for percent in (88, 76, 70, 60, 50):
        take(timed, process, percent)
    assert lines(caplog) == [
        ("WARNING", "they are taken again, after 0 were refused"),
        ("INFO", "producers get their whole credit again"),
    ]


def test_the_account_counts_what_queues_hold_and_management_tells_it(roomy: SteppedBroker) -> None:
    roomy.make_queue("q", durable=False)
    assert broker_state(roomy.broker)["memoryUsedBytes"] == 0
    peer = roomy.connect()
    for _ in range(10):
        peer.send("q", *messages(10, 10_000))
    roomy.pass_ms(200)
    depth = roomy.queue("q").depth_bytes
    state = broker_state(roomy.broker)
    assert state["memoryUsedBytes"] == depth + 100 * 176
    assert (state["memoryLevel"], state["memoryBytes"], state["memoryRefused"]) == ("Ok", 16 * MIB, 0)
    peer.receive("q", credit=60)
    roomy.pass_ms(200)
    assert broker_state(roomy.broker)["memoryUsedBytes"] == depth + 100 * 176 + 60 * (640 + 16_384), "in flight"
    for _ in range(60):
        peer.take()
    roomy.pass_ms(200)
    assert broker_state(roomy.broker)["memoryUsedBytes"] == 40 * (depth // 100 + 176)


def test_much_that_comes_at_once_is_noticed_in_the_turn_in_which_it_comes(roomy: SteppedBroker) -> None:
    """The clock stands still: nothing but the bytes that came makes the broker look."""
    roomy.make_queue("q", durable=False)
    peer = roomy.connect()
    for _ in range(130):
        peer.send("q", *messages(1, 100_000))
    assert roomy.broker.memory.level is MemoryLevel.HELD_BACK


def test_a_quiet_broker_asks_a_hundred_queues_at_a_time_and_all_once_much_has_come(roomy: SteppedBroker) -> None:
    for number in range(250):
        roomy.make_queue(f"q{number}", durable=False)
    paging = roomy.broker.paging
    roomy.pass_ms(200)  # queues that were made since the last round are known from now on
    while paging.unasked:
        roomy.pass_ms(200)
    rounds = paging.rounds
    left: list[int] = []
    for _ in range(6):
        roomy.pass_ms(200)
        left.append(len(paging.unasked))
    assert (left, paging.rounds) == ([150, 50, 0, 150, 50, 0], rounds + 2)
    peer = roomy.connect()
    peer.send("q0", *messages(1, 100_000), *messages(1, 100_000))
    roomy.pass_ms(200)
    assert len(paging.unasked) == 150, "200 kB are next to nothing"
    peer.send("q0", *messages(1, 100_000))
    roomy.pass_ms(200)
    assert (len(paging.unasked), paging.rounds) == (0, rounds + 3)
    assert roomy.broker.memory.used >= 300_000


def test_what_is_in_the_log_alone_takes_no_memory(roomy: SteppedBroker) -> None:
    timed = roomy
    timed.make_queue("q")
    peer = timed.connect()
    for _ in range(3):
        send_long(peer, "q", 5 * MIB)
    timed.pass_ms(200)
    assert timed.queue("q").depth_bytes > 15 * MIB
    assert timed.broker.memory.used < 3 * 70_000, "their beginnings"
    assert timed.broker.memory.level is MemoryLevel.OK
    timed.restart()
    timed.pass_ms(200)
    assert timed.broker.memory.used < 3 * 70_000
    assert timed.queue("q").staged_bytes > 14 * MIB
    assert len(list(timed.queue("q").end())) > 0
    timed.pass_ms(200)
    assert (timed.queue("q").staged_bytes, timed.broker.memory.used) == (0, 0)


def test_producers_of_any_messages_wait_for_credit_while_memory_is_short(
    timed: SteppedBroker, process: StatedProcess
) -> None:
    timed.make_queue("q", durable=False)
    peer = timed.connect()
    peer.send("q", *messages(1))
    take(timed, process, 75)
    peer.send("q", *messages(999))  # what it may send ahead
    with pytest.raises(AssertionError):
        peer.send("q", *messages(1))
    late = timed.connect("late")
    assert late.send("q", *messages(10)) == ["accepted"] * 10, "a new producer gets little at once"
    with pytest.raises(AssertionError):
        late.send("q", *messages(1))
    timed.pass_ms(100)
    for each in (peer, late):
        each.pump()
        each.send("q", *messages(500))  # a quarter of 16 MiB is left, and that is half of it for each tick
    take(timed, process, 50)


def test_while_memory_is_full_nothing_is_taken_and_credit_waits(timed: SteppedBroker, process: StatedProcess) -> None:
    timed.make_queue("lasting")
    timed.make_queue("q", durable=False)
    peer = timed.connect()
    peer.send("q", *messages(1))
    peer.send("lasting", *messages(1, durable=True))
    take(timed, process, 97)
    assert peer.send("q", *messages(3)) == [REFUSED] * 3
    assert peer.send("lasting", *messages(2, durable=True)) == [REFUSED] * 2
    assert broker_state(timed.broker)["memoryRefused"] == 5
    assert (timed.queue("q").depth, timed.queue("lasting").depth) == (1, 1)
    peer.send("q", *messages(996))
    timed.pass_ms(100)
    timed.pass_ms(9_000)
    peer.pump()
    with pytest.raises(AssertionError):
        peer.send("q", *messages(1))  # it waits
    timed.pass_ms(1_000)
    peer.pump()
    assert peer.send("q", *messages(1)) == [REFUSED], "in the end it learns why"
    consumer = timed.connect("consumer")
    consumer.receive("q")
    consumer.receive("lasting")
    assert len(consumer.bodies()) == 2, "consuming goes on"
    take(timed, process, 40)
    timed.pass_ms(100)
    peer.pump()
    peer.send("q", *messages(1))  # who has some credit left gets the rest with the next message
    assert peer.send("q", *messages(3)) == ["accepted"] * 3


def test_messages_of_a_transaction_are_refused_while_memory_is_full(
    timed: SteppedBroker, process: StatedProcess
) -> None:
    timed.make_queue("q")
    client = ProtonTransactionClient(timed.connect_socket(), ["q"])

    def talk() -> None:
        for _ in range(6):
            client.flush()
            timed.turn()
            client.receive()

    talk()
    declared = client.declare()
    talk()
    txn_id = client.name_in(declared)
    client.post("q", "one", txn_id)
    talk()
    take(timed, process, 97)
    client.post("q", "another", txn_id)
    talk()
    ended = client.discharge(txn_id, fail=False)
    talk()
    assert ended.remote_state == Delivery.REJECTED
    assert ended.remote.condition is not None
    assert "memory is full (memory.maxBytes)" in (ended.remote.condition.description or "")
    assert timed.queue("q").depth == 0
    assert timed.broker.transactions.memory == 0
    client.cut()


def test_memory_that_was_freed_is_given_back_to_the_system_not_too_often(
    timed: SteppedBroker, process: StatedProcess
) -> None:
    take(timed, process, 97)
    assert process.trims == 1, "so much more than messages take: it may be free"
    take(timed, process, 60)
    take(timed, process, 97)
    assert process.trims == 1
    for _ in range(50):
        timed.pass_ms(200)
    assert process.trims == 2


def test_a_look_that_fails_is_left_to_the_timer(timed: SteppedBroker, process: StatedProcess) -> None:
    """It does not end the broker, and does not fail again in each turn."""
    looks: list[int] = []
    look = timed.broker.look_at_memory

    def fail() -> None:
        looks.append(1)
        raise RuntimeError("a mistake")

    timed.broker.look_at_memory = fail
    timed.broker.memory.look_after = -1
    timed.turn()
    timed.turn()
    assert looks == [1]
    timed.broker.look_at_memory = look
    take(timed, process, 99)
    assert timed.broker.memory.level is MemoryLevel.FULL


def test_queues_are_asked_until_the_slice_has_taken_its_time(
    timed: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two thousand with messages took 5 ms of the first turn after a start."""
    asked: list[str] = []

    def counted(queue: Queue) -> int:
        asked.append(queue.name)
        return memory_of(queue)

    for number in range(120):
        timed.make_queue(f"q{number:03}")
    monkeypatch.setattr(paging, "memory_of", counted)
    timed.broker.paging.unasked.clear()
    timed.broker.paging.rounds = 0  # as after a start
    timed.step_seconds = 1.0  # each look at the clock takes longer than a slice may
    costs: list[int] = []
    for _ in range(3):
        paging.page_deep_queues(timed.broker)
        costs.append(len(asked))
    assert costs == [50, 100, 120]
    assert len(set(asked)) == 120
