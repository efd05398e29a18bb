"""The live state over hours in which everything happens to a subscription: each figure is that of a model, or Unknown.

The subscription is deleted and made anew, under the same name, with and without a poll in between; its broker restarts,
comes back with an empty volume, or from a backup; and its clock is set back by an hour and forward by a day.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest
from observer.samples import START_MS, a_poll, a_subscription

from penstock_api.lag_result import LagState, SubscriptionLag
from penstock_lag_rules.thresholds import Thresholds
from penstock_observer.live_lag import LiveLag
from penstock_observer.rows import Poll

EVENTS = ("anew", "deleted", "restart", "volume", "backup", "back", "forward")
STEPS_MS = {"back": -3_600_000, "forward": 86_400_000}


@dataclass
class World:
    """What happens, and what somebody knows who never sleeps. Nothing arrives between a restart and the first poll."""

    chance: random.Random
    clock_ms: int = START_MS
    epoch: int = 3
    volume: int = 1
    incarnation: int = 10
    started_ms: int = START_MS
    life: tuple[int, int] = (0, 0)
    """Arrived and dropped in its present life: what the broker tells."""
    ever: tuple[int, int] = (0, 0)
    seconds: int = 0
    """True ones."""
    clock_was_set: int = -(10**9)
    run_is_known: bool = False
    """A complete poll of this run was seen: what appears later began empty."""
    seen: list[tuple[int, int, int, int]] = field(default_factory=list[tuple[int, int, int, int]])
    """Of each poll since this queue is watched without a break, and within five minutes: seconds, arrived and dropped
    ever, and dropped before what is counted from here: of a queue that was made after the poll before, all of it.
    """

    def step(self, event: str) -> Poll:
        """Ten seconds later."""
        step_ms = STEPS_MS.get(event, 0)
        self.seconds += 10
        self.clock_ms += 10_000 + step_ms
        is_start = event in ("restart", "volume", "backup")
        if is_start:
            self.epoch += event == "restart"
            self.volume += event == "volume"
            self.started_ms, self.run_is_known = self.clock_ms, False
        if event in ("anew", "deleted") or is_start:
            self.incarnation += not is_start
            self.life = (0, 0)
        if event in ("anew", "volume"):
            self.seen = []  # another queue
        if step_ms:
            self.seen, self.clock_was_set, self.run_is_known = [], self.seconds, False
        poll = self._gone() if event == "deleted" else self._there(is_start)
        self.run_is_known = True
        return replace(poll, clock_step_ms=step_ms)

    def _gone(self) -> Poll:
        self.seen = []
        return self._poll()

    def _there(self, is_start: bool) -> Poll:
        came, lost = (0, 0) if is_start else (self.chance.randrange(20), self.chance.choice([0] * 9 + [1]))
        is_born, dropped_before = not self.seen and self.run_is_known, self.ever[1]
        self.life = (self.life[0] + came, self.life[1] + lost)
        self.ever = (self.ever[0] + came, self.ever[1] + lost)
        self.seen = [each for each in self.seen if each[0] >= self.seconds - 300]
        self.seen.append((self.seconds, *self.ever, dropped_before if is_born else self.ever[1]))
        arrived, dropped = self.life
        return self._poll(
            a_subscription(
                depth=3, ready=3, oldest_available_ms=self.clock_ms - 5_000, incarnation=self.incarnation,
                enqueued=arrived, dropped=dropped, acked=arrived, delivered=arrived,
            )
        )  # fmt: skip

    def _poll(self, *states: object) -> Poll:
        run = {"epoch": self.epoch, "instance_id": f"i-{self.volume}", "started_ms": self.started_ms}
        return a_poll(self.clock_ms, *states, **run)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    def expected(self) -> tuple[int, int]:
        """Messages a minute from the first look to the last; lost messages, those before the first look included."""
        (first, arrived, _, dropped_before), (last, arrived_by_now, dropped_by_now, _) = self.seen[0], self.seen[-1]
        return round((arrived_by_now - arrived) * 60 / (last - first)), dropped_by_now - dropped_before


@pytest.mark.parametrize("seed", range(3))
def test_each_figure_is_true_or_unknown_whatever_happens(seed: int) -> None:
    """After a step of the clock, five minutes are Unknown."""
    chance = random.Random(seed)
    world = World(chance)
    lag = LiveLag(0, 10_000, Thresholds())
    told: list[SubscriptionLag] = []
    for _ in range(300):
        event = chance.choice(EVENTS) if chance.randrange(15) == 0 else "none"
        lag.observe(world.step(event))
        for found in lag.lags():
            assert (found.messages, found.oldest_age_seconds) == (3, 5)
            if found.state is LagState.UNKNOWN:
                continue
            told.append(found)
            assert world.seconds - world.clock_was_set > 300
            arrival, lost = world.expected()
            assert found.arrival_per_minute is not None
            assert abs(found.arrival_per_minute - arrival) <= 1, event
            assert found.lost == lost, event
    assert len(told) > 20
