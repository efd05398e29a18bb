"""Counts what compaction and paging do in a broker that is killed, and has it do more of it. The broker has neither
counters nor settings for that, so methods are wrapped here, and constants replaced.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from crash.lossy_files import Tally, Work

from penstock_broker import main
from penstock_broker.log import Log, LogOptions
from penstock_broker.log.segments.segment_usage import SegmentUsage
from penstock_broker.state import paging

__all__ = ["count_work", "page_early"]

WINDOW_MESSAGES: Final = 256
QUEUE_BYTES: Final = 512 * 1024
"""A queue with some 2,000 messages of 100 bytes is paged."""
KEPT_BYTES: Final = 1024 * 1024
"""If live messages take more than this, a start leaves bodies in the log."""


def page_early() -> None:
    """All brokers that are made in this process page small backlogs, also when they start."""
    for name, value in {"QUEUE_BYTES": QUEUE_BYTES, "WINDOW_MESSAGES": WINDOW_MESSAGES}.items():
        setattr(paging, name, value)
    options = "LogOptions"
    setattr(main, options, partial(LogOptions, kept_bytes=KEPT_BYTES))


def count_work(tally: Tally) -> None:
    """Tell the tally of each segment that is recycled, and of messages that are copied or read back."""
    compacted: set[int] = set()
    move, remove, read = SegmentUsage.move, SegmentUsage.remove_segment, Log.read

    def moving(usage: SegmentUsage, source: Any, target: Any, span: Any, moved: Any, sequence: int) -> None:
        move(usage, source, target, span, moved, sequence)
        compacted.add(source.number)
        tally.did(Work.COPIED, sum(each.count for each in moved.values()))

    def removing(usage: SegmentUsage, segment: Any) -> None:
        remove(usage, segment)
        tally.did(Work.RECYCLED, 1)
        tally.did(Work.COMPACTED, int(segment.number in compacted))

    def reading(log: Log, *asked: int) -> Any:
        found = read(log, *asked)
        tally.did(Work.READ_BACK, len(found.puts))
        return found

    for owner, name, wrapped in (
        (SegmentUsage, "move", moving),
        (SegmentUsage, "remove_segment", removing),
        (Log, "read", reading),
    ):
        setattr(owner, name, wrapped)
