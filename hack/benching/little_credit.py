"""Consumers with little credit beside producers at full speed, as JMS clients with a small prefetch are.

Producers and consumers are processes of their own: a client that is both answers late while it sends.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from benching.brokers import Broker
from benching.results import Column
from benching.rounds import Job, load

__all__ = ["CASES", "COLUMNS", "apart", "little_credit_jobs"]

CASES = (
    ("1 consumer, credit 1", 1, 1),
    ("1 consumer, credit 10", 1, 10),
    ("50 consumers, credit 1", 50, 1),
    ("50 consumers, credit 10", 50, 10),
)
"""Case, consumers, the credit of each."""
PRODUCERS = 10
SIZE = 100
COLUMNS = (Column("messages/s in", "in", ",.0f"), Column("messages/s out", "out", ",.0f"))
WARM_SECONDS = 1.0
AHEAD_SECONDS = 0.3


def little_credit_jobs(brokers: Sequence[Broker], seconds: float) -> list[Job]:
    """All cases on all brokers. Each has a queue, which is empty again at the end."""
    return [
        Job(case, broker.name, partial(_both, broker, seconds, consumers, credit))
        for case, consumers, credit in CASES
        for broker in brokers
    ]


def _both(broker: Broker, seconds: float, consumers: int, credit: int) -> dict[str, float]:
    shared = {**broker.queue, "size": SIZE, "durable": 0, "rate": 0}
    found = apart(broker, seconds, shared, PRODUCERS, consumers, credit)
    load(broker, {**shared, "senders": 0, "receivers": 1, "credit": 1_000, "warmup": 0, "seconds": 2 * seconds})
    return found


def apart(
    broker: Broker, seconds: float, shared: Mapping[str, str | float], producers: int, consumers: int, credit: int
) -> dict[str, float]:
    """How many messages a second come in, and go out to all consumers together. The consumers begin first, as a topic
    keeps nothing for those to come.
    """
    with ThreadPoolExecutor() as pool:
        consuming = {**shared, "senders": 0, "receivers": consumers, "credit": credit}
        got = pool.submit(load, broker, {**consuming, "warmup": WARM_SECONDS + AHEAD_SECONDS, "seconds": seconds})
        time.sleep(AHEAD_SECONDS)
        producing = {**shared, "senders": producers, "receivers": 0, "copies": 0}
        sent = pool.submit(load, broker, {**producing, "warmup": WARM_SECONDS, "seconds": seconds})
        came, went = sent.result().window, got.result().window
    return {"in": came.accepted / came.seconds, "out": went.received / went.seconds}
