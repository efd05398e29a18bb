"""What happens to a queue, and which state that is: each scenario by its story, with what `kubectl describe` says.

The stories are those of the outages that rules over a whole window called OK or Recovering.
"""

from __future__ import annotations

from typing import Any

import pytest
from lag.queue_story import THRESHOLDS, QueueStory, poisoned

from penstock_api.lag_result import LagState
from penstock_lag_rules.entry import subscription_lag
from penstock_lag_rules.figures import Coverage
from penstock_lag_rules.rules import judge
from penstock_lag_rules.trend import DrainTime, drain_time


def healthy(seconds: int = 300) -> QueueStory:
    """Ten messages come and go a second; at each poll nothing waits."""
    story = QueueStory()
    story.run(seconds, arrive=100, accept=100)
    return story


def test_consumers_that_died_are_missed_after_a_minute_although_the_window_was_healthy() -> None:
    story = healthy()
    story.run(50, arrive=100, consumers=0)
    assert story.verdict().state is LagState.OK
    story.run(20, arrive=100)
    found = story.verdict()
    assert found.state is LagState.UNCONSUMED
    assert found.message == "no consumer for 70 s; 700 messages wait, the oldest for 65 s"
    story.run(770, arrive=100)
    assert story.verdict().message == "no consumer for 840 s; 8400 messages wait, the oldest for 835 s"


def test_a_handler_that_hangs_is_stalled_after_two_minutes_although_the_window_was_healthy() -> None:
    story = healthy()
    story.run(110, arrive=100, in_flight=20, usable_credit=0, credit=1)
    assert story.verdict().state is LagState.LAGGING
    story.run(10, arrive=100, in_flight=20, usable_credit=0, credit=1)
    found = story.verdict()
    assert found.state is LagState.STALLED
    assert found.message == (
        "no message was accepted for 120 s, although 2 consumers are attached; 1200 messages wait, the oldest for 115 s"
    )


def test_a_handler_that_gives_no_credit_is_named_after_a_minute() -> None:
    story = healthy()
    story.run(70, arrive=100, in_flight=20, usable_credit=0, credit=0, oldest_hold_ms=story.snapshots[-1].time_ms)
    found = story.verdict()
    assert found.state is LagState.NO_CREDIT
    assert found.message == (
        "2 consumers hold 20 messages, the longest for 70 s, and neither accept them nor give credit for more; "
        "700 messages wait, the oldest for 65 s"
    )


@pytest.mark.parametrize(
    ("lost", "told"),
    [
        ({"expire": 1}, "1 message was lost in the last 60 s (1 expired), and 0 were accepted; 0 messages wait"),
        ({"drop": 1}, "1 message was lost in the last 60 s (1 was dropped), and 0 were accepted; 0 messages wait"),
        (
            {"reject": 1},
            "1 message was lost in the last 60 s (1 became a dead letter), and 0 were accepted; 0 messages wait",
        ),
    ],
)
def test_one_lost_message_is_not_spoken_of_as_many(lost: dict[str, int], told: str) -> None:
    story = QueueStory()
    story.run(60)
    story.run(10, arrive=1, **lost)
    assert story.verdict().message == told


def test_a_cause_stays_named_although_the_polls_are_not_exactly_ten_seconds_apart() -> None:
    """Seen live: the poll before was 60.005 s ago and did not count, and the next one only 49.994 s."""
    story = healthy()
    story.run(70, arrive=100, in_flight=20, usable_credit=0, credit=0)
    assert story.verdict().state is LagState.NO_CREDIT
    story.set_clock(by_ms=11)
    story.run(10, arrive=100, in_flight=20, usable_credit=0, credit=0)
    story.set_clock(by_ms=-6)
    story.run(50, arrive=100, in_flight=20, usable_credit=0, credit=0)
    assert story.figures().recent.elapsed_ms == 49_994
    assert story.verdict().state is LagState.NO_CREDIT


def test_one_consumer_is_not_spoken_of_as_many() -> None:
    story = healthy()
    story.run(70, arrive=100, consumers=1, in_flight=20, usable_credit=0, credit=0)
    assert story.verdict().message.startswith(
        "1 consumer holds 20 messages, and neither accepts them nor gives credit for more; "
    )
    story.run(60, arrive=100, in_flight=20, usable_credit=0, credit=5, usable_consumers=1)
    assert story.verdict().message.startswith(
        "no message was accepted for 130 s, although 1 consumer is attached; 1300 messages wait"
    )


