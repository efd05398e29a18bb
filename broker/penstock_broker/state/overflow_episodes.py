"""When queues begin to drop or to refuse at a limit, and when they have stopped: a line in the log for each.

An episode lasts from the first message until none was dropped or refused for a minute, so that a queue that stands at
its limit does not fill the log. Who looks at the log of the last hour sees a queue that drops for days too: its episode
is told again every hour. Must not know queues but by their names. Source: docs/decisions/045-queue-limits.md.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from penstock_broker.clock import TurnClock
from penstock_broker.warning_throttle import WarningThrottle

__all__ = ["DROPS", "REFUSES", "OverflowEpisodes", "Verb"]

logger = logging.getLogger(__name__)

LOOK_MS: Final = 10_000
OVER_AFTER_MS: Final = 60_000
TOLD_AGAIN_MS: Final = 3_600_000
MOST_EPISODES: Final = 1000
"""Of more queues at a time no line is written; their messages are counted in their states."""


@dataclass(frozen=True, slots=True)
class Verb:
    """What a queue does at its limit, in three forms."""

    does: str
    has_done: str
    cure: str


DROPS: Final = Verb("drops messages", "dropped", "consume from it, raise its limits, or let it Reject")
REFUSES: Final = Verb("refuses messages", "refused", "consume from it, or raise its limits")


@dataclass(slots=True)
class _Episode:
    verb: Verb
    since_ms: int
    last_ms: int
    told_ms: int
    messages: int


class OverflowEpisodes:
    """Of one broker."""

    __slots__ = ("_clock", "_episodes", "_warnings")

    def __init__(self, clock: TurnClock, warnings: WarningThrottle) -> None:
        self._clock = clock
        self._warnings = warnings
        self._episodes: dict[tuple[str, str], _Episode] = {}
        """Those that are not over, by queue and verb."""

    def note(self, queue: str, verb: Verb, messages: int, limits: str) -> None:
        """A queue has dropped or refused so many messages. `limits`: how full it is, and of what, as text."""
        now_ms = self._clock.now_ms
        episode = self._episodes.get((queue, verb.does))
        if episode is not None:
            episode.messages += messages
            episode.last_ms = now_ms
            return
        if len(self._episodes) >= MOST_EPISODES:
            return
        if not self._episodes:
            self._clock.after(LOOK_MS, self._look)
        self._episodes[queue, verb.does] = _Episode(verb, now_ms, now_ms, now_ms, messages)
        self._warnings.warn("The queue %r is full (%s) and %s from now on: %s", queue, limits, verb.does, verb.cure)

    def _look(self) -> None:
        now_ms = self._clock.now_ms
        for (queue, does), episode in list(self._episodes.items()):
            verb = episode.verb
            if now_ms - episode.last_ms >= OVER_AFTER_MS:
                del self._episodes[queue, does]
                self._warnings.warn(
                    "The queue %r has %s nothing for a minute; before it %s %d messages within %d s",
                    queue,
                    verb.has_done,
                    verb.has_done,
                    episode.messages,
                    (episode.last_ms - episode.since_ms) // 1000,
                )
            elif now_ms - episode.told_ms >= TOLD_AGAIN_MS:
                episode.told_ms = now_ms
                self._warnings.warn(
                    "The queue %r still %s: it has %s %d messages within %d s; %s",
                    queue,
                    verb.does,
                    verb.has_done,
                    episode.messages,
                    (now_ms - episode.since_ms) // 1000,
                    verb.cure,
                )
        if self._episodes:
            self._clock.after(LOOK_MS, self._look)
