"""A queue drops or refuses only at a limit that is written, and says so in the log. Source:
docs/decisions/045-queue-limits.md.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# proton's own types are not complete.

from __future__ import annotations

from itertools import pairwise

import pytest
from proton import Link, Message
from support.stepped_broker import SteppedBroker

from penstock_api.management import QueueLimits
from penstock_broker.messages import queue_limits
from penstock_broker.messages.queue_limits import DROPPED_AT_ONCE
from penstock_core.memory_level import MemoryLevel
from penstock_core.terms import Overflow


@pytest.mark.parametrize(
    ("overflow", "outcomes", "does", "done"),
    [
        ("DropOldest", ["accepted", "accepted", "accepted"], "drops messages", "dropped"),
        ("DropNewest", ["accepted", "accepted", "accepted"], "drops messages", "dropped"),
        (
            "Reject",
            ["accepted", "amqp:resource-limit-exceeded", "amqp:resource-limit-exceeded"],
            "refuses messages",
            "refused",
        ),
    ],
)
def test_the_log_says_when_a_queue_begins_and_when_it_has_stopped(
    timed: SteppedBroker, caplog: pytest.LogCaptureFixture, overflow: str, outcomes: list[str], does: str, done: str
) -> None:
    """Two are lost at once and two after half a minute; then none for a minute."""
    timed.make_queue("jobs", limits=QueueLimits.model_validate({"max_messages": 1, "overflow": overflow}))
    peer = timed.connect()
    assert peer.send("jobs", *(Message(body=body, durable=True) for body in ("a", "b", "c"))) == outcomes
    timed.pass_ms(30_000)
    peer.send("jobs", Message(body="d", durable=True), Message(body="e", durable=True))
    timed.pass_ms(50_000)
    (begins,) = told(caplog)
    assert f"messages, overflow {overflow}) and {does} from now on: consume from it" in begins
    for _ in range(3):
        timed.pass_ms(10_000)
    _, ends = told(caplog)
    assert ends == f"The queue 'jobs' has {done} nothing for a minute; before it {done} 4 messages within 30 s"
    peer.send("jobs", Message(body="f", durable=True))
    assert len(told(caplog)) == 3, "it has begun again"


def test_a_queue_that_drops_for_days_is_told_every_hour(timed: SteppedBroker, caplog: pytest.LogCaptureFixture) -> None:
    timed.make_queue("jobs", limits=QueueLimits(max_messages=1))
    peer = timed.connect()
    for _ in range(250):
        peer.send("jobs", Message(body="a", durable=True))
        timed.pass_ms(30_000)
    assert [text.partition(":")[0] for text in told(caplog)[1:]] == ["The queue 'jobs' still drops messages"] * 2


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "The queue" in each.getMessage()]


def test_without_a_limit_nothing_is_dropped_whatever_the_overflow_says(timed: SteppedBroker) -> None:
    """Documents of release 0.1 say DropOldest of every queue, because it was the default."""
    for name, limits in (("old", QueueLimits(overflow="DropOldest")), ("new", QueueLimits(overflow="Reject"))):
        timed.make_queue(name, limits=limits)
        peer = timed.connect(name)
        for _ in range(20):
            assert peer.send(name, *(Message(body="x" * 1000, durable=True) for _ in range(100))) == ["accepted"] * 100
        assert (timed.queue(name).depth, timed.queue(name).totals.dropped) == (2000, 0)
    timed.restart()
    assert [timed.queue(name).depth for name in ("old", "new")] == [2000, 2000]


@pytest.mark.parametrize(
    ("settings", "own", "outcome", "left"),
    [
        pytest.param({}, None, "amqp:resource-limit-exceeded", ["a", "b"], id="the default loses nothing"),
        pytest.param({"queueOverflow": "DropOldest"}, None, "accepted", ["b", "c"], id="as somebody wrote"),
        pytest.param(
            {"queueOverflow": "DropOldest"}, {"max_messages": 2, "overflow": "DropNewest"}, "accepted", ["a", "b"],
            id="limits of its own",
        ),
    ],
)  # fmt: skip
def test_the_configured_limit_of_queues_without_limits(
    settings: dict[str, object], own: dict[str, object] | None, outcome: str, left: list[str]
) -> None:
    broker = SteppedBroker({"queueMaxBytes": 2500, **settings})
    try:
        broker.make_queue("jobs", limits=QueueLimits.model_validate(own or {}))
        peer = broker.connect()
        told = [peer.send("jobs", Message(body=body * 1000, durable=True))[0] for body in "abc"]
        assert told == ["accepted", "accepted", outcome]
        peer.receive("jobs")
        assert [str(body)[0] for body in peer.bodies()] == left
    finally:
        broker.close()


@pytest.mark.parametrize("cause", ["queue", "memory"])
def test_who_settles_what_it_sends_gets_credit_for_what_is_refused(timed: SteppedBroker, cause: str) -> None:
    """Else it waits for ever, even once there is room again."""
    jobs = timed.make_queue("jobs", limits=QueueLimits.model_validate({"max_messages": 2, "overflow": "Reject"}))
    peer = timed.connect()
    sender = peer.session.sender("settled")
    sender.target.address = "jobs"
    sender.snd_settle_mode = Link.SND_SETTLED
    sender.open()
    peer.pump()
    if cause == "memory":
        timed.broker.memory.set_level(MemoryLevel.FULL)
    window = sender.credit
    for number in range(window + 1):
        assert sender.credit > 0
        delivery = sender.delivery(str(number))
        sender.send(Message(body=number, durable=True).encode())
        delivery.settle()
        sender.advance()
        if number % 100 == 0:
            peer.pump()
    peer.pump()
    assert jobs.depth == (2 if cause == "queue" else 0)
    assert sender.credit >= window // 2


def test_a_lowered_limit_drops_a_little_in_each_turn(timed: SteppedBroker) -> None:
    """A queue may hold a million messages when somebody writes its first limit."""
    jobs = timed.make_queue("jobs")
    peer = timed.connect()
    count = 3 * DROPPED_AT_ONCE
    for first in range(0, count, 250):
        peer.send("jobs", *[Message(body=number, durable=True) for number in range(first, first + 250)])
    jobs.policy.max_messages, jobs.policy.overflow = 2, Overflow.DROP_OLDEST
    depths = [count]
    queue_limits.enforce(timed.broker, jobs, 0, 0)
    while depths[-1] > 2:
        depths.append(jobs.depth)
        timed.turn()
    assert max(before - after for before, after in pairwise(depths)) <= DROPPED_AT_ONCE
    assert (jobs.totals.dropped, timed.broker.work.dropping) == (count - 2, set())
    peer.receive("jobs")
    assert peer.bodies() == [count - 2, count - 1]


def test_what_comes_while_a_queue_drops_makes_it_no_longer(timed: SteppedBroker) -> None:
    jobs = timed.make_queue("jobs")
    peer = timed.connect()
    peer.send("jobs", *[Message(body=number, durable=True) for number in range(2 * DROPPED_AT_ONCE)])
    jobs.policy.max_messages, jobs.policy.overflow = 2, Overflow.DROP_OLDEST
    timed.broker.work.dropping.add(jobs)
    peer.send("jobs", *[Message(body=number, durable=True) for number in range(100)])
    assert jobs.depth == 2 * DROPPED_AT_ONCE
    depth_bytes = jobs.depth_bytes
    peer.send("jobs", Message(body="a long one" * 100, durable=True))
    assert jobs.depth_bytes <= depth_bytes
    assert jobs.depth < 2 * DROPPED_AT_ONCE - 10


def test_a_queue_that_ends_drops_no_more(timed: SteppedBroker) -> None:
    jobs = timed.make_queue("jobs")
    peer = timed.connect()
    peer.send("jobs", *[Message(body="m", durable=True) for _ in range(DROPPED_AT_ONCE + 10)])
    jobs.policy.max_messages, jobs.policy.overflow = 2, Overflow.DROP_OLDEST
    queue_limits.enforce(timed.broker, jobs, 0, 0)
    assert timed.broker.work.dropping == {jobs}
    timed.broker.topology.delete_queue("jobs")
    timed.turn()
    timed.turn()
    assert (timed.broker.work.dropping, jobs.depth) == (set(), 0)
