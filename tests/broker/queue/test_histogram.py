"""Histograms of durations: the buckets that the management contract describes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.queue.totals import Histogram, QueueTotals, bucket_of


def test_one_millisecond_and_less_are_in_the_bucket_before_the_first() -> None:
    assert [bucket_of(us) for us in (-5, 0, 1, 999, 1000)] == [-1, -1, -1, -1, -1]


def test_bounds_belong_to_the_bucket_that_they_close() -> None:
    """2**(i/8) < d <= 2**((i+1)/8): 2 ms closes bucket 7, 4 ms bucket 15."""
    assert [bucket_of(us) for us in (1001, 2000, 2001, 4000, 4001, 1_024_000)] == [0, 7, 8, 15, 16, 79]


@given(st.integers(min_value=1001, max_value=10**13))
def test_a_duration_lies_within_its_bucket(microseconds: int) -> None:
    index = bucket_of(microseconds)
    milliseconds = microseconds / 1000
    assert 2 ** (index / 8) <= milliseconds * (1 + 1e-9)
    assert milliseconds <= 2 ** ((index + 1) / 8) * (1 + 1e-9)


def test_a_queue_has_counted_nothing_at_first() -> None:
    totals = QueueTotals()
    counts = [value for name in QueueTotals.__slots__ if isinstance(value := getattr(totals, name), int)]
    assert counts == [0] * 15
    assert [each.count for each in (totals.sojourn, totals.wait, totals.hold)] == [0, 0, 0]


def test_runs_add_up() -> None:
    histogram = Histogram()
    histogram.add(1_500, 3)
    histogram.add(500, 2)
    histogram.add(1_500, 1)
    histogram.add(-10, 1)
    histogram.add(1_000, 2)
    document = histogram.snapshot()
    assert (document.indexes, document.counts, document.sum_ms) == ((-1, 4), (5, 4), 9)
    assert histogram.count == 9
