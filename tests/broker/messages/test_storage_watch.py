"""A volume that fills: what the log says and when, which queues are named, and how producers are held back.

The volume of these tests has 10,000 kB; the log's own files are on simulated disks and take next to nothing of it.
Source: docs/decisions/046-producers-held-back.md, docs/decisions/076-nothing-lost-by-default.md.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import Delivery, Message, Sender
from support.stepped_broker import Peer, SteppedBroker

from penstock_broker.management.entity_states import broker_state
from penstock_broker.state.storage import VolumeSpace
from penstock_core.storage_level import StorageLevel

SIZE = 10_000_000
SEGMENT = 64 * 1024


@pytest.fixture
def timed() -> Iterator[SteppedBroker]:
    broker = SteppedBroker(space=VolumeSpace(SIZE, SIZE))
    yield broker
    broker.close()


def fill(timed: SteppedBroker, percent: float) -> None:
    """Leave so much of the volume that this share of it is in use, and let the broker notice."""
    timed.space = VolumeSpace(SIZE, round(SIZE * (100 - percent) / 100) - timed.log.prepared_bytes)
    timed.pass_ms(500)
    timed.pass_ms(10)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Severity and beginning of what was logged of the volume."""
    told = [(each.levelname, each.getMessage()) for each in caplog.records if "volume" in each.getMessage()]
    caplog.clear()
    return [(level, text.partition(".")[0].partition(":")[0]) for level, text in told]


def messages(count: int, size: int = 10) -> list[Message]:
    return [Message(body="x" * size, durable=True) for _ in range(count)]


def largest(timed: SteppedBroker) -> list[str]:
    return [each.name for each in timed.broker.storage.largest]


def sender_to(peer: Peer, address: str) -> Sender:
    sender = peer.session.sender(f"to {address} again")
    sender.target.address = address
    sender.open()
    peer.pump()
    return sender


