"""A track says at every poll what the definition of the figures says of the same snapshots."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_lag_rules.figures import Coverage, Growth, Subject
from penstock_lag_rules.history import Snapshot, figures_of
from penstock_lag_rules.thresholds import Thresholds
from penstock_lag_rules.track import Track

SUBJECT = Subject(ordinal=0, queue_name="q")
COVERAGE = Coverage(last_poll_ms=0, elapsed_ms=0, polls=0, interval_ms=0)
THRESHOLDS = Thresholds(allowed_messages=1, allowed_age_ms=3_000, recent_ms=25_000, busy_interval_ms=10_000)
WINDOW_MS = 60_000
COUNTS = st.integers(0, 4)
GROWING = ("enqueued", "delivered", "redelivered", "acked", "expired", "dead_lettered", "dropped", "moved")


@st.composite
def histories(draw: st.DrawFn) -> list[Snapshot]:
    """Snapshots of one subscription: totals that grow, restarts, new incarnations, clocks that are set."""
    made: list[Snapshot] = []
    life: tuple[str, int, int, int]
    now_ms, life, totals = 1_000_000, ("i", 1, 1, 0), Growth(enqueued=draw(COUNTS))
    durations = (draw(COUNTS), draw(COUNTS), draw(COUNTS), draw(COUNTS))
    born = draw(st.booleans())
    for _ in range(draw(st.integers(1, 20))):
        now_ms += draw(st.sampled_from([10_000, 10_000, 10_000, 10_000, 30_000, 0, -40_000]))
        what = draw(st.sampled_from(["runs"] * 8 + ["restarts", "rebinds", "volume"]))
        if what == "restarts":
            life, born = (life[0], life[1] + 1, life[2], 0), False
            totals = Growth(enqueued=draw(COUNTS), lost_at_restart=totals.lost_at_restart + draw(COUNTS))
        elif what != "runs":
            volume: str = life[0] + ("i" if what == "volume" else "")
            incarnation: int = life[2] + int(what == "rebinds")
            life, born, totals = (volume, life[1], incarnation, 0), draw(st.booleans()), Growth(enqueued=draw(COUNTS))
        else:
            totals = replace(totals, **{name: getattr(totals, name) + draw(COUNTS) for name in GROWING})
        if what == "runs":
            waits, wait_ms, holds, hold_ms = durations
            durations = (waits + draw(COUNTS), wait_ms + draw(COUNTS), holds + draw(COUNTS), hold_ms + draw(COUNTS))
        else:
            durations = (draw(COUNTS), draw(COUNTS), draw(COUNTS), draw(COUNTS))
        depth = draw(COUNTS)
        made.append(
            Snapshot(
                time_ms=now_ms,
                life=life,
                is_born=born,
                depth=depth,
                scheduled=draw(COUNTS),
                ready=draw(COUNTS),
                in_flight=draw(COUNTS),
                oldest_available_ms=None if depth == 0 else now_ms - draw(st.sampled_from([-5_000, 3_000, 3_001])),
                consumers=draw(st.integers(0, 1)),
                credit=draw(COUNTS),
                usable_credit=draw(COUNTS),
                usable_consumers=draw(st.none() | st.integers(0, 1)),
                totals=totals,
                durations=durations,
            )
        )
        born = False
    return made


@settings(max_examples=500)
@given(histories())
def test_a_track_has_the_figures_of_its_snapshots(snapshots: list[Snapshot]) -> None:
    """Those of a queue that had the name before change nothing."""
    track = Track(THRESHOLDS, WINDOW_MS)
    former: list[Snapshot] = []
    window: list[Snapshot] = []
    for snapshot in snapshots:
        if window and window[-1].queue != snapshot.queue:
            former, window = [*former, *window], []
        track.add(snapshot)
        window.append(snapshot)
        while window[0].time_ms < snapshot.time_ms - WINDOW_MS:
            window.pop(0)
        expected = figures_of(SUBJECT, COVERAGE, [*former, *window], THRESHOLDS)
        assert track.figures(SUBJECT, COVERAGE) == expected
