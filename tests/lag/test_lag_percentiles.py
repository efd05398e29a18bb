"""Percentiles from buckets."""

from __future__ import annotations

import pytest

from penstock_lag.figures.percentiles import Histogram, added, grown
from penstock_lag_rules.buckets import bucket_of_rank


@pytest.mark.parametrize(("percent", "bucket"), [(50, 1), (51, 2), (95, 2), (96, 3), (99, 3), (100, 9)])
def test_the_bucket_of_the_rank(percent: int, bucket: int) -> None:
    """Of 100 messages the 50th is the last of bucket 1, the 51st the first of bucket 2, the 99th is in bucket 3."""
    assert bucket_of_rank({9: 1, 2: 45, 1: 50, 3: 4}, percent) == bucket


def test_without_messages_there_is_no_bucket() -> None:
    assert bucket_of_rank({}, 50) is None


def test_growth_is_last_minus_first_of_each_life_added_up() -> None:
    """Bucket 3 did not grow and is gone; the second life counts from zero."""
    first: Histogram = {"indexes": [3, 4], "counts": [5, 1]}
    last: Histogram = {"indexes": [3, 4, 9], "counts": [5, 8, 2]}
    new: Histogram = {"indexes": [4, -1], "counts": [1, 6]}
    assert grown([{"first": first, "last": last}, {"first": None, "last": new}]) == {4: 8, 9: 2, -1: 6}


def test_a_segment_without_histograms_has_no_buckets() -> None:
    assert added(None) == added({"indexes": None, "counts": None}) == {}
