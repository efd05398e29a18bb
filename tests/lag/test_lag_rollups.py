"""Rollups of lives: hours merged are the day, in any order and with any repetition, and no message is lost in them."""

from __future__ import annotations

import importlib
import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_api.rollup_format import TOTALS as FORMAT_TOTALS
from penstock_api.rollup_format import RollupAbout
from penstock_lag.rollups.files import BadRollup, read_about, read_rollup, write_rollup
from penstock_lag_rules.figures import TOTALS, Growth
from penstock_lag_rules.rollups import BrokerRow, LifeRow, Rollup, grown, growth, merged
from penstock_observer.results import RejectedResult
from penstock_observer.rollups import check_rollup

pq: Any = importlib.import_module("pyarrow.parquet")  # it ships no type information

HOUR_MS = 3_600_000
ABOUT = RollupAbout(broker="main", namespace="shop", name="hour-2023-11-14T22.parquet", ordinals=(0,), hours=1)


def a_life(**changes: Any) -> LifeRow:
    """One snapshot of an empty queue at 0 ms, seq 10, unless told otherwise."""
    values: dict[str, Any] = {
        "ordinal": 0,
        "queue_name": "q",
        "instance": "i",
        "epoch": 1,
        "incarnation": 7,
        "first_seq": 10,
        "last_seq": 10,
        "first_ms": 0,
        "last_ms": 0,
        "snapshots": 1,
        "first_depth": 0,
        "last_depth": 0,
        "min_depth": 0,
        "max_depth": 0,
        "depth_area": 0,
        "max_age_ms": None,
        "min_consumers": 1,
        "max_consumers": 1,
        "last_consumers": 1,
        "first": Growth(),
        "last": Growth(),
    }
    return LifeRow(**(values | changes))


def a_run(first_complete_seq: int | None = 1, **changes: Any) -> BrokerRow:
    """Polls of the same broker, of which the first one is complete."""
    values: dict[str, Any] = {
        "ordinal": 0,
        "instance": "i",
        "epoch": 1,
        "first_seq": 1,
        "last_seq": 100,
        "first_ms": 0,
        "last_ms": 0,
        "snapshots": 10,
        "interval_ms": 10_000,
        "first_complete_seq": first_complete_seq,
    }
    return BrokerRow(**(values | changes))


Snapshot = tuple[int, int, int, int, int]
"""Time, arrivals, accepted, expired since the one before, and consumers."""


@st.composite
def snapshots(draw: st.DrawFn) -> list[LifeRow]:
    """The single snapshots of one life over some hours, as rows of one snapshot each."""
    steps = draw(
        st.lists(
            st.tuples(
                st.integers(1, 2 * HOUR_MS), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 3)
            ),
            min_size=1,
            max_size=12,
        )
    )
    name = draw(st.sampled_from(["a", "b"]))
    rows: list[LifeRow] = []
    now, depth, enqueued, acked, expired = 0, 0, 0, 0, 0
    for number, (wait, arrive, accept, expire, consumers) in enumerate(steps):
        now, depth, enqueued = now + wait, depth + arrive, enqueued + arrive
        taken = min(accept, depth)
        gone = min(expire, depth - taken)
        acked, expired, depth = acked + taken, expired + gone, depth - taken - gone
        totals = Growth(enqueued=enqueued, delivered=acked, acked=acked, expired=expired)
        buckets = {"sojourn": ((3, acked),)} if number % 2 else {}
        rows.append(
            a_life(
                queue_name=name,
                first_seq=10 * number + 10,
                last_seq=10 * number + 10,
                first_ms=now,
                last_ms=now,
                **{f"{at}_depth": depth for at in ("first", "last", "min", "max")},
                max_age_ms=number if depth else None,
                **{f"{at}_consumers": consumers for at in ("min", "max", "last")},
                first=totals,
                last=totals,
                first_buckets=buckets,
                last_buckets=buckets,
            )
        )
    return rows


