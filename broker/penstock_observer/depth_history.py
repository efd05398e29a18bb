"""The depths of every subscription at the last polls, for the page's sparklines, and when the broker last answered.

In memory only, and bounded: `POINTS` integers for each subscription that the last polls had, 8 bytes each. The clock is
an argument; it counts seconds and never goes back.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Final

from penstock_observer.rows import Poll

__all__ = ["POINTS", "DepthHistory"]

POINTS: Final = 60
"""Ten minutes of polls every ten seconds."""


class DepthHistory:
    """Takes polls, remembers depths."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._depths: dict[str, array[int]] = {}
        self._answered: float | None = None

    def observe(self, poll: Poll) -> None:
        """The broker has answered. Subscriptions that a complete poll does not have are forgotten."""
        self._answered = self._clock()
        for state in poll.subscriptions:
            depths = self._depths.setdefault(state.queue_name, array("q"))
            depths.append(state.depth)
            if len(depths) > POINTS:
                del depths[0]
        if poll.complete and len(self._depths) > len(poll.subscriptions):
            there = {state.queue_name for state in poll.subscriptions}
            for name in self._depths.keys() - there:
                del self._depths[name]

    def of(self, queue_name: str) -> Sequence[int]:
        """The depths of a subscription, the oldest first; empty if it is not known."""
        return tuple(self._depths.get(queue_name, ()))

    @property
    def seconds_since_answer(self) -> int | None:
        """Whole seconds since the broker answered a poll; None if it never did."""
        return None if self._answered is None else max(int(self._clock() - self._answered), 0)
