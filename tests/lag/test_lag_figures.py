"""All steps together over histories that Hypothesis makes up: an example is many subscriptions in one run of Spark."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lag.spark_frames import ledger_frame, rows_of_polls
from observer.samples import START_MS, a_poll, a_subscription
from penstock_lag.rules import Figures
from pyspark.sql import SparkSession

from penstock_api.management import SubscriptionState
from penstock_lag.transforms.figures import SELECTED, figures, rows_of_run
from penstock_lag.windows import BrokerWindow
from penstock_observer.rows import Poll, Row

pytestmark = pytest.mark.spark

POLLS = 6
WINDOW = BrokerWindow(0, START_MS, START_MS + 10_000 * (POLLS - 1))


@dataclass(frozen=True)
class Step:
    """What happens between two polls; more can't go than is there."""

    arrived: int
    accepted: int
    expired: int


@dataclass(frozen=True)
class History:
    """One subscription: when it comes, with what, and what happens then."""

    first_poll: int
    backlog: int
    steps: tuple[Step, ...]

    def states(self, name: str) -> list[SubscriptionState | None]:
        """Its state at each poll; None before it is there. `backlog` is from before its first poll."""
        enqueued, acked, expired = self.backlog + 9, 9, 0
        states: list[SubscriptionState | None] = [None] * self.first_poll
        for step in self.steps[: POLLS - self.first_poll]:
            enqueued += step.arrived
            acked += min(step.accepted, enqueued - acked - expired)
            expired += min(step.expired, enqueued - acked - expired)
            depth = enqueued - acked - expired
            states.append(
                a_subscription(
                    name, enqueued=enqueued, delivered=acked, acked=acked, expired=expired, depth=depth, ready=depth
                )
            )
        return states


COUNTS = st.integers(0, 40)
HISTORIES = st.builds(
    History,
    first_poll=st.integers(0, POLLS - 1),
    backlog=COUNTS,
    steps=st.lists(st.builds(Step, COUNTS, COUNTS, COUNTS), min_size=POLLS, max_size=POLLS).map(tuple),
)
MANY = st.lists(HISTORIES, min_size=1, max_size=25)
FEW_EXAMPLES = settings(
    max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def polls_of(histories: Sequence[History]) -> list[Poll]:
    """One poll every ten seconds."""
    columns = [history.states(f"s{number:02d}") for number, history in enumerate(histories)]
    return [
        a_poll(START_MS + 10_000 * poll, *(state for states in columns if (state := states[poll]) is not None))
        for poll in range(POLLS)
    ]


def figures_of(spark: SparkSession, rows: Sequence[Row]) -> list[Figures]:
    """What a run would collect, in a fixed order."""
    found = figures(rows_of_run(ledger_frame(spark, rows), [WINDOW])).collect()
    return sorted((Figures.of(row.asDict()) for row in found), key=lambda one: one.queue_name)


@given(histories=MANY)
@FEW_EXAMPLES
def test_messages_are_conserved(spark: SparkSession, histories: list[History]) -> None:
    """For every subscription: what was there and came is what went and is there; velocity is their difference."""
    found = figures_of(spark, rows_of_polls(polls_of(histories)))
    assert len(found) == len(histories)
    for one, history in zip(found, histories, strict=True):
        last = history.states("s")[-1]
        assert last is not None
        assert one.depth == last.depth
        assert one.first_depth + one.new_enqueued - one.new_acked - one.new_removed == one.depth
        assert one.velocity_per_minute is not None
        assert abs(one.velocity_per_minute - (one.depth - one.first_depth) * 60_000 / one.elapsed_ms) <= 0.5
        assert (one.drain_seconds is not None) == (0 < one.depth < one.first_depth)
        assert one.snapshots == POLLS - history.first_poll


@given(histories=MANY, seed=st.integers(0, 2**32))
@FEW_EXAMPLES
def test_order_and_repetition_of_rows_do_not_matter(spark: SparkSession, histories: list[History], seed: int) -> None:
    """Shuffled, and some of them twice: the same figures."""
    rows = rows_of_polls(polls_of(histories))
    chance = random.Random(seed)
    shuffled = [*rows, *chance.choices(rows, k=len(rows) // 2)]
    chance.shuffle(shuffled)
    assert figures_of(spark, shuffled) == figures_of(spark, rows)


def test_the_columns_are_the_figures_of_the_rules(spark: SparkSession) -> None:
    """So that none is forgotten on either side."""
    frame = figures(rows_of_run(ledger_frame(spark, rows_of_polls([a_poll()])), [WINDOW]))
    assert tuple(frame.columns) == SELECTED
    assert set(SELECTED) == set(Figures.__dataclass_fields__)
