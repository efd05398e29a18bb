"""Which hours and days are rolled up, from listings and names alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lag.test_lag_rollups import a_run

from penstock_api.observer_api import SegmentInfo, SegmentList
from penstock_api.rollup_format import Period, RollupInfo, RollupName
from penstock_lag.ledger.windows import AbsentBroker, BrokerWindow, PresentBroker
from penstock_lag.rollups.plan import (
    Bounds,
    backfilled_hours,
    due_days,
    due_hours,
    hours_between,
    newest_row_ms,
    plan_of,
    shortfalls,
)
from penstock_lag_rules.rollups import BrokerRow, Rollup
from penstock_observer.rollups import surplus

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
DAY_START_MS = 1_700_006_400_000
"""2023-11-15T00:00:00Z."""
GRACE_MS = 180_000


def hour(number: int) -> RollupName:
    """An hour of the day."""
    return RollupName(DAY_START_MS + number * HOUR_MS, Period.HOUR)


DAY = RollupName(DAY_START_MS, Period.DAY)


def broker(ordinal: int, first_hour: int, last_hour: int, last_ms: int = HOUR_MS - 1, rows: int = 90) -> PresentBroker:
    """With a segment for each of these hours; the last one ends `last_ms` after the beginning of its hour."""
    segments: list[SegmentInfo] = []
    for number in range(first_hour, last_hour + 1):
        start = hour(number).start_ms
        end = last_ms if number == last_hour else HOUR_MS - 1
        name = f"0000000003-{100 * number + 1:012d}-{100 * number + 100:012d}.parquet"
        segments.append(SegmentInfo(name=name, bytes=1000, rows=rows, first_ms=start, last_ms=start + end))
    listing = SegmentList(broker="main", namespace="shop", ordinal=ordinal, reachable=True, segments=tuple(segments))
    return PresentBroker(ordinal, listing)


def info(name: RollupName, *ordinals: int, hours: int = 1) -> RollupInfo:
    """A rollup that is there."""
    return RollupInfo(name=str(name), bytes=1, rows=1, ordinals=ordinals or (0,), hours=hours)


def names(*args: object) -> list[RollupName]:
    """The hours that are due."""
    return [due.name for due in due_hours(*args)]  # type: ignore[arg-type]


ANY = Bounds(hours=100)


def test_an_hour_is_due_when_a_later_row_is_there() -> None:
    """Of hours 3, 4 and 5 the last one is not closed; 3 is there already."""
    brokers = [broker(0, 3, 5, last_ms=60_000)]
    assert names(brokers, {}, GRACE_MS, ANY) == [hour(3), hour(4)]
    assert names(brokers, {hour(3): info(hour(3))}, GRACE_MS, ANY) == [hour(4)]
    assert names([broker(0, 3, 3)], {}, GRACE_MS, ANY) == []


def then(earlier: PresentBroker, later: PresentBroker) -> PresentBroker:
    """One ledger: the rows of `later` were written after those of `earlier`, whatever their times are."""
    after = 10**6 * len(earlier.listing.segments)
    renamed = tuple(
        each.model_copy(update={"name": f"0000000003-{after + 10 * at + 1:012d}-{after + 10 * at + 10:012d}.parquet"})
        for at, each in enumerate(later.listing.segments)
    )
    both = earlier.listing.model_copy(update={"segments": (*earlier.listing.segments, *renamed)})
    return PresentBroker(earlier.ordinal, both)


def test_a_clock_set_forward_by_days_makes_only_the_hours_due_that_have_rows() -> None:
    """Of hours 3 and 4, then 76 and 77: three days are not 72 hours to roll up."""
    ahead = [then(broker(0, 3, 4), broker(0, 76, 77, last_ms=60_000))]
    assert names(ahead, {}, GRACE_MS, ANY) == [hour(3), hour(4), hour(76)]


def test_after_a_clock_was_set_back_no_hour_is_rolled_up_before_it_is_over() -> None:
    """Hour 76 is yet to come, and hour 5 has only begun; then hour 6 begins."""
    ahead = then(broker(0, 3, 4), broker(0, 76, 76))
    begun = [then(ahead, broker(0, 5, 5, last_ms=600_000))]
    assert names(begun, {}, GRACE_MS, ANY) == [hour(3), hour(4)]
    assert newest_row_ms(begun[0]) == hour(5).start_ms + 600_000
    over = [then(ahead, broker(0, 5, 6, last_ms=0))]
    assert names(over, {}, GRACE_MS, ANY) == [hour(3), hour(4), hour(5)]
    assert newest_row_ms(PresentBroker(0, over[0].listing.model_copy(update={"segments": ()}))) == 0


def test_a_run_catches_up_with_the_oldest_hours_first() -> None:
    """As many as the bounds allow; the first one however large."""
    brokers = [broker(0, 3, 9, rows=1000)]
    assert names(brokers, {}, GRACE_MS, Bounds()) == [hour(3), hour(4)]
    assert names(brokers, {}, GRACE_MS, Bounds(hours=5, rows=3000)) == [hour(3), hour(4), hour(5)]
    assert names(brokers, {}, GRACE_MS, Bounds(hours=5, rows=10)) == [hour(3)]


def test_a_broker_that_is_silent_is_waited_for_and_then_left_out() -> None:
    """By 180 s of another broker's rows."""
    silent = broker(1, 3, 4, last_ms=1_800_000)
    assert names([broker(0, 3, 5, last_ms=GRACE_MS - 1), silent], {}, GRACE_MS, ANY) == [hour(3)]
    assert names([broker(0, 3, 5, last_ms=GRACE_MS), silent], {}, GRACE_MS, ANY) == [hour(3), hour(4)]


