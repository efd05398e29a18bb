"""The hours before a window: which rollups are read, what they say, and how a result says it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from lag.figures_factory import BUSY, figures
from lag.test_lag_rollups import a_life, a_run

from penstock_api.lag_result import LagResult, PaceLag
from penstock_api.rollup_format import Period, RollupAbout, RollupName
from penstock_lag.ledger.windows import Plan
from penstock_lag.result_document import Run, make_result
from penstock_lag.rollups.files import write_rollup
from penstock_lag.rollups.past_hours import PastHours, read_past
from penstock_lag.rollups.past_result import with_past
from penstock_lag.rollups.stores import FolderRollups
from penstock_lag.table import as_table
from penstock_lag_rules.figures import Figures, Growth
from penstock_lag_rules.paces import Pace, paces
from penstock_lag_rules.rollups import LifeRow, Rollup
from penstock_lag_rules.thresholds import Thresholds
from penstock_lag_rules.unread_stretches import Unread

HOUR_MS = 3_600_000
THREE_PM_MS = 1_700_060_400_000
"""2023-11-15T15:00:00Z."""
QUEUE = (0, "q")


@pytest.fixture
def store(tmp_path: Path) -> FolderRollups:
    """A folder of rollups."""
    return FolderRollups(tmp_path, "main", "shop")


def keep(store: FolderRollups, hours_before: int, epoch: int = 1, queue_name: str = "q", **more: Any) -> None:
    """The rollup of an hour in which 60 messages arrived and were accepted: that which ended so long before 15:00."""
    number = 100 - hours_before
    start_ms = THREE_PM_MS - (hours_before + 1) * HOUR_MS
    seq = 1000 * number
    started = {"started_ms": more.pop("started_ms", 0)}
    life = a_life(
        epoch=epoch,
        **started,
        queue_name=queue_name,
        first_seq=seq + 1,
        last_seq=seq + 900,
        first_ms=start_ms,
        last_ms=start_ms + HOUR_MS - 10_000,
        first=Growth(enqueued=60 * number, acked=60 * number),
        last=Growth(enqueued=60 * number + 60, acked=60 * number + 60),
        first_buckets={"sojourn": ((8, 60 * number),)},
        last_buckets={"sojourn": ((8, 60 * number + 60),)},
    )
    run = a_run(epoch=epoch, first_seq=seq, last_seq=seq + 999, first_complete_seq=seq, first_ms=start_ms, **started)
    if queue_name == "q":  # it was there when the run began
        run = replace(run, first_complete_seq=None)
    put(store, hours_before, Rollup((run,), (replace(life, **more),)))


def put(store: FolderRollups, hours_before: int, rollup: Rollup, missing: tuple[str, ...] = (), **more: Any) -> None:
    """The rollup of the hour that ended so long before 15:00."""
    name = RollupName(THREE_PM_MS - (hours_before + 1) * HOUR_MS, Period.HOUR)
    values: dict[str, Any] = {"broker": "main", "namespace": "shop", "name": str(name), "ordinals": (0,), "hours": 1}
    store.put(name, write_rollup(rollup, RollupAbout(**values, missing=missing, **more)))


def lived(incarnation: int, hours_before: int, minutes: tuple[int, int], enqueued: tuple[int, int]) -> LifeRow:
    """A life in the hour that ended so long before 15:00, from one minute of it to another."""
    start_ms = THREE_PM_MS - (hours_before + 1) * HOUR_MS
    seq = 1000 * (100 - hours_before)
    return a_life(
        incarnation=incarnation,
        first_seq=seq + 10 * minutes[0] + 1,
        last_seq=seq + 10 * minutes[1] + 1,
        first_ms=start_ms + 60_000 * minutes[0],
        last_ms=start_ms + 60_000 * minutes[1],
        first=Growth(enqueued=enqueued[0]),
        last=Growth(enqueued=enqueued[1]),
    )


def held(hours_before: int, *lives: LifeRow) -> Rollup:
    """An hour whose polls were all complete: lives that come after the first of them were born in it."""
    seq = 1000 * (100 - hours_before)
    return Rollup((a_run(first_seq=seq + 5, last_seq=seq + 999, first_complete_seq=seq + 5),), lives)


def test_two_rollups_tell_what_came_in_a_day(store: FolderRollups) -> None:
    """The hours between them need not be there, and an older one is not read."""
    keep(store, 0)
    keep(store, 23)
    keep(store, 24)
    past = read_past(store, THREE_PM_MS + 600_000)
    assert (past.hour[QUEUE].arrived, past.hour[QUEUE].elapsed_ms) == (60, HOUR_MS - 10_000)
    assert (past.day[QUEUE].arrived, past.day[QUEUE].accepted) == (24 * 60, 24 * 60)
    assert past.day[QUEUE].elapsed_ms == 24 * HOUR_MS - 10_000
    assert past.day[QUEUE].sojourn == {8: 24 * 60}
    assert past.day[QUEUE].end_ms == THREE_PM_MS


def test_after_a_restart_the_day_begins_with_the_new_run(store: FolderRollups) -> None:
    """The broker started seven hours ago: of 24, 12 and 6 hours the last can be subtracted."""
    for hours in range(24):
        keep(store, hours, epoch=1 if hours > 6 else 2)
    past = read_past(store, THREE_PM_MS)
    assert past.day[QUEUE].arrived == 6 * 60


def test_a_day_in_which_only_the_observer_was_upgraded_is_a_day(store: FolderRollups) -> None:
    """The older rollup does not say when the broker started; it is the same run."""
    keep(store, 23)
    keep(store, 0, started_ms=1_000)
    assert read_past(store, THREE_PM_MS).day[QUEUE].arrived == 24 * 60


def test_an_hour_that_is_not_over_at_the_end_of_the_window_is_not_read(store: FolderRollups) -> None:
    """So a run with --as-of does not look ahead."""
    keep(store, 0)
    keep(store, 1)
    past = read_past(store, THREE_PM_MS - 2)
    assert past.hour[QUEUE].end_ms == THREE_PM_MS - HOUR_MS
    assert past.day == {}


def test_hours_of_long_ago_are_not_compared_with(store: FolderRollups) -> None:
    """The rollups end seven hours before the window."""
    keep(store, 7)
    assert read_past(store, THREE_PM_MS) == PastHours()


def test_a_subscription_that_was_made_in_between_has_no_day(store: FolderRollups) -> None:
    """It counts from zero, and when it was made is in an hour that is not read: 1,200 messages came in 20 hours, and it
    would seem to have been in one.
    """
    put(store, 23, held(23))
    put(store, 0, held(0, lived(2, 0, (0, 59), (1140, 1200))))
    past = read_past(store, THREE_PM_MS)
    assert past.day == {}
    assert (past.hour[QUEUE].arrived, past.hour[QUEUE].elapsed_ms) == (1200 - 1140, 59 * 60_000)


def test_a_subscription_that_was_made_anew_in_between_has_no_day(store: FolderRollups) -> None:
    """What the former life did after the first hour is in neither."""
    put(store, 23, held(23, lived(1, 23, (0, 59), (0, 60))))
    put(store, 0, held(0, lived(2, 0, (0, 59), (1140, 1200))))
    assert read_past(store, THREE_PM_MS).day == {}


def test_a_subscription_that_was_made_anew_has_nothing_of_the_former_one(store: FolderRollups) -> None:
    """In the first hour: 10 messages came to the former one. Of the second one 1,998 came in the 22 hours and 59
    minutes since its first snapshot.
    """
    put(store, 23, held(23, lived(1, 23, (0, 20), (500, 510)), lived(2, 23, (30, 59), (2, 70))))
    put(store, 0, held(0, lived(2, 0, (0, 59), (1990, 2000))))
    day = read_past(store, THREE_PM_MS).day[QUEUE]
    assert day.arrived == 1998
    assert day.elapsed_ms == (30 + 22 * 60 + 59) * 60_000


def test_a_subscription_that_was_made_anew_in_the_last_hour_has_no_day(store: FolderRollups) -> None:
    """Of 39 minutes of its last hour its pace is known; the four consumers and the losses were another one's."""
    former = replace(lived(2, 0, (0, 10), (1990, 2000)), max_consumers=4, min_consumers=4, max_age_ms=90_000)
    lost = replace(former, first=Growth(), last=Growth(expired=50))
    put(store, 23, held(23, lived(2, 23, (30, 59), (0, 70))))
    put(store, 0, held(0, lost, lived(3, 0, (20, 59), (5, 40))))
    past = read_past(store, THREE_PM_MS)
    assert past.day == {}
    hour = past.hour[QUEUE]
    assert (hour.arrived, hour.elapsed_ms, hour.lost, hour.lost_before) == (35, 39 * 60_000, 0, 0)
    assert (hour.min_consumers, hour.max_consumers, hour.max_age_ms) == (1, 1, 0)


