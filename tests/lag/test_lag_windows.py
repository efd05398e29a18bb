"""The plan of a run: window, segments, and who is missing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_api.observer_api import SegmentInfo, SegmentList
from penstock_lag.ledger.windows import (
    AbsentBroker,
    BrokerWindow,
    Chosen,
    Plan,
    PresentBroker,
    make_plan,
    without_damaged,
    without_unlisted,
)
from penstock_lag_rules.unread_stretches import Unread

T = 1_700_000_000_000
MINUTE = 60_000


def segment(number: int, first_ms: int, last_ms: int) -> SegmentInfo:
    """A segment of ten rows."""
    name = f"0000000001-{number * 10 + 1:012d}-{number * 10 + 10:012d}.parquet"
    return SegmentInfo(name=name, bytes=1, rows=10, first_ms=first_ms, last_ms=last_ms)


def present(ordinal: int = 0, *segments: SegmentInfo, **changes: Any) -> PresentBroker:
    """An observer that answers, and whose broker does."""
    values: dict[str, Any] = {"broker": "main", "namespace": "shop", "ordinal": ordinal, "reachable": True}
    values |= {"segments": segments, **changes}
    return PresentBroker(ordinal, SegmentList(**values))


def plan_of(*brokers: PresentBroker | AbsentBroker, as_of_ms: int | None = None, window_ms: int = 5 * MINUTE) -> Plan:
    """A plan at a clock that nothing should look at."""
    return make_plan(brokers, window_ms, 3 * MINUTE, as_of_ms, now_ms=T + 10**9)


FOUR = tuple(segment(number, T + number * MINUTE, T + number * MINUTE + 50_000) for number in range(4))


def test_the_window_ends_with_the_last_sealed_row_not_with_the_clock() -> None:
    """So the same segments give the same result whenever the job runs."""
    plan = plan_of(present(0, *FOUR), window_ms=100_000)
    assert (plan.start_ms, plan.end_ms) == (T + 130_000, T + 230_000)
    assert plan.windows == (BrokerWindow(0, T + 130_000, T + 230_000),)
    assert plan.missing == ()


def test_only_segments_that_reach_into_the_window_are_read() -> None:
    """The one that ends at T+110 s does not, the one that begins at T+120 s does."""
    plan = plan_of(present(0, *FOUR), window_ms=100_000)
    assert plan.segments == (Chosen(0, FOUR[2].name), Chosen(0, FOUR[3].name))


def test_the_ends_belong_to_the_window() -> None:
    """A segment whose last row is exactly at the start is read."""
    plan = plan_of(present(0, *FOUR), window_ms=120_000)  # from T+110 s, the end of the second segment
    assert plan.segments == tuple(Chosen(0, info.name) for info in FOUR[1:])


def test_a_given_end_leaves_out_what_came_later() -> None:
    """And does not look at how the broker is now."""
    later = present(0, *FOUR, reachable=False, problem="gone", polled_ms=T + 10**8)
    plan = plan_of(later, as_of_ms=T + 65_000, window_ms=30_000)
    assert plan == Plan(
        start_ms=T + 35_000,
        end_ms=T + 65_000,
        windows=(BrokerWindow(0, T + 35_000, T + 65_000),),
        segments=(Chosen(0, FOUR[0].name), Chosen(0, FOUR[1].name)),
        rows=20,
        missing=(),
        gaps=(),
        bytes=2,
    )


def test_an_absent_observer_is_missing_and_the_others_still_count() -> None:
    """Its reason is kept."""
    plan = plan_of(present(0, *FOUR), AbsentBroker(1, "the observer did not answer: refused"))
    assert plan.missing == ((1, "the observer did not answer: refused"),)
    assert plan.end_ms == T + 230_000
    assert {chosen.ordinal for chosen in plan.segments} == {0}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"reachable": False, "problem": "the broker does not answer: refused"}, "the broker does not answer: refused"),
        ({"reachable": False}, "the observer can't reach the broker"),
        ({"polled_ms": T + 230_000 + 180_001}, "its ledger is 180 s behind the broker: no segment was sealed"),
        (
            {"polled_ms": T + 230_000 + 240_000, "problem": "no space"},
            "its ledger is 240 s behind the broker: no space",
        ),
    ],
)
def test_a_broker_that_is_away_or_whose_ledger_stands_still_is_missing(changes: dict[str, Any], reason: str) -> None:
    """Its last known window is read all the same, to show the last known figures."""
    plan = plan_of(present(0, *FOUR, **changes))
    assert plan.missing == ((0, reason),)
    assert plan.windows == (BrokerWindow(0, T - 70_000, T + 230_000),)


def test_a_ledger_that_is_only_a_segment_behind_is_fine() -> None:
    """Exactly at the limit."""
    assert plan_of(present(0, *FOUR, polled_ms=T + 230_000 + 180_000)).missing == ()


def test_one_of_two_brokers_fell_silent() -> None:
    """It is missing, and its last window is its own."""
    old = segment(0, T - 10 * MINUTE, T - 9 * MINUTE)
    plan = plan_of(present(0, *FOUR), present(1, old))
    assert plan.missing == ((1, "its last row is 770 s older than the end of the window"),)
    assert plan.windows == (
        BrokerWindow(0, T - 70_000, T + 230_000),
        BrokerWindow(1, T - 14 * MINUTE, T - 9 * MINUTE),
    )
    assert Chosen(1, old.name) in plan.segments


def test_a_ledger_without_rows_is_missing() -> None:
    """The only case in which the clock is used."""
    plan = plan_of(present(0))
    assert plan.missing == ((0, "its ledger has no row up to the end of the window"),)
    assert (plan.end_ms, plan.windows, plan.segments) == (T + 10**9, (), ())


def test_an_end_before_all_rows() -> None:
    """Nothing is read."""
    plan = plan_of(present(0, *FOUR), as_of_ms=T - 1)
    assert (plan.windows, plan.segments) == ((), ())
    assert plan.missing == ((0, "its ledger has no row up to the end of the window"),)


@given(st.permutations(FOUR), st.integers(1, 300_000))
def test_the_order_of_the_list_does_not_matter(shuffled: list[SegmentInfo], window_ms: int) -> None:
    """Nor does a segment that is listed twice add rows of its own: it has the same name."""
    assert plan_of(present(0, *shuffled), window_ms=window_ms) == plan_of(present(0, *FOUR), window_ms=window_ms)


def test_rows_that_are_gone_between_two_segments_are_named_and_the_broker_still_reports() -> None:
    """Rows 11 to 20 and 31 to 50; those before the window are no gap."""
    five = (*FOUR, segment(5, T + 5 * MINUTE, T + 5 * MINUTE + 50_000))
    plan = plan_of(present(1, five[0], five[2], five[4]), present(0, *FOUR))
    assert plan.gaps == ((1, "rows 11 to 20 of its ledger are gone"), (1, "rows 31 to 50 of its ledger are gone"))
    assert plan.missing == ()
    assert plan_of(present(0, five[0], *five[2:4]), window_ms=100_000).gaps == ()


def test_rows_that_are_gone_at_the_beginning_of_the_window_are_named() -> None:
    """Of rows 11 to 30 nothing is known; the window begins at T+60 s, and the first row that is there is at T+180 s."""
    plan = plan_of(present(0, FOUR[0], FOUR[3]), window_ms=170_000)
    assert plan.segments == (Chosen(0, FOUR[3].name),)
    assert plan.gaps == ((0, "rows 11 to 30 of its ledger are gone"),)
    assert plan.unread == (Unread(0, T + 60_000, T + 180_000),)
    assert plan.missing == ()


def test_what_was_merged_into_a_longer_segment_is_not_gone() -> None:
    """Rows 1 to 30 are in one segment, and 11 to 20 in one of its own still."""
    merged = SegmentInfo(
        name="0000000001-000000000001-000000000030.parquet", bytes=3, rows=30, first_ms=T, last_ms=T + 170_000
    )
    plan = plan_of(present(0, merged, FOUR[1], FOUR[3]), window_ms=55_000)
    assert (plan.segments, plan.gaps, plan.unread) == ((Chosen(0, FOUR[3].name),), (), ())


def test_what_retention_has_removed_is_no_gap_of_the_window() -> None:
    plan = plan_of(present(0, *FOUR[2:]))
    assert (plan.gaps, plan.unread) == ((), ())


def test_damaged_segments_are_left_out_and_named() -> None:
    plan = plan_of(present(1, *FOUR), present(0, FOUR[0], FOUR[2], FOUR[3]))
    left = without_damaged(plan, {Chosen(0, FOUR[3].name): "cut", Chosen(1, FOUR[1].name): "spoilt"})
    assert [each for each in plan.segments if each not in left.segments] == [
        Chosen(0, "0000000001-000000000031-000000000040.parquet"),
        Chosen(1, "0000000001-000000000011-000000000020.parquet"),
    ]
    assert left.gaps == (
        (0, "rows 11 to 20 of its ledger are gone"),
        (0, "segment 0000000001-000000000031-000000000040.parquet is not read, because it is damaged: cut"),
        (1, "segment 0000000001-000000000011-000000000020.parquet is not read, because it is damaged: spoilt"),
    )
    assert (left.windows, left.missing) == (plan.windows, ())
    assert plan.unread == (Unread(0, T + 50_000, T + 120_000),)
    assert left.unread == (
        Unread(0, T + 50_000, T + 120_000),
        Unread(0, T + 180_000, T + 230_000),
        Unread(1, T + 60_000, T + 110_000),
    )


def test_of_a_damaged_segment_only_what_is_in_the_window_counts_as_unread() -> None:
    """The window begins at T+130 s, and the segment at T+120 s."""
    plan = plan_of(present(0, *FOUR), window_ms=100_000)
    assert without_damaged(plan, {Chosen(0, FOUR[2].name): "cut"}).unread == (Unread(0, T + 130_000, T + 170_000),)


@pytest.mark.parametrize(
    ("damaged", "named", "unread"),
    [
        ([], [], []),
        ([0], [], []),
        ([1], [1], [Unread(0, T + 100_000, T + 120_000)]),
        ([0, 1], [0, 1], [Unread(0, T + 100_000, T + 120_000)]),
        ([3], [3], [Unread(0, T + 170_000, T + 240_000)]),
        ([4], [4], [Unread(0, T + 230_000, T + 230_000)]),
        ([4, 5], [4, 5], [Unread(0, T + 230_000, T + 230_000)]),
    ],
)
def test_a_segment_without_a_footer_is_named_if_its_rows_may_be_in_the_window(
    damaged: list[int], named: list[int], unread: list[Unread]
) -> None:
    """Its number alone says where it is. The window is that from T+100 s to T+290 s, or as long up to the last row."""
    five = [segment(number, T + number * MINUTE, T + number * MINUTE + 50_000) for number in range(5)]
    listed = [each for number, each in enumerate(five) if number not in damaged]
    plan = plan_of(present(0, *listed), as_of_ms=T + 290_000, window_ms=190_000)
    names = [f"0000000001-{number * 10 + 1:012d}-{number * 10 + 10:012d}.parquet" for number in range(6)]
    left = without_unlisted(plan, {Chosen(0, names[number]): "cut" for number in damaged})
    assert left.segments == plan.segments
    told = [sentence for _, sentence in left.gaps if sentence.endswith("is not read, because it is damaged: cut")]
    assert [names.index(sentence.split(" ")[1]) for sentence in told] == named
    assert list(left.unread) == unread


def test_the_rows_that_the_end_leaves_out_are_no_gap() -> None:
    """Segments 0 and 1 are chosen and follow each other; 2 is gone, but behind the end."""
    assert plan_of(present(0, FOUR[0], FOUR[1], FOUR[3]), as_of_ms=T + 65_000).gaps == ()


def test_rows_that_a_clock_took_out_of_the_window_are_not_called_gone() -> None:
    """The clock was an hour ahead while rows 11 to 20 were written."""
    ahead = segment(1, T + 61 * MINUTE, T + 61 * MINUTE + 50_000)
    plan = plan_of(present(0, FOUR[0], ahead, FOUR[2]), as_of_ms=T + 3 * MINUTE)
    assert plan.gaps == (
        (0, "rows 11 to 20 of its ledger are outside of the window, because the broker's clock was set"),
    )


def test_a_segment_that_overlaps_another_is_not_read_and_named() -> None:
    """Rows 15 to 34 against 11 to 20 and 21 to 30: each row once, and 31 to 34 are gone with it."""
    name = "0000000001-000000000015-000000000034.parquet"
    strange = SegmentInfo(name=name, bytes=1, rows=20, first_ms=T + 70_000, last_ms=T + 150_000)
    plan = plan_of(present(0, FOUR[0], FOUR[1], strange, FOUR[2], FOUR[3]))
    assert plan.segments == tuple(Chosen(0, info.name) for info in FOUR)
    assert plan.rows == 40
    assert plan.gaps == ((0, f"segment {name} is not read, because it overlaps segment {FOUR[1].name} of its ledger"),)


@pytest.mark.parametrize("left", [FOUR, FOUR[:1], FOUR[:2], FOUR[3:], (FOUR[0], FOUR[2])])
def test_of_a_merged_segment_and_those_in_it_the_merged_one_is_read(left: tuple[SegmentInfo, ...]) -> None:
    """A copy that was made while they were merged has both, or some of those. Nothing of the ledger is missing."""
    name = "0000000001-000000000001-000000000040.parquet"
    merged = SegmentInfo(name=name, bytes=1, rows=9, first_ms=T, last_ms=T + 230_000)
    after = segment(4, T + 4 * MINUTE, T + 4 * MINUTE + 50_000)
    plan = plan_of(present(0, *left, merged, after))
    assert plan.segments == (Chosen(0, name), Chosen(0, after.name))
    assert (plan.rows, plan.gaps, plan.unread) == (19, (), ())
    assert plan_of(present(0, *left, merged), window_ms=100_000).end_ms == T + 230_000


def test_a_segment_of_another_start_in_one_that_covers_its_numbers_is_named() -> None:
    """No observer merges segments of two starts."""
    name = "0000000001-000000000001-000000000040.parquet"
    strange = FOUR[1].model_copy(update={"name": FOUR[1].name.replace("0000000001-", "0000000002-", 1)})
    merged = SegmentInfo(name=name, bytes=1, rows=9, first_ms=T, last_ms=T + 230_000)
    plan = plan_of(present(0, strange, merged))
    assert plan.segments == (Chosen(0, name),)
    assert plan.gaps == ((0, f"segment {strange.name} is not read, because it overlaps segment {name} of its ledger"),)


def test_a_segment_that_is_listed_twice_is_read_once() -> None:
    """With as many rows as its name says."""
    plan = plan_of(present(0, *FOUR, FOUR[1]))
    assert (len(plan.segments), plan.rows, plan.gaps) == (4, 40, ())


def test_after_the_clock_was_set_back_the_window_ends_where_the_clock_is() -> None:
    """Set back by two minutes after the fourth segment: the next two are of the minutes of the second and third. The
    segments from before that reach into the window are named.
    """
    again = [segment(number, T + (number - 3) * MINUTE, T + (number - 3) * MINUTE + 50_000) for number in (4, 5)]
    plan = plan_of(present(0, *FOUR, *again, polled_ms=T + 175_000), window_ms=100_000)
    assert (plan.start_ms, plan.end_ms, plan.missing) == (T + 70_000, T + 170_000, ())
    assert plan.segments == tuple(Chosen(0, info.name) for info in again)
    assert plan.rows == 20
    assert plan.gaps == tuple(
        (0, f"segment {info.name} is not read, because the broker's clock was set back after it") for info in FOUR[1:3]
    )


def test_no_two_of_many_segments_are_compared_when_the_clock_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each with each, a ledger of two days would take minutes."""
    before = [segment(number, T + number * MINUTE, T + number * MINUTE + 50_000) for number in range(30)]
    after = [
        segment(number, T + (number - 20) * MINUTE, T + (number - 20) * MINUTE + 50_000) for number in range(30, 40)
    ]

    def compared(one: SegmentInfo, other: object) -> bool:
        raise AssertionError(f"{one} and {other}")

    monkeypatch.setattr(SegmentInfo, "__eq__", compared)
    plan = plan_of(present(0, *before, *after))
    assert [each.name for each in plan.segments] == [each.name for each in after[4:]]


def test_a_given_end_reads_the_segments_of_both_clocks() -> None:
    """Who asks for a time gets what is of that time."""
    again = segment(4, T + MINUTE, T + MINUTE + 50_000)
    plan = plan_of(present(0, *FOUR, again), as_of_ms=T + 110_000, window_ms=50_000)
    assert plan.segments == (Chosen(0, FOUR[1].name), Chosen(0, again.name))


def test_a_segment_that_overlaps_another_is_no_clock_that_was_set_back() -> None:
    """A merged segment of rows 1 to 40, beside one that it covers."""
    merged = SegmentInfo(
        name="0000000001-000000000001-000000000040.parquet", bytes=1, rows=9, first_ms=T, last_ms=T + 230_000
    )
    plan = plan_of(present(0, merged, FOUR[1]))
    assert plan.segments == (Chosen(0, merged.name),)
    assert plan.end_ms == T + 230_000
