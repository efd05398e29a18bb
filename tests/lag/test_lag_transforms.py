"""Figures of small histories on a real Spark: expected values typed in by hand."""

from __future__ import annotations

from typing import Any

import pytest
from lag.spark_frames import all_figures, ledger_frame, ledger_rows, rows_of_polls
from observer.samples import START_MS, a_poll, a_subscription
from pyspark.sql import SparkSession

from penstock_api.management import Owner
from penstock_api.state_documents import ConsumerTotal, DurationHistogram, RepeatedMessage
from penstock_lag.figures.computation import compute_figures
from penstock_lag.ledger.schema import LEDGER
from penstock_lag.ledger.windows import BrokerWindow
from penstock_lag_rules.figures import (
    ConsumerWork,
    Coverage,
    Duration,
    Figures,
    Growth,
    Percentiles,
    Span,
    Standing,
    Subject,
    Work,
)
from penstock_lag_rules.figures import RepeatedMessage as Repeated
from penstock_lag_rules.thresholds import Thresholds
from penstock_observer.rows import Poll

pytestmark = pytest.mark.spark

ORDERS, BILLS = "psub:durable:global:orders", "psub:durable:global:bills"


def at(tens: float, *states: Any, **broker: Any) -> Poll:
    """The poll so many times ten seconds after the start."""
    return a_poll(ms(tens), *states, **broker)


def ms(tens: float) -> int:
    return START_MS + int(tens * 10_000)


def orders_of(spark: SparkSession, *polls: Poll, thresholds: Thresholds | None = None) -> Figures:
    """The figures of `orders`."""
    return all_figures(spark, rows_of_polls(polls), thresholds)[0, ORDERS]


def waiting(depth: int, since: float, **changes: Any) -> Any:
    """A backlog whose oldest message became available so many times ten seconds after the start."""
    values: dict[str, Any] = {"depth": depth, "ready": depth, "oldest_available_ms": ms(since)}
    return a_subscription(**(values | changes))


def test_each_broker_has_its_own_window(spark: SparkSession) -> None:
    """Both ends are inside; a broker without a window has no rows."""
    polls = [at(step, a_subscription(depth=step)) for step in range(4)]
    rows = [*rows_of_polls(polls), *rows_of_polls(polls, 1), *rows_of_polls(polls, 2)]
    windows = [BrokerWindow(0, ms(1), ms(2)), BrokerWindow(1, ms(0), ms(0))]
    found = compute_figures(spark, ledger_rows(spark, rows), windows, Thresholds())
    assert sorted((one.subject.ordinal, one.window.first_depth, one.standing.depth) for one in found) == [
        (0, 1, 2),
        (1, 0, 0),
    ]
    assert compute_figures(spark, ledger_rows(spark, rows), [], Thresholds()) == []