def test_each_mark_is_told_once_on_the_way_up_and_once_on_the_way_down(
    timed: SteppedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for percent in (50, 69, 71, 69, 71, 86, 84, 91, 96, 91):
        fill(timed, percent)
    assert lines(caplog) == [
        ("WARNING", "The volume is 71 % full"),
        ("WARNING", "The volume is 86 % full"),
        ("WARNING", "The volume is 91 % full"),
    ]
    for percent in (88, 86, 83, 80, 68, 60, 50):
        fill(timed, percent)
    assert lines(caplog) == [
        ("INFO", "The volume is 86 % full"),
        ("INFO", "The volume is 80 % full again"),
        ("INFO", "The volume is 60 % full again"),
    ]


def test_the_three_largest_queues_that_last_are_named(timed: SteppedBroker, caplog: pytest.LogCaptureFixture) -> None:
    for name, count in (("a", 1), ("b", 4), ("c", 2), ("d", 3), ("e", 5)):
        timed.make_queue(name, durable=name != "e")
        timed.connect().send(name, *messages(count, 1000))
    assert broker_state(timed.broker)["largestQueues"] == []
    fill(timed, 72)
    state = broker_state(timed.broker)
    sizes = {name: timed.queue(name).depth_bytes for name in "bcd"}
    assert state["storageLevel"] == "High"
    assert state["largestQueues"] == [
        {"queueName": name, "isSubscription": False, "depthBytes": sizes[name], "consumers": 0} for name in "bdc"
    ]
    assert f"The largest queues are 'b' ({sizes['b']} bytes, 0 %, 0 consumers), 'd'" in caplog.text
    assert "delivery.idleExpirySeconds" in caplog.text
    timed.connect().send("a", *messages(9, 1000))
    fill(timed, 86)
    assert f"The largest queues are 'a' ({timed.queue('a').depth_bytes} bytes" in caplog.text, "as it is now"
    fill(timed, 20)
    assert broker_state(timed.broker)["largestQueues"] == []


def test_many_queues_are_gone_through_some_hundred_at_a_time(timed: SteppedBroker) -> None:
    for number in range(1200):
        timed.broker.topology.make_queue(f"q{number}", durable=True, now_us=0)
    timed.connect().send("q700", *messages(1))
    timed.space = VolumeSpace(SIZE, 0)
    timed.pass_ms(500)
    timed.pass_ms(10)
    assert largest(timed) == [], "1,000 of 1,200 are looked at"
    timed.broker.topology.delete_queue("q1100")
    timed.pass_ms(10)
    assert largest(timed) == ["q700"]


def test_producers_of_durable_messages_share_some_credit_while_the_volume_is_nearly_full(timed: SteppedBroker) -> None:
    timed.make_queue("jobs")
    timed.make_queue("news", durable=False)
    peer, other = timed.connect("one"), timed.connect("other")
    peer.send("jobs", *messages(1))
    other.send("news", *messages(1))
    fill(timed, 95)
    for _ in range(2):
        assert peer.send("jobs", *messages(480)) == ["accepted"] * 480
    peer.send("jobs", *messages(39))
    late = sender_to(peer, "jobs")
    assert late.credit == 10, "a new producer gets little at once"
    with pytest.raises(AssertionError):
        peer.send("jobs", *messages(1))  # 1,000 are answered, and no credit came
    other.send("news", *messages(999))
    other.send("news", *messages(1))  # what takes nothing of the volume is not held back
    timed.pass_ms(100)
    peer.pump()
    assert peer.send("jobs", *messages(10)) == ["accepted"] * 10
    fill(timed, 50)
    timed.pass_ms(100)
    peer.pump()
    peer.send("jobs", *messages(1))  # those that have some credit left get the rest with their next message
    assert peer.send("jobs", *messages(900)) == ["accepted"] * 900
    assert timed.queue("jobs").totals.dropped == 0


def test_the_credit_of_a_tick_is_shared_and_those_that_left_get_none(timed: SteppedBroker) -> None:
    """At 99 % ten messages a tick: the first in the row gets them, the second the next ones."""
    timed.make_queue("jobs")
    fill(timed, 99)
    peers = [timed.connect(f"c{number}") for number in range(4)]
    senders = [sender_to(peer, "jobs") for peer in peers]
    for peer, sender in zip(peers, senders, strict=True):
        for message in messages(10):
            sender.send(message)
        peer.pump()
    peers[0].drop()
    timed.pass_ms(100)
    for peer in peers[1:]:
        peer.pump()
    assert [each.credit for each in senders[1:]] == [10, 0, 0]
    timed.pass_ms(100)
    peers[2].pump()
    assert [each.credit for each in senders[1:]] == [10, 10, 0]


def test_a_full_volume_and_its_end_are_told_once_with_what_was_refused(
    timed: SteppedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    timed.make_queue("jobs")
    peer = timed.connect()
    files = timed.files
    files.space = sum(len(files.copy().content(path)) for path in files.paths()) + SEGMENT + 5000
    outcomes = [outcome for _ in range(400) for outcome in peer.send("jobs", *messages(1, 1000))]
    refused = outcomes.count("amqp:resource-limit-exceeded")
    assert refused > 0
    assert outcomes == ["accepted"] * (400 - refused) + ["amqp:resource-limit-exceeded"] * refused
    timed.pass_ms(500)
    assert broker_state(timed.broker)["storageLevel"] == "Full"
    assert lines(caplog) == [("ERROR", "The volume is full")]
    timed.files.space = 1 << 40
    for _ in range(12):
        timed.pass_ms(500)
    assert timed.log.accepts_publishing()
    assert broker_state(timed.broker)["storageLevel"] == "Full", "one segment more may be full in a moment"
    for _ in range(30):
        timed.pass_ms(1_000)
    assert timed.log.accepts_publishing()
    assert broker_state(timed.broker)["storageRefused"] == refused
    told = [each.getMessage() for each in caplog.records if "takes durable messages again" in each.getMessage()]
    assert [text.partition(" in which ")[2] for text in told] == [f"{refused} were refused"]
    assert timed.queue("jobs").totals.dropped == 0


def test_producers_wait_while_compaction_gives_space_back(timed: SteppedBroker) -> None:
    """The volume is full, then two of three messages are taken: without further consumers, and without a refusal, most
    of their space is filled again. Then the volume is full, and producers are told so."""
    timed.make_queue("jobs")
    peer, consumer = timed.connect(), timed.connect("consumer")
    files = timed.files
    files.space = sum(len(files.copy().content(path)) for path in files.paths()) + 12 * SEGMENT
    first = 0
    while peer.send("jobs", *messages(1, 1000)) == ["accepted"]:
        first += 1
    consumer.receive("jobs", credit=2000)
    assert len(consumer.got) == first
    for index, (_, delivery) in enumerate(consumer.got):
        if index % 3:
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()
    consumer.pump()
    consumer.drop()
    again = waits = 0
    sender = peer.session.sender("again")
    sender.target.address = "jobs"
    sender.open()
    peer.pump()
    state: object = Delivery.ACCEPTED
    while state == Delivery.ACCEPTED:
        delivery = sender.delivery(f"again {again}")
        sender.send(messages(1, 1000)[0].encode())
        sender.advance()
        while not delivery.remote_state:
            peer.flush()
            timed.turn()
            waits += bool(timed.broker.work.held)
            peer.read()
        state = delivery.remote_state
        delivery.settle()
        again += state == Delivery.ACCEPTED
    assert waits > 0
    assert again > first // 3, (first, timed.log.segments)
    assert timed.log.failed is None


def test_a_volume_whose_space_cannot_be_read_is_told_once(
    timed: SteppedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    fill(timed, 80)
    caplog.clear()
    for failure in (OSError(5, "Input/output error"), None, OSError(5, "Input/output error")):
        timed.space_failure = failure
        for _ in range(3):
            timed.pass_ms(500)
    assert caplog.text.count("it is not known how full it is: [Errno 5] Input/output error") == 2
    assert timed.broker.storage.level is StorageLevel.HIGH, "as it was last known"
