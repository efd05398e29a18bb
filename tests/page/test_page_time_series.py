"""Points of a time series, typed from the scenario, and the lines that are drawn through them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from page.lags import NOON_MS, a_snapshot

from penstock_page.plot import HEIGHT, WIDTH, panels, spark_path
from penstock_page.time_series import POINTS, TimeSeries, time_series_of

TEN_S = 10_000


def over(seconds: int) -> tuple[int, int]:
    """From noon on."""
    return NOON_MS, NOON_MS + seconds * 1000


def test_rates_and_losses_are_those_between_two_snapshots() -> None:
    """Ten seconds with 30 arrivals, 10 accepted and 5 expired; the first snapshot has no one before it."""
    first = a_snapshot(0, 100, age=50, enqueued=1000, acked=900)
    second = a_snapshot(10, 115, age=60, enqueued=1030, acked=910, expired=5)
    time_series = time_series_of([first, second], *over(300), TEN_S)
    assert [(p.depth, p.age_seconds, p.arrived, p.accepted, p.lost) for p in time_series.points] == [
        (100, 50, None, None, None),
        (115, 60, 180, 60, 5),
    ]
    assert (time_series.grown.enqueued, time_series.grown.lost, time_series.snapshots) == (30, 5, 2)


def test_messages_that_were_recovered_at_a_restart_are_no_arrivals() -> None:
    """What was lost at it is counted."""
    before = a_snapshot(0, 500, age=9, enqueued=7000, acked=6500)
    after = a_snapshot(10, 480, age=19, life=2, enqueued=480, lost_at_restart=20)
    [_, point] = time_series_of([before, after], *over(300), TEN_S).points
    assert (point.arrived, point.accepted, point.lost) == (0, 0, 20)


def test_a_point_shows_the_worst_of_its_part() -> None:
    """Over twenty hours ten minutes are one point: a peak of one poll stays visible."""
    snapshots = [a_snapshot(at, 5000 if at == 300 else 1, age=400 if at == 300 else 2) for at in range(0, 600, 10)]
    [point] = time_series_of(snapshots, *over(72_000), TEN_S).points
    assert (point.depth, point.age_seconds, point.time_ms) == (5000, 400, NOON_MS + 590_000)


def test_the_end_of_the_time_is_no_point_of_its_own() -> None:
    """Twenty minutes are 120 points of ten seconds: the last one has the polls from 1190 s to 1200 s, both included."""
    snapshots = [a_snapshot(at, enqueued=at) for at in range(1200)] + [a_snapshot(1200, enqueued=1299)]
    time_series = time_series_of(snapshots, *over(1200), 1000)
    assert len(time_series.points) == 120
    assert (time_series.points[-2].arrived, time_series.points[-1].arrived) == (60, 600)  # 10 and 100 messages in 11 s


def test_an_age_that_is_not_known_is_none_and_an_empty_queue_has_age_0() -> None:
    future = a_snapshot(0, 3, age=-5)
    time_series = time_series_of([future, a_snapshot(10, 0)], *over(300), TEN_S)
    assert [point.age_seconds for point in time_series.points] == [None, 0]


def test_messages_that_are_due_later_have_age_0() -> None:
    """Not an age that is not known, as if the clock had been set."""
    delayed = replace(a_snapshot(0, 3), ready=0, in_flight=0, scheduled=3, oldest_available_ms=None)
    assert [point.age_seconds for point in time_series_of([delayed], *over(300), TEN_S).points] == [0]


def test_an_age_of_messages_that_are_stranded_is_not_known() -> None:
    """They wait, and the broker does not say since when: 0 would say that nothing does."""
    stuck = replace(a_snapshot(0, 3), ready=0, in_flight=0, scheduled=3, stranded=1, oldest_available_ms=None)
    assert [point.age_seconds for point in time_series_of([stuck], *over(300), TEN_S).points] == [None]


def test_what_the_observer_did_not_see_is_a_gap() -> None:
    """Forty seconds without a poll every ten."""
    time_series = time_series_of([a_snapshot(0, 1), a_snapshot(10, 1), a_snapshot(50, 1)], *over(120), TEN_S)
    assert [point.is_after_gap for point in time_series.points] == [False, False, True]
    [depth] = panels(time_series)[0].lines
    assert depth.path.count("M") == 2


def test_nothing_of_another_queue_that_had_the_name_is_drawn() -> None:
    """It had lost 5 messages and held 90; then it was deleted, and another one was made."""
    former = [a_snapshot(0, 90), a_snapshot(10, 90, expired=5)]
    made = [replace(a_snapshot(at, 1, expired=2), life=("i-1", 1, 8, 0)) for at in (20, 30)]
    found = time_series_of([*former, *made], *over(300), TEN_S)
    assert [point.depth for point in found.points] == [1, 1]
    assert (found.grown.expired, found.snapshots) == (0, 2)


def test_before_a_step_back_of_the_clock_nothing_is_drawn() -> None:
    snapshots = [a_snapshot(100, 7), a_snapshot(110, 7), a_snapshot(20, 8), a_snapshot(30, 9)]
    assert [point.depth for point in time_series_of(snapshots, *over(300), TEN_S).points] == [8, 9]


@given(st.lists(st.integers(0, 10**12), max_size=150), st.integers(1, 200_000))
def test_there_are_never_more_points_than_fit(depths: list[int], seconds: int) -> None:
    """And every line stays within its drawing."""
    snapshots = [a_snapshot(at * 10, depth) for at, depth in enumerate(depths)]
    time_series = time_series_of(snapshots, *over(seconds), TEN_S)
    assert len(time_series.points) <= POINTS
    assert max((point.depth for point in time_series.points), default=0) == max(
        (depth for at, depth in enumerate(depths) if at * 10 <= seconds), default=0
    )
    for panel in panels(time_series):
        for line in panel.lines:
            for word in line.path.replace("h1", "").replace("L", " L").replace("M", " M").split(" L"):
                numbers = [float(number) for number in word.replace("M", " ").split()]
                assert all(0 <= x <= WIDTH for x in numbers[::2])
                assert all(0 <= y <= HEIGHT for y in numbers[1::2])


def test_a_panel_says_what_it_shows() -> None:
    """For those who do not see it."""
    time_series = time_series_of([a_snapshot(at, at, age=at) for at in range(0, 310, 10)], *over(300), TEN_S)
    depth, age, _, lost = panels(time_series)
    assert depth.summary == "depth: at most 300, 300 at the end"
    assert age.summary == "age: at most 5 min 0 s, 5 min 0 s at the end"
    assert lost.summary == "lost: at most 0, 0 at the end"
    assert [tick.label for tick in depth.values] == ["0", "200", "400"]
    assert [tick.label for tick in depth.times] == ["12:00", "12:01", "12:02", "12:03", "12:04", "12:05"]
    assert not depth.is_empty
    assert all(panel.is_empty for panel in panels(TimeSeries(begin_ms=NOON_MS, end_ms=NOON_MS)))


def test_a_sparkline_begins_at_zero() -> None:
    assert spark_path([0, 10, 5]) == "M0.0 23.0L60.0 1.0L120.0 12.0"
    assert (spark_path([]), spark_path([3])) == ("", "")
    assert spark_path([0, 0]) == "M0.0 23.0L120.0 23.0"
