"""Polls of a broker that was not there: subscriptions with the figures that real traffic would give them.

A busy subscription has a rate between 1 and 200 messages per second, which wanders, and two days of history in its
histograms; an idle one has messages in its past and none now. Made from a seed, so that two runs see the same polls.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock_api.state_documents import BrokerState, DurationHistogram, SubscriptionState
from penstock_observer.rows import Poll

__all__ = ["INTERVAL_MS", "START_MS", "polls"]

START_MS = 1_700_002_800_000
"""A full hour."""
INTERVAL_MS = 10_000
HISTORY_MESSAGES = 20_000_000
SAMPLES = 30
"""Durations that are drawn per poll; each stands for as many messages as are needed."""
BODY_BYTES = 900


@dataclass(slots=True)
class Durations:
    """A cumulative histogram of log-normal durations."""

    median_ms: float
    counts: dict[int, int] = field(default_factory=dict[int, int])
    sum_ms: int = 0

    def fill(self, messages: int, sigma: float = 1.0) -> None:
        """The shape of a long history."""
        middle = math.log2(self.median_ms) * 8
        width = sigma / math.log(2) * 8
        for bucket in range(-1, int(middle + 5 * width)):
            share = math.exp(-(((bucket - middle) / width) ** 2) / 2) / (width * math.sqrt(2 * math.pi))
            count = int(messages * share)
            if count > 0:
                self.counts[bucket] = count
                self.sum_ms += int(count * 2 ** (bucket / 8))

    def add(self, chance: random.Random, messages: int) -> None:
        """Some more."""
        samples = min(messages, SAMPLES)
        for sample in range(samples):
            weight = (messages * (sample + 1)) // samples - (messages * sample) // samples
            milliseconds = self.median_ms * math.exp(chance.gauss(0, 1))
            bucket = max(math.ceil(math.log2(max(milliseconds, 0.5)) * 8) - 1, -1)
            self.counts[bucket] = self.counts.get(bucket, 0) + weight
            self.sum_ms += int(milliseconds * weight)

    def document(self) -> DurationHistogram:
        """As the broker sends it."""
        indexes = sorted(self.counts)
        return DurationHistogram.model_construct(
            indexes=tuple(indexes), counts=tuple(self.counts[each] for each in indexes), sum_ms=self.sum_ms
        )


class Queue:
    """One subscription."""

    def __init__(self, number: int, chance: random.Random, busy: bool) -> None:
        self.name = f"psub:durable:global:team-{number % 40}.service-{number}"
        self.chance, self.busy = chance, busy
        self.rate = 2 ** chance.uniform(0, 7.6)
        history = int(HISTORY_MESSAGES * chance.random()) + 1000
        self.enqueued = self.acked = self.delivered = history
        self.redelivered = history // 1000
        self.sojourn, self.wait = Durations(2 ** chance.uniform(3, 9)), Durations(2 ** chance.uniform(1, 5))
        self.hold = Durations(2 ** chance.uniform(2, 8))
        for durations in (self.sojourn, self.wait, self.hold):
            durations.fill(history)
        self.in_flight = 0

    def step(self) -> None:
        """Ten seconds of traffic."""
        self.rate = min(max(self.rate * math.exp(self.chance.gauss(0, 0.05)), 1), 200)
        mean = self.rate * INTERVAL_MS / 1000
        arrived = max(round(self.chance.gauss(mean, math.sqrt(mean))), 0)
        depth = self.enqueued - self.acked + arrived
        settled = min(depth, max(round(self.chance.gauss(mean, math.sqrt(mean))), 0))
        repeated = settled // 500
        self.enqueued += arrived
        self.acked += settled
        self.redelivered += repeated
        self.in_flight = min(self.enqueued - self.acked, self.chance.randrange(100))
        self.delivered = self.acked + self.in_flight + self.redelivered
        for durations in (self.sojourn, self.wait, self.hold):
            durations.add(self.chance, settled)

    def state(self, now_ms: int) -> SubscriptionState:
        """What the broker says of it."""
        if self.busy:
            self.step()
        depth = self.enqueued - self.acked
        return SubscriptionState.model_construct(
            queue_name=self.name, subscription_name=self.name.rpartition(":")[2], scope="Global", sharing="Shared",
            durable=True, expiry_policy="Never", exchange="events", binding_keys=("#",), incarnation=11, revision=5,
            depth=depth, depth_bytes=depth * BODY_BYTES, ready=depth - self.in_flight, in_flight=self.in_flight,
            oldest_available_ms=now_ms - self.chance.randrange(3000) if depth else None,
            oldest_hold_ms=now_ms - self.chance.randrange(300) if self.in_flight else None,
            consumers=3 if self.busy else 0, credit=300 - self.in_flight if self.busy else 0, usable_consumers=3,
            usable_credit=300 - self.in_flight if depth > self.in_flight else 0,
            unused_since_ms=None if self.busy else START_MS - 3_600_000,
            enqueued=self.enqueued, enqueued_bytes=self.enqueued * BODY_BYTES, delivered=self.delivered,
            redelivered=self.redelivered, acked=self.acked, returned=self.redelivered,
            sojourn=self.sojourn.document(), wait=self.wait.document(), hold=self.hold.document(),
        )  # fmt: skip


def polls(subscriptions: int, busy: bool, count: int, seed: int = 10) -> Iterator[Poll]:
    """So many polls, ten seconds apart, of so many subscriptions."""
    chance = random.Random(seed)
    queues = [Queue(number, chance, busy) for number in range(subscriptions)]
    for number in range(count):
        now_ms = START_MS + number * INTERVAL_MS + chance.randrange(5)
        broker = BrokerState.model_construct(
            instance_id="8d5f0c1e-5a1f-4f0e-a2a0-7e4d6f1f0c11", epoch=3, version="0.1.0", started_ms=START_MS - 60_000,
            now_ms=now_ms, connections=subscriptions, subscriptions=subscriptions, exchanges=1, queues=0,
            durable_work="Ok", log_bytes=4096, log_segments=1, log_syncs=7, turns=99,
        )  # fmt: skip
        yield Poll(broker, tuple(queue.state(now_ms) for queue in queues))
