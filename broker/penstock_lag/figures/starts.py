"""Where the spans of each subscription start, and what has to be known of one snapshot and the one before.

This is the only step that sorts snapshots, so it takes few columns along. Everything else is least, most and counts,
which `pieces` adds up where the rows are read.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from penstock_lag.ledger.rows import age_ms
from penstock_lag.ledger.schema import QUEUE
from penstock_lag_rules.thresholds import Thresholds

__all__ = ["START_COLUMNS", "with_starts"]

START_COLUMNS: Final = (
    *("seq", "poll", "time_ms", *QUEUE, "incarnation"),
    *("depth", "scheduled", "stranded", "oldest_available_ms", "acked", "moved", "purged"),
    *("ready", "consumers", "usable_consumers"),
)
"""What this step needs of the subscription rows."""


_IDENTITY: Final = ("instance_start", "incarnation")
"""With its name, what tells a queue from one that was before it: the data folder, and the number of the queue in it."""


def with_starts(subscriptions: DataFrame, polls: DataFrame, thresholds: Thresholds) -> DataFrame:
    """One row per queue: where a subscription was deleted and made anew in the window, one for each, under one name.

    In: subscription rows; polls as penstock_lag.figures.polls.PlacedPoll with their ordinal. Out: ordinal, queue_name,
    instance_start, incarnation, first_seq, last_seq, last_poll, last_ms, stretch_start (0 if it was never caught up)
    and recent_start (seq of the snapshot with which a span begins), caught_up_ms, progressed_ms (null if no snapshot
    shows progress), and window_falls, stretch_falls and recent_falls: how often the depth fell from one snapshot of the
    span to the next; and worked_intervals, worked_accepted and worked_consumer_ms as in
    penstock_lag_rules.figures.Work.
    """
    narrow = subscriptions.join(F.broadcast(polls), ["ordinal", "poll"], how="inner").select(
        # Spark compares the first eight bytes of what it sorts by; names would begin with the same ones.
        F.xxhash64(*QUEUE).alias("sorted_by"),
        *QUEUE,
        *("seq", "poll", "time_ms", "depth", "run_start", *_IDENTITY, "shows_absence"),
        _caught_up(thresholds).alias("caught_up"),
        *("acked", "consumers"),
        _busy(thresholds).alias("busy"),
        sum((F.coalesce(name, F.lit(0)) for name in ("acked", "moved", "purged")), F.lit(0)).alias("taken"),
    )
    by_seq = Window.partitionBy("sorted_by", *QUEUE, *_IDENTITY).orderBy("seq")
    whole = by_seq.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    before = by_seq.rowsBetween(Window.unboundedPreceding, -1)
    # All of these are of one pass over the sorted rows: no window looks at what another one found.
    compared = narrow.select(
        *("sorted_by", *QUEUE, *_IDENTITY),
        *("seq", "poll", "time_ms", "caught_up"),
        (F.col("depth") < F.lag("depth").over(by_seq)).alias("fell"),
        _progressed(by_seq).alias("progressed"),
        _worked_ms(by_seq, thresholds).alias("worked_ms"),
        (F.col("acked") - F.lag("acked").over(by_seq)).alias("accepted"),
        (F.col("consumers") + F.lag("consumers").over(by_seq)).alias("consumers_twice"),
        F.lead("seq", 2).over(by_seq).isNull().alias("among_last_two"),
        (F.col("seq") == F.last("seq").over(whole)).alias("is_last"),
        F.max("time_ms").over(before).alias("latest_before_ms"),
        F.last("time_ms").over(whole).alias("last_ms"),
        F.max(F.when(F.col("caught_up"), F.col("seq"))).over(whole).alias("caught_up_seq"),
    )
    seq, time = F.col("seq"), F.col("time_ms")
    recent_ms = F.col("last_ms") - thresholds.recent_ms
    is_recent = (time >= recent_ms) | F.col("among_last_two")
    stretch_start = F.coalesce("caught_up_seq", F.lit(0))
    after_recent_start = F.col("is_last") | (F.col("latest_before_ms") >= recent_ms)
    grouped = compared.groupBy("sorted_by", *QUEUE, *_IDENTITY).agg(
        F.min(seq).alias("first_seq"),
        F.max(seq).alias("last_seq"),
        F.max("poll").alias("last_poll"),
        F.max("last_ms").alias("last_ms"),
        F.max(stretch_start).alias("stretch_start"),
        F.min(F.when(is_recent, seq)).alias("recent_start"),
        F.max_by(time, F.when(F.col("caught_up"), seq)).alias("caught_up_ms"),
        F.max_by(time, F.when(F.col("progressed"), seq)).alias("progressed_ms"),
        F.count_if("fell").alias("window_falls"),
        F.count_if(F.col("fell") & (seq > stretch_start)).alias("stretch_falls"),
        F.count_if(F.col("fell") & after_recent_start).alias("recent_falls"),
        F.count("worked_ms").alias("worked_intervals"),
        _sum_of_worked(F.col("accepted")).alias("worked_accepted"),
        _sum_of_worked(F.expr("consumers_twice * worked_ms div 2")).alias("worked_consumer_ms"),
    )
    return grouped.drop("sorted_by")


def _caught_up(thresholds: Thresholds) -> Column:
    is_young = F.coalesce(age_ms("oldest_available_ms") <= thresholds.allowed_age_ms, F.lit(False))
    waits = F.col("depth") - F.col("scheduled") + F.coalesce("stranded", F.lit(0))
    return (waits <= thresholds.allowed_messages) | is_young


def _progressed(by_seq: WindowSpec) -> Column:
    """More was accepted, moved or purged than in the snapshot before, or in the first of a life that was just born."""
    more = F.col("taken") > F.lag("taken").over(by_seq)
    return F.when(_same_life(by_seq), more).otherwise(F.col("shows_absence") & (F.col("taken") > 0))


def _same_life(by_seq: WindowSpec) -> Column:
    return F.lag("run_start").over(by_seq).eqNullSafe(F.col("run_start"))


def _busy(thresholds: Thresholds) -> Column:
    usable = F.coalesce("usable_consumers", "consumers")
    has_work = (F.col("ready") > 0) & (F.col("consumers") > 0) & (F.col("consumers") <= usable)
    return has_work & ~_caught_up(thresholds)


def _worked_ms(by_seq: WindowSpec, thresholds: Thresholds) -> Column:
    """How long all consumers were busy since the snapshot before; null if it is not known that they were."""
    elapsed_ms = F.col("time_ms") - F.lag("time_ms").over(by_seq)
    both_busy = F.col("busy") & F.coalesce(F.lag("busy").over(by_seq), F.lit(False))
    return F.when(_same_life(by_seq) & both_busy & elapsed_ms.between(1, thresholds.busy_interval_ms), elapsed_ms)


def _sum_of_worked(of: Column) -> Column:
    return F.coalesce(F.sum(F.when(F.col("worked_ms").isNotNull(), of)), F.lit(0))
