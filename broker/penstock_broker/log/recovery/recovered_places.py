"""In which segments the messages of a recovered log lie, as ranges of numbers. Pure."""

from bisect import bisect_right
from collections.abc import Iterator

from penstock_broker.log.recovery.replay import Replay

__all__ = ["located"]


def located(replay: Replay) -> Iterator[tuple[int, int]]:
    """Ascending numbers, each with the segment in which it and those behind it lie, up to the next one.

    Numbers rise in the order of the log, so the first number of each segment says where most messages lie. The others
    are copies that compaction has made.
    """
    begins = sorted((first, segment) for segment, first in replay.first_messages.items())
    firsts = [first for first, _ in begins]

    def usual(number: int) -> int:
        at = bisect_right(firsts, number) - 1
        return begins[at][1] if at >= 0 else 0

    copies = [(number, number, live.segment) for number, live in replay.puts.items() if live.segment != usual(number)]
    if replay.paged is not None:
        copies += replay.paged.copies()
    points = dict(begins)
    for low, high, segment in sorted(copies):
        for first in firsts[bisect_right(firsts, low) : bisect_right(firsts, high)]:
            del points[first]
        points[low] = segment
        following = usual(high + 1)
        if following and high < replay.highest_message:
            points[high + 1] = following  # if another copy begins there, it comes next
    yield from sorted(points.items())