def test_a_broker_that_delivers_nothing_is_blamed_after_a_minute() -> None:
    story = healthy()
    story.run(70, arrive=100)
    found = story.verdict()
    assert found.state is LagState.BROKER_STUCK
    assert found.message == (
        "for 60 s messages were ready and the consumers that may take them gave credit, but the broker delivered none: "
        "this is a fault of the broker, not of its clients; 700 messages wait, the oldest for 65 s"
    )


def test_a_standby_s_credit_does_not_accuse_the_broker() -> None:
    """The exclusive consumer, or the owner of the first group, holds what it has; the other one could take nothing."""
    story = healthy()
    story.run(70, arrive=100, in_flight=10, usable_credit=0, usable_consumers=1)
    assert story.verdict().state is LagState.LAGGING
    story.run(60, arrive=100, in_flight=10, usable_credit=0, usable_consumers=1)
    found = story.verdict()
    assert found.state is LagState.STALLED
    assert found.message == (
        "no message was accepted for 130 s, although 2 consumers are attached, of which 1 may take the first message "
        "that is ready; 1300 messages wait, the oldest for 125 s"
    )


def test_consumers_none_of_which_may_take_the_first_message_are_told_apart_from_those_that_hang() -> None:
    """They have refused it, or its group belongs to another one."""
    story = healthy()
    story.run(130, arrive=100, usable_credit=0, usable_consumers=0)
    assert story.verdict().message.startswith(
        "no message was accepted for 130 s, although 2 consumers are attached, of which none may take the first "
        "message that is ready; 1300 messages wait"
    )


def test_a_handler_that_rejects_everything_loses_and_does_not_recover() -> None:
    story = QueueStory()
    story.run(100, arrive=801, accept=0)
    assert story.snapshots[-1].depth == 8_010
    story.run(60, reject=801)
    found = story.verdict()
    assert found.state is LagState.LOSING
    assert found.message == (
        "4806 messages were lost in the last 60 s (4806 became dead letters), and 0 were accepted; "
        "3204 messages wait, the oldest for 95 s"
    )
    assert drain_time(story.figures()) is None


def test_a_handler_that_rejects_at_once_loses_although_nothing_waits() -> None:
    story = healthy()
    story.run(60, arrive=100, accept=90, reject=10)
    found = story.verdict()
    assert found.state is LagState.LOSING
    assert found.message == (
        "60 messages were lost in the last 60 s (60 became dead letters), and 540 were accepted; 0 messages wait"
    )


def test_a_time_to_live_that_eats_the_backlog_is_loss() -> None:
    story = QueueStory(consumers=0)
    story.run(200, arrive=100)
    story.run(60, expire=200)
    found = story.verdict()
    assert found.state is LagState.LOSING
    assert found.message == (
        "1200 messages were lost in the last 60 s (1200 expired), and no consumer is attached; "
        "800 messages wait, the oldest for 135 s"
    )


def test_a_full_queue_that_drops_its_oldest_is_loss_and_not_steady() -> None:
    story = QueueStory()
    story.run(300, arrive=100, accept=50, drop=50)
    found = story.verdict()
    assert found.state is LagState.LOSING
    assert "300 were dropped" in found.message


def test_one_lost_among_hundreds_is_a_figure_and_no_state() -> None:
    story = healthy()
    story.run(10, arrive=100, accept=99, reject=1)
    story.run(50, arrive=100, accept=100)
    assert story.figures().recent.growth.lost == 1
    assert story.verdict().state is LagState.OK


def test_a_restart_that_lost_messages_is_loss() -> None:
    story = QueueStory(consumers=0)
    story.run(100, arrive=100)
    story.restart(400)
    found = story.verdict()
    assert found.state is LagState.LOSING
    assert "400 were lost at a restart of the broker" in found.message


def test_what_an_administrator_moved_is_not_lost() -> None:
    story = QueueStory()
    story.run(300, arrive=10)
    before = story.snapshots[-1]
    story.run(60, accept=50, totals=before.totals)
    assert story.figures().recent.growth.lost == 0


