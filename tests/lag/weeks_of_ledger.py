"""A broker, its observer and their ledger over weeks, in memory, with the truth written beside it.

A poll comes once a minute. Between polls messages arrive and leave, subscriptions are deleted and made anew, the broker
restarts, gets a new volume, and has its clock set; segments are sealed, merged and outlived as the observer does it, by
its own rules, and some are damaged or gone. Every event that a poll can't see (the end of a life, a restart) is in a
minute in which no message moves, so what the totals say is all that happened.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from penstock_api.ledger_format import SegmentName
from penstock_api.observer_api import SegmentInfo, SegmentList
from penstock_lag_rules.figures import TOTALS
from penstock_observer.merge_plan import LoggedPoll, Mergeable, kept_polls, plan_merge
from penstock_observer.observed_time import longest_gap_ms
from penstock_observer.retention import KeptSegment, RetentionLimits, surplus

__all__ = ["MINUTE_MS", "Moment", "Weeks"]

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
BEGIN_MS: Final = 1_700_006_400_000
"""2023-11-15T00:00:00Z."""
POLLS_PER_SEGMENT: Final = 5
LIMITS: Final = RetentionLimits(48 * HOUR_MS, 1 << 40)
Row = dict[str, Any]


@dataclass
class Queue:
    """One subscription as it is now."""

    incarnation: int
    totals: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOTALS, 0))
    depth: int = 0
    consumers: int = 2
    waits_since_ms: int | None = None
    is_fresh: bool = True
    """No poll has seen this life yet."""


@dataclass(frozen=True)
class Moment:
    """What is true at a poll."""

    seq: int
    """Of its broker row."""
    true_ms: int
    """Time that has passed since the beginning, whatever the clock shows."""
    clock_ms: int
    course: int
    """How often the clock was set back before it."""
    has: dict[str, int]
    """The subscriptions that are there, and the number of the life of each."""
    incarnations: dict[str, int]
    """The number of the queue of each: another one if it was deleted and made anew, also with a new volume."""
    done: dict[str, dict[str, int]]
    """What each has done since the beginning, all its lives together."""
    born: dict[str, dict[str, int]]
    """What each had done when its present life began."""


@dataclass
class Segment:
    """A sealed segment."""

    name: SegmentName
    rows: list[Row]
    thinned: bool = False

    def __post_init__(self) -> None:
        """Its times are asked for again and again."""
        times = [row["time_ms"] for row in self.rows if row["kind"] == "broker"]
        self.first_ms, self.last_ms = min(times), max(times)
        self.info = SegmentInfo(
            name=str(self.name), bytes=1, rows=len(self.rows), first_ms=self.first_ms, last_ms=self.last_ms
        )


class Weeks:
    """See above. `step` goes on by a minute."""

    def __init__(self, seed: int, names: Iterable[str] = ("a", "b", "c"), *, calm: bool = False) -> None:
        """`calm`: the clock is never set."""
        self.random = Random(seed)
        self.names = [*names]
        self.calm = calm
        self.true_ms = 0
        self.offset_ms = 0
        self.course = 0
        self.instance, self.epoch, self.started_ms = 1, 1, BEGIN_MS
        self.incarnations = self.lives = 0
        self.queues: dict[str, Queue] = {}
        self.life_of: dict[str, int] = {}
        self.done = {name: dict.fromkeys(TOTALS, 0) for name in self.names}
        self.born = {name: dict.fromkeys(TOTALS, 0) for name in self.names}
        self.moments: list[Moment] = []
        self.segments: list[Segment] = []
        self.damaged: set[str] = set()
        self.waiting: list[Row] = []
        self.next_seq = 1
        self.step_ms = 0
        for name in self.names:
            self._make(name)

    @property
    def clock_ms(self) -> int:
        return BEGIN_MS + self.true_ms + self.offset_ms

    def listing(self) -> SegmentList:
        """What the observer tells the job."""
        return SegmentList(
            broker="main",
            namespace="shop",
            ordinal=0,
            epoch=self.epoch,
            reachable=True,
            polled_ms=self.clock_ms,
            segments=tuple(each.info for each in self.segments),
        )

    def rows_of(self, names: Iterable[str]) -> list[Row]:
        """The rows of these segments."""
        wanted = set(names)
        return [row for each in self.segments if str(each.name) in wanted for row in each.rows]

    def step(self) -> None:
        """One minute, and the poll at its end."""
        self.true_ms += MINUTE_MS
        if not self._quiet_event():
            self._work()
        self._poll()

    # -- what happens ------------------------------------------------------------------------------------------------

    def _happens(self, once_in: int) -> bool:
        return self.random.randrange(once_in) == 0

    def _quiet_event(self) -> bool:
        """Something that a poll sees only by its result; no message moves in this minute."""
        if self._happens(700):
            self._restart()
        elif self._happens(2500):
            self._new_volume()
        elif not self.calm and self._happens(1200):
            self._set_clock(-self.random.choice([5, 20, 70, 200]) * MINUTE_MS)
        elif not self.calm and self._happens(1200):
            self._set_clock(self.random.choice([5, 20, 70, 3000]) * MINUTE_MS)
        elif self._happens(60):
            name = self.random.choice(self.names)
            if name in self.queues:
                self._end(name)
                if self._happens(2):
                    self._make(name)
            else:
                self._make(name)
        else:
            return False
        return True

    def _restart(self) -> None:
        self.true_ms += self.random.randrange(12) * MINUTE_MS
        self.epoch += 1
        self.started_ms = self.clock_ms
        for name, queue in self.queues.items():
            lost = self.random.randrange(queue.depth + 1)
            queue.depth -= lost
            self.done[name]["lost_at_restart"] += lost
            queue.totals = dict.fromkeys(TOTALS, 0) | {"lost_at_restart": queue.totals["lost_at_restart"] + lost}
            self._lives(name)

    def _new_volume(self) -> None:
        self.instance += 1
        self.epoch, self.started_ms = 1, self.clock_ms
        for name in [*self.queues]:
            self._end(name)
            self._make(name)

    def _set_clock(self, by_ms: int) -> None:
        self._seal()
        self.offset_ms += by_ms
        self.step_ms = by_ms
        self.course += by_ms < 0

    def _make(self, name: str) -> None:
        self.incarnations += 1
        self.queues[name] = Queue(self.incarnations)
        self._lives(name)

    def _lives(self, name: str) -> None:
        self.lives += 1
        self.life_of[name] = self.lives
        self.born[name] = dict(self.done[name])

    def _end(self, name: str) -> None:
        del self.queues[name], self.life_of[name]

    def _work(self) -> None:
        for name, queue in self.queues.items():
            if self._happens(200):
                queue.consumers = self.random.randrange(4)
            self._count(name, queue, "enqueued", self.random.randrange(40))
            taken = self.random.randrange(min(queue.depth, 60) + 1) if queue.consumers else 0
            self._count(name, queue, "delivered", taken)
            self._count(name, queue, "acked", taken)
            self._count(name, queue, "expired", self.random.randrange(queue.depth + 1) if self._happens(30) else 0)
            if queue.depth == 0:
                queue.waits_since_ms = None
            elif taken or queue.waits_since_ms is None:
                queue.waits_since_ms = self.true_ms

    def _count(self, name: str, queue: Queue, total: str, by: int) -> None:
        queue.totals[total] += by
        self.done[name][total] += by
        queue.depth += {"enqueued": by, "acked": -by, "expired": -by}.get(total, 0)

    # -- what is observed --------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        now_ms = self.clock_ms
        run = (self.instance, self.epoch)
        before = self.waiting[-1] if self.waiting else None
        if before is not None and (
            (before["instance"], before["epoch"]) != (f"i{run[0]}", run[1])
            or before["time_ms"] // HOUR_MS != now_ms // HOUR_MS
        ):
            self._seal()
        seq = self.next_seq + len(self.waiting)
        poll = seq + len(self.queues)
        common = {
            "poll": poll,
            "time_ms": now_ms,
            "ordinal": 0,
            "instance": f"i{run[0]}",
            "epoch": run[1],
            "started_ms": self.started_ms,
        }
        for place, (name, queue) in enumerate(sorted(self.queues.items())):
            self.waiting.append(common | {"kind": "subscription", "seq": seq + place} | self._row(name, queue))
        self.waiting.append(
            common
            | {
                "kind": "broker",
                "queue_name": None,
                "seq": poll,
                "interval_ms": MINUTE_MS,
                "complete": True,
                "clock_step_ms": self.step_ms,
            }
        )
        self.step_ms = 0
        moment = Moment(
            seq=poll,
            true_ms=self.true_ms,
            clock_ms=now_ms,
            course=self.course,
            has=dict(self.life_of),
            incarnations={name: queue.incarnation for name, queue in self.queues.items()},
            done={name: dict(found) for name, found in self.done.items()},
            born={name: dict(found) for name, found in self.born.items()},
        )
        self.moments.append(moment)
        if sum(row["kind"] == "broker" for row in self.waiting) >= POLLS_PER_SEGMENT:
            self._seal()

    def _row(self, name: str, queue: Queue) -> Row:
        waits_since = None if queue.waits_since_ms is None else BEGIN_MS + queue.waits_since_ms + self.offset_ms
        return {
            "queue_name": name,
            "incarnation": queue.incarnation,
            "depth": queue.depth,
            "ready": queue.depth,
            "in_flight": 0,
            "scheduled": 0,
            "stranded": 0,
            "oldest_available_ms": waits_since,
            "consumers": queue.consumers,
            "credit": 10 * queue.consumers,
            "usable_credit": 10 * queue.consumers,
            "usable_consumers": queue.consumers,
            **queue.totals,
        }

    def _seal(self) -> None:
        if not self.waiting:
            return
        name = SegmentName(self.waiting[0]["seq"], self.waiting[-1]["seq"], self.waiting[0]["epoch"])
        self.segments.append(Segment(name, self.waiting))
        self.next_seq, self.waiting = name.last + 1, []
        if self._happens(25):
            self.damaged.add(str(name))
        if self._happens(120) and len(self.segments) > 1:
            self.segments.pop(self.random.randrange(max(len(self.segments) - 5, 0), len(self.segments) - 1))
        while self._merge():
            pass
        kept = [KeptSegment(each.name, 1, each.first_ms, each.last_ms) for each in self.segments]
        gone = set(surplus(kept, LIMITS, self.clock_ms, longest_gap_ms(MINUTE_MS)))
        self.segments = [each for each in self.segments if each.name not in gone]

    def _merge(self) -> bool:
        mergeable = [
            Mergeable(each.name, 1, each.first_ms, each.last_ms, each.thinned)
            for each in self.segments
            if str(each.name) not in self.damaged
        ]
        due = {each.name for each in plan_merge(mergeable, gap_ms=longest_gap_ms(MINUTE_MS))}
        if not due:
            return False
        inside = [each for each in self.segments if each.name in due]
        rows = _thinned([row for each in inside for row in each.rows])
        name = SegmentName(inside[0].name.first, inside[-1].name.last, inside[0].name.epoch)
        place = self.segments.index(inside[0])
        self.segments = [each for each in self.segments if each.name not in due]
        self.segments.insert(place, Segment(name, rows, thinned=True))
        return True


def _thinned(rows: list[Row]) -> list[Row]:
    """As penstock_observer.segment_merge says what stays."""
    polls = [row for row in rows if row["kind"] == "broker"]
    kept = kept_polls(
        LoggedPoll(row["seq"], row["time_ms"], row["complete"], row["instance"], row["started_ms"]) for row in polls
    )
    ends: dict[Any, list[int]] = {}
    for row in rows:
        if row["kind"] == "subscription":
            life = (row["queue_name"], row["instance"], row["epoch"], row["started_ms"], row["incarnation"])
            ends.setdefault(life, []).append(row["seq"])
    last = {seq for found in ends.values() for seq in (found[0], found[-1])}
    return [
        row | ({"complete": row["complete"] and row["seq"] in kept} if row["kind"] == "broker" else {})
        for row in rows
        if row["kind"] == "broker" or row["poll"] in kept or row["seq"] in last
    ]
