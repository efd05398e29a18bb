"""A queue that is told what happens to it, for the scenarios of the rules: every ten seconds it leaves a snapshot.

It knows arithmetic only: who arrives and who leaves. What state that is, the tests say.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from penstock_lag_rules.figures import Coverage, Figures, Growth, RepeatedMessage, Subject
from penstock_lag_rules.history import Snapshot, figures_of
from penstock_lag_rules.rules import LagVerdict, judge
from penstock_lag_rules.thresholds import Thresholds

STEP_MS = 10_000
START_MS = 1_700_000_000_000
WINDOW_MS = 300_000
THRESHOLDS = Thresholds()


class QueueStory:
    """One queue and its snapshots."""

    def __init__(self, *, consumers: int = 2) -> None:
        self.snapshots: list[Snapshot] = []
        self._now_ms = START_MS
        self._waiting: deque[int] = deque()
        self._totals = Growth()
        self._consumers = consumers
        self._unused_since_ms: int | None = None if consumers else START_MS
        self._life = ("i1", 1, 7, 0)
        self._snap({})

    def run(
        self,
        seconds: int,
        *,
        arrive: int = 0,
        accept: int = 0,
        reject: int = 0,
        expire: int = 0,
        drop: int = 0,
        redeliver: int = 0,
        consumers: int | None = None,
        **standing: Any,
    ) -> None:
        """Go on for so long. `arrive` to `redeliver` are messages for each step of ten seconds; what leaves is the
        oldest, as far as there is something. `standing` are fields of `Snapshot`.
        """
        if consumers is not None and consumers != self._consumers:
            self._consumers = consumers
            self._unused_since_ms = None if consumers else self._now_ms
        for _ in range(seconds * 1000 // STEP_MS):
            self._now_ms += STEP_MS
            self._waiting.extend([self._now_ms - STEP_MS // 2] * arrive)
            gone = {"expired": self._take(expire), "dropped": self._take(drop), "dead_lettered": self._take(reject)}
            gone["acked"] = self._take(accept)
            added = {
                **gone,
                "enqueued": arrive,
                "delivered": gone["acked"] + gone["dead_lettered"] + redeliver,
                "redelivered": redeliver,
            }
            self._totals = replace(
                self._totals, **{name: getattr(self._totals, name) + count for name, count in added.items()}
            )
            self._snap(standing)

    def restart(self, lost: int) -> None:
        """The broker starts again, without so many messages that were not durable."""
        self._take(lost)
        self._life = ("i1", self._life[1] + 1, 7, 0)
        self._totals = Growth(lost_at_restart=self._totals.lost_at_restart + lost)
        self._now_ms += STEP_MS
        self._snap({})

    def restore(self, depth: int) -> None:
        """The broker starts again with the data folder of a backup, in which so many messages waited for an hour."""
        self._waiting = deque([self._now_ms - 3_600_000] * depth)
        self._life = ("i1", self._life[1], 7, self._now_ms)
        self._totals = Growth(enqueued=self._totals.enqueued // 2, acked=self._totals.acked // 2)
        self._now_ms += STEP_MS
        self._snap({})

    def purge(self, count: int) -> None:
        """An administrator deletes the oldest; the next snapshot shows it."""
        self._totals = replace(self._totals, purged=self._totals.purged + self._take(count))

    def set_clock(self, by_ms: int) -> None:
        """The broker's clock is set."""
        self._now_ms += by_ms

    def figures(self, coverage: Coverage | None = None) -> Figures:
        """Of the last five minutes."""
        last_ms = self.snapshots[-1].time_ms
        window = [each for each in self.snapshots if each.time_ms >= last_ms - WINDOW_MS]
        elapsed_ms = window[-1].time_ms - window[0].time_ms
        covered = coverage or Coverage(
            last_poll_ms=last_ms,
            elapsed_ms=elapsed_ms,
            polls=len(window),
            interval_ms=STEP_MS,
        )
        return figures_of(Subject(ordinal=0, queue_name="q"), covered, window, THRESHOLDS)

    def verdict(self) -> LagVerdict:
        """What the rules say now."""
        return judge(self.figures(), THRESHOLDS, self.snapshots[-1].time_ms, None)

    def _take(self, count: int) -> int:
        count = min(count, len(self._waiting))
        for _ in range(count):
            self._waiting.popleft()
        return count

    def _snap(self, standing: dict[str, Any]) -> None:
        depth = len(self._waiting)
        in_flight = min(standing.get("in_flight", 0), depth)
        made = Snapshot(
            time_ms=self._now_ms,
            life=self._life,
            depth=depth,
            ready=depth - in_flight,
            in_flight=in_flight,
            oldest_available_ms=self._waiting[0] if self._waiting else None,
            consumers=self._consumers,
            credit=10 * self._consumers,
            usable_credit=10 * self._consumers if depth - in_flight else 0,
            unused_since_ms=self._unused_since_ms,
            totals=self._totals,
        )
        self.snapshots.append(replace(made, **{**standing, "in_flight": in_flight}))


def poisoned(count: int) -> tuple[RepeatedMessage, ...]:
    """One message whose delivery failed so often."""
    return (RepeatedMessage("ID:poison-1", count, 400_000),)