def test_a_poisoned_message_is_named_while_others_are_accepted() -> None:
    story = healthy()
    story.run(60, arrive=101, accept=100, redeliver=5, repeated=poisoned(4))
    assert story.verdict().state is not LagState.POISON
    story.run(10, arrive=100, accept=100, redeliver=5, repeated=poisoned(5))
    found = story.verdict()
    assert found.state is LagState.POISON
    assert found.message.startswith(
        "the delivery of some messages fails again and again (ID:poison-1 failed 5 times); "
        "600 other messages were accepted in the last 60 s; "
    )


def test_nothing_but_repeated_deliveries_is_poison() -> None:
    story = healthy()
    story.run(70, arrive=1, redeliver=9, in_flight=1, usable_credit=0, repeated=poisoned(30))
    found = story.verdict()
    assert found.state is LagState.POISON
    assert found.message == (
        "54 of 54 deliveries in the last 60 s were repeated ones and none was accepted (ID:poison-1 failed 30 times); "
        "7 messages wait, the oldest for 65 s"
    )


def test_slow_consumers_lag_and_faster_ones_recover() -> None:
    story = healthy()
    story.run(50, arrive=100, accept=50)
    assert story.verdict().state is LagState.OK  # the oldest waits for 25 s
    story.run(130, arrive=100, accept=50)
    found = story.verdict()
    assert found.state is LagState.LAGGING
    assert found.message == (
        "the consumers fall behind: 600 messages a minute arrive and 300 are accepted; "
        "900 messages wait, the oldest for 85 s"
    )
    story.run(60, arrive=100, accept=200)
    found = story.verdict()
    assert found.state is LagState.RECOVERING
    # 600 in 60 s, and 2 * sqrt(600 + 1200) = 84.9 of that may be noise
    assert drain_time(story.figures()) == DrainTime(likely=30, low=27, high=35)
    assert found.message.startswith(
        "the backlog fell from 900 to 300 messages in 60 s and will be empty in 27 to 35 s if this goes on; "
    )


def test_a_backlog_that_only_wanders_is_steady_and_has_no_drain_time() -> None:
    story = QueueStory()
    story.run(100, arrive=100)
    for _ in range(10):
        story.run(10, arrive=100, accept=105)
        story.run(10, arrive=100, accept=96)
    assert story.verdict().state is LagState.BACKLOG_STEADY
    assert drain_time(story.figures()) is None


def test_one_empty_snapshot_long_ago_hides_nothing() -> None:
    story = QueueStory()
    story.run(290, arrive=10)
    assert story.snapshots[0].depth == 0
    assert story.verdict().state is LagState.BROKER_STUCK


def test_a_clock_that_went_back_makes_no_age_of_zero() -> None:
    story = QueueStory(consumers=0)
    story.run(120, arrive=100)
    story.set_clock(-600_000)
    story.run(10, arrive=0)
    figures = story.figures()
    assert figures.standing.age_ms is None
    assert story.verdict().state is not LagState.OK


def test_a_clock_that_was_set_is_said() -> None:
    story = healthy()
    covered = Coverage(
        last_poll_ms=story.snapshots[-1].time_ms,
        elapsed_ms=300_000,
        polls=31,
        interval_ms=10_000,
        clock_steps=1,
    )
    found = judge(story.figures(covered), THRESHOLDS, story.snapshots[-1].time_ms, None)
    assert found.state is LagState.UNKNOWN
    assert found.message == (
        "the clock of its broker was set back within the window, so ages and rates are not known; 0 messages wait"
    )


def test_all_that_waits_is_stranded() -> None:
    story = QueueStory()
    story.run(200, arrive=10, scheduled=0)
    count = len(range(0, 200, 10)) * 10
    story.run(10, ready=0, scheduled=count, stranded=count)
    found = story.verdict()
    assert found.state is LagState.STALLED
    assert found.message == "all 200 messages wait for a dead-letter or expiry destination that does not take them"