def test_every_figure_of_a_backlog_that_began_after_an_empty_snapshot_two_polls_ago(spark: SparkSession) -> None:
    """Empty at 20 s; the stretch is the last three snapshots, and what was accepted before is in the window only."""
    owner = Owner(cluster_id="c", kind="Subscription", namespace="shop", name="orders", uid="u-1")
    polls = (
        at(0, waiting(9, -1, in_flight=2, ready=7, consumers=2, credit=5, enqueued=100, delivered=93, acked=91)),
        at(1, waiting(4, 0, consumers=2, credit=6, enqueued=105, delivered=101, acked=101)),
        at(2, a_subscription(consumers=2, credit=9, usable_credit=8, enqueued=110, delivered=110, acked=110)),
        at(3, waiting(20, 2.5, consumers=1, credit=3, usable_credit=0, enqueued=130, delivered=110, acked=110)),
        at(
            4,
            waiting(
                40,
                2.5,
                ready=30,
                in_flight=4,
                scheduled=6,
                stranded=5,
                oldest_hold_ms=ms(3.9),
                first_expires_ms=ms(5),
                last_expires_ms=ms(3.5),
                consumers=0,
                credit=0,
                usable_credit=0,
                usable_consumers=0,
                unused_since_ms=ms(3.8),
                enqueued=152,
                delivered=116,
                redelivered=1,
                acked=110,
                moved=2,
                owner=owner,
                repeated=(RepeatedMessage(id="m-1", delivery_count=7, available_ms=ms(2.5), state="Ready"),),
            ),
        ),
    )
    since_empty = Span(
        elapsed_ms=20_000,
        snapshots=3,
        first_depth=0,
        first_age_ms=None,
        falls=0,
        min_depth=0,
        min_ready=0,
        min_in_flight=0,
        min_consumers=0,
        min_credit=0,
        max_credit=9,
        growth=Growth(enqueued=42, delivered=6, redelivered=1, acked=0, moved=2),
    )
    assert orders_of(spark, *polls, thresholds=Thresholds(recent_ms=20_000)) == Figures(
        subject=Subject(ordinal=0, queue_name=ORDERS, owner_namespace="shop", owner_name="orders", owner_uid="u-1"),
        standing=Standing(
            observed_ms=START_MS + 40_000,
            depth=40,
            ready=30,
            in_flight=4,
            scheduled=6,
            stranded=5,
            age_ms=15_000,
            hold_ms=1_000,
            expires_in_ms=(10_000, 0),
            consumers=0,
            credit=0,
            usable_consumers=0,
            unused_since_ms=START_MS + 38_000,
            repeated=(Repeated(id="m-1", delivery_count=7, age_ms=15_000),),
        ),
        coverage=Coverage(
            last_poll_ms=START_MS + 40_000, elapsed_ms=40_000, polls=5, interval_ms=10_000, clock_steps=0
        ),
        window=Span(
            elapsed_ms=40_000,
            snapshots=5,
            first_depth=9,
            first_age_ms=10_000,
            falls=2,
            min_depth=0,
            min_ready=0,
            min_in_flight=0,
            min_consumers=0,
            min_credit=0,
            max_credit=9,
            growth=Growth(enqueued=52, delivered=23, redelivered=1, acked=19, moved=2),
        ),
        stretch=since_empty,
        recent=since_empty,
        caught_up_ms=START_MS + 20_000,
        progressed_ms=START_MS + 40_000,
        consumed_ms=START_MS + 30_000,
        percentiles=Percentiles(),
        work=Work(intervals=1, accepted=10, consumer_ms=20_000),  # of the first two polls alone
    )


def test_the_recent_span_is_the_young_part_of_the_window(spark: SparkSession) -> None:
    """Consumers dead for 14 minutes: accepted until 60 s, nothing after; recent are the polls of the last 60 s."""
    polls: list[Poll] = []
    for tens in range(91):
        acked, alive = min(tens, 6), tens <= 6
        depth = 50 + 2 * tens - acked
        polls.append(
            at(
                tens,
                waiting(
                    depth, -1, consumers=3 if alive else 0, credit=9 if alive else 0, enqueued=2 * tens, acked=acked
                ),
            )
        )
    one = orders_of(spark, *polls)
    assert (one.caught_up_ms, one.progressed_ms, one.consumed_ms) == (None, ms(6), ms(6))
    assert one.window == one.stretch
    assert (one.window.elapsed_ms, one.window.snapshots, one.window.max_credit) == (900_000, 91, 9)
    assert one.window.growth == Growth(enqueued=180, acked=6)
    assert one.recent == Span(
        elapsed_ms=60_000,
        snapshots=7,
        first_depth=212,  # at 840 s: 50 + 2 * 84 - 6
        first_age_ms=850_000,
        falls=0,
        min_depth=212,
        min_ready=212,
        min_in_flight=0,
        min_consumers=0,
        min_credit=0,
        max_credit=0,
        growth=Growth(enqueued=12),
    )
    assert one.without_consumer_ms == one.without_progress_ms == 840_000


