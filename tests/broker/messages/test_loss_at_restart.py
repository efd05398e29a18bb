"""What a subscription or queue lost with a segment is counted in its state at the start that finds out, and is kept.

The log tells of each loss at one start only (docs/decisions/086-lost-segments.md), so nothing may have to happen to
either before the new total is in the log.
"""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import Message, Terminus
from support.proton_client import put_symbols
from support.stepped_broker import Peer, SteppedBroker

MESSAGES = 200
"""Of 1,000 bytes: they fill some segments."""


@pytest.fixture
def broker() -> Iterator[SteppedBroker]:
    made = SteppedBroker(segment_bytes=64 * 1024)
    yield made
    made.close()


def subscribe(peer: Peer) -> None:
    link = peer.session.receiver("news")
    link.source.address = "amq.topic/news"
    link.source.durability = Terminus.DELIVERIES
    link.source.expiry_policy = Terminus.EXPIRE_NEVER
    put_symbols(link.source.capabilities, ["topic", "shared", "global"])
    link.open()
    peer.pump()


def stands(broker: SteppedBroker) -> tuple[int, int]:
    """Of the subscription or the queue: the messages that wait, and those that a restart has lost."""
    (record,) = broker.broker.topology.by_incarnation.values()
    return record.queue.depth, record.queue.totals.lost_at_restart


@pytest.mark.parametrize("address", ["amq.topic/news", "jobs"])
def test_what_a_restart_recovers_is_told_apart_from_what_comes_then(broker: SteppedBroker, address: str) -> None:
    """Two restarts: each begins anew."""
    peer = broker.connect()
    if address == "jobs":
        broker.broker.topology.make_queue("jobs", durable=True, now_us=0)
    else:
        subscribe(peer)
    for before in (0, 3, 4):
        (record,) = broker.broker.topology.by_incarnation.values()
        totals = record.queue.totals
        assert (totals.enqueued, totals.recovered, totals.recovered_bytes > 0) == (before, before, before > 0)
        count = 3 if before == 0 else 1
        assert peer.send(address, *[Message(body=bytes(1000), durable=True)] * count) == ["accepted"] * count
        assert (totals.enqueued, totals.recovered) == (before + count, before)
        assert totals.enqueued_bytes - totals.recovered_bytes == count * totals.enqueued_bytes // totals.enqueued
        broker.restart()
        peer = broker.connect()


@pytest.mark.parametrize("address", ["amq.topic/news", "jobs"])
def test_what_a_missing_segment_held_is_still_counted_after_a_further_restart(
    broker: SteppedBroker, address: str
) -> None:
    peer = broker.connect()
    if address == "jobs":
        broker.broker.topology.make_queue("jobs", durable=True, now_us=0)
    else:
        subscribe(peer)
    for _ in range(MESSAGES // 20):
        assert peer.send(address, *[Message(body=bytes(1000), durable=True)] * 20) == ["accepted"] * 20
    assert stands(broker) == (MESSAGES, 0)
    [second] = [path for path in broker.files.paths() if path.name == "segment-0000000000000002.log"]
    broker.files.unlink(second)
    broker.restart()
    left, lost = stands(broker)
    assert lost > 0
    assert left + lost == MESSAGES
    broker.restart()
    assert broker.recovered.lost == {}
    assert stands(broker) == (left, lost)
