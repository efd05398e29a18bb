"""What every subscription did in a period, from its rollup and the one before it. Pure.

What came between the last snapshot of the period before and the first of this one belongs to this one: it is what both
together have, less what the one before has. So the periods add up. Source: docs/reference/lag-job.md, "History".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock_api.lag_history import PeriodHistory, SubscriptionHistory
from penstock_api.rollup_format import RollupName
from penstock_lag_rules.buckets import bucket_of_rank, midpoint_ms
from penstock_lag_rules.entry import MINIMUM_COMPLETIONS, time_of
from penstock_lag_rules.figures import TOTALS, Growth
from penstock_lag_rules.rollups import LifeRow, QueueKey, Rollup, grown, growth, merged

__all__ = ["period_history"]

_NONE = Growth()


def period_history(
    name: RollupName, rollup: Rollup, before: Rollup | None, hours: int, missing: Sequence[str]
) -> PeriodHistory:
    """The entry of a period. In: its rollup, that of the period just before it if there is one, how many hours are in
    it, and sentences that say what is not.
    """
    both = rollup if before is None else merged([before, rollup])
    grew, sojourn = growth(both), grown(both, "sojourn")
    grew_before = {} if before is None else growth(before)
    sojourn_before = {} if before is None else grown(before, "sojourn")
    of_queue: dict[QueueKey, list[LifeRow]] = {}
    for row in rollup.lives:
        of_queue.setdefault(row.queue, []).append(row)
    return PeriodHistory(
        start=time_of(name.start_ms),
        end=time_of(name.end_ms),
        hours=hours,
        missing=tuple(missing),
        subscriptions=tuple(
            _subscription(
                rows,
                _less(grew[queue], grew_before.get(queue, _NONE)),
                _less_buckets(sojourn[queue], sojourn_before.get(queue, {})),
            )
            for queue, rows in sorted(of_queue.items(), key=lambda pair: (pair[0][1], pair[0][0]))
        ),
    )


def _subscription(rows: Sequence[LifeRow], grew: Growth, sojourn: Mapping[int, int]) -> SubscriptionHistory:
    last = max(rows, key=lambda row: row.last_seq)
    seen_ms = sum(max(row.last_ms - row.first_ms, 0) for row in rows)
    ages = [row.max_age_ms for row in rows if row.max_age_ms is not None]
    return SubscriptionHistory(
        queue_name=last.queue_name,
        ordinal=last.ordinal,
        owner_namespace=last.owner_namespace,
        owner_name=last.owner_name,
        arrived=grew.enqueued,
        accepted=grew.acked,
        redelivered=grew.redelivered,
        expired=grew.expired,
        dead_lettered=grew.dead_lettered,
        dropped=grew.dropped,
        lost_at_restart=grew.lost_at_restart,
        lost=grew.lost,
        moved=grew.moved,
        purged=grew.purged,
        messages=last.last_depth,
        most_messages=max(row.max_depth for row in rows),
        mean_messages=round(sum(row.depth_area for row in rows) / seen_ms) if seen_ms else None,
        oldest_age_seconds=max(ages) // 1000 if ages else None,
        sojourn_p50_millis=_percentile(sojourn, 50),
        sojourn_p95_millis=_percentile(sojourn, 95),
        sojourn_p99_millis=_percentile(sojourn, 99),
        least_consumers=min(row.min_consumers for row in rows),
        most_consumers=max(row.max_consumers for row in rows),
    )


def _percentile(sojourn: Mapping[int, int], percent: int) -> int | None:
    if sum(sojourn.values()) < MINIMUM_COMPLETIONS:
        return None
    bucket = bucket_of_rank(sojourn, percent)
    return None if bucket is None else midpoint_ms(bucket)


def _less(grew: Growth, before: Growth) -> Growth:
    return Growth(**{total: max(getattr(grew, total) - getattr(before, total), 0) for total in TOTALS})


def _less_buckets(grew: Mapping[int, int], before: Mapping[int, int]) -> dict[int, int]:
    less = {bucket: count - before.get(bucket, 0) for bucket, count in grew.items()}
    return {bucket: count for bucket, count in less.items() if count > 0}
