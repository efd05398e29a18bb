"""A queue at its limit says in the log that it loses messages. Source: docs/decisions/045-queue-limits.md."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# proton's own types are not complete.

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import Message
from support.stepped_broker import SteppedBroker

from penstock_api.management import QueueLimits


@pytest.fixture
def timed() -> Iterator[SteppedBroker]:
    broker = SteppedBroker()
    yield broker
    broker.close()


@pytest.mark.parametrize(
    ("overflow", "outcomes", "told"),
    [
        ("DropOldest", ["accepted", "accepted", "accepted"], 2),
        ("DropNewest", ["accepted", "accepted", "accepted"], 2),
        ("Reject", ["accepted", "amqp:resource-limit-exceeded", "amqp:resource-limit-exceeded"], 0),
    ],
)
def test_what_is_dropped_is_told_once_a_minute(
    timed: SteppedBroker, caplog: pytest.LogCaptureFixture, overflow: str, outcomes: list[str], told: int
) -> None:
    timed.make_queue("jobs", limits=QueueLimits.model_validate({"max_messages": 1, "overflow": overflow}))
    peer = timed.connect()
    assert peer.send("jobs", *(Message(body=body, durable=True) for body in ("a", "b", "c"))) == outcomes
    timed.pass_ms(60_000)
    peer.send("jobs", Message(body="d", durable=True), Message(body="e", durable=True))
    assert caplog.text.count("The queue 'jobs' is full") == told
    assert caplog.text.count(f"drops by its overflow {overflow}:") == told