@pytest.mark.parametrize(("hours_before", "hours"), [(23, 12), (15, 12), (11, 6), (7, 6), (1, None)])
def test_a_day_does_not_go_over_a_clock_that_was_set(
    store: FolderRollups, hours_before: int, hours: int | None
) -> None:
    """How long these hours were is not known. The hours after that are looked at, as after a restart."""
    for each in range(24):
        keep(store, each)
    put(store, hours_before, held(hours_before), clock_set=(0,))
    past = read_past(store, THREE_PM_MS)
    assert past.hour[QUEUE].arrived == 60
    assert past.day == {} if hours is None else past.day[QUEUE].arrived == 60 * hours


def test_of_an_hour_in_which_the_clock_was_set_there_is_no_pace(store: FolderRollups) -> None:
    """Its seconds would be wrong by as much as it was set, and so would all rates. Another broker's clock was not."""
    other = replace(lived(1, 0, (0, 59), (0, 60)), ordinal=1)
    put(store, 0, held(0, lived(1, 0, (0, 59), (0, 60)), other), clock_set=(0,))
    past = read_past(store, THREE_PM_MS)
    assert set(past.hour) == {(1, "q")}
    assert past.day == {}


GONE = ("main-0: rows 7 to 99 of its ledger are gone",)


def test_an_hour_with_a_missing_part_does_not_tell_of_two_lives(store: FolderRollups) -> None:
    """What the second one did in that part before it was seen is in no total."""
    two = (lived(1, 0, (0, 20), (0, 60)), lived(2, 0, (30, 59), (0, 60)))
    put(store, 0, held(0, *two))
    assert read_past(store, THREE_PM_MS).hour[QUEUE].arrived == 60
    put(store, 0, held(0, *two), GONE)
    assert read_past(store, THREE_PM_MS) == PastHours()


