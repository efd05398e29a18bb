"""Percentiles from log2 buckets: which bucket holds the message of a rank. Buckets merge by adding.

Pure. Buckets become milliseconds in penstock_lag_rules.buckets; here they stay numbers, so that nothing is rounded
twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

__all__ = ["Counts", "Histogram", "Life", "added", "bucket_of_rank", "grown"]

Counts = Mapping[int, int]
"""Bucket -> number of messages, above 0."""


class Histogram(TypedDict):
    """A sparse histogram as in the ledger; both lists are None in a segment of a release that did not have it."""

    indexes: Sequence[int] | None
    counts: Sequence[int] | None


class Life(TypedDict):
    """The cumulative histogram at the ends of one life of a queue; without a first one it counts from zero."""

    first: Histogram | None
    last: Histogram | None


def grown(lives: Iterable[Life]) -> Counts:
    """What came into each bucket over all lives: last minus first of each, added up."""
    total: dict[int, int] = {}
    for life in lives:
        for sign, end in ((1, life["last"]), (-1, life["first"])):
            for bucket, count in added(end).items():
                total[bucket] = total.get(bucket, 0) + sign * count
    return {bucket: count for bucket, count in total.items() if count > 0}


def added(histogram: Histogram | None) -> Counts:
    """The buckets of one histogram as it stands."""
    if histogram is None:
        return {}
    return dict(zip(histogram["indexes"] or (), histogram["counts"] or (), strict=True))


def bucket_of_rank(counts: Counts, percent: int) -> int | None:
    """The bucket of the message whose rank among n is ceil(percent * n / 100), from the shortest; None without any.
    Compared in whole numbers.
    """
    total, up_to_here = sum(counts.values()), 0
    for bucket in sorted(counts):
        up_to_here += counts[bucket]
        if up_to_here * 100 >= total * percent:
            return bucket
    return None