@pytest.mark.parametrize("consumers", [0, 2])
def test_no_consumer_can_help_where_all_that_waits_is_stranded(consumers: int) -> None:
    """Nor do those that are due later change what is wrong."""
    story = QueueStory(consumers=consumers)
    stuck: dict[str, Any] = {"ready": 0, "stranded": 5, "oldest_available_ms": None}
    story.run(10, arrive=8, scheduled=8, **stuck)
    story.run(190, scheduled=8, **stuck)
    found = story.verdict()
    assert found.state is LagState.STALLED
    assert found.message == (
        "all 5 messages wait for a dead-letter or expiry destination that does not take them; 3 more are due later"
    )


@pytest.mark.parametrize(("later", "told"), [(1, "; 1 more is due later"), (1_195, "; 1195 more are due later")])
def test_what_is_due_later_does_not_wait(later: int, told: str) -> None:
    """Nobody consumes: 5 messages wait for that, and the others do not."""
    story = QueueStory(consumers=0)
    story.run(10, arrive=later, ready=0, scheduled=later, oldest_available_ms=None)
    story.run(10, arrive=5, ready=5, scheduled=later)
    came_ms = story.snapshots[-1].time_ms
    story.run(100, ready=5, scheduled=later, oldest_available_ms=came_ms)
    found = story.verdict()
    assert found.state is LagState.UNCONSUMED
    assert found.message == f"no consumer for 120 s; 5 messages wait, the oldest for 100 s{told}"


def test_a_loss_does_not_make_what_is_due_later_wait() -> None:
    story = QueueStory()
    story.run(10, arrive=200, ready=0, scheduled=200, oldest_available_ms=None)
    story.run(60, expire=1, ready=0, scheduled=200, oldest_available_ms=None)
    story.run(10, ready=0, scheduled=194, oldest_available_ms=None)
    assert story.verdict().message == (
        "5 messages were lost in the last 60 s (5 expired), and 0 were accepted; 0 messages wait; 194 are due later"
    )


def test_what_consumers_keep_up_with_is_told_without_what_is_due_later() -> None:
    story = QueueStory()
    story.run(10, arrive=200, ready=0, scheduled=200, oldest_available_ms=None)
    story.run(100, ready=0, scheduled=200, oldest_available_ms=None)
    story.run(10, arrive=4, ready=4, scheduled=200, oldest_available_ms=story.snapshots[-1].time_ms + 9_700)
    assert (
        story.verdict().message
        == "the consumers keep up; 4 messages wait, the oldest for 300 ms; 200 more are due later"
    )


def test_what_one_hung_consumer_holds_is_lag_although_another_one_keeps_up() -> None:
    """It has taken 400 ahead and hangs; the other one accepts all that comes."""
    story = QueueStory()
    story.run(10, arrive=400)
    since_ms = story.snapshots[-1].time_ms
    stuck: dict[str, Any] = {"in_flight": 400, "oldest_available_ms": since_ms, "oldest_hold_ms": since_ms}
    for _ in range(15):
        story.run(10, arrive=101, accept=100, ready=1, **stuck)
        story.run(10, arrive=99, accept=100, ready=0, **stuck)
    found = story.verdict()
    assert found.state is LagState.BACKLOG_STEADY
    assert found.message == (
        "the backlog neither grows nor shrinks: 600 messages a minute arrive and 600 are accepted; "
        "400 messages wait, the oldest for 300 s; consumers hold all of it, the longest for 300 s"
    )
    story.run(10, arrive=101, accept=100, ready=1, **stuck)
    assert "hold all of it" not in story.verdict().message


@pytest.mark.parametrize("depth", [600, 50_000])
def test_a_backup_that_comes_back_is_neither_growth_nor_recovery(depth: int) -> None:
    """1,000 wait, and as many are accepted as come; then what the backup had is there."""
    story = QueueStory()
    story.run(10, arrive=1_000)
    story.run(200, arrive=100, accept=100)
    story.restore(depth)
    story.run(30, arrive=100, accept=100)
    assert story.snapshots[-1].depth == depth
    found = story.verdict()
    assert found.state is LagState.BACKLOG_STEADY
    assert found.message.startswith("the backlog neither grows nor shrinks: 500 messages a minute arrive and 500 are ")
    entry = subscription_lag(story.figures(), None, story.snapshots[-1].time_ms, THRESHOLDS)
    assert (entry.messages, entry.velocity_per_minute, entry.drain_seconds) == (depth, 240, None)  # 1,000 in 250 s
    assert entry.oldest_age_seconds is not None and entry.oldest_age_seconds > 3_600


