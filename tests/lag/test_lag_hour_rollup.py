"""The rollup of an hour by Spark: typed from a short story, and equal to one that is made without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from lag.spark_frames import ledger_rows, rows_of_polls
from observer.samples import START_MS, a_poll, a_subscription
from pyspark.sql import SparkSession

from penstock_api.management import Owner
from penstock_api.state_documents import DurationHistogram
from penstock_lag.rollups.hour import compute_rollup
from penstock_lag_rules.figures import Growth
from penstock_lag_rules.rollups import BrokerRow, LifeRow, growth
from penstock_observer.rows import Poll

OWNER = Owner(cluster_id="c", kind="Subscription", namespace="shop", name="orders", uid="u-1")


def story() -> list[Poll]:
    """Three polls 10 s apart, then a restart: 6 messages wait, then 10, then 4; and one after the restart."""
    first = DurationHistogram(indexes=(8,), counts=(1,), sum_ms=2)
    last = DurationHistogram(indexes=(8, 80), counts=(4, 5), sum_ms=9)

    def orders(depth: int, acked: int, sojourn: DurationHistogram, **changes: Any) -> Any:
        age = {"oldest_available_ms": START_MS - 5_000, "enqueued": depth + acked}
        return a_subscription(
            "orders", owner=OWNER, depth=depth, ready=depth, acked=acked, sojourn=sojourn, **(age | changes)
        )

    return [
        a_poll(START_MS, orders(6, 1, first, consumers=2)),
        a_poll(START_MS + 10_000, orders(10, 2, first, consumers=3), a_subscription("bills")),
        a_poll(START_MS + 20_000, orders(4, 9, last, consumers=1), complete=False),
        a_poll(START_MS + 30_000, orders(4, 0, last, enqueued=4, consumers=0, lost_at_restart=2), epoch=4),
    ]


def without_some(rows: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """The second snapshot of orders does not repeat its histogram."""
    names = [f"sojourn_{part}" for part in ("indexes", "counts", "sum_ms")]
    thin = [dict(row) for row in rows]
    second = [row for row in thin if str(row["queue_name"]).endswith("orders")][1]
    second.update(dict.fromkeys(names))
    return thin


@pytest.mark.spark
def test_a_rollup_of_two_runs_of_a_broker(spark: SparkSession) -> None:
    """6 messages for 10 s and 10 for 10 s are 160 message-seconds. The window leaves out what is later."""
    rows = without_some(rows_of_polls([*story(), a_poll(START_MS + 40_000, epoch=4)]))
    made = compute_rollup(spark, ledger_rows(spark, rows), START_MS, START_MS + 30_000)
    assert made.runs == (
        BrokerRow(
            ordinal=0,
            instance="i-1",
            epoch=3,
            started_ms=START_MS - 60_000,
            first_seq=2,
            last_seq=7,
            first_ms=START_MS,
            last_ms=START_MS + 20_000,
            snapshots=3,
            interval_ms=10_000,
            first_complete_seq=2,
        ),
        BrokerRow(
            ordinal=0,
            instance="i-1",
            epoch=4,
            started_ms=START_MS - 60_000,
            first_seq=9,
            last_seq=9,
            first_ms=START_MS + 30_000,
            last_ms=START_MS + 30_000,
            snapshots=1,
            interval_ms=10_000,
            first_complete_seq=9,
        ),
    )
    bills, orders, restarted = made.lives
    assert (bills.queue_name, bills.snapshots, bills.first_seq, bills.depth_area) == (
        "psub:durable:global:bills",
        1,
        4,
        0,
    )
    assert orders == LifeRow(
        ordinal=0,
        queue_name="psub:durable:global:orders",
        instance="i-1",
        epoch=3,
        started_ms=START_MS - 60_000,
        incarnation=11,
        owner_namespace="shop",
        owner_name="orders",
        first_seq=1,
        last_seq=6,
        first_ms=START_MS,
        last_ms=START_MS + 20_000,
        snapshots=3,
        first_depth=6,
        last_depth=4,
        min_depth=4,
        max_depth=10,
        depth_area=160_000,
        max_age_ms=25_000,
        min_consumers=1,
        max_consumers=3,
        last_consumers=1,
        first=Growth(enqueued=7, acked=1),
        last=Growth(enqueued=13, acked=9),
        first_buckets={"sojourn": ((8, 1),), "wait": (), "hold": ()},
        last_buckets={"sojourn": ((8, 4), (80, 5)), "wait": (), "hold": ()},
    )
    assert (restarted.epoch, restarted.first, restarted.depth_area) == (4, Growth(enqueued=4, lost_at_restart=2), 0)


@pytest.mark.spark
def test_a_broker_of_a_backup_is_a_run_of_its_own(spark: SparkSession) -> None:
    """It has the epoch of the one before, and its totals begin anew. Rows of an earlier release do not say when their
    broker started.
    """
    polls = [
        a_poll(START_MS, a_subscription("orders", enqueued=105), started_ms=1_000),
        a_poll(START_MS + 10_000, a_subscription("orders", enqueued=107), started_ms=1_000),
        a_poll(START_MS + 20_000, a_subscription("orders", enqueued=90), started_ms=2_000),
        a_poll(START_MS + 30_000, a_subscription("orders", enqueued=94), started_ms=2_000),
    ]
    made = compute_rollup(spark, ledger_rows(spark, rows_of_polls(polls)), START_MS, START_MS + 30_000)
    assert [(run.epoch, run.started_ms, run.snapshots) for run in made.runs] == [(3, 1_000, 2), (3, 2_000, 2)]
    assert growth(made)[0, "psub:durable:global:orders"] == Growth(enqueued=6)
    old = [{**row, "started_ms": None} for row in rows_of_polls(polls[:2])]
    made = compute_rollup(spark, ledger_rows(spark, old), START_MS, START_MS + 30_000)
    assert [run.started_ms for run in made.runs] == [life.started_ms for life in made.lives] == [0]


@pytest.mark.spark
def test_the_hour_in_which_only_the_observer_was_upgraded_has_one_run(spark: SparkSession) -> None:
    """Its earlier rows do not say when the broker started. 5 messages for 10 s, 7 for 10 s and 9 for 10 s."""
    depths = [{"depth": depth, "ready": depth, "enqueued": 100 + depth} for depth in (5, 7, 9, 9)]
    polls = [a_poll(START_MS + 10_000 * step, a_subscription("orders", **each)) for step, each in enumerate(depths)]
    rows = rows_of_polls(polls)
    rows = [{**row, "started_ms": None} if number < 4 else row for number, row in enumerate(rows)]
    made = compute_rollup(spark, ledger_rows(spark, rows), START_MS, START_MS + 30_000)
    assert [(run.started_ms, run.snapshots) for run in made.runs] == [(START_MS - 60_000, 4)]
    assert [(life.snapshots, life.depth_area) for life in made.lives] == [(4, 210_000)]
    assert growth(made)[0, "psub:durable:global:orders"] == Growth(enqueued=4)


@pytest.mark.spark
def test_an_hour_without_a_subscription_has_polls_only(spark: SparkSession) -> None:
    """So that it is known to be empty."""
    rows = rows_of_polls([a_poll(START_MS), a_poll(START_MS + 10_000)])
    made = compute_rollup(spark, ledger_rows(spark, rows), 0, 10**15)
    assert (made.lives, [run.snapshots for run in made.runs]) == ((), [2])
