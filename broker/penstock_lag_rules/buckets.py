"""Log2 buckets of durations: which duration a bucket number stands for.

Bucket i holds durations d with 2**(i/8) < d <= 2**((i+1)/8) milliseconds; bucket -1 holds everything up to 1 ms
(penstock_api.management).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

__all__ = ["PER_OCTAVE", "bucket_of", "bucket_of_rank", "midpoint_ms"]

PER_OCTAVE: Final = 8


def midpoint_ms(bucket: int) -> int:
    """The bucket's geometric middle in whole milliseconds: at most 4.5 % plus half a millisecond off any duration in
    it.
    """
    return round(math.exp2((bucket + 0.5) / PER_OCTAVE))


def bucket_of(microseconds: int) -> int:
    """The bucket of a duration, as the broker finds it."""
    return -1 if microseconds <= 1000 else math.ceil(PER_OCTAVE * math.log2(microseconds / 1000)) - 1


def bucket_of_rank(counts: Mapping[int, int], percent: int) -> int | None:
    """The bucket of the message whose rank among n is ceil(percent * n / 100), from the shortest; None without any.
    Compared in whole numbers.
    """
    total, up_to_here = sum(counts.values()), 0
    for bucket in sorted(counts):
        up_to_here += counts[bucket]
        if up_to_here * 100 >= total * percent:
            return bucket
    return None
