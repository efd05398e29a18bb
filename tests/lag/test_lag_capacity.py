"""What a consumer is capable of and how many would keep up: scenarios, with the figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lag.figures_factory import figures
from lag.queue_story import THRESHOLDS, QueueStory

from penstock_api.lag_result import LagState
from penstock_lag_rules.capacity import capacity_per_minute, consumer_cap, suggested_consumers
from penstock_lag_rules.entry import subscription_lag
from penstock_lag_rules.figures import Work
from penstock_lag_rules.thresholds import Thresholds

T = Thresholds()


def behind(**changes: Any) -> QueueStory:
    """Two consumers accept 20 messages in ten seconds each, 60 arrive; for five minutes."""
    story = QueueStory()
    story.run(300, arrive=60, accept=40, **changes)
    return story


def told(story: QueueStory) -> tuple[int | None, int | None]:
    """Capacity a minute and suggested consumers."""
    last_ms = story.snapshots[-1].time_ms
    lag = subscription_lag(story.figures(), None, last_ms, THRESHOLDS)
    return lag.capacity_per_minute, lag.suggested_consumers


def test_consumers_that_fall_behind_show_what_they_are_capable_of() -> None:
    """One accepts 120 a minute. 360 arrive a minute, and 600 that wait are 60 a minute for ten minutes: 420, and 420
    divided by 120 * 0.8 is 4.4.
    """
    story = behind()
    assert story.snapshots[-1].depth == 600
    assert story.figures().work == Work(intervals=29, accepted=1160, consumer_ms=580_000)
    assert told(story) == (120, 5)


def test_what_becomes_due_needs_consumers_as_what_arrives() -> None:
    """As above, but the 60 in ten seconds came long ago and become due now, so 2,000 - 1,800 are due later at the end;
    and 60 that come each time to be due in a day need nobody.
    """
    story = QueueStory()
    story.run(10, arrive=2_000, ready=0, scheduled=2_000, oldest_available_ms=None)
    due_ms = story.snapshots[-1].time_ms
    for step in range(1, 31):
        story.run(10, accept=40, ready=20 * step, scheduled=2_000 - 60 * step, oldest_available_ms=due_ms)
    assert told(story) == (120, 5)
    for_later = QueueStory()
    for_later.run(10, arrive=200)
    for step in range(1, 31):
        for_later.run(10, arrive=100, accept=40, ready=200, scheduled=60 * step, oldest_available_ms=due_ms)
    assert told(for_later) == (120, 3), "(240 + 20) / (120 * 0.8) = 2.7"


def test_consumers_that_keep_up_show_nothing_of_what_they_are_capable_of() -> None:
    """At each poll some messages are ready, but they have just come: to call this the capacity would ask for more
    consumers however idle those are.
    """
    story = QueueStory()
    story.run(300, arrive=60, accept=60)
    for number, snapshot in enumerate(story.snapshots[1:], 1):
        story.snapshots[number] = _with_fresh(snapshot)
    assert story.figures().work == Work()
    assert told(story) == (None, None)


def _with_fresh(snapshot: Any) -> Any:
    return replace(snapshot, depth=3, ready=3, oldest_available_ms=snapshot.time_ms - 1_000)


def test_time_without_a_consumer_does_not_count() -> None:
    """Nobody for 100 s, then two that accept 40 in ten seconds: still 120 a minute each."""
    story = QueueStory()
    story.run(100, arrive=60, consumers=0)
    story.run(200, arrive=60, accept=40, consumers=2)
    assert story.figures().work == Work(intervals=19, accepted=760, consumer_ms=380_000)
    assert told(story)[0] == 120


def test_a_consumer_that_joins_in_between_counts_for_half_of_the_interval() -> None:
    story = QueueStory(consumers=1)
    story.run(20, arrive=60, accept=20)
    story.run(20, arrive=60, accept=40, consumers=3)
    # 1 and 1; 1 and 3; 3 and 3 consumers for ten seconds each
    assert story.figures().work == Work(intervals=3, accepted=100, consumer_ms=10_000 + 20_000 + 30_000)


def test_a_standby_is_no_busy_consumer() -> None:
    """An exclusive consumer's successor, or one that does not own the group, would halve the capacity; and to add
    consumers would not help.
    """
    story = behind(usable_consumers=1)
    assert told(story) == (None, None)


def test_polls_that_failed_say_nothing_of_the_time_between() -> None:
    """Of the 29 intervals after the first snapshot with messages nine become one of 90 s, and then ten one of 100 s."""
    story = behind()
    del story.snapshots[10:18]
    assert story.figures().work.intervals == 29 - 9 + 1
    del story.snapshots[10]
    assert story.figures().work.intervals == 29 - 10


def test_a_restart_says_nothing_of_the_time_around_it() -> None:
    """Of the 30 intervals of the window all are busy but the one over the restart."""
    story = behind()
    story.restart(lost=0)
    story.run(10, arrive=60, accept=40)
    assert story.figures().work == Work(intervals=29, accepted=29 * 40, consumer_ms=29 * 20_000)


@pytest.mark.parametrize(
    ("work", "capacity"),
    [
        (Work(), None),
        (Work(intervals=2, accepted=4_000, consumer_ms=40_000), None),
        (Work(intervals=30, accepted=19, consumer_ms=600_000), None),
        (Work(intervals=3, accepted=20, consumer_ms=60_000), 20),
        (Work(intervals=3, accepted=20, consumer_ms=3_000_000), 0),
    ],
)
def test_few_observations_say_nothing(work: Work, capacity: int | None) -> None:
    assert capacity_per_minute(work, T) == capacity


BUSY = Work(intervals=30, accepted=3_000, consumer_ms=600_000)  # 300 a minute


@pytest.mark.parametrize(
    ("state", "suggested"),
    [
        # 600 a minute arrive, 500 that wait are 50 a minute: 650 / (300 * 0.8) = 2.7
        (LagState.LAGGING, 3),
        (LagState.OK, 3),
        (LagState.IDLE, 3),
        (LagState.UNCONSUMED, 3),
        (LagState.RECOVERING, 3),
        (LagState.BACKLOG_STEADY, 3),
        (LagState.STALLED, None),
        (LagState.POISON, None),
        (LagState.NO_CREDIT, None),
        (LagState.BROKER_STUCK, None),
        (LagState.LOSING, None),
        (LagState.UNKNOWN, None),
    ],
)
def test_where_more_consumers_would_not_help_none_are_suggested(state: LagState, suggested: int | None) -> None:
    assert suggested_consumers(figures(work=BUSY), state, T) == suggested


@pytest.mark.parametrize(
    ("changes", "suggested"),
    [
        # nothing arrives and nothing waits: one, because a number is asked for
        ({"window": {"growth": {"enqueued": 0}}, "standing": {"depth": 0, "ready": 0, "in_flight": 0}}, 1),
        # what is due later does not ask for consumers: 600 a minute / 240 = 2.5
        ({"window": {"first_scheduled": 100_000}, "standing": {"depth": 100_000, "scheduled": 100_000}}, 3),
        # and of the 3,000 that came in five minutes 1,200 are due later: 360 a minute / 240 = 1.5 +- 8 %
        ({"window": {"first_scheduled": 500}, "standing": {"depth": 1_700, "scheduled": 1_700, "consumers": 5}}, 2),
        # 3,000 came and 1,200 became due: 840 a minute / 240 = 3.5
        ({"window": {"first_scheduled": 1_200}, "standing": {"depth": 0, "scheduled": 0}}, 4),
        # 100,000 that wait are 10,000 a minute: 10,600 / 240 = 44.2, but there are two, so no more than 20
        ({"standing": {"depth": 100_000}}, 20),
        ({"standing": {"depth": 100_000, "consumers": 5}}, 45),
        ({"standing": {"depth": 100_000, "consumers": 0}}, 10),
        # of 45 +- 3.7 % the noise explains 43 to 46, so the number that there is stays
        ({"standing": {"depth": 100_000, "consumers": 43}}, 43),
        ({"standing": {"depth": 100_000, "consumers": 46}}, 46),
        ({"standing": {"depth": 100_000, "consumers": 42}}, 45),
        ({"standing": {"depth": 100_000, "consumers": 47}}, 45),
        # 1,150 in five minutes are 230 a minute: 230 / 240 = 0.96 +- 6.9 %, so the noise explains that there are two
        ({"window": {"growth": {"enqueued": 1_150}}, "standing": {"depth": 0, "ready": 0, "in_flight": 0}}, 2),
        ({"window": {"elapsed_ms": 0}}, None),
    ],
)
def test_the_bounds_of_the_suggestion(changes: dict[str, Any], suggested: int | None) -> None:
    assert suggested_consumers(figures(work=BUSY, **changes), LagState.LAGGING, T) == suggested


@pytest.mark.parametrize(
    ("state", "suggested", "consumers", "cap"),
    [
        (LagState.LAGGING, 7, 2, 7),
        (LagState.LAGGING, None, 2, 20),
        (LagState.UNCONSUMED, None, 0, 10),
        (LagState.STALLED, None, 2, 2),
        (LagState.POISON, None, 2, 2),
        (LagState.NO_CREDIT, None, 2, 2),
        (LagState.BROKER_STUCK, None, 0, 1),
        # nothing is suggested, but nothing says that more would not help
        (LagState.LOSING, None, 2, 20),
        (LagState.UNKNOWN, None, 2, 20),
    ],
)
def test_an_autoscaler_may_ask_for_as_many_as_are_known_to_help(
    state: LagState, suggested: int | None, consumers: int, cap: int
) -> None:
    assert consumer_cap(state, suggested, consumers, T) == cap


@given(
    arrived=st.integers(0, 10**6),
    depth=st.integers(0, 10**6),
    consumers=st.integers(0, 50),
    accepted=st.integers(20, 10**6),
    consumer_ms=st.integers(1, 10**8),
)
def test_a_suggestion_is_within_its_bounds(
    arrived: int, depth: int, consumers: int, accepted: int, consumer_ms: int
) -> None:
    found = figures(
        window={"growth": {"enqueued": arrived}},
        standing={"depth": depth, "consumers": consumers},
        work=Work(intervals=3, accepted=accepted, consumer_ms=consumer_ms),
    )
    suggested = suggested_consumers(found, LagState.LAGGING, T)
    assert suggested is not None
    assert 1 <= suggested <= 10 * max(consumers, 1)