def test_the_recent_span_has_the_last_two_snapshots_however_old(spark: SparkSession) -> None:
    """With a bound of 5 s the last is alone; the one before is its base, also if the last has caught up."""
    thresholds = Thresholds(recent_ms=5_000)
    one = orders_of(
        spark, at(0, waiting(5, -1)), at(1, waiting(6, -1)), at(2, waiting(9, -1, enqueued=3)), thresholds=thresholds
    )
    assert (one.recent.snapshots, one.recent.first_depth, one.recent.growth.enqueued) == (2, 6, 3)
    assert one.stretch.snapshots == 3
    one = orders_of(spark, at(0, waiting(5, -1)), at(1, a_subscription(enqueued=4, acked=9)), thresholds=thresholds)
    assert (one.recent.snapshots, one.stretch.snapshots, one.caught_up_ms) == (2, 1, ms(1))
    assert (one.stretch.growth, one.recent.growth) == (Growth(), Growth(enqueued=4, acked=9))
    assert (one.window.falls, one.stretch.falls, one.recent.falls) == (1, 0, 1)


def test_what_is_caught_up(spark: SparkSession) -> None:
    """At most so many messages, or the oldest at most so old; exactly at the bound it still is."""
    thresholds = Thresholds(allowed_messages=5, allowed_age_ms=1_000)
    for state, caught_up_ms in (
        (waiting(5, -1), ms(0)),
        (waiting(6, -1), None),
        (waiting(6, -0.1), ms(0)),
        (waiting(6, -0.1001), None),
        (waiting(6, 0.1), None),  # the clock went back behind it: its age is not known
        (waiting(6, 0, oldest_available_ms=None), None),
    ):
        assert orders_of(spark, at(0, state), at(1, waiting(9, -1)), thresholds=thresholds).caught_up_ms == caught_up_ms


def test_a_restart_counts_no_recovered_message_but_what_it_lost(spark: SparkSession) -> None:
    """Totals begin anew with the backlog as enqueued; the losses go on from 2 to 7. 10 came before, 5 after."""
    one = orders_of(
        spark,
        at(0, waiting(60, -1, enqueued=100, acked=40, lost_at_restart=2)),
        at(1, waiting(66, -1, enqueued=110, acked=44, lost_at_restart=2)),
        at(3, waiting(61, -1, enqueued=61, lost_at_restart=7), epoch=4),
        at(4, waiting(65, -1, enqueued=66, acked=1, lost_at_restart=7), epoch=4),
    )
    assert one.window.growth == Growth(enqueued=15, acked=5, lost_at_restart=5)
    assert (one.window.growth.lost, one.window.falls, one.window.first_depth) == (5, 1, 60)
    assert (one.progressed_ms, one.coverage.clock_steps) == (ms(4), 0)


def test_another_data_folder_with_the_same_epoch_is_another_life(spark: SparkSession) -> None:
    """The volume was replaced: nothing is subtracted across it, and no loss of the old one is one of the new one."""
    one = orders_of(
        spark,
        at(0, a_subscription(enqueued=100, lost_at_restart=1), epoch=1),
        at(1, a_subscription(enqueued=3, lost_at_restart=9), epoch=1, instance_id="i-2"),
        at(2, a_subscription(enqueued=8, lost_at_restart=9), epoch=1, instance_id="i-2"),
    )
    assert one.window.growth == Growth(enqueued=5)


def test_a_broker_of_a_backup_is_another_life_although_its_epoch_came_before(spark: SparkSession) -> None:
    """Its totals begin anew with the 90 messages of the backup; 5 came before, 4 after."""
    one = orders_of(
        spark,
        at(0, waiting(10, -1, enqueued=100, acked=90), started_ms=ms(-9)),
        at(1, waiting(15, -1, enqueued=105, acked=90), started_ms=ms(-9)),
        at(2, waiting(90, -1, enqueued=90), started_ms=ms(1.5)),
        at(3, waiting(94, -1, enqueued=94), started_ms=ms(1.5)),
    )
    assert one.window.growth == Growth(enqueued=9)


