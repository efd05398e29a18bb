"""Histograms of log2 buckets: what came into each bucket over the lives of a queue. Buckets merge by adding.

Pure. Buckets become milliseconds in penstock_lag_rules.buckets; here they stay numbers, so that nothing is rounded
twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

__all__ = ["Counts", "Histogram", "Life", "added", "grown"]

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
