"""Each step from rows to figures on a real Spark: expected values typed in by hand."""

from __future__ import annotations

from typing import Any

import pytest
from lag.spark_frames import ledger_frame, rows_of_polls
from observer.samples import START_MS, a_poll, a_subscription
from pyspark.sql import SparkSession

from penstock_api.ledger_format import RowKind
from penstock_api.management import DurationHistogram
from penstock_lag.schema import LEDGER
from penstock_lag.transforms import coverage, motion, percentiles
from penstock_lag.transforms.latest import latest
from penstock_lag.transforms.lives import life_ends
from penstock_lag.transforms.rates import increases
from penstock_lag.transforms.rows import of_kind, once, within
from penstock_lag.transforms.trend import trend
from penstock_lag.windows import BrokerWindow
from penstock_observer.rows import Poll

pytestmark = pytest.mark.spark

ORDERS, BILLS = "psub:durable:global:orders", "psub:durable:global:bills"


def at(tenths: int, *states: Any, **broker: Any) -> Poll:
    """The poll so many intervals of ten seconds after the start."""
    return a_poll(START_MS + tenths * 10_000, *states, **broker)


class Steps:
    """The intermediate frames of some polls."""

    def __init__(self, spark: SparkSession, *polls: Poll) -> None:
        rows = ledger_frame(spark, rows_of_polls(polls))
        self.polls = of_kind(rows, RowKind.BROKER)
        self.subscriptions = of_kind(rows, RowKind.SUBSCRIPTION)
        self.brokers = coverage.of_brokers(self.polls)
        self.lives = life_ends(self.subscriptions, coverage.of_epochs(self.polls))


def test_a_row_that_is_there_twice_counts_once(spark: SparkSession) -> None:
    """Rows of two brokers with the same seq are two."""
    rows = rows_of_polls([at(0), at(1)])
    other = rows_of_polls([at(0)], ordinal=1)
    assert once(ledger_frame(spark, [*rows, *rows, *other])).count() == 3


def test_each_broker_has_its_own_window(spark: SparkSession) -> None:
    """Both ends are inside; a broker without a window has no rows."""
    rows = [*rows_of_polls([at(0), at(1), at(2), at(3)]), *rows_of_polls([at(0), at(1)], 1), *rows_of_polls([at(1)], 2)]
    windows = [BrokerWindow(0, START_MS + 10_000, START_MS + 20_000), BrokerWindow(1, START_MS, START_MS)]
    kept = within(ledger_frame(spark, rows), windows).select("ordinal", "time_ms").collect()
    assert sorted((row.ordinal, row.time_ms - START_MS) for row in kept) == [(0, 10_000), (0, 20_000), (1, 0)]
    assert within(ledger_frame(spark, rows), []).count() == 0


def test_coverage_of_a_broker(spark: SparkSession) -> None:
    """Four polls of which the first and the last saw something move; seq of the complete ones."""
    frame = Steps(spark, at(0, complete=False), at(1), at(2), at(4, complete=False)).brokers
    (row,) = frame.collect()
    assert row.asDict() == {
        "ordinal": 0,
        "first_poll_ms": START_MS,
        "last_poll_ms": START_MS + 40_000,
        "elapsed_ms": 40_000,
        "polls": 4,
        "interval_ms": 10_000,
        "first_complete_poll": 2,
        "last_complete_poll": 3,
    }


def test_a_clock_that_goes_back_covers_no_time(spark: SparkSession) -> None:
    """Rather than a negative one."""
    (row,) = Steps(spark, at(5), at(1)).brokers.collect()
    assert (row.first_poll_ms, row.elapsed_ms) == (START_MS + 50_000, 0)


def test_the_latest_state_is_that_of_the_last_row(spark: SparkSession) -> None:
    """One row per queue; a subscription that ended is gone."""
    steps = Steps(
        spark, at(0, a_subscription("orders", depth=1), a_subscription("bills")), at(1, a_subscription(depth=2))
    )
    found = latest(steps.subscriptions, steps.brokers).select("queue_name", "depth").collect()
    assert [(row.queue_name, row.depth) for row in found] == [(ORDERS, 2)]


def test_a_poll_that_is_not_complete_proves_no_absence(spark: SparkSession) -> None:
    """Bills is missing from the last poll, which saw things move: its earlier row counts."""
    both = a_subscription("bills", depth=7), a_subscription("orders", depth=1)
    steps = Steps(spark, at(0, *both), at(1, a_subscription("orders", depth=2), complete=False))
    found = latest(steps.subscriptions, steps.brokers).orderBy("queue_name").select("queue_name", "depth").collect()
    assert [(row.queue_name, row.depth) for row in found] == [(BILLS, 7), (ORDERS, 2)]


def counted(steps: Steps) -> dict[str, int]:
    """The increases of the one queue."""
    (row,) = increases(steps.lives).collect()
    return {name: value for name, value in row.asDict().items() if name not in ("ordinal", "queue_name")}