def test_what_is_worked_off_after_a_restart_is_told_by_what_was_accepted() -> None:
    """500 of the 50,000 of the backup in a minute, and not 40,500 of the 90,000 that there were before."""
    story = QueueStory()
    story.run(10, arrive=90_000)
    story.run(100, arrive=100, accept=100)
    story.restore(50_000)
    story.run(50, accept=100)
    found = story.verdict()
    assert found.state is LagState.RECOVERING
    assert found.message.startswith("the backlog fell from 50000 to 49500 messages in 60 s and will be empty in ")
    # 60 s * 49,500 / (500 -+ 2 * sqrt(500)): 5,452.3 to 6,523.5
    assert drain_time(story.figures()) == DrainTime(likely=5_940, low=5_453, high=6_524)


def test_messages_that_a_backup_has_for_later_did_not_arrive_or_become_due() -> None:
    story = QueueStory()
    story.run(10, arrive=1_000, scheduled=600, ready=400)
    story.run(60, arrive=100, accept=100, scheduled=600, ready=400)
    story.restore(1_000)
    story.run(20, arrive=100, accept=100, scheduled=200, ready=800)
    assert "become due" not in story.verdict().message
    story.run(10, arrive=100, accept=100, scheduled=900, ready=100)
    assert "due later, and" not in story.verdict().message
    assert story.verdict().state is LagState.BACKLOG_STEADY


def test_without_a_consumer_nobody_says_when_the_backlog_is_empty() -> None:
    """They worked it off until ten seconds ago; for the minute until it is Unconsumed nobody does."""
    story = QueueStory()
    story.run(100, arrive=100)
    story.run(60, accept=100)
    assert "will be empty in" in story.verdict().message
    story.run(10, consumers=0)
    found = story.verdict()
    assert found.state is LagState.RECOVERING
    assert found.message == (
        "the backlog fell from 900 to 400 messages in 60 s, but no consumer is attached now; "
        "400 messages wait, the oldest for 105 s"
    )
    entry = subscription_lag(story.figures(), None, story.snapshots[-1].time_ms, THRESHOLDS)
    assert (entry.drain_seconds, entry.drain_seconds_low, entry.drain_seconds_high) == (None, None, None)


def test_a_consumer_that_holds_all_and_accepts_nothing_empties_nothing() -> None:
    """It took 400 ahead, and hangs: all of them are lag, and what it did before says nothing of when they are done."""
    story = QueueStory(consumers=1)
    story.run(100, arrive=100)
    story.run(60, accept=100)
    for _ in range(11):
        story.run(10, in_flight=400, credit=0, usable_credit=0)
        entry = subscription_lag(story.figures(), None, story.snapshots[-1].time_ms, THRESHOLDS)
        assert (entry.messages, entry.waiting, entry.in_flight) == (400, 400, 400)
        if story.figures().recent.growth.acked == 0:
            assert entry.drain_seconds is None
    found = story.verdict()
    assert found.state is LagState.NO_CREDIT
    assert found.message.endswith("; 400 messages wait, the oldest for 205 s")


def test_messages_that_are_due_later_are_no_backlog() -> None:
    story = QueueStory()
    story.run(200, arrive=10, ready=0)
    story.run(10, ready=0, scheduled=200, oldest_available_ms=None)
    found = story.verdict()
    assert (found.state, found.message) == (
        LagState.OK,
        "the consumers have caught up; no message waits; 200 are due later",
    )


def test_messages_that_become_due_faster_than_they_are_accepted_are_growth() -> None:
    """5,000 are due later. Then 100 become due in ten seconds, and 50 are accepted: the depth falls by 50, and what
    consumers have not done grows by 50.
    """
    story = QueueStory()
    story.run(10, arrive=5_000, ready=0, scheduled=5_000, oldest_available_ms=None)
    first_due_ms = story.snapshots[-1].time_ms
    for step in range(1, 21):
        due = 50 * step
        story.run(10, accept=50, ready=due, scheduled=5_000 - 100 * step, oldest_available_ms=first_due_ms)
    assert (story.snapshots[-1].depth, story.snapshots[-1].scheduled) == (4_000, 3_000)
    found = story.verdict()
    assert found.state is LagState.LAGGING
    assert found.message == (
        "the consumers fall behind: 0 messages a minute arrive, 600 become due, and 300 are accepted; "
        "1000 messages wait, the oldest for 200 s; 3000 more are due later"
    )
    assert drain_time(story.figures()) is None


