"""Faults of disk and clock while consumers take what is paged, or wait for what is delayed: what each gets then."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from proton import Message, symbol
from support.stepped_broker import Peer, SteppedBroker
from support.tight_memory import tighten

from penstock_amqp.endpoint.events import NUMBER
from penstock_broker.log.segments.message_reader import GIVE_UP_MS
from penstock_broker.messages import paging, read_retries
from penstock_broker.messages.due_times import put_in_place

COUNT = 300
HOUR_MS = 3_600_000


@pytest.fixture
def broker() -> Iterator[SteppedBroker]:
    made = SteppedBroker()
    yield made
    made.close()


def paged(broker: SteppedBroker) -> list[str]:
    """A queue of long messages, of which two or so are in memory; their bodies."""
    broker.make_queue("q")
    tighten(broker.broker)
    bodies = [f"{number:04}" * 100 for number in range(COUNT)]
    peer = broker.connect()
    for first in range(0, COUNT, 50):
        messages = [Message(body=body, durable=True) for body in bodies[first : first + 50]]
        assert peer.send("q", *messages) == ["accepted"] * 50
    peer.drop()
    for _ in range(8):
        broker.pass_ms(paging.LOOK_MS)
    assert sum(1 for _ in broker.queue("q").everything_in_memory()) < 40
    return bodies


def place_of(broker: SteppedBroker, body: str) -> tuple[Path, int]:
    """The segment in which a message lies, and where its body begins."""
    disk = broker.files.copy()
    for path in disk.paths():
        at = disk.content(path).find(body.encode())
        if at >= 0 and path.name.startswith("segment-"):
            return path, at
    raise AssertionError("it is in no segment")


def taken(broker: SteppedBroker, peer: Peer, steps: int = 60) -> list[object]:
    """Accept all that comes while some time passes."""
    found: list[object] = []
    for _ in range(steps):
        peer.pump()
        while peer.got:
            found.append(peer.take().body)
        broker.pass_ms(read_retries.RETRY_MS // 2)
    return found


def test_a_flipped_bit_costs_the_messages_of_its_block_and_is_named(
    broker: SteppedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Each send of fifty is one block, or a few."""
    bodies = paged(broker)
    path, at = place_of(broker, bodies[120])
    broker.files.content(path)[at + 7] ^= 1
    peer = broker.connect()
    peer.receive("q", credit=COUNT)
    found = taken(broker, peer)
    lost = [body for body in bodies if body not in found]
    assert found == [body for body in bodies if body not in lost]
    assert bodies[120] in lost
    assert len(lost) <= 50
    assert f"the log is damaged: {path}" in caplog.text
    assert f"{len(lost)} messages of queue 'q' are lost" in caplog.text
    assert broker.queue("q").depth == 0
    assert broker.log.failed is None


def test_a_page_that_can_not_be_read_holds_up_its_queue_for_a_while_and_no_other(
    broker: SteppedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    bodies = paged(broker)
    broker.make_queue("other")
    path, at = place_of(broker, bodies[120])
    broker.files.unreadable[path] = (at, at + 1)
    peer = broker.connect()
    peer.receive("q", credit=COUNT)
    with caplog.at_level(logging.ERROR):
        first = taken(broker, peer, steps=4)
        assert first == bodies[: len(first)]
        assert 0 < len(first) <= 120
        assert "Messages of queue 'q' can't be read, which is tried again" in caplog.text
        assert broker.connect().send("other", Message(body="m", durable=True)) == ["accepted"]
        broker.pass_ms(GIVE_UP_MS)
        found = first + taken(broker, peer)
    lost = [body for body in bodies if body not in found]
    assert found == [body for body in bodies if body not in lost]
    assert bodies[120] in lost
    assert "its messages are set aside until the next start" in caplog.text


def test_what_could_not_be_read_is_there_once_the_disk_is_well(broker: SteppedBroker) -> None:
    bodies = paged(broker)
    path, at = place_of(broker, bodies[120])
    broker.files.unreadable[path] = (at, at + 1)
    peer = broker.connect()
    peer.receive("q", credit=COUNT)
    first = taken(broker, peer, steps=4)
    broker.files.unreadable.clear()
    assert first + taken(broker, peer) == bodies


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_clock_that_is_put_back_makes_nothing_expire_and_nothing_due(
    broker: SteppedBroker, is_restarted: bool
) -> None:
    """Time to live and delays are measured by the time of day: an hour that comes twice counts twice."""
    broker.make_queue("q")
    due = Message(body="delayed", durable=True)
    due.annotations = {symbol("x-opt-delivery-time"): broker.now_ms + 60_000}
    peer = broker.connect()
    assert peer.send("q", Message(body="short", durable=True, ttl=60), due) == ["accepted"] * 2
    peer.drop()
    broker.skew_ms = -HOUR_MS // 60  # a minute
    if is_restarted:
        broker.restart()
    broker.pass_ms(90_000)
    queue = broker.queue("q")
    assert (queue.waiting, queue.kept_back, queue.totals.expired) == (1, 1, 0)
    broker.pass_ms(30_000)
    peer = broker.connect()
    peer.receive("q")
    assert peer.bodies() == ["delayed"]
    assert broker.queue("q").totals.expired == 1


def test_what_asked_for_no_delay_can_be_had_at_once_by_a_clock_that_is_put_back(broker: SteppedBroker) -> None:
    broker.make_queue("q")
    peer = broker.connect()
    assert peer.send("q", Message(body="now", durable=True)) == ["accepted"]
    peer.drop()
    broker.skew_ms = -HOUR_MS
    broker.restart()
    queue = broker.queue("q")
    assert (queue.waiting, queue.kept_back) == (1, 0)
    peer = broker.connect()
    peer.receive("q")
    assert peer.bodies() == ["now"]


def test_what_can_not_be_moved_waits_in_its_place_also_by_a_clock_that_is_put_back(broker: SteppedBroker) -> None:
    broker.make_queue("q")
    peer = broker.connect()
    assert peer.send("q", Message(body="now")) == ["accepted"]
    queue = broker.queue("q")
    [entry] = queue
    queue.pick({entry[NUMBER]: entry}, {entry[NUMBER]})
    broker.skew_ms = -HOUR_MS
    broker.pass_ms(1)
    put_in_place(broker.broker, queue, entry)
    peer.receive("q")
    assert peer.bodies() == ["now"]
