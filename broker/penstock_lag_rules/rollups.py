"""What is kept of the lives of subscriptions in an hour, and how hours become a day, exactly.

Pure. The order in which rollups are merged, and whether one is given twice, changes nothing; merging the merged gives
the same as merging all at once, as long as each group is of hours that follow each other. That is why a row has its
ends and not its growth: what happened between two hours is in the difference of their ends. Source:
penstock_api.rollup_format; docs/concepts/lag.md, "Totals and lives".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Final, TypeVar

from penstock_api.ledger_format import HISTOGRAMS
from penstock_lag_rules.figures import TOTALS, Growth

__all__ = [
    "LOST",
    "BrokerRow",
    "Buckets",
    "LifeKey",
    "LifeRow",
    "QueueKey",
    "Rollup",
    "RunKey",
    "born_in",
    "grown",
    "growth",
    "identity",
    "merged",
    "with_known_starts",
]

LOST: Final = "lost_at_restart"
"""The broker goes on counting it after a restart, so it grows over all lives of an incarnation."""

Buckets = tuple[tuple[int, int], ...]
"""A cumulative histogram: bucket and number of messages, ascending."""
RunKey = tuple[int, str, int, int]
"""Ordinal, data folder, epoch, and start of a broker."""
QueueKey = tuple[int, str]
"""Ordinal and name of the queue."""
LifeKey = tuple[int, str, str, int, int, int]
"""Ordinal, queue, data folder, epoch and start of the broker, incarnation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRow:
    """One run of a broker: the polls of one data folder and one start."""

    ordinal: int
    instance: str
    epoch: int
    started_ms: int = 0
    """When the broker started; 0: not known."""
    first_seq: int
    last_seq: int
    first_ms: int
    last_ms: int
    snapshots: int
    """Number of polls."""
    interval_ms: int
    first_complete_seq: int | None
    """What came after this poll, and was not in it, was born after it."""
    clock_steps: int = 0
    """How often it was seen that the broker's clock was set: by the observer before a poll, or by a time that is not
    after that of the poll before. If ever, nobody knows how much time has passed from one time to another.
    """

    @property
    def run(self) -> RunKey:
        """Which run it is."""
        return self.ordinal, self.instance, self.epoch, self.started_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeRow:
    """One life of a subscription: its ends, and what was least and most."""

    ordinal: int
    queue_name: str
    instance: str
    epoch: int
    started_ms: int = 0
    """As in BrokerRow."""
    incarnation: int
    owner_namespace: str | None = None
    owner_name: str | None = None
    first_seq: int
    last_seq: int
    first_ms: int
    last_ms: int
    snapshots: int
    first_depth: int
    last_depth: int
    min_depth: int
    max_depth: int
    depth_area: int
    """Message-milliseconds: each depth counts until the next snapshot, the last one for nothing."""
    max_age_ms: int | None
    min_consumers: int
    max_consumers: int
    last_consumers: int
    first: Growth
    """The totals as they stood in the first snapshot."""
    last: Growth
    first_buckets: Mapping[str, Buckets] = field(default_factory=dict[str, Buckets])
    """The first histogram of each kind that a row had; a kind without any is absent."""
    last_buckets: Mapping[str, Buckets] = field(default_factory=dict[str, Buckets])

    @property
    def run(self) -> RunKey:
        """The run of the broker in which it was."""
        return self.ordinal, self.instance, self.epoch, self.started_ms

    @property
    def queue(self) -> QueueKey:
        """Whose life it is."""
        return self.ordinal, self.queue_name

    @property
    def life(self) -> LifeKey:
        """Which life it is."""
        return self.ordinal, self.queue_name, self.instance, self.epoch, self.started_ms, self.incarnation


Row = TypeVar("Row", BrokerRow, LifeRow)


@dataclass(frozen=True, slots=True)
class Rollup:
    """The rows of one period, in order of their keys."""

    runs: tuple[BrokerRow, ...] = ()
    lives: tuple[LifeRow, ...] = ()


def merged(parts: Iterable[Rollup]) -> Rollup:
    """One rollup of all of them: one row for each run and for each life."""
    found = with_known_starts(parts)
    runs = sorted(_once(row for part in found for row in part.runs), key=lambda row: (*row.run, row.first_seq))
    lives = sorted(_once(row for part in found for row in part.lives), key=lambda row: (*row.life, row.first_seq))
    return Rollup(
        runs=tuple(_one_run(list(own)) for _, own in groupby(runs, key=lambda row: row.run)),
        lives=tuple(_one_life(list(own)) for _, own in groupby(lives, key=lambda row: row.life)),
    )


def with_known_starts(parts: Iterable[Rollup]) -> list[Rollup]:
    """The same rollups, in which a row of which it is not known when its broker started says what another row knows.

    Rows that an observer of an earlier release wrote do not say it. They are of the run of the same data folder and
    epoch that had started by then; if it started later, the folder was restored from a backup in between.
    """
    found = list(parts)
    rows: list[BrokerRow | LifeRow] = []
    for part in found:
        rows += [*part.runs]
        rows += [*part.lives]
    starts: dict[tuple[int, str, int], set[int]] = {}
    for row in rows:
        if row.started_ms:
            starts.setdefault(row.run[:3], set()).add(row.started_ms)
    if not starts or all(row.started_ms for row in rows):
        return found

    def told(row: Row) -> Row:
        known = [start for start in starts.get(row.run[:3], ()) if start <= row.first_ms]
        return row if row.started_ms or not known else replace(row, started_ms=max(known))

    return [Rollup(tuple(map(told, part.runs)), tuple(map(told, part.lives))) for part in found]


