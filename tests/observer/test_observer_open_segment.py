"""The segment in progress: all rows in it, and histograms only at the ends of a life."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from observer.samples import START_MS, a_poll, a_subscription, table_of

from penstock_api.ledger_format import HISTOGRAM_COLUMNS
from penstock_api.state_documents import ConsumerTotal, DurationHistogram, SubscriptionState
from penstock_observer.open_segment import LastHistograms, Life, OpenSegment
from penstock_observer.rows import Poll, RowOrigin, rows_of

WRITER = RowOrigin(broker="main", ordinal=0, interval_ms=10_000)


def busy(count: int, name: str = "a", **changes: Any) -> SubscriptionState:
    """A subscription that has accepted so many messages."""
    histogram = DurationHistogram(indexes=(8,), counts=(count,), sum_ms=count * 2)
    return a_subscription(name, acked=count, sojourn=histogram, wait=histogram, hold=histogram, **changes)


def segment_of(
    polls: Sequence[Poll], before: Mapping[Life, LastHistograms] | None = None, first_seq: int = 1
) -> OpenSegment:
    """Polls of one segment."""
    segment = OpenSegment(WRITER, 3, first_seq, START_MS, before or {})
    for poll in polls:
        segment.add(poll)
    return segment


def histograms_in(segment: OpenSegment) -> list[tuple[int, int]]:
    """The seq of each row with histograms, and how many messages they count."""
    rows: list[dict[str, Any]] = segment.table().to_pylist()
    for row in rows:
        parts = [row[name] for name in HISTOGRAM_COLUMNS]
        assert all(part is None for part in parts) or all(part is not None for part in parts)
    return sorted((row["seq"], sum(row["sojourn_counts"])) for row in rows if row["sojourn_counts"] is not None)


def polls_of(*states: SubscriptionState) -> list[Poll]:
    """One subscription, a poll each: its rows have the seq 1, 3, 5 ..."""
    return [a_poll(START_MS + 10_000 * step, state) for step, state in enumerate(states)]


def test_all_other_columns_are_those_of_the_rows_sorted_by_queue() -> None:
    """Nothing but histograms is left out; the broker's rows are at the end."""
    polls = [a_poll(START_MS + step, busy(step, "b"), busy(step, "a", credit=7)) for step in range(3)]
    rows = [row for at, poll in enumerate(polls) for row in rows_of(poll, WRITER, 1 + 3 * at)]
    by_queue = sorted(rows, key=lambda row: (row["queue_name"] is None, str(row["queue_name"]), int(str(row["seq"]))))
    segment = segment_of(polls)
    assert segment.table().drop(HISTOGRAM_COLUMNS).to_pylist() == table_of(by_queue).drop(HISTOGRAM_COLUMNS).to_pylist()
    assert str(segment.name) == "0000000003-000000000001-000000000009.parquet"
    assert (segment.rows, segment.first_ms, segment.last_ms) == (9, START_MS, START_MS + 2)


def test_a_new_life_has_its_histograms_in_its_first_and_its_last_row() -> None:
    """Of five rows, two."""
    assert histograms_in(segment_of(polls_of(*[busy(n) for n in range(5)]))) == [(1, 0), (9, 4)]


def test_consumers_are_told_where_the_histograms_are() -> None:
    """Of five rows the first and the last; a subscription without consumers has none there."""

    def served(delivered: int) -> SubscriptionState:
        consumers = (ConsumerTotal(container="c-1", links=2, delivered=delivered, since_ms=START_MS - 5),)
        return busy(delivered, consumer_totals=consumers)

    rows = segment_of(polls_of(*[served(n) for n in range(4)], busy(4))).table().to_pylist()
    said = [row["consumer_totals"] for row in rows if row["queue_name"] is not None]
    assert said == [f'[{{"container":"c-1","delivered":0,"sinceMs":{START_MS - 5}}}]', None, None, None, None]
    first = segment_of(polls_of(served(1), served(2)))
    rows = segment_of(polls_of(served(3), served(4)), first.last_histograms(), 5).table().to_pylist()
    said = [row["consumer_totals"] for row in rows if row["queue_name"] is not None]
    assert said == [None, f'[{{"container":"c-1","delivered":4,"sinceMs":{START_MS - 5}}}]']


def test_a_life_that_goes_on_has_them_once_per_segment() -> None:
    """In its last row; the segment before ends with the first."""
    first = segment_of(polls_of(busy(1), busy(2)))
    second = segment_of(polls_of(busy(3), busy(4), busy(5)), first.last_histograms(), 5)
    assert histograms_in(second) == [(9, 5)]


def test_a_life_that_ends_and_the_one_that_follows_both_have_their_ends() -> None:
    """The queue gets another incarnation within the segment."""
    before = segment_of(polls_of(busy(1)))
    polls = polls_of(busy(2), busy(3), busy(0, incarnation=12), busy(1, incarnation=12), busy(2, incarnation=12))
    assert histograms_in(segment_of(polls, before.last_histograms(), 3)) == [(5, 3), (7, 0), (11, 2)]


def test_histograms_of_an_empty_queue_that_do_not_change_are_left_out() -> None:
    """And where they change again, the first row has them, too: else the growth since then would not be known."""
    first = segment_of(polls_of(busy(1), busy(2)))
    idle = segment_of(polls_of(busy(2), busy(2)), first.last_histograms(), 5)
    still = segment_of(polls_of(busy(2), busy(2)), idle.last_histograms(), 9)
    again = segment_of(polls_of(busy(2), busy(3), busy(4)), still.last_histograms(), 13)
    after = segment_of(polls_of(busy(5), busy(6)), again.last_histograms(), 19)
    found = [histograms_in(segment) for segment in (idle, still, again, after)]
    assert found == [[], [], [(13, 2), (17, 4)], [(21, 6)]]


def test_a_queue_with_messages_has_them_also_if_they_do_not_change() -> None:
    """Whether it is Stalled depends on how long its messages are usually held."""
    first = segment_of(polls_of(busy(1), busy(2)))
    stalled = segment_of(polls_of(busy(2, depth=4, ready=4), busy(2, depth=4, ready=4)), first.last_histograms(), 5)
    assert histograms_in(stalled) == [(7, 2)]