def test_a_broker_that_was_absent_is_added_when_it_is_back() -> None:
    """Only its segments are read then; the rest of the rollup stays."""
    here = broker(0, 3, 5, last_ms=GRACE_MS)
    (first, second) = due_hours([here, AbsentBroker(1, "the observer did not answer")], {}, GRACE_MS, ANY)
    assert (first.name, first.keeps, first.plan.missing) == (hour(3), False, ((1, "the observer did not answer"),))
    stored = {hour(3): info(hour(3), 0), hour(4): info(hour(4), 0, 1)}
    assert second.name == hour(4)
    (again,) = due_hours([here, broker(1, 3, 5)], stored, GRACE_MS, ANY)
    assert (again.name, again.keeps) == (hour(3), True)
    assert {chosen.ordinal for chosen in again.plan.segments} == {1}


def test_the_plan_of_an_hour_has_its_segments_and_no_others() -> None:
    """The window is the hour."""
    plan = plan_of(hour(4), [broker(0, 3, 6)], {0})
    assert plan.windows == (BrokerWindow(0, hour(4).start_ms, hour(5).start_ms - 1),)
    assert [chosen.name for chosen in plan.segments] == ["0000000003-000000000401-000000000500.parquet"]
    assert (plan.rows, plan.missing, plan.gaps) == (90, (), ())


def test_the_plan_of_an_hour_names_the_rows_that_are_gone() -> None:
    """A segment in its middle was deleted."""
    listing = broker(0, 4, 4).listing
    (whole,) = listing.segments
    parts = tuple(
        whole.model_copy(update={"name": f"0000000003-{first:012d}-{last:012d}.parquet"})
        for first, last in ((401, 420), (441, 500))
    )
    plan = plan_of(hour(4), [PresentBroker(0, listing.model_copy(update={"segments": parts}))], {0})
    assert plan.gaps == ((0, "rows 421 to 440 of its ledger are gone"),)


def test_a_store_that_is_too_small_for_all_hours_of_the_ledger_gets_each_hour_once() -> None:
    """Of 48 hours in the ledger the observer has room for 25 and some days. What it deleted does not come back, so that
    there is time for the newest.
    """
    sizes: dict[RollupName, int] = {}
    made: list[RollupName] = []
    for now in range(47, 150):
        now_ms = hour(now).start_ms + 60_000
        for _ in range(3):
            stored = {name: info(name, hours=24 if name.period is Period.DAY else 1) for name in sizes}
            written = names([broker(0, now - 47, now, last_ms=60_000)], stored, GRACE_MS, Bounds())
            days = [day for day, _ in due_days(stored | {name: info(name) for name in written}, now_ms, written)]
            for name in (*written, *days):
                made.append(name)
                sizes[name] = 1
                for gone in surplus(sizes, 30, now_ms):
                    del sizes[gone]
        assert now < 100 or hour(now - 1) in sizes
    hours = [name for name in made if name.period is Period.HOUR]
    assert len(hours) == len(set(hours)) == 149