def growth(rollup: Rollup, *, is_from_zero: bool = True) -> dict[QueueKey, Growth]:
    """By how much the totals of each subscription grew in the rollup, all its lives together.

    A life that was born in it counts from zero, or, for a rate, from its first snapshot: nobody knows how long it took
    to come to that. The messages that a restart lost are counted on from life to life.
    """
    born = born_in(rollup) if is_from_zero else frozenset[LifeKey]()
    return {
        queue: _growth(sorted(own, key=lambda row: row.first_seq), born)
        for queue, own in _by_queue(rollup.lives).items()
    }


def grown(rollup: Rollup, name: str) -> dict[QueueKey, dict[int, int]]:
    """What came into each bucket of a kind of histogram (ledger_format.HISTOGRAMS), all lives together."""
    born = born_in(rollup)
    total: dict[QueueKey, dict[int, int]] = {}
    for row in rollup.lives:
        counts = total.setdefault(row.queue, {})
        base = () if row.life in born else row.first_buckets.get(name, ())
        for sign, buckets in ((1, row.last_buckets.get(name, ())), (-1, base)):
            for bucket, count in buckets:
                counts[bucket] = counts.get(bucket, 0) + sign * count
    return {queue: {at: count for at, count in own.items() if count > 0} for queue, own in total.items()}


def born_in(rollup: Rollup) -> frozenset[LifeKey]:
    """The lives before which a complete poll of the same run did not have them: their totals count from zero."""
    complete = {row.run: row.first_complete_seq for row in rollup.runs}
    return frozenset(
        row.life for row in rollup.lives if (seq := complete.get(row.run)) is not None and seq < row.first_seq
    )


def _growth(rows: Sequence[LifeRow], born: frozenset[LifeKey]) -> Growth:
    grew = dict.fromkeys(TOTALS, 0)
    for number, row in enumerate(rows):
        goes_on = number > 0 and identity(rows[number - 1]) == identity(row)
        for total in TOTALS:
            base = 0 if row.life in born else getattr(row.first, total)
            if total == LOST and goes_on:
                base = min(rows[number - 1].last.lost_at_restart, row.first.lost_at_restart)
            # Never below 0, as in `history`: the data folder may be of a backup, whose broker starts as one did before.
            grew[total] += max(getattr(row.last, total) - base, 0)
    return Growth(**grew)


def identity(row: LifeRow) -> tuple[str, int]:
    """Of the queue: the same over a restart of the broker, another one for another queue under the same name."""
    return row.instance, row.incarnation


def _by_queue(rows: Iterable[LifeRow]) -> dict[QueueKey, list[LifeRow]]:
    found: dict[QueueKey, list[LifeRow]] = {}
    for row in rows:
        found.setdefault(row.queue, []).append(row)
    return found


def _once(rows: Iterable[Row]) -> list[Row]:
    """A row that is there twice counts once; of two with the same ends, the one that saw more counts."""
    best: dict[tuple[object, int, int], Row] = {}
    for row in rows:
        key = (row.life if isinstance(row, LifeRow) else row.run, row.first_seq, row.last_seq)
        if key not in best or best[key].snapshots < row.snapshots:
            best[key] = row
    return list(best.values())


def _one_run(rows: Sequence[BrokerRow]) -> BrokerRow:
    """Of rows in the order of their first poll."""
    last = max(rows, key=lambda row: row.last_seq)
    complete = [row.first_complete_seq for row in rows if row.first_complete_seq is not None]
    return replace(
        rows[0],
        last_seq=last.last_seq,
        last_ms=last.last_ms,
        interval_ms=last.interval_ms,
        snapshots=sum(row.snapshots for row in rows),
        first_complete_seq=min(complete, default=None),
        clock_steps=sum(row.clock_steps for row in rows) + sum(_went_back(a, b) for a, b in pairwise(rows)),
    )


def _went_back(before: BrokerRow, after: BrokerRow) -> bool:
    """The clock, between the last poll of one row and the first of the next."""
    return before.last_seq < after.first_seq and after.first_ms <= before.last_ms


def _one_life(rows: Sequence[LifeRow]) -> LifeRow:
    """Of rows in the order of their first snapshot."""
    first, last = rows[0], max(rows, key=lambda row: row.last_seq)
    ages = [row.max_age_ms for row in rows if row.max_age_ms is not None]
    return replace(
        first,
        owner_namespace=last.owner_namespace,
        owner_name=last.owner_name,
        last_seq=last.last_seq,
        last_ms=last.last_ms,
        snapshots=sum(row.snapshots for row in rows),
        last_depth=last.last_depth,
        min_depth=min(row.min_depth for row in rows),
        max_depth=max(row.max_depth for row in rows),
        depth_area=sum(row.depth_area for row in rows) + sum(_between(a, b) for a, b in pairwise(rows)),
        max_age_ms=max(ages, default=None),
        min_consumers=min(row.min_consumers for row in rows),
        max_consumers=max(row.max_consumers for row in rows),
        last_consumers=last.last_consumers,
        last=last.last,
        first_buckets={name: found for name in HISTOGRAMS if (found := _first(rows, name)) is not None},
        last_buckets={name: found for name in HISTOGRAMS if (found := _last(rows, name)) is not None},
    )


def _between(before: LifeRow, after: LifeRow) -> int:
    """The area from the last snapshot of one row to the first of the next; nothing if the clock went back."""
    return before.last_depth * max(after.first_ms - before.last_ms, 0) if before.last_seq < after.first_seq else 0


def _first(rows: Sequence[LifeRow], name: str) -> Buckets | None:
    return next((row.first_buckets[name] for row in rows if name in row.first_buckets), None)


def _last(rows: Sequence[LifeRow], name: str) -> Buckets | None:
    ordered = sorted(rows, key=lambda row: row.last_seq, reverse=True)
    return next((row.last_buckets[name] for row in ordered if name in row.last_buckets), None)