def hours_of(rows: Sequence[LifeRow]) -> list[Rollup]:
    """One rollup for each hour, merged from its single snapshots."""
    of_hour: dict[int, list[LifeRow]] = {}
    for row in rows:
        of_hour.setdefault(row.first_ms // HOUR_MS, []).append(row)
    return [merged([Rollup((), tuple(own))]) for own in of_hour.values()]


@given(snapshots(), st.data())
def test_hours_merged_are_the_day(rows: list[LifeRow], data: st.DataObject) -> None:
    """In any order, with any of them twice, and also if neighbours were merged before."""
    day = merged([Rollup((), tuple(rows))])
    hours = hours_of(rows)
    assert merged(data.draw(st.permutations(hours))) == day
    assert merged([*hours, data.draw(st.sampled_from(hours))]) == day
    cut = data.draw(st.integers(0, len(hours)))
    assert merged([merged(hours[cut:]), merged(hours[:cut])]) == day
    assert merged([day, day]) == day


@given(snapshots())
def test_what_arrived_went_or_is_there(rows: list[LifeRow]) -> None:
    """Arrivals minus accepted minus lost is the change of the depth, over the hours together; and the area is that of a
    step function, added up in another way.
    """
    day = merged(hours_of(rows))
    (grew,) = growth(day).values()
    (life,) = day.lives
    assert grew.enqueued - grew.acked - grew.lost == life.last_depth - life.first_depth
    area = 0
    for number, row in enumerate(rows[1:], start=1):
        area += rows[number - 1].last_depth * (row.first_ms - rows[number - 1].first_ms)
    assert life.depth_area == area


HOUR_US = 1000 * HOUR_MS
MOMENTS = st.integers(0, 4 * HOUR_US) | st.tuples(st.integers(0, 4), st.integers(-1, 1)).map(
    lambda near: max(near[0] * HOUR_US + near[1], 0)
)
"""Microseconds; often on the hour, or one before or behind it."""

Entries = list[tuple[int, int]]
"""When each message came, and when it left."""


@st.composite
def watched_queues(draw: st.DrawFn) -> tuple[Entries, list[int]]:
    """Messages of a queue, and when it was looked at: at each event between two moments, at both, and at others."""
    entries = [(min(pair), max(pair)) for pair in draw(st.lists(st.tuples(MOMENTS, MOMENTS), max_size=10))]
    ends = draw(st.tuples(MOMENTS, MOMENTS))
    events = [time for pair in entries for time in pair if min(ends) < time < max(ends)]
    others = [time for time in draw(st.lists(MOMENTS, max_size=3)) if min(ends) < time < max(ends)]
    return entries, sorted([*ends, *events, *others])


def looks_at(entries: Entries, times: Sequence[int], epoch: int) -> list[LifeRow]:
    """One snapshot at each time. The rows have microseconds in their milliseconds: merging does not know the unit."""
    rows: list[LifeRow] = []
    for seq, time in enumerate(times, 1000 * epoch):
        depth = sum(1 for came, left in entries if came <= time < left)
        depths = {f"{at}_depth": depth for at in ("first", "last", "min", "max")}
        rows.append(a_life(epoch=epoch, first_seq=seq, last_seq=seq, first_ms=time, last_ms=time, **depths))
    return rows


@given(st.lists(watched_queues(), min_size=1, max_size=3), st.data())
def test_the_area_under_the_depth_is_the_time_that_all_messages_waited(
    lives: list[tuple[Entries, list[int]]], data: st.DataObject
) -> None:
    """To the microsecond: the area of the steps of each life, over its hours in any order, against the overlap of each
    message with the time from its first to its last snapshot.
    """
    hours: list[list[Rollup]] = []
    for epoch, (entries, times) in enumerate(lives):
        of_hour = {time // HOUR_US: list[LifeRow]() for time in times}
        for row in looks_at(entries, times, epoch):
            of_hour[row.first_ms // HOUR_US].append(row)
        hours.append(
            [merged([Rollup((), (row,)) for row in data.draw(st.permutations(own))]) for own in of_hour.values()]
        )
    cuts = [data.draw(st.integers(0, len(own))) for own in hours]
    neighbours = [merged(part) for own, cut in zip(hours, cuts, strict=True) for part in (own[:cut], own[cut:])]
    single = [hour for own in hours for hour in own]
    waited = {
        epoch: sum(max(min(left, times[-1]) - max(came, times[0]), 0) for came, left in entries)
        for epoch, (entries, times) in enumerate(lives)
    }
    for parts in (single, neighbours):
        day = merged(data.draw(st.permutations(parts)))
        assert {life.epoch: life.depth_area for life in day.lives} == waited


@settings(max_examples=30)
@given(snapshots())
def test_a_rollup_is_read_as_it_was_written(rows: list[LifeRow]) -> None:
    """And the same rows give the same bytes."""
    made = merged([Rollup((a_run(),), tuple(rows))])
    content = write_rollup(made, ABOUT)
    assert read_rollup(content) == made
    assert read_about(content) == ABOUT
    assert write_rollup(made, ABOUT) == content


def test_a_gap_between_two_hours_counts_in_the_area() -> None:
    """5 messages from 3,590 s on; the next snapshot is 20 s later: 100 message-seconds between them."""
    before = a_life(first_ms=3_590_000, last_ms=3_590_000, first_depth=5, last_depth=5, max_depth=5, min_depth=5)
    after = a_life(first_seq=20, last_seq=20, first_ms=3_610_000, last_ms=3_610_000)
    (life,) = merged([Rollup((), (after,)), Rollup((), (before,))]).lives
    assert (life.depth_area, life.min_depth, life.max_depth, life.snapshots) == (100_000, 0, 5, 2)


def test_a_life_that_was_born_within_the_rollup_counts_from_zero() -> None:
    """Only if an earlier complete poll of the same run did not have it: here that of the hour before."""
    born = a_life(first=Growth(enqueued=40), last=Growth(enqueued=100), first_seq=200, last_seq=300)
    unseen = Rollup((a_run(first_complete_seq=210, first_seq=190),), (born,))
    assert growth(unseen)[0, "q"].enqueued == 60
    assert growth(merged([unseen, Rollup((a_run(first_complete_seq=5),))]))[0, "q"].enqueued == 100
    other_start = Rollup((a_run(first_complete_seq=5, epoch=0),))
    assert growth(merged([unseen, other_start]))[0, "q"].enqueued == 60


def test_a_broker_of_a_backup_is_another_run_although_its_epoch_came_before() -> None:
    """30 came before, and 4 after; the totals of the second life begin with what the backup had. So in a day, too, and
    what the first run did not have was not born in the second one.
    """
    before = a_life(started_ms=100, first_seq=1, first=Growth(enqueued=50), last=Growth(enqueued=80))
    after = a_life(started_ms=900, first_seq=20, last_seq=30, first=Growth(enqueued=60), last=Growth(enqueued=64))
    hours = [Rollup((a_run(started_ms=100),), (before,)), Rollup((a_run(None, started_ms=900),), (after,))]
    written = [read_rollup(write_rollup(hour, ABOUT)) for hour in hours]
    assert growth(merged(written))[0, "q"].enqueued == 34
    assert [run.started_ms for run in merged(written).runs] == [100, 900]


def test_a_run_goes_on_where_only_its_later_rows_say_when_it_began() -> None:
    """The observer was upgraded at 5,000, its broker was not: 20 came before, 3 between, and 4 after. Later
    the folder was restored from a backup, and the start after that has the same epoch.
    """
    old = a_life(first_seq=1, first_ms=2_000, last_ms=4_000, first=Growth(enqueued=50), last=Growth(enqueued=70))
    new = a_life(
        started_ms=100, first_seq=20, last_seq=30, first_ms=6_000, first=Growth(enqueued=73), last=Growth(enqueued=77)
    )
    restored = a_life(started_ms=9_000, first_seq=40, last_seq=50, first_ms=9_500)
    runs = [
        a_run(first_ms=2_000, last_seq=10),
        a_run(started_ms=100, first_seq=20, first_ms=6_000),
        a_run(started_ms=9_000, first_seq=40, first_ms=9_500),
    ]
    hours = [Rollup((run,), (life,)) for run, life in zip(runs, (old, new, restored), strict=True)]
    for day in (merged(hours), merged([merged(hours[:2]), hours[2]]), merged([hours[0], merged(hours[1:])])):
        assert [(run.started_ms, run.first_seq, run.snapshots) for run in day.runs] == [(100, 1, 20), (9_000, 40, 10)]
        assert [(life.started_ms, life.first_seq) for life in day.lives] == [(100, 1), (9_000, 40)]
        assert growth(day)[0, "q"].enqueued == 27


@pytest.mark.parametrize("other", [{"started_ms": 2_001}, {"epoch": 2}, {"instance": "j"}, {"ordinal": 1}])
def test_a_start_that_can_t_be_that_of_an_earlier_row_is_not_given_to_it(other: dict[str, Any]) -> None:
    """Of a backup, of another epoch, of another folder, of another broker."""
    old = Rollup((a_run(first_ms=2_000),), (a_life(first_ms=2_000),))
    changes = {"started_ms": 100, "first_seq": 200, "first_ms": 6_000, "last_seq": 300} | other
    new = Rollup((a_run(**changes),), (a_life(**changes),))
    day = merged([old, new])
    assert sorted(run.started_ms for run in day.runs) == [0, changes["started_ms"]]
    assert sorted(life.started_ms for life in day.lives) == [0, changes["started_ms"]]


def test_that_a_clock_was_set_is_kept_however_hours_are_merged() -> None:
    """Two polls saw it, and from the second hour to the third the time goes back."""
    hours = [
        Rollup((a_run(first_seq=1, last_seq=9, first_ms=0, last_ms=900, clock_steps=1),)),
        Rollup((a_run(first_seq=10, last_seq=19, first_ms=1_000, last_ms=1_900, clock_steps=1),)),
        Rollup((a_run(first_seq=20, last_seq=29, first_ms=1_900, last_ms=2_500),)),
        Rollup((a_run(first_seq=30, last_seq=39, first_ms=2_600, last_ms=3_500),)),
    ]
    written = [read_rollup(write_rollup(hour, ABOUT)) for hour in hours]
    for day in (merged(written), merged([merged(written[:2]), merged(written[2:])]), merged(reversed(written))):
        assert [run.clock_steps for run in day.runs] == [3]
    assert [run.clock_steps for run in merged(hours[2:]).runs] == [0]


def test_what_a_restart_lost_is_counted_on() -> None:
    """3 were lost before; the restart lost 4 more, of which the first snapshot after it tells. Arrivals start again."""
    before = a_life(first=Growth(enqueued=50, lost_at_restart=3), last=Growth(enqueued=80, lost_at_restart=3))
    after = a_life(
        epoch=2,
        first_seq=20,
        last_seq=30,
        first=Growth(enqueued=6, lost_at_restart=7),
        last=Growth(enqueued=10, lost_at_restart=7),
    )
    grew = growth(Rollup((), (before, after)))[0, "q"]
    assert (grew.enqueued, grew.lost_at_restart) == (34, 4)


def test_histograms_are_subtracted_at_the_ends_of_each_life() -> None:
    """5 and 2 messages in bucket 3 of two lives, of which the first had 4 of them before."""
    before = a_life(first_buckets={"sojourn": ((3, 4),)}, last_buckets={"sojourn": ((3, 9), (8, 1))})
    after = a_life(epoch=2, first_seq=20, last_seq=20, last_buckets={"sojourn": ((3, 2),)})
    rollup = Rollup((a_run(epoch=2, first_complete_seq=15),), (before, after))
    assert grown(rollup, "sojourn") == {(0, "q"): {3: 7, 8: 1}}
    assert grown(rollup, "wait") == {(0, "q"): {}}


def test_of_an_hour_that_is_there_twice_the_one_that_saw_more_counts() -> None:
    """Its segments were thinned before it was computed again."""
    full, thin = a_life(last_seq=90, snapshots=9, max_depth=8), a_life(last_seq=90, snapshots=3, max_depth=5)
    assert merged([Rollup((), (thin,)), Rollup((), (full,))]).lives == (full,)


def test_a_part_of_the_columns_gives_the_rest_as_nothing() -> None:
    """Whoever needs totals alone does not decode histograms."""
    row = a_life(last=Growth(acked=5), last_buckets={"hold": ((1, 5),)}, last_depth=3)
    content = write_rollup(Rollup((), (row,)), ABOUT)
    (read,) = read_rollup(content, frozenset({"queue_name", "incarnation", "last_acked"})).lives
    assert read.last == Growth(acked=5)
    assert read.last_buckets == {}
    assert read == replace(row, last_depth=0, last_buckets={}, min_consumers=0, max_consumers=0, last_consumers=0)


def test_a_rollup_of_an_earlier_release_is_read() -> None:
    """It has no `purged`, and nothing was purged then as far as one can know; nor does it say when brokers started."""
    row = a_life(started_ms=7, first=Growth(acked=2, purged=1), last=Growth(acked=5, purged=4))
    written = pq.read_table(io.BytesIO(write_rollup(Rollup((), (row,)), ABOUT)))
    earlier = io.BytesIO()
    pq.write_table(written.drop_columns(["first_purged", "last_purged", "started_ms", "clock_steps"]), earlier)
    (read,) = read_rollup(earlier.getvalue()).lives
    assert read == replace(row, started_ms=0, first=Growth(acked=2), last=Growth(acked=5))


@pytest.mark.parametrize("column", ["first_acked", "last_lost_at_restart", "queue_name"])
def test_a_rollup_without_an_old_column_is_refused(column: str) -> None:
    written = pq.read_table(io.BytesIO(write_rollup(Rollup((), (a_life(),)), ABOUT)))
    damaged = io.BytesIO()
    pq.write_table(written.drop_columns([column]), damaged)
    with pytest.raises(BadRollup, match=f"its column {column} is absent"):
        read_rollup(damaged.getvalue())


def test_a_rollup_with_a_damaged_name_of_a_column_is_refused() -> None:
    """Of an earlier release, without a checksum."""
    content = write_rollup(Rollup((), (a_life(),)), ABOUT)
    content = content.replace(b"depth_area", b"depth\xffarea").replace(b"PSFC", b"none")
    with pytest.raises(BadRollup, match="it is no Parquet file: 'utf-8' codec"):
        read_rollup(content)


def test_a_flipped_bit_in_the_name_of_a_column_is_not_a_rollup_of_an_earlier_release() -> None:
    """Such a rollup has no purged messages. Neither the reader nor the observer takes it."""
    content = write_rollup(Rollup((), (a_life(),)), ABOUT).replace(b"last_purged", b"last_purgee")
    with pytest.raises(BadRollup, match="its footer does not agree with its checksum"):
        read_rollup(content)
    with pytest.raises(BadRollup, match="its footer does not agree with its checksum"):
        read_about(content)
    with pytest.raises(RejectedResult, match="its footer does not agree with its checksum"):
        check_rollup(content)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no parquet at all"])
def test_anything_else_is_no_rollup(content: bytes) -> None:
    """It may come from anywhere."""
    with pytest.raises(BadRollup):
        read_rollup(content)


def test_contract_and_rules_name_the_same_totals() -> None:
    """The contract can't ask the rules, which stand above it."""
    assert set(FORMAT_TOTALS) == set(TOTALS)