def test_increases_are_last_minus_first(spark: SparkSession) -> None:
    """What was counted before the window is not in it."""
    first = a_subscription(enqueued=100, delivered=90, redelivered=4, acked=80, expired=3)
    last = a_subscription(
        enqueued=150, delivered=140, redelivered=5, acked=120, expired=4, dead_lettered=2, dropped=3, lost_at_restart=0
    )
    assert counted(Steps(spark, at(0, first), at(1, first), at(2, last))) == {
        "lives": 1,
        "new_enqueued": 50,
        "new_delivered": 50,
        "new_redelivered": 1,
        "new_acked": 40,
        "new_removed": 6,
    }


def test_a_subscription_that_came_inside_the_window_counts_from_zero(spark: SparkSession) -> None:
    """All 30 came after the first poll, which did not have it."""
    steps = Steps(spark, at(0), at(1, a_subscription(enqueued=20)), at(2, a_subscription(enqueued=30)))
    assert counted(steps)["new_enqueued"] == 30


def test_one_that_a_poll_may_have_missed_does_not(spark: SparkSession) -> None:
    """The first poll was not complete: the 20 may be old."""
    steps = Steps(spark, at(0, complete=False), at(1, a_subscription(enqueued=20)), at(2, a_subscription(enqueued=30)))
    assert counted(steps)["new_enqueued"] == 10


def test_a_restart_does_not_count_what_was_recovered(spark: SparkSession) -> None:
    """Totals of another epoch begin anew, with the backlog as enqueued: 10 before, 5 after."""
    before = [at(0, a_subscription(enqueued=100)), at(1, a_subscription(enqueued=110))]
    after = [at(3, a_subscription(enqueued=40), epoch=4), at(4, a_subscription(enqueued=45), epoch=4)]
    found = counted(Steps(spark, *before, *after))
    assert (found["lives"], found["new_enqueued"]) == (2, 15)


def test_a_new_incarnation_begins_from_zero(spark: SparkSession) -> None:
    """A rebind inside one epoch: 10 of the old one, 7 of the new."""
    steps = Steps(
        spark,
        at(0, a_subscription(enqueued=100)),
        at(1, a_subscription(enqueued=110)),
        at(2, a_subscription(enqueued=7, incarnation=12)),
    )
    assert (counted(steps)["lives"], counted(steps)["new_enqueued"]) == (2, 17)


def test_another_data_folder_with_the_same_epoch_is_another_life(spark: SparkSession) -> None:
    """The volume was replaced; nothing is subtracted across it."""
    steps = Steps(
        spark,
        at(0, a_subscription(enqueued=100), epoch=1),
        at(1, a_subscription(enqueued=3), epoch=1, instance_id="i-2"),
        at(2, a_subscription(enqueued=8), epoch=1, instance_id="i-2"),
    )
    assert counted(steps)["new_enqueued"] == 5


def trend_of(spark: SparkSession, *polls: Poll) -> dict[str, Any]:
    """The trend of the one queue."""
    steps = Steps(spark, *polls)
    (row,) = trend(steps.subscriptions, steps.brokers).collect()
    return row.asDict()


def test_extremes_and_turning_points(spark: SparkSession) -> None:
    """Depth 4, 9, 6, 6: it fell once; the last message went at the third poll."""
    found = trend_of(
        spark,
        at(0, a_subscription(depth=4, ready=4, credit=3, consumers=1, oldest_available_ms=START_MS - 1_000)),
        at(1, a_subscription(depth=9, ready=2, credit=0, consumers=2, in_flight=7, oldest_available_ms=START_MS)),
        at(2, a_subscription(depth=6, ready=6, credit=8, acked=3, oldest_available_ms=START_MS + 25_000)),
        at(3, a_subscription(depth=6, ready=6, acked=3, oldest_available_ms=None)),
    )
    assert found == {
        "ordinal": 0,
        "queue_name": ORDERS,
        "snapshots": 4,
        "first_depth": 4,
        "falls": 1,
        "min_depth": 4,
        "min_age_ms": 0,
        "first_age_ms": 1_000,
        "min_ready": 2,
        "min_in_flight": 0,
        "min_credit": 0,
        "max_credit": 8,
        "min_consumers": 0,
        "consumed_ms": START_MS + 10_000,
        "progressed_ms": START_MS + 20_000,
    }


def test_a_queue_that_came_later_began_empty(spark: SparkSession) -> None:
    """So its velocity is not zero; a queue that was always there began with what it had."""
    assert trend_of(spark, at(0), at(1, a_subscription(depth=40)))["first_depth"] == 0
    assert trend_of(spark, at(0, a_subscription(depth=40)), at(1, a_subscription(depth=40)))["first_depth"] == 40


def test_without_any_progress_the_window_is_the_bound(spark: SparkSession) -> None:
    """Never negative ages, and never a consumer."""
    found = trend_of(spark, at(0, a_subscription(oldest_available_ms=START_MS + 99)), at(1, a_subscription()))
    assert (found["progressed_ms"], found["consumed_ms"], found["first_age_ms"]) == (START_MS, None, 0)