def test_a_new_incarnation_has_nothing_of_the_one_before(spark: SparkSession) -> None:
    """A rebind inside one epoch: the 900 of the old one did not drain, it was caught up once, and it had consumers."""
    one = orders_of(
        spark,
        at(0, a_subscription(enqueued=100, consumers=1)),
        at(1, waiting(900, 0, enqueued=1_000, acked=100, dropped=5, consumers=1)),
        at(2, waiting(7, 1.5, enqueued=7, incarnation=12)),
        at(3, waiting(9, 1.5, enqueued=10, acked=1, incarnation=12)),
        thresholds=Thresholds(stuck_after_ms=10_000),
    )
    assert (one.window.growth, one.window.born) == (Growth(enqueued=3, acked=1), Growth(enqueued=7))
    assert one.window == one.stretch == one.recent
    assert (one.window.first_depth, one.window.snapshots, one.window.elapsed_ms, one.window.falls) == (7, 2, 10_000, 0)
    assert (one.caught_up_ms, one.consumed_ms, one.progressed_ms, one.lives) == (None, None, ms(3), 1)


def test_a_queue_that_was_born_in_the_window_counts_from_zero(spark: SparkSession) -> None:
    """All 30 came after the first poll, which did not have it: 20 of them nobody knows how fast."""
    one = orders_of(
        spark, at(0), at(1, waiting(18, 0.5, enqueued=20, acked=2)), at(2, waiting(26, 0.5, enqueued=30, acked=4))
    )
    assert one.window == one.stretch == one.recent
    assert (one.window.first_depth, one.window.snapshots, one.window.elapsed_ms) == (18, 2, 10_000)
    assert (one.window.growth, one.window.born) == (Growth(enqueued=10, acked=2), Growth(enqueued=20, acked=2))
    assert (one.window.min_depth, one.caught_up_ms) == (18, None)


def test_a_queue_that_an_incomplete_poll_may_have_missed_did_not(spark: SparkSession) -> None:
    """The 20 may be old: they are the baseline."""
    one = orders_of(
        spark,
        at(0, complete=False),
        at(1, waiting(20, 0, enqueued=20)),
        at(2, waiting(30, 0, enqueued=30)),
    )
    assert (one.window.first_depth, one.window.growth) == (20, Growth(enqueued=10))


def test_a_queue_that_ended_is_gone_but_an_incomplete_poll_proves_no_absence(spark: SparkSession) -> None:
    """Bills is missing from the last poll; its last row stays only if that poll saw things move."""
    both = a_subscription("bills", depth=7), a_subscription("orders", depth=1)
    for complete, names in ((True, {(0, ORDERS)}), (False, {(0, ORDERS), (0, BILLS)})):
        polls = at(0, *both), at(1, a_subscription("orders", depth=2), complete=complete)
        assert set(all_figures(spark, rows_of_polls(polls))) == names


def test_moved_is_progress_and_other_ways_out_are_none(spark: SparkSession) -> None:
    """Moved at 10 s; expired, dead-lettered and dropped after."""
    one = orders_of(
        spark,
        at(0, waiting(9, -1)),
        at(1, waiting(8, -1, moved=1)),
        at(2, waiting(5, -1, moved=1, expired=1, dead_lettered=1, dropped=1)),
    )
    assert (one.progressed_ms, one.window.falls) == (ms(1), 2)
    assert one.window.growth == Growth(moved=1, expired=1, dead_lettered=1, dropped=1)
    assert one.window.growth.lost == 3


def test_purged_is_progress(spark: SparkSession) -> None:
    """An administrator took some out, as the live state sees it, too: nobody can accept these any more."""
    polls = at(0, waiting(9, -1)), at(1, waiting(8, -1, purged=1)), at(2, waiting(9, -1, purged=1))
    one = orders_of(spark, *polls)
    assert (one.progressed_ms, one.window.growth) == (ms(1), Growth(purged=1))


