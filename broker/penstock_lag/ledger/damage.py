"""Which segments of a plan are damaged: asked once Spark has failed to read them where they are.

Copies on this machine are checked as they arrive. A segment that Spark reads in a folder, or that its executors fetch,
is not read twice for that: its pages have checksums, so Spark fails, and then each is looked at.
Source: docs/reference/lag-job.md, "The window".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from penstock_lag.ledger.segment_footers import FooterUnreadable
from penstock_lag.ledger.source import SegmentMismatch, check_segment
from penstock_lag.ledger.windows import Chosen

__all__ = ["ContentOf", "damaged_among"]

ContentOf = Callable[[Chosen], bytes]
"""The bytes of a segment. Raises what its place raises."""

THREADS: Final = 4
"""Each holds one segment in memory; a merged one has 128 MiB at most."""


def damaged_among(segments: Sequence[Chosen], content_of: ContentOf) -> dict[Chosen, str]:
    """Those that can't be read, and why (no full stop)."""

    def reason(chosen: Chosen) -> str | None:
        try:
            check_segment(content_of(chosen), chosen.name)
        except SegmentMismatch as error:
            return str(error)
        except FooterUnreadable as failure:
            return f"{chosen.name} can't be read: {failure.reason}"
        return None

    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="damage")
    try:
        reasons = list(zip(segments, pool.map(reason, segments), strict=True))
    finally:
        pool.shutdown(cancel_futures=True)
    return {chosen: why for chosen, why in reasons if why is not None}
