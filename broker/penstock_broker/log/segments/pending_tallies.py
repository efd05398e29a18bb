"""Messages for very many queues that are not counted in each of these yet: that is done some queues per turn.

Ten thousand counts take longer than a turn may. What has to know the count of one queue or of one segment takes that
first (`of_queue`, `of_segment`). Messages for the same queues that come before the first of them is counted are counted
with it, so that a busy exchange pays for its queues once in some turns and not with each block.
"""

from collections import deque
from collections.abc import Iterator, KeysView, Sequence
from typing import NamedTuple

__all__ = ["PendingTallies", "Share"]


class Share(NamedTuple):
    """What is to be counted of one queue in one segment: how many messages, and the sum of their numbers."""

    incarnation: int
    segment: int
    messages: int
    total: int


class _Spread:
    """Messages that were put for `queues`, and those of these that have not counted them."""

    __slots__ = ("count", "is_begun", "left", "queues", "segment", "total")

    def __init__(self, segment: int, queues: Sequence[int], left: set[int]) -> None:
        self.segment, self.queues, self.left = segment, queues, left
        self.count = self.total = 0
        self.is_begun = False

    def share(self, incarnation: int) -> Share:
        self.is_begun = True
        return Share(incarnation, self.segment, self.count, self.total)


class PendingTallies:
    """Of one log."""

    __slots__ = ("spreads",)

    def __init__(self) -> None:
        self.spreads: deque[_Spread] = deque()
        """Empty while all is counted. Looked at in each turn, so it is no property."""

    def add(self, segment: int, queues: Sequence[int], known: KeysView[int], count: int, total: int) -> int:
        """`count` messages were put into a segment for those of `queues` that are `known`; how many queues that is."""
        for spread in self.spreads:
            if spread.segment == segment and spread.queues is queues and not spread.is_begun:
                break
        else:
            spread = _Spread(segment, queues, known & queues)
            self.spreads.append(spread)
        spread.count += count
        spread.total += total
        return len(spread.left)

    def take(self, most: int) -> Iterator[Share]:
        """The next shares, `most` at most."""
        while self.spreads and most > 0:
            spread = self.spreads[0]
            while spread.left and most > 0:
                most -= 1
                yield spread.share(spread.left.pop())
            if not spread.left:
                self.spreads.popleft()

    def of_queue(self, incarnation: int) -> Iterator[Share]:
        """All shares of one queue."""
        for spread in self.spreads:
            if incarnation in spread.left:
                spread.left.remove(incarnation)
                yield spread.share(incarnation)

    def of_segment(self, segment: int) -> Iterator[Share]:
        """All shares in one segment."""
        for spread in self.spreads:
            while spread.segment == segment and spread.left:
                yield spread.share(spread.left.pop())
