"""Buckets as numbers: bounds typed from the definition, errors within what is promised."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_lag_rules.buckets import midpoint_ms


def bucket_of(duration_ms: int) -> int:
    """The definition of penstock_api.management.Histogram, solved for the index."""
    return -1 if duration_ms <= 1 else math.ceil(8 * math.log2(duration_ms) - 1e-9) - 1


@pytest.mark.parametrize(
    ("bucket", "milliseconds"),
    [
        (-1, 1),  # up to 1 ms
        (7, 2),  # (1.83, 2]
        (8, 2),  # (2, 2.18]
        (15, 4),  # (3.67, 4]
        (79, 981),  # (939, 1024]
        (80, 1069),  # (1024, 1117]
        (127, 62757),  # (60097, 65536]
    ],
)
def test_the_middle_of_a_bucket(bucket: int, milliseconds: int) -> None:
    """2 ** ((i + 0.5) / 8), rounded."""
    assert midpoint_ms(bucket) == milliseconds


@given(st.integers(1, 10 * 86_400_000))
def test_a_duration_and_its_bucket_differ_by_at_most_4_5_percent(duration_ms: int) -> None:
    """And by the rounding to whole milliseconds."""
    assert abs(midpoint_ms(bucket_of(duration_ms)) - duration_ms) <= 0.045 * duration_ms + 0.5


@given(st.lists(st.integers(1, 10_000_000), min_size=1, max_size=200), st.sampled_from([50, 95, 99]))
def test_a_percentile_from_buckets_is_that_of_the_durations(durations: list[int], percent: int) -> None:
    """The message of rank ceil(p * n / 100) is in the bucket of that rank, because buckets keep the order."""
    rank = -(-percent * len(durations) // 100)
    exact = sorted(durations)[rank - 1]
    by_bucket = sorted(bucket_of(duration) for duration in durations)[rank - 1]
    assert abs(midpoint_ms(by_bucket) - exact) <= 0.045 * exact + 0.5
