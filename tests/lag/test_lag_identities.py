"""What holds for every history: of one queue, and of the ledgers of several brokers."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_api.observer_api import SegmentInfo, SegmentList
from penstock_lag.ledger.windows import AbsentBroker, PresentBroker, make_plan
from penstock_lag_rules.figures import Coverage, Growth, Span, Subject
from penstock_lag_rules.history import Snapshot, figures_of
from penstock_lag_rules.thresholds import Thresholds

START_MS = 1_700_000_000_000
STEP_MS = 10_000
LEAVING = ("acked", "expired", "dead_lettered", "dropped", "moved")


@st.composite
def queues(draw: st.DrawFn) -> list[Snapshot]:
    """Messages come and leave, and the broker is restarted, at which it may lose some. Between the last poll before a
    restart and the first one after it nothing else happens: that would be in the depth alone.
    """
    made: list[Snapshot] = []
    now_ms, epoch, depth, totals = START_MS, 1, draw(st.integers(0, 50)), Growth(enqueued=1_000)
    for _ in range(draw(st.integers(2, 25))):
        if draw(st.integers(0, 5)) == 0:
            lost = draw(st.integers(0, depth))
            epoch, depth = epoch + 1, depth - lost
            totals = Growth(lost_at_restart=totals.lost_at_restart + lost)
        else:
            come = draw(st.integers(0, 30))
            depth += come
            totals = replace(totals, enqueued=totals.enqueued + come)
            for name in LEAVING:
                gone = draw(st.integers(0, min(depth, 10)))
                depth -= gone
                totals = replace(totals, **{name: getattr(totals, name) + gone})
        made.append(
            Snapshot(
                time_ms=now_ms,
                life=("i", epoch, 7, 0),
                depth=depth,
                ready=depth,
                in_flight=0,
                oldest_available_ms=now_ms - draw(st.integers(0, 5_000)) if depth else None,
                consumers=1,
                credit=1,
                usable_credit=1,
                totals=totals,
            )
        )
        now_ms += STEP_MS
    return made


@settings(max_examples=500)
@given(queues())
def test_arrivals_minus_accepted_minus_lost_minus_moved_is_the_change_of_depth(snapshots: list[Snapshot]) -> None:
    """In the window, in the stretch and in the recent span."""
    covered = Coverage(last_poll_ms=snapshots[-1].time_ms, elapsed_ms=0, polls=len(snapshots), interval_ms=STEP_MS)
    figures = figures_of(Subject(ordinal=0, queue_name="q"), covered, snapshots, Thresholds())

    def change(span: Span) -> int:
        grown = span.growth
        return grown.enqueued - grown.acked - grown.lost - grown.moved

    for span in (figures.window, figures.stretch, figures.recent):
        assert change(span) == figures.standing.depth - span.first_depth


LEDGERS = st.lists(
    st.lists(st.tuples(st.integers(1, 90_000), st.integers(0, 60_000)), min_size=1, max_size=12), min_size=3, max_size=3
)


def ledger(ordinal: int, parts: list[tuple[int, int]]) -> PresentBroker:
    """Segments of ten rows: so long after the one before, and so long themselves."""
    segments: list[SegmentInfo] = []
    at_ms = START_MS
    for number, (later_ms, long_ms) in enumerate(parts):
        name = f"0000000001-{number * 10 + 1:012d}-{number * 10 + 10:012d}.parquet"
        at_ms += later_ms
        segments.append(SegmentInfo(name=name, bytes=1, rows=10, first_ms=at_ms, last_ms=at_ms + long_ms))
        at_ms += long_ms
    listing = SegmentList(broker="main", namespace="shop", ordinal=ordinal, reachable=True, segments=tuple(segments))
    return PresentBroker(ordinal, listing)


@settings(max_examples=300)
@given(LEDGERS, st.integers(0, 2), st.permutations((0, 1, 2)), st.integers(1_000, 900_000))
def test_without_one_of_three_brokers_the_others_are_read_as_before_and_it_is_named(
    parts: list[list[tuple[int, int]]], away: int, order: list[int], window_ms: int
) -> None:
    """At the same end of the window; in whatever order they are given, and if a segment is listed twice."""
    brokers = [ledger(ordinal, own) for ordinal, own in enumerate(parts)]
    end_ms = max(segment.last_ms for broker in brokers for segment in broker.listing.segments)
    whole = make_plan(brokers, window_ms, 10**9, end_ms, now_ms=0)
    twice = [
        replace(each, listing=each.listing.model_copy(update={"segments": each.listing.segments[::-1] * 2}))
        for each in brokers
    ]
    found = make_plan(
        [AbsentBroker(at, "the observer did not answer") if at == away else twice[at] for at in order],
        window_ms,
        10**9,
        end_ms,
        now_ms=0,
    )
    assert found.missing == ((away, "the observer did not answer"),)
    assert found.segments == tuple(each for each in whole.segments if each.ordinal != away)
    assert found.windows == tuple(each for each in whole.windows if each.ordinal != away)
    assert found.gaps == tuple(gap for gap in whole.gaps if gap[0] != away)
    assert found.rows == 10 * len(found.segments)