def test_without_progress_the_first_snapshot_of_the_window_is_the_bound(spark: SparkSession) -> None:
    one = orders_of(spark, at(0, waiting(9, -1, acked=5)), at(1, waiting(9, -1, acked=5)))
    assert (one.progressed_ms, one.consumed_ms) == (ms(0), None)


def test_a_clock_that_went_back_leaves_ages_unknown_and_covers_no_time(spark: SparkSession) -> None:
    """By 60 s at the third poll: one step. The oldest message seems to come 40 s later: no age, not 0."""
    since = 1
    one = orders_of(
        spark,
        at(3, waiting(5, since, oldest_hold_ms=ms(2))),
        at(4, waiting(6, since, oldest_hold_ms=ms(2))),
        at(-1, waiting(7, since, oldest_hold_ms=ms(2), acked=1)),
        at(0, waiting(8, since, oldest_hold_ms=ms(2), acked=1)),
    )
    assert (one.standing.age_ms, one.standing.hold_ms, one.caught_up_ms) == (None, None, None)
    assert (one.window.elapsed_ms, one.coverage.elapsed_ms, one.coverage.clock_steps) == (0, 0, 1)
    assert (one.window.first_age_ms, one.window.first_depth, one.progressed_ms) == (20_000, 5, ms(-1))
    assert one.recent == one.window


@pytest.mark.parametrize(
    ("tens", "steps"),
    [
        ((0, 1, 100, 101), 0),  # ahead, or 98 polls failed: that can't be told
        ((0, 1, 1, 2), 1),  # no time passed
        ((0, 100, -1, 0), 1),  # ahead and back
        ((3, 2, 1, 0), 3),
    ],
)
def test_steps_of_the_clock(spark: SparkSession, tens: tuple[float, ...], steps: int) -> None:
    one = orders_of(spark, *[at(ten, a_subscription()) for ten in tens])
    assert (one.coverage.clock_steps, one.coverage.polls) == (steps, 4)


def test_a_clock_that_goes_back_while_the_broker_restarts_is_a_step(spark: SparkSession) -> None:
    """By 100 s."""
    state = a_subscription()
    assert orders_of(spark, at(10, state), at(0, state, epoch=4)).coverage.clock_steps == 1


def test_segments_of_an_earlier_release_do_not_say_everything(spark: SparkSession) -> None:
    """Null in the older of two rows: nothing moved or stranded, the credit of all links, usable consumers not known."""
    polls = at(0, waiting(5, -1, credit=4)), at(1, waiting(5, -1, credit=6, usable_credit=5, moved=9))
    rows = rows_of_polls(polls)
    unknown = dict.fromkeys(("moved", "stranded", "usable_credit", "usable_consumers", "repeated"))
    one = all_figures(spark, [{**rows[0], **unknown}, *rows[1:]])[0, ORDERS]
    assert (one.window.growth.moved, one.window.min_credit, one.window.max_credit) == (0, 4, 6)
    one = all_figures(spark, [{**row, **unknown} for row in rows])[0, ORDERS]
    assert (one.standing.stranded, one.standing.usable_consumers, one.standing.repeated) == (0, None, ())
    assert (one.window.growth.moved, one.window.min_credit) == (0, 4)


def sojourn(buckets: dict[int, int], sum_ms: int = 0) -> DurationHistogram:
    """A cumulative histogram."""
    indexes = tuple(sorted(buckets))
    return DurationHistogram(indexes=indexes, counts=tuple(buckets[index] for index in indexes), sum_ms=sum_ms)


def test_percentiles_are_of_the_growth_over_all_lives(spark: SparkSession) -> None:
    """90 in bucket 4 before a restart, 6 in bucket 9 after it; bucket 3 did not grow. Hold is that of the last snapshot
    as it stands.
    """
    one = orders_of(
        spark,
        at(0, a_subscription(sojourn=sojourn({3: 500, 4: 10}), hold=sojourn({2: 1}))),
        at(1, a_subscription(sojourn=sojourn({3: 500, 4: 100}))),
        at(2, a_subscription(sojourn=sojourn({9: 4})), epoch=4),
        at(3, a_subscription(sojourn=sojourn({9: 10}), hold=sojourn({5: 99, 80: 1})), epoch=4),
    )
    assert one.percentiles == Percentiles(completions=96, sojourn_p50=4, sojourn_p95=9, sojourn_p99=9, hold_p99=5)