@pytest.mark.parametrize(
    ("elapsed_ms", "new", "first_depth", "depth", "expected"),
    [
        # 100 come and 40 go in 20 s: 300 and 120 a minute, the backlog grows by 180
        (20_000, (100, 40), 10, 70, (300, 120, 180, None)),
        # 90 in 60 s from 100 down to 10: 10 more take 6.67 s
        (60_000, (0, 90), 100, 10, (0, 90, -90, 7)),
        (60_000, (5, 5), 7, 7, (5, 5, 0, None)),
        (60_000, (0, 7), 7, 0, (0, 7, -7, None)),  # drained
        # 1 in 40 s is 1.5 a minute, to the nearest, halves away from zero
        (40_000, (1, 0), 0, 1, (2, 0, 2, None)),
        (40_000, (0, 1), 2, 1, (0, 2, -2, 40)),
        (0, (5, 5), 9, 3, (None, None, None, None)),  # a single poll
    ],
)
def test_rates_velocity_and_drain(
    spark: SparkSession,
    elapsed_ms: int,
    new: tuple[int, int],
    first_depth: int,
    depth: int,
    expected: tuple[int | None, ...],
) -> None:
    """Whole numbers per minute and seconds."""
    schema = "elapsed_ms long, new_enqueued long, new_acked long, first_depth long, depth long"
    rows = [(elapsed_ms, *new, first_depth, depth)]
    frame = spark.createDataFrame(rows, schema)  # pyright: ignore[reportUnknownMemberType]
    (row,) = frame.transform(motion.with_rates).transform(motion.with_velocity).transform(motion.with_drain).collect()
    found = (row.arrival_per_minute, row.settled_per_minute, row.velocity_per_minute, row.drain_seconds)
    assert found == expected


def buckets_of(spark: SparkSession, *polls: Poll) -> dict[int, int]:
    """Bucket -> accepted messages of the window."""
    frame = percentiles.window_buckets(Steps(spark, *polls).lives)
    return {row["bucket"]: row["count"] for row in frame.collect()}


def sojourn(buckets: dict[int, int]) -> DurationHistogram:
    """A cumulative histogram."""
    return DurationHistogram(indexes=tuple(sorted(buckets)), counts=tuple(buckets[index] for index in sorted(buckets)))


def test_buckets_of_the_window_are_differences(spark: SparkSession) -> None:
    """Bucket 3 did not grow and is gone, bucket 9 is new."""
    first, last = a_subscription(sojourn=sojourn({3: 5, 4: 1})), a_subscription(sojourn=sojourn({3: 5, 4: 8, 9: 2}))
    assert buckets_of(spark, at(0, first), at(1, last)) == {4: 7, 9: 2}


def test_buckets_of_a_new_incarnation_count_in_full(spark: SparkSession) -> None:
    """2 of the old one, 3 of the new."""
    polls = (
        at(0, a_subscription(sojourn=sojourn({3: 5}))),
        at(1, a_subscription(sojourn=sojourn({3: 7}))),
        at(2, a_subscription(sojourn=sojourn({3: 1, 8: 2}), incarnation=12)),
    )
    assert buckets_of(spark, *polls) == {3: 3, 8: 2}


def test_percentiles_are_the_bucket_of_the_rank(spark: SparkSession) -> None:
    """Of 100 messages the 50th is the last of bucket 1, the 51st the first of bucket 2, the 99th is in bucket 3."""
    polls = (at(0), at(1, a_subscription(sojourn=sojourn({1: 50, 2: 45, 3: 4, 9: 1}))))
    frame = percentiles.percentile_buckets(
        percentiles.window_buckets(Steps(spark, *polls).lives),
        {"p50": 50, "p51": 51, "p95": 95, "p99": 99, "p100": 100},
    )
    (row,) = frame.collect()
    assert (row.completions, row.p50, row.p51, row.p95, row.p99, row.p100) == (100, 1, 2, 2, 3, 9)


def test_percentiles_of_each_queue_are_its_own(spark: SparkSession) -> None:
    """Windows do not run over queues; a queue without completions has no row."""
    states = (
        a_subscription("orders", sojourn=sojourn({1: 1})),
        a_subscription("bills", sojourn=sojourn({7: 3})),
        a_subscription("idle"),
    )
    frame = percentiles.window_buckets(Steps(spark, at(0), at(1, *states)).lives)
    found = percentiles.percentile_buckets(frame, {"p50": 50}).orderBy("queue_name").collect()
    assert [(row.queue_name, row.completions, row.p50) for row in found] == [(BILLS, 3, 7), (ORDERS, 1, 1)]


def test_the_hold_percentile_is_over_the_whole_life(spark: SparkSession) -> None:
    """Of the rows as they stand."""
    steps = Steps(spark, at(0, a_subscription(hold=sojourn({5: 99, 80: 1}))))
    frame = percentiles.cumulative_buckets(steps.subscriptions, "hold")
    (row,) = percentiles.percentile_buckets(frame, {"hold_p99": 99}).collect()
    assert row.hold_p99 == 5


def test_the_ledger_frame_has_the_schema_of_the_contract(spark: SparkSession) -> None:
    """What the data source promises, too."""
    assert ledger_frame(spark, rows_of_polls([at(0)])).schema == LEDGER