def test_an_hour_with_a_missing_part_does_not_tell_of_a_life_that_began_in_it(store: FolderRollups) -> None:
    """It may have begun in the missing part: of 200 messages nobody knows over which time they came."""
    born = lived(1, 0, (40, 59), (200, 300))
    put(store, 0, held(0, born))
    assert read_past(store, THREE_PM_MS).hour[QUEUE].arrived == 100
    put(store, 0, held(0, born), GONE)
    assert read_past(store, THREE_PM_MS) == PastHours()


@pytest.mark.parametrize("damaged", [0, 23])
def test_a_day_with_a_missing_part_does_not_tell_of_two_lives(store: FolderRollups, damaged: int) -> None:
    """As of an hour. What one life did goes on over such a part."""
    first = (lived(1, 23, (0, 20), (0, 60)), lived(2, 23, (30, 59), (0, 70)))
    put(store, 23, held(23, *first), GONE if damaged == 23 else ())
    put(store, 0, held(0, lived(2, 0, (0, 59), (1990, 2000))), GONE if damaged == 0 else ())
    assert read_past(store, THREE_PM_MS).day == {}
    put(store, 23, held(23, lived(2, 23, (0, 59), (0, 70))), GONE if damaged == 23 else ())
    day = read_past(store, THREE_PM_MS).day[QUEUE]
    assert (day.arrived, day.is_whole) == (2000, False)


def test_what_was_least_and_most_in_an_hour_with_a_missing_part_nobody_knows(store: FolderRollups) -> None:
    """Its totals are exact all the same: one life."""
    put(store, 0, held(0, lived(1, 0, (0, 59), (500, 560))), GONE)
    hour = read_past(store, THREE_PM_MS).hour[QUEUE]
    assert (hour.arrived, hour.is_whole) == (60, False)
    put(store, 0, held(0, lived(1, 0, (0, 59), (500, 560))))
    assert read_past(store, THREE_PM_MS).hour[QUEUE].is_whole


