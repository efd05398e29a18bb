"""A track that repeats its last snapshot is the track that is given it again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock_lag_rules.figures import Coverage, Growth, Subject
from penstock_lag_rules.history import Snapshot
from penstock_lag_rules.thresholds import Thresholds
from penstock_lag_rules.track import Track

COVERAGE = Coverage(last_poll_ms=0, elapsed_ms=0, polls=1, interval_ms=10_000)
SUBJECT = Subject(ordinal=0, queue_name="q")


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 0, 0, 0, 1]),
            st.integers(0, 1),
            st.sampled_from([10_000, 10_000, 150_000, 400_000, -5_000]),
            st.sampled_from([False, False, False, True]),
        ),
        min_size=1,
        max_size=60,
    ),
    st.booleans(),
)
def test_repeating_an_empty_snapshot_is_adding_it(steps: list[tuple[int, int, int, bool]], is_born: bool) -> None:
    """Arrivals, consumers that come and go, long gaps, a clock that is set back, restarts of the broker."""
    plain, short = Track(Thresholds(), 300_000), Track(Thresholds(), 300_000)
    last: Snapshot | None = None
    now_ms, arrived, epoch = 1_000_000, 0, 1
    for depth, consumers, later_ms, restarts in steps:
        now_ms += later_ms
        epoch += restarts
        arrived = depth if restarts else arrived + depth
        snapshot = Snapshot(
            time_ms=now_ms,
            life=("i", epoch, 1, 0),
            is_born=is_born and last is None,
            depth=depth,
            ready=depth,
            in_flight=0,
            oldest_available_ms=now_ms if depth else None,
            consumers=consumers,
            credit=consumers,
            usable_credit=0,
            totals=Growth(enqueued=arrived, acked=arrived - depth),
        )
        plain.add(snapshot)
        told = (0, consumers, snapshot.totals, snapshot.life)
        is_same = last is not None and (last.depth, last.consumers, last.totals, last.life) == told
        if is_same:
            short.repeat(now_ms)
        else:
            short.add(snapshot)
        last = snapshot
        assert short.figures(SUBJECT, COVERAGE) == plain.figures(SUBJECT, COVERAGE)
        assert short.snapshots == plain.snapshots == plain.figures(SUBJECT, COVERAGE).window.snapshots
        figures = plain.figures(SUBJECT, COVERAGE)
        if short.is_still:
            assert figures.window.growth == Growth()
            assert (figures.standing.depth, figures.window.first_depth) == (0, 0)
