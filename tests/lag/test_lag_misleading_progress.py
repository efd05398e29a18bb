"""What looks like progress and is none: deliveries that come back, messages that expire or are deleted, consumers that
are attached and do nothing. The states are those of docs/concepts/lag.md, typed by hand.
"""

from __future__ import annotations

from dataclasses import replace

from lag.queue_story import QueueStory

from penstock_api.lag_result import LagState
from penstock_lag_rules.trend import drain_time


def healthy() -> QueueStory:
    """For five minutes ten messages come and go a second; at each poll nothing waits."""
    story = QueueStory()
    story.run(300, arrive=100, accept=100)
    return story


def test_a_consumer_that_gives_every_message_back_is_stalled() -> None:
    """It releases them at once, so no delivery counts as failed: 5 deliveries a second, and none is a repeated one."""
    story = healthy()
    states: list[LagState] = []
    for _ in range(12):
        before = story.snapshots[-1].totals
        given = replace(before, enqueued=before.enqueued + 10, delivered=before.delivered + 50)
        story.run(10, arrive=10, in_flight=1, totals=given)
        states.append(story.verdict().state)
    assert states == [LagState.OK] * 5 + [LagState.LAGGING] * 6 + [LagState.STALLED]
    assert story.verdict().message == (
        "no message was accepted for 120 s, although 2 consumers are attached; 120 messages wait, the oldest for 115 s"
    )


def test_a_consumer_that_is_paused_is_stalled_and_one_that_is_gone_is_missed() -> None:
    """The paused one is attached, holds nothing and asks for nothing: that is seen after two minutes, not after one."""
    paused, gone = healthy(), healthy()
    paused.run(130, arrive=100, credit=0, usable_credit=0)
    gone.run(130, arrive=100, consumers=0)
    assert (paused.verdict().state, gone.verdict().state) == (LagState.STALLED, LagState.UNCONSUMED)
    assert paused.verdict().message == (
        "no message was accepted for 130 s, although 2 consumers are attached; 1300 messages wait, the oldest for 125 s"
    )


def test_a_transaction_that_is_open_for_hours_is_no_idle_consumer() -> None:
    """It has 50 messages, accepted but not committed; nothing else comes, and its link gives credit."""
    story = healthy()
    story.run(10, arrive=50)
    since_ms = story.snapshots[-1].time_ms
    story.run(3_600, in_flight=50, oldest_hold_ms=since_ms)
    found = story.verdict()
    assert found.state is LagState.STALLED
    assert found.message.startswith(
        "no message was accepted for 300 s, although 2 consumers are attached; 50 messages wait, the oldest for 3605 s"
    )


def test_what_expires_behind_a_consumer_that_hangs_is_loss_and_no_recovery() -> None:
    story = QueueStory()
    story.run(200, arrive=100)
    story.run(60, expire=200)
    found = story.verdict()
    assert found.state is LagState.LOSING
    assert found.message == (
        "1200 messages were lost in the last 60 s (1200 expired), and 0 were accepted; "
        "800 messages wait, the oldest for 135 s"
    )
    assert drain_time(story.figures()) is None


def test_what_an_administrator_deletes_again_and_again_is_no_recovery() -> None:
    """1,500 messages at the beginning of each minute: the depth falls by 960, although only a tenth of what arrives is
    accepted.
    """
    story = QueueStory()
    story.run(300, arrive=300, accept=10)
    for _ in range(5):
        before = story.snapshots[-1].depth
        story.purge(1_500)
        story.run(60, arrive=100, accept=10)
        assert story.snapshots[-1].depth == before - 960
        assert story.verdict().state is LagState.LAGGING
        assert drain_time(story.figures()) is None
