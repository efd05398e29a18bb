"""The pace of a subscription over hours that are past, from rollups: the slow one beside the fast one of the window.

Two rollups are enough for any number of hours, the first and the last of them: totals are cumulative, so what came in
between is in their difference. What was least and most is only known of the hours that were read. Pure. Source:
docs/concepts/lag.md, "What changed".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock_lag_rules.rollups import LifeRow, QueueKey, Rollup, RunKey, born_in, grown, growth, identity, merged

__all__ = ["Pace", "newest_runs", "paces", "paces_between"]

LEAST_MS: Final = 600_000
"""A pace over less than this says nothing of a slow course."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What a subscription did over a span of closed hours."""

    elapsed_ms: int
    """How long it was seen: all its lives together, without the time between them."""
    end_ms: int
    """End of the last of these hours."""
    arrived: int
    """These three are of `elapsed_ms`."""
    accepted: int
    lost: int
    lost_before: int = 0
    """Before the first snapshot of a life that was born in these hours: in no rate, because nobody knows how long that
    took.
    """
    sojourn: dict[int, int]
    """Accepted messages by bucket (penstock_lag_rules.buckets)."""
    min_consumers: int
    """This and the next two are of the hours that were read, not of those between them."""
    max_consumers: int
    max_age_ms: int
    is_whole: bool = True
    """False: a part of these hours is not known, and what was least and most may have been in it."""


def paces(rollup: Rollup, end_ms: int, *, is_whole: bool = True) -> dict[QueueKey, Pace]:
    """Of each subscription, from the rollup of an hour that ends at `end_ms`. Without those that were seen for less
    than 10 minutes. One that was made anew has nothing of the former one. If the rollup is not whole, also without
    those that had several lives: what one of them did in the part that is not there is in no total. Totals of one life
    go on over it, unless it may have begun in that part: then nobody knows how long it took.
    """
    born = born_in(rollup)
    lives = _by_queue(rollup.lives)
    present = {queue: _of_the_last(rows) for queue, rows in lives.items()}
    known = Rollup(rollup.runs, tuple(row for rows in present.values() for row in rows))
    grew, counted, sojourn = growth(known, is_from_zero=False), growth(known), grown(known, "sojourn")
    found: dict[QueueKey, Pace] = {}
    for queue, rows in present.items():
        elapsed_ms = sum(max(row.last_ms - row.first_ms, 0) for row in rows)
        if elapsed_ms >= LEAST_MS and (is_whole or (len(lives[queue]) == 1 and rows[0].life not in born)):
            found[queue] = Pace(
                elapsed_ms=elapsed_ms,
                end_ms=end_ms,
                arrived=grew[queue].enqueued,
                accepted=grew[queue].acked,
                lost=grew[queue].lost,
                lost_before=counted[queue].lost - grew[queue].lost,
                sojourn=sojourn[queue],
                min_consumers=min(row.min_consumers for row in rows),
                max_consumers=max(row.max_consumers for row in rows),
                max_age_ms=max(row.max_age_ms or 0 for row in rows),
                is_whole=is_whole,
            )
    return found


def paces_between(first: Rollup, last: Rollup, end_ms: int, *, is_whole: bool = True) -> dict[QueueKey, Pace]:
    """As `paces`, from the first hour to the last one, which ends at `end_ms`. Only of subscriptions of which one life
    is in both: it lived through the hours between them, so no other life was there in that time. Of a subscription
    that was made in between nobody knows here when that was, and so over which time its totals grew; and one that was
    made anew in the last hour is told of by that hour alone.
    """
    both = merged([first, last])
    lasting = {row.life for row in first.lives} & {row.life for row in last.lives}
    queues = {
        queue for queue, rows in _by_queue(both.lives).items() if any(row.life in lasting for row in _of_the_last(rows))
    }
    found = paces(both, end_ms, is_whole=is_whole)
    return {queue: pace for queue, pace in found.items() if queue in queues}


def newest_runs(rollup: Rollup) -> frozenset[RunKey]:
    """The last run of each broker. Only a rollup that has them, too, can be subtracted from this one."""
    last: dict[int, tuple[int, RunKey]] = {}
    for row in rollup.runs:
        last[row.ordinal] = max(last.get(row.ordinal, (-1, row.run)), (row.last_seq, row.run))
    return frozenset(run for _, run in last.values())


def _of_the_last(rows: Sequence[LifeRow]) -> list[LifeRow]:
    """The lives of the queue that was there last: another one may have had its name before."""
    last = max(rows, key=lambda row: row.last_seq)
    return [row for row in rows if identity(row) == identity(last)]


def _by_queue(rows: Iterable[LifeRow]) -> dict[QueueKey, list[LifeRow]]:
    found: dict[QueueKey, list[LifeRow]] = {}
    for row in rows:
        found.setdefault(row.queue, []).append(row)
    return found