def test_waits_and_holds_are_of_the_growth_over_all_lives(spark: SparkSession) -> None:
    """90 waits of together 9 s before a restart, 6 of 21 s after it; one hold of 7 s in between."""
    one = orders_of(
        spark,
        at(0, a_subscription(wait=sojourn({3: 500, 4: 10}, 70_000))),
        at(1, a_subscription(wait=sojourn({3: 500, 4: 100}, 79_000), hold=sojourn({100: 1}, 7_000))),
        at(2, a_subscription(wait=sojourn({9: 4}, 20_000)), epoch=4),
        at(3, a_subscription(wait=sojourn({9: 10}, 41_000)), epoch=4),
    )
    assert one.wait == Duration(count=96, sum_ms=30_000, p95=9)
    assert one.hold == Duration(count=1, sum_ms=7_000, p95=100)


def test_consumers_are_compared_between_the_ends_of_a_life(spark: SparkSession) -> None:
    """c-1 got 300 more; c-2 came 5 s after the first poll."""

    def served(tens: int, **delivered: int) -> Poll:
        since = {"c1": ms(-9), "c2": ms(0.5)}
        totals = [
            ConsumerTotal(container=name, links=1, delivered=count, since_ms=since[name])
            for name, count in delivered.items()
        ]
        return at(tens, a_subscription(consumer_totals=tuple(totals)))

    one = orders_of(spark, served(0, c1=100), served(1, c1=350, c2=20), served(2, c1=400, c2=50))
    assert one.consumers == (ConsumerWork("c1", 300, 20_000), ConsumerWork("c2", 50, 15_000))


def test_a_histogram_need_not_be_in_every_row(spark: SparkSession) -> None:
    """Null where it is not repeated: the first and the last that are there count, 90 more in bucket 4, of each life."""
    rows = rows_of_polls(
        [
            at(0, a_subscription()),
            at(1, a_subscription(sojourn=sojourn({4: 10}), hold=sojourn({2: 1}))),
            at(2, a_subscription()),
            at(3, a_subscription(sojourn=sojourn({4: 100}), hold=sojourn({5: 1}))),
            at(4, a_subscription()),
        ]
    )
    absent = dict.fromkeys(f"{name}_{part}" for name in ("sojourn", "hold") for part in ("indexes", "counts", "sum_ms"))
    sparse = [row if row["sojourn_indexes"] else {**row, **absent} for row in rows]
    assert all_figures(spark, sparse)[0, ORDERS].percentiles == Percentiles(
        completions=90, sojourn_p50=4, sojourn_p95=4, sojourn_p99=4, hold_p99=5
    )
    never = [{**row, **absent} for row in rows]
    assert all_figures(spark, never)[0, ORDERS].percentiles == Percentiles()


def test_two_brokers_with_a_queue_of_the_same_name_are_not_mixed_up(spark: SparkSession) -> None:
    rows = [
        *rows_of_polls([at(0, waiting(5, -1)), at(1, waiting(6, -1, enqueued=1))]),
        *rows_of_polls([at(0, waiting(7, -1)), at(2, waiting(9, -1, enqueued=2))], 1),
    ]
    found = all_figures(spark, rows)
    assert (found[0, ORDERS].window.growth, found[1, ORDERS].window.growth) == (Growth(enqueued=1), Growth(enqueued=2))
    assert (found[0, ORDERS].coverage.elapsed_ms, found[1, ORDERS].coverage.elapsed_ms) == (10_000, 20_000)


def test_the_ledger_frame_has_the_schema_of_the_contract(spark: SparkSession) -> None:
    """What the data source promises, too."""
    assert ledger_frame(spark, rows_of_polls([at(0)])).schema == LEDGER
