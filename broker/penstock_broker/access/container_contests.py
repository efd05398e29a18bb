"""Remembers which container-ids keep changing hands, so that somebody hears of it.

Bounded: of a thousand container-ids, the one that was quiet longest is forgotten. Knows neither connections nor links;
whoever takes something over says so. Source: decision 13 of the design.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock_core.container_takeovers import Contest, is_contested, taken_over

__all__ = ["ContainerContests", "Contested"]

logger = logging.getLogger(__name__)

_MOST: Final = 1000
_SHOWN: Final = 20
_LONGEST_NAME: Final = 255
"""Of what a stranger chose, so much is kept."""


class Contested(NamedTuple):
    """A container-id that keeps changing hands."""

    container_id: str
    takeovers: int
    last_us: int
    """Of the last one, microseconds since the epoch."""


@dataclass(slots=True)
class ContainerContests:
    """Takeovers by container-id."""

    _by_container: dict[str, tuple[Contest, int]] = field(default_factory=dict[str, tuple[Contest, int]])
    """With the time of day of the last one; the longest quiet first."""

    def record(self, container_id: str, winner: int, *, now_ms: int, now_us: int) -> None:
        """The connection `winner` took something from another connection of its container-id.

        `now_ms` is monotonic, `now_us` microseconds since the epoch.
        """
        name = container_id[:_LONGEST_NAME]
        before = self._by_container.pop(name, None)
        contest = taken_over(None if before is None else before[0], winner, now_ms)
        self._by_container[name] = contest, now_us
        if len(self._by_container) > _MOST:
            del self._by_container[next(iter(self._by_container))]
        if is_contested(contest, now_ms) and not (before is not None and is_contested(before[0], now_ms)):
            logger.warning(
                "Connections of container-id %r keep closing each other or stealing each other's links, %s times now; "
                "give each process its own container-id (JMS ClientID), or none.",
                name,
                contest.takeovers,
            )

    def now(self, now_ms: int) -> list[Contested]:
        """Those that are contested at this moment, the busiest first, at most twenty."""
        found = [
            Contested(name, contest.takeovers, last_us)
            for name, (contest, last_us) in self._by_container.items()
            if is_contested(contest, now_ms)
        ]
        found.sort(key=lambda each: (-each.takeovers, each.container_id))
        return found[:_SHOWN]
