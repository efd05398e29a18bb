"""Messages that are not durable go to the log while memory is short, and still end with the process.

Windows have sixteen messages, and each queue that holds something is deep. Source: docs/decisions/084-memory.md.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import Message
from support.stepped_broker import Peer, SteppedBroker
from support.tight_memory import tighten

from penstock_broker.messages import paging
from penstock_core.memory_level import MemoryLevel

DEEP = 300


@pytest.fixture
def broker() -> Iterator[SteppedBroker]:
    made = SteppedBroker()
    press(made)
    yield made
    made.close()


def press(broker: SteppedBroker) -> None:
    """Each queue that holds something is paged, and messages that are not durable are spilled."""
    tighten(broker.broker, window=16)
    settle_down(broker)
    broker.broker.memory.budget = 1
    broker.broker.memory.set_level(MemoryLevel.SPILLING)


def settle_down(broker: SteppedBroker) -> None:
    """Let it page; the account of a few messages would make memory full."""
    broker.broker.memory.budget = 1 << 40
    for _ in range(4):
        broker.pass_ms(paging.LOOK_MS)
        broker.broker.memory.set_level(MemoryLevel.SPILLING)


def fill(broker: SteppedBroker, name: str, count: int = DEEP, **properties: object) -> None:
    peer = broker.connect()
    for first in range(0, count, 50):
        sent = [Message(body=number, **properties) for number in range(first, min(first + 50, count))]
        assert peer.send(name, *sent) == ["accepted"] * len(sent)
    peer.drop()
    settle_down(broker)


def in_memory(broker: SteppedBroker, name: str) -> int:
    return sum(1 for _ in broker.queue(name).everything_in_memory())


def refuses() -> bool:
    return False


def take_all(peer: Peer) -> list[object]:
    taken: list[object] = []
    peer.pump()
    while peer.got:
        taken.append(peer.take().body)
    return taken


@pytest.mark.parametrize("durable", [True, False], ids=["a lasting queue", "a queue that ends with the process"])
def test_a_deep_queue_of_volatile_messages_is_paged_and_hands_all_out_in_order(
    broker: SteppedBroker, durable: bool
) -> None:
    broker.make_queue("q", durable=durable)
    fill(broker, "q")
    assert in_memory(broker, "q") <= 120, "the first batch, and a window"
    assert broker.queue("q").depth == DEEP
    consumer = broker.connect()
    consumer.receive("q", credit=1000)
    assert take_all(consumer) == list(range(DEEP))
    queue = broker.queue("q")
    assert (queue.depth, queue.depth_bytes, queue.totals.acked) == (0, 0, DEEP)


def test_they_end_with_the_process_and_nothing_is_damaged(
    broker: SteppedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.make_queue("q")
    fill(broker, "q", 100, durable=True)
    fill(broker, "q", DEEP)
    fill(broker, "q", 100, durable=True)
    assert broker.queue("q").volatile == DEEP, "what an orderly stop counts as lost"
    broker.restart()
    assert broker.queue("q").depth == 200
    consumer = broker.connect()
    consumer.receive("q", credit=1000)
    assert take_all(consumer) == [*range(100), *range(100)]
    assert not [each for each in caplog.records if each.levelname in ("ERROR", "WARNING")]


def test_segments_with_nothing_but_them_are_free_after_a_restart(broker: SteppedBroker) -> None:
    broker.make_queue("q", durable=False)
    fill(broker, "q", 1000, subject="x" * 200)
    before = broker.log.segments
    assert before > 1
    broker.restart()
    broker.make_queue("lasting")
    broker.connect().send("lasting", *(Message(body=number, durable=True) for number in range(50)))
    for _ in range(200):
        broker.pass_ms(10)
    assert broker.log.segments < before


def test_their_segments_are_free_once_their_queue_has_ended(broker: SteppedBroker) -> None:
    queue = broker.make_queue("q", durable=False)
    fill(broker, "q", 1000)
    assert broker.log.holds(queue.incarnation)
    broker.broker.topology.delete_queue("q")
    assert not broker.log.holds(queue.incarnation)


def test_a_message_that_is_durable_in_one_queue_and_not_in_another_is_spilled_there(broker: SteppedBroker) -> None:
    broker.make_queue("lasting")
    broker.make_queue("passing", durable=False)
    fill(broker, "lasting", durable=True)
    fill(broker, "passing", durable=True)
    assert in_memory(broker, "passing") <= 120
    broker.restart()
    assert broker.queue("lasting").depth == DEEP


def test_nobody_waits_for_a_sync_of_them(broker: SteppedBroker) -> None:
    broker.make_queue("q", durable=False)
    fill(broker, "q")
    broker.pass_ms(10)
    synced = broker.log.synced
    fill(broker, "q", 100)
    assert broker.log.sequence > synced
    assert (broker.log.synced, broker.log.wants_sync) == (synced, False)


def test_without_room_in_the_log_they_stay_in_memory(broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.make_queue("q", durable=False)
    fill(broker, "q", 50)
    before = in_memory(broker, "q")
    monkeypatch.setattr(broker.log, "accepts_publishing", refuses)
    fill(broker, "q", 100)
    assert in_memory(broker, "q") == before + 100


def test_they_expire_and_can_be_taken_back(broker: SteppedBroker) -> None:
    broker.make_queue("q")
    fill(broker, "q", ttl=100)
    consumer = broker.connect()
    consumer.receive("q", credit=20)
    consumer.pump()
    assert len(consumer.got) == 20
    consumer.drop()
    assert broker.queue("q").depth == DEEP
    broker.now_ms += 100_000
    for _ in range(100):
        broker.pass_ms(200)
    assert broker.queue("q").depth == 0