def test_a_broker_from_a_backup_has_no_pace_below_0(store: FolderRollups) -> None:
    """Its data folder is that of three weeks ago, so it starts with a number that a start after the backup had. The
    rollups are on another volume.
    """
    keep(store, 23)
    keep(store, 0, first=Growth(), last=Growth(enqueued=9), first_buckets={}, last_buckets={})
    past = read_past(store, THREE_PM_MS)
    assert (past.hour[QUEUE].arrived, past.hour[QUEUE].accepted) == (9, 0)
    assert (past.day[QUEUE].arrived, past.day[QUEUE].accepted, past.day[QUEUE].lost) == (0, 0, 0)


def lives(*rows: dict[str, Any]) -> Rollup:
    """Of queue q, one for each start of its broker."""
    return Rollup(lives=tuple(a_life(epoch=epoch, **row) for epoch, row in enumerate(rows, 1)))


def test_a_pace_over_a_restart_is_of_both_lives() -> None:
    """Five minutes, and five after a restart: the two minutes between them were not seen."""
    before = {"first_ms": 60_000, "last_ms": 360_000, "min_consumers": 2, "max_consumers": 4, "max_age_ms": 9_000}
    after = {"first_ms": 480_000, "last_ms": 780_000, "min_consumers": 1, "max_consumers": 3, "max_age_ms": None}
    pace = paces(lives(before, after), HOUR_MS)[QUEUE]
    assert (pace.elapsed_ms, pace.end_ms) == (600_000, HOUR_MS)
    assert (pace.min_consumers, pace.max_consumers, pace.max_age_ms) == (1, 4, 9_000)


def test_what_came_before_the_first_snapshot_of_a_new_life_is_in_no_pace(store: FolderRollups) -> None:
    """10,000 messages were put into a new subscription before a poll saw it, 30 of them were lost. In the 50 minutes
    from then on 100 came, 50 were accepted and 7 were lost: 2, 1 and not 200 a minute. All 37 are lost all the same.
    """
    made = replace(
        lived(3, 0, (10, 60), (0, 0)),
        first=Growth(enqueued=10_000, acked=2_000, dropped=30),
        last=Growth(enqueued=10_100, acked=2_050, dropped=35, expired=2),
        last_buckets={"sojourn": ((8, 2_050),)},
    )
    put(store, 0, held(0, made))
    pace = read_past(store, THREE_PM_MS).hour[QUEUE]
    assert (pace.elapsed_ms, pace.arrived, pace.accepted, pace.lost, pace.lost_before) == (3_000_000, 100, 50, 7, 30)
    assert pace.sojourn == {8: 2_050}
    found = replace(BUSY, subject=replace(BUSY.subject, queue_name="q"))
    plan = Plan(THREE_PM_MS, THREE_PM_MS + 300_000, (), (), 0, ())
    result = make_result(Run("main", "shop", "r", 1), plan, [found], Thresholds())
    (entry,) = with_past(result, [found], PastHours(hour={QUEUE: pace})).subscriptions
    said = entry.past_hour
    assert said is not None
    assert (said.arrival_per_minute, said.settled_per_minute, said.lost) == (2, 1, 37)


@pytest.mark.parametrize("stranded", [0, 10_000])
def test_what_is_due_later_or_stranded_is_no_fault_of_the_consumers(stranded: int) -> None:
    """At night a twentieth of the messages arrives, and is accepted. 10,000 others are reminders for tomorrow, or wait
    for a dead-letter queue: no consumer could accept them.
    """
    pace = Pace(
        elapsed_ms=3_000_000, end_ms=THREE_PM_MS, arrived=30_000, accepted=30_000, lost=0, sojourn={}, min_consumers=2,
        max_consumers=2, max_age_ms=70_000,
    )  # fmt: skip
    night = {"enqueued": 150, "delivered": 150, "acked": 150}
    found = figures(
        subject={"queue_name": "q"},
        standing={"depth": 10_003, "ready": 3, "in_flight": 0, "scheduled": 10_000, "stranded": stranded},
        window={"growth": night},
    )
    plan = Plan(THREE_PM_MS, THREE_PM_MS + 300_000, (), (), 0, ())
    result = make_result(Run("main", "shop", "r", 1), plan, [found], Thresholds())
    (entry,) = with_past(result, [found], PastHours(hour={QUEUE: pace})).subscriptions
    assert entry.changes == (
        "only 5 % as many messages arrive as in the hour before 15:00 UTC: 30 instead of 600 a minute",
    )


