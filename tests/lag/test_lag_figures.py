"""All steps together over histories that Hypothesis makes up, against a plain loop over the same rows. An example is
many brokers and subscriptions in one run of Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from lag.naive_figures import naive_figures
from lag.spark_frames import all_figures, rows_of_polls
from observer.samples import START_MS, a_poll, a_subscription
from pyspark.sql import SparkSession

from penstock_api.state_documents import SubscriptionState
from penstock_lag_rules.thresholds import Thresholds
from penstock_observer.rows import Poll, Row

pytestmark = pytest.mark.spark

QUEUES = 3
GONE = ("acked", "expired", "dead_lettered", "dropped", "moved")
THRESHOLDS = Thresholds(allowed_messages=2, allowed_age_ms=3_000, recent_ms=25_000)
COUNTS = st.integers(0, 6)


@dataclass(frozen=True)
class Event:
    """What happens to one queue before a poll; more can't go than is there."""

    is_there: bool
    is_rebound: bool
    arrived: int
    gone: tuple[int, int, int, int, int]
    """Accepted, expired, dead-lettered, dropped, moved."""
    volatile: int
    """How many are lost if the broker restarts."""
    consumers: int
    credit: tuple[int, int | None]
    age_ms: int | None
    """Below 0: the clock went back behind it."""


@dataclass(frozen=True)
class Turn:
    """What happens between two polls."""

    passed_ms: int
    broker: str
    complete: bool
    events: tuple[Event, ...]


EVENTS = st.builds(
    Event,
    is_there=st.integers(0, 7).map(bool),
    is_rebound=st.integers(0, 9).map(lambda chance: chance == 0),
    arrived=COUNTS,
    gone=st.tuples(COUNTS, COUNTS, COUNTS, COUNTS, COUNTS).map(lambda gone: gone if sum(gone) % 3 else (0,) * 5),
    volatile=COUNTS,
    consumers=st.integers(0, 2),
    credit=st.tuples(COUNTS, st.none() | COUNTS),
    age_ms=st.none() | st.sampled_from([-5_000, 0, 3_000, 3_001, 60_000]),
)
TURNS = st.builds(
    Turn,
    passed_ms=st.sampled_from([10_000, 10_000, 10_000, 10_000, 20_000, -60_000, 0, 90_000]),
    broker=st.sampled_from(["runs"] * 8 + ["restarts", "is restored", "is replaced"]),
    complete=st.integers(0, 4).map(bool),
    events=st.tuples(*[EVENTS] * QUEUES),
)
MANY = st.lists(st.lists(TURNS, min_size=1, max_size=9), min_size=4, max_size=12)


@dataclass
class Queue:
    """Counters as the broker keeps them: docs of penstock_api.state_documents.SubscriptionState."""

    incarnation: int
    depth: int = 3
    totals: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*GONE, "delivered"), 0))
    enqueued: int = 3
    lost: int = 0

    def restart(self, volatile: int) -> None:
        """What was recovered counts as enqueued; losses are counted on."""
        lost = min(volatile, self.depth)
        self.lost += lost
        self.depth = self.enqueued = self.depth - lost
        self.totals = dict.fromkeys(self.totals, 0)

    def apply(self, event: Event) -> None:
        """Messages come and go."""
        self.enqueued += event.arrived
        self.depth += event.arrived
        for name, count in zip(GONE, event.gone, strict=True):
            gone = min(count, self.depth)
            self.totals[name] += gone
            self.depth -= gone
        self.totals["delivered"] += event.gone[0]


def polls_of(turns: Sequence[Turn]) -> list[Poll]:
    """The polls of one broker; the queues are there before the first one, unless it does not show them."""
    queues = [Queue(incarnation=11 + number) for number in range(QUEUES)]
    now_ms, epoch, folder, started_ms, made = START_MS, 3, 1, 0, 100
    polls: list[Poll] = []
    for turn in turns:
        now_ms += turn.passed_ms
        started_ms = started_ms if turn.broker == "runs" else started_ms + 1
        if turn.broker in ("restarts", "is restored"):
            epoch += turn.broker == "restarts"
            for queue, event in zip(queues, turn.events, strict=True):
                queue.restart(event.volatile)
        elif turn.broker == "is replaced":
            epoch, folder = 1, folder + 1
            queues = [Queue(incarnation=11 + number) for number in range(QUEUES)]
        states: list[SubscriptionState] = []
        for number, event in enumerate(turn.events):
            if event.is_rebound:
                made += 1
                queues[number] = Queue(incarnation=made, depth=0, enqueued=0)
            queue = queues[number]
            queue.apply(event)
            if event.is_there:
                states.append(state_of(f"q{number}", queue, event, now_ms))
        polls.append(
            a_poll(
                now_ms, *states, complete=turn.complete, epoch=epoch, instance_id=f"i-{folder}", started_ms=started_ms
            )
        )
    return polls


def state_of(name: str, queue: Queue, event: Event, now_ms: int) -> SubscriptionState:
    credit, usable = event.credit
    said = {} if usable is None else {"usable_credit": usable, "usable_consumers": usable}
    return a_subscription(
        name,
        incarnation=queue.incarnation,
        depth=queue.depth,
        ready=queue.depth // 2,
        in_flight=queue.depth - queue.depth // 2,
        enqueued=queue.enqueued,
        lost_at_restart=queue.lost,
        consumers=event.consumers,
        credit=credit,
        oldest_available_ms=None if event.age_ms is None or not queue.depth else now_ms - event.age_ms,
        **queue.totals,
        **said,
    )


def rows_of(histories: Sequence[Sequence[Turn]]) -> list[Row]:
    rows: list[Row] = []
    for ordinal, turns in enumerate(histories):
        rows += rows_of_polls(polls_of(turns), ordinal)
    return rows


@given(histories=MANY)
@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,  # Spark takes seconds for an example: the same ones in each run
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink what fails would take longer than a test may
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_growth_and_spans_are_those_of_a_plain_loop(spark: SparkSession, histories: list[list[Turn]]) -> None:
    """Restarts, replaced volumes, rebinds, incomplete polls, queues that come and go, clocks that are set. And within
    one life no message is made or forgotten.
    """
    rows = rows_of(histories)
    found = all_figures(spark, rows, THRESHOLDS)
    expected = naive_figures(rows, THRESHOLDS)
    assert set(found) == set(expected)
    for name, one in found.items():
        plain, lives = expected[name]
        assert (one.window, one.stretch, one.recent) == (plain.window, plain.stretch, plain.recent)
        assert one.lives == lives
        assert (one.caught_up_ms, one.progressed_ms, one.consumed_ms) == (
            plain.caught_up_ms,
            plain.progressed_ms,
            plain.consumed_ms,
        )
        assert one.standing.depth == plain.standing.depth
        assert one.work == plain.work
        if lives == 1:
            for span in (one.window, one.stretch, one.recent):
                came, g = span.growth.enqueued, span.growth
                gone = g.acked + g.expired + g.dead_lettered + g.dropped + g.moved
                assert one.standing.depth - span.first_depth == came - gone