def test_hours_that_are_yet_to_come_do_not_hide_those_of_now() -> None:
    """The clock was three days ahead, for so long that rollups were made."""
    brokers = [then(broker(0, 76, 77), broker(0, 3, 4, last_ms=60_000))]
    stored = {hour(76): info(hour(76)), hour(77): info(hour(77))}
    assert names(brokers, stored, GRACE_MS, ANY) == [hour(3)]
    assert names(brokers, stored | {hour(3): info(hour(3))}, GRACE_MS, ANY) == []


def test_hours_before_those_that_are_kept_are_not_due() -> None:
    """A broker is back whose ledger is of weeks ago: the observer would refuse them, or delete them at once."""
    stored = {hour(number): info(hour(number), 0) for number in (100, 101)}
    back = then(broker(1, 3, 4), broker(1, 101, 102, last_ms=60_000))
    assert names([broker(0, 100, 102, last_ms=60_000), back], stored, GRACE_MS, ANY) == [hour(101)]


@pytest.mark.parametrize(("polls", "said"), [(324, ()), (323, ("main-0: its polls cover 53 of 60 minutes",))])
def test_an_hour_whose_polls_cover_less_than_nine_tenths_says_so(polls: int, said: tuple[str, ...]) -> None:
    """At a poll every 10 s it should have 360."""
    run = BrokerRow(
        ordinal=0,
        instance="i",
        epoch=1,
        first_seq=1,
        last_seq=9,
        first_ms=0,
        last_ms=9,
        snapshots=polls,
        interval_ms=10_000,
        first_complete_seq=None,
    )
    plan = plan_of(hour(4), [broker(0, 4, 4)], {0})
    assert shortfalls(hour(4), plan, Rollup((run,)), "main") == said


def test_an_hour_in_which_the_clock_was_set_says_so() -> None:
    run = a_run(snapshots=360, clock_steps=1)
    other = a_run(ordinal=1, snapshots=360)
    plan = plan_of(hour(4), [broker(0, 4, 4), broker(1, 4, 4)], {0, 1})
    assert shortfalls(hour(4), plan, Rollup((run, other)), "main") == (
        "main-0: its clock was set, so how long anything took is not known",
    )


class Counted(SegmentList):
    """Counts the segments that whoever asks for them may look at, also those of its copies."""

    looked: ClassVar[int] = 0

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name == "segments":
            Counted.looked += len(found)
        return found


def looked_at(hours: int, decide: Callable[[PresentBroker], object]) -> int:
    """How many segments are looked at to decide about a ledger of so many hours, with one segment in each."""
    listing = Counted(**broker(0, 0, hours - 1).listing.model_dump())
    Counted.looked = 0
    decide(PresentBroker(0, listing))
    return Counted.looked


def all_due(ledger: PresentBroker) -> None:
    due_hours([ledger], {}, GRACE_MS, Bounds(hours=10**6, rows=10**9))


def none_due(ledger: PresentBroker) -> None:
    due_hours([ledger], {hour(at): info(hour(at)) for at in range(999)}, GRACE_MS, Bounds())


def backfill(ledger: PresentBroker) -> None:
    backfilled_hours([ledger], {}, 0, 2**62, GRACE_MS)


@pytest.mark.parametrize("decide", [all_due, none_due, backfill])
def test_the_work_grows_as_the_ledger_and_not_as_its_square(decide: Callable[[PresentBroker], object]) -> None:
    """A ledger of a year has 8,760 hours."""
    looked = [looked_at(hours, decide) for hours in (200, 400)]
    assert looked[1] <= 2.1 * looked[0]