def test_less_than_ten_minutes_are_no_pace() -> None:
    """And nothing that waited is 0 ms."""
    assert paces(lives({"last_ms": 599_999}), HOUR_MS) == {}
    assert paces(lives({"last_ms": 600_000}), HOUR_MS)[QUEUE].max_age_ms == 0


def test_a_result_says_the_paces_and_what_changed(store: FolderRollups) -> None:
    """600 messages in five minutes, after one a minute."""
    keep(store, 0)
    keep(store, 23)
    found = BUSY
    window = replace(found.window, elapsed_ms=300_000, growth=Growth(enqueued=600, acked=600))
    figures = [replace(found, subject=replace(found.subject, ordinal=0, queue_name="q"), window=window)]
    plan = Plan(THREE_PM_MS, THREE_PM_MS + 300_000, (), (), 0, ())
    result = make_result(Run("main", "shop", "r", 1), plan, figures, Thresholds())
    assert with_past(result, figures, PastHours()) is result
    made = with_past(result, figures, read_past(store, THREE_PM_MS + 300_000))
    (entry,) = made.subscriptions
    assert entry.past_day == PaceLag(
        end=datetime(2023, 11, 15, 15, tzinfo=UTC),
        seconds=86_390,
        arrival_per_minute=1,
        settled_per_minute=1,
        lost=0,
        sojourn_p95_millis=2,
    )
    said = "120 times as many messages arrive as in the 24 hours before 15:00 UTC: 120 instead of 1 a minute"
    assert said in entry.changes
    assert f"CHANGED q: {said}\n" in as_table(made)
    assert LagResult.model_validate_json(made.to_json()) == made


def test_a_window_of_which_a_part_is_missing_is_not_compared_with_whole_hours(store: FolderRollups) -> None:
    """The status that is Live shows changes without what the run says of itself. Totals of one life go on over a part
    in between, so that window is whole.
    """
    keep(store, 0)
    keep(store, 23)
    end_ms = THREE_PM_MS + 300_000
    standing = replace(BUSY.standing, observed_ms=end_ms)
    window = replace(BUSY.window, elapsed_ms=200_000, growth=Growth(enqueued=600, acked=600))
    found = replace(BUSY, subject=replace(BUSY.subject, queue_name="q"), standing=standing, window=window)
    before, between = Unread(0, end_ms - 300_000, end_ms - 200_000), Unread(0, end_ms - 100_000, end_ms - 50_000)
    assert changes_of(store, found, between) != ()
    assert changes_of(store, found, before) == ()
    assert changes_of(store, replace(found, lives=2), between) == ()
    assert changes_of(store, replace(found, lives=2)) != ()


def test_a_window_in_which_the_clock_was_set_is_not_compared(store: FolderRollups) -> None:
    """How long it was is not known: the five minutes may have been an hour."""
    keep(store, 0)
    keep(store, 23)
    window = replace(BUSY.window, elapsed_ms=300_000, growth=Growth(enqueued=600, acked=600))
    found = replace(BUSY, subject=replace(BUSY.subject, queue_name="q"), window=window)
    assert changes_of(store, found) != ()
    assert changes_of(store, replace(found, coverage=replace(found.coverage, clock_steps=1))) == ()


def changes_of(store: FolderRollups, found: Figures, *unread: Unread) -> tuple[str, ...]:
    """What is said of a window."""
    plan = Plan(THREE_PM_MS, THREE_PM_MS + 300_000, (), (), 0, (), unread=unread)
    result = make_result(Run("main", "shop", "r", 1), plan, [found], Thresholds())
    (entry,) = with_past(result, [found], read_past(store, THREE_PM_MS + 300_000), unread).subscriptions
    return entry.changes