def test_messages_that_become_due_as_fast_as_they_are_accepted_are_no_growth() -> None:
    story = QueueStory()
    story.run(10, arrive=5_000, ready=300, scheduled=4_700)
    first_due_ms = story.snapshots[-1].time_ms
    for step in range(1, 21):
        story.run(10, accept=100, ready=300, scheduled=4_700 - 100 * step, oldest_available_ms=first_due_ms)
    found = story.verdict()
    assert found.state is LagState.BACKLOG_STEADY
    assert found.message.startswith(
        "the backlog neither grows nor shrinks: 0 messages a minute arrive, 600 become due, and 600 are accepted; "
    )


def test_messages_that_arrive_for_later_are_told_apart_from_those_that_wait() -> None:
    """Of 100 in ten seconds 60 are due in an hour; 40 are accepted, and 300 wait as before."""
    story = QueueStory()
    story.run(10, arrive=300)
    first_ms = story.snapshots[-1].time_ms
    for step in range(1, 21):
        story.run(10, arrive=100, accept=40, ready=300, scheduled=60 * step, oldest_available_ms=first_ms)
    found = story.verdict()
    assert found.state is LagState.BACKLOG_STEADY
    assert found.message.startswith(
        "the backlog neither grows nor shrinks: 600 messages a minute arrive, of which 360 are due later, and 240 are "
        "accepted; "
    )


def test_delayed_messages_that_are_purged_are_no_growth() -> None:
    """300 wait, and 1,000 are due later until an administrator deletes them: nothing became due."""
    story = QueueStory()
    story.run(10, arrive=1_300, ready=300, scheduled=1_000)
    first_ms = story.snapshots[-1].time_ms
    story.run(120, arrive=50, accept=50, ready=300, scheduled=1_000, oldest_available_ms=first_ms)
    story.purge(1_000)
    story.run(30, arrive=51, accept=50, ready=300, oldest_available_ms=first_ms)
    assert story.figures().recent.growth.purged == 1_000
    found = story.verdict()
    assert found.state is LagState.BACKLOG_STEADY
    assert "303 messages a minute arrive and 300 are accepted" in found.message


def test_messages_that_are_stranded_are_not_due_later() -> None:
    """Of 100 in ten seconds 10 are rejected, and wait for a dead-letter queue that is full."""
    story = QueueStory()
    story.run(10, arrive=300)
    first_ms = story.snapshots[-1].time_ms
    for step in range(1, 21):
        stuck = {"scheduled": 10 * step, "stranded": 10 * step}
        story.run(10, arrive=100, accept=90, ready=300, oldest_available_ms=first_ms, **stuck)
    found = story.verdict()
    assert found.state is LagState.BACKLOG_STEADY
    assert "600 messages a minute arrive and 540 are accepted" in found.message


def test_a_message_that_comes_once_an_hour_is_not_stalled_at_once() -> None:
    story = QueueStory()
    story.run(290)
    story.run(30, arrive=0)
    story.run(10, arrive=1, in_flight=1)
    story.run(20, in_flight=1)
    assert story.figures().without_progress_ms > THRESHOLDS.stall_after_ms
    assert story.verdict().state is LagState.OK


def test_a_slow_trend_shows_over_the_stretch() -> None:
    """Two messages a minute come, one goes: within a minute that is noise, within five it is not."""
    story = QueueStory()
    story.run(60, arrive=30)
    for _ in range(8):
        story.run(30, arrive=3, accept=1)
    assert story.verdict().state is LagState.LAGGING


def test_a_trend_that_is_over_is_steady() -> None:
    story = QueueStory()
    story.run(100, arrive=100, accept=20)
    story.run(100, arrive=100, accept=100)
    assert story.figures().stretch.first_depth == 0
    assert story.verdict().state is LagState.BACKLOG_STEADY
