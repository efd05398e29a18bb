"""What is counted over the life of one queue: totals that only grow, and histograms of durations.

The histograms are cumulative, log2 with 8 buckets per octave: the same buckets as Prometheus native schema 3. Messages
that arrive, leave or settle in one turn share their times, so callers add runs (`add(duration, count)`), which costs
one logarithm per run and next to nothing per message. Source: `penstock_api.management.Histogram`.
"""

from __future__ import annotations

from collections import defaultdict
from math import ceil, log2

from penstock_api import state_documents

__all__ = ["Histogram", "QueueTotals", "bucket_of"]


def bucket_of(microseconds: int) -> int:
    """The bucket i with 2**(i/8) < milliseconds <= 2**((i+1)/8); -1 for one millisecond and less."""
    return -1 if microseconds <= 1000 else ceil(8 * log2(microseconds / 1000)) - 1


class Histogram:
    """Counts since the queue's incarnation began."""

    __slots__ = ("_counts", "_shortest", "_sum_us", "told")

    def __init__(self) -> None:
        self._counts: defaultdict[int, int] = defaultdict(int)
        self._shortest = 0
        """What is in bucket -1: of a broker that keeps up nearly everything."""
        self._sum_us = 0
        self.told: tuple[int, bytes] | None = None
        """What management has made of so many durations, to be used again."""

    def add(self, microseconds: int, count: int) -> None:
        """Count `count` durations; one below zero (the clock was set back) counts as zero."""
        if microseconds > 1000:
            self._counts[bucket_of(microseconds)] += count
        else:
            self._shortest += count
            if microseconds <= 0:
                return
        self._sum_us += microseconds * count

    @property
    def count(self) -> int:
        """Durations counted; it only grows."""
        return self._shortest + sum(self._counts.values())

    def snapshot(self) -> state_documents.DurationHistogram:
        """The counts as `$management` sends them."""
        found = self.buckets()
        return state_documents.DurationHistogram(
            indexes=tuple(index for index, _ in found), counts=tuple(count for _, count in found), sum_ms=self.sum_ms
        )

    def buckets(self) -> list[tuple[int, int]]:
        """Index and count of each bucket that has counted something, ascending."""
        longer = sorted(self._counts.items())
        return [(-1, self._shortest), *longer] if self._shortest else longer

    @property
    def sum_ms(self) -> int:
        """All durations together."""
        return self._sum_us // 1000


class QueueTotals:
    """Counts of messages since the queue's incarnation began. Public to the forwarding path."""

    __slots__ = (
        "acked",
        "dead_lettered",
        "delivered",
        "dropped",
        "enqueued",
        "enqueued_bytes",
        "expired",
        "hold",
        "lost_at_restart",
        "max_delivery_count",
        "moved",
        "purged",
        "recovered",
        "recovered_bytes",
        "redelivered",
        "returned",
        "sojourn",
        "wait",
    )

    def __init__(self) -> None:
        self.enqueued = 0
        self.enqueued_bytes = 0
        self.recovered = 0
        """Of those enqueued: came back at the start of the broker."""
        self.recovered_bytes = 0
        self.delivered = 0
        self.redelivered = 0
        self.acked = 0
        """Accepted by consumers."""
        self.returned = 0
        """Deliveries that came back."""
        self.expired = 0
        self.dead_lettered = 0
        self.moved = 0
        self.purged = 0
        self.dropped = 0
        self.lost_at_restart = 0
        self.max_delivery_count = 0
        """The highest number of failed deliveries that a message had."""
        self.sojourn = Histogram()
        """From available to accepted."""
        self.wait = Histogram()
        """From available to the first delivery."""
        self.hold = Histogram()
        """From a delivery to its outcome."""