@given(
    st.lists(
        st.tuples(st.integers(0, 6 * 60), st.sampled_from([0, 1, 30, 59, 60, 61, 119, 180])), min_size=1, max_size=9
    )
)
def test_an_hour_has_the_segments_that_reach_into_it(parts: list[tuple[int, int]]) -> None:
    """Wherever they begin, and also if one reaches over hours, which no observer writes. Minutes and lengths."""
    segments = [
        SegmentInfo(
            name=f"0000000003-{10 * at + 1:012d}-{10 * at + 10:012d}.parquet",
            bytes=1,
            rows=10,
            first_ms=DAY_START_MS + 60_000 * first,
            last_ms=DAY_START_MS + 60_000 * (first + length),
        )
        for at, (first, length) in enumerate(parts)
    ]
    listing = SegmentList(broker="main", namespace="shop", ordinal=0, reachable=True, segments=tuple(segments))
    for number in range(10):
        name = hour(number)
        plan = plan_of(name, [PresentBroker(0, listing)], {0})
        expected = [each.name for each in segments if each.first_ms < name.end_ms and each.last_ms >= name.start_ms]
        assert [chosen.name for chosen in plan.segments] == expected


def test_a_day_is_due_when_it_is_over() -> None:
    """From the hours that there are."""
    stored = {hour(number): info(hour(number)) for number in (5, 3, 24)}
    assert due_days(stored, DAY_START_MS + DAY_MS - 1) == []
    assert due_days(stored, DAY_START_MS + DAY_MS) == [(DAY, (hour(3), hour(5)))]


@pytest.mark.parametrize(
    ("day", "is_due"),
    [
        (info(DAY, 0, hours=2), False),
        (info(DAY, 0, hours=1), True),  # an hour was caught up
        (info(DAY, 0, hours=24), False),  # hours of it are past their retention
        (info(DAY, 1, hours=2), True),  # a broker was added to an hour
    ],
)
def test_a_day_is_merged_again_only_from_more(day: RollupInfo, is_due: bool) -> None:
    """Two of its hours are there."""
    stored = {hour(3): info(hour(3)), hour(5): info(hour(5)), DAY: day}
    assert bool(due_days(stored, DAY_START_MS + DAY_MS)) is is_due


def test_hours_between_two_times() -> None:
    """Those that the range touches."""
    brokers = [broker(0, 3, 9)]
    start = hour(4).start_ms + 1
    assert hours_between(brokers, start, hour(6).start_ms) == [hour(4), hour(5)]
    assert hours_between(brokers, None, hour(4).start_ms) == [hour(3)]


def test_a_day_is_merged_again_if_an_hour_of_it_was_written_again() -> None:
    """Unless hours of it are gone."""
    stored = {hour(3): info(hour(3)), hour(5): info(hour(5)), DAY: info(DAY, 0, hours=2)}
    assert due_days(stored, DAY.end_ms, [hour(5)]) == [(DAY, (hour(3), hour(5)))]
    assert due_days({**stored, DAY: info(DAY, 0, hours=3)}, DAY.end_ms, [hour(5)]) == []


def test_a_backfill_takes_the_closed_hours_of_the_range() -> None:
    """Also those that have a rollup."""
    brokers = [broker(0, 3, 6)]
    due, kept = backfilled_hours(brokers, {hour(4): info(hour(4))}, hour(4).start_ms, hour(9).start_ms, GRACE_MS)
    assert [(each.name, each.keeps) for each in due] == [(hour(4), True), (hour(5), False)]
    assert kept == {}


def test_a_backfill_keeps_the_rollup_of_an_hour_that_the_ledger_has_lost_in_part() -> None:
    """Without a rollup, the rest is better than nothing."""
    whole = broker(0, 3, 6)
    rest = whole.listing.segments[0].model_copy(update={"first_ms": hour(3).start_ms + 1_800_000})
    segments = (rest, *whole.listing.segments[1:])
    cut = PresentBroker(0, whole.listing.model_copy(update={"segments": segments}))
    due, kept = backfilled_hours([cut], {hour(3): info(hour(3))}, hour(3).start_ms, hour(4).end_ms, GRACE_MS)
    assert [each.name for each in due] == [hour(4)]
    assert list(kept) == [hour(3)]
    due, kept = backfilled_hours([cut], {}, hour(3).start_ms, hour(4).end_ms, GRACE_MS)
    assert [each.name for each in due] == [hour(3), hour(4)]
