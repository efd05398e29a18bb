"""`hack/bench balance`: one producer and one consumer at full speed: what comes in, what goes out, what waits and how
long; the same of 50 and of 200 producers that send to one consumer, and of 50 that send to two; then beside a steady
flow on another exchange, that flow alone, beside ten producers, and beside ten whose messages nobody takes; ten
producers to ten subscriptions; and consumers with little credit.

The clients are those of the other measurements (load.c); they get a processor before the broker does, so that the
broker is what is slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from benching import machine
from benching.brokers import QUEUE, Broker, penstock
from benching.little_credit import apart, little_credit_jobs
from benching.load_client import Measured
from benching.results import Column, Run, medians, percentile
from benching.rounds import Job, interleaved, load, place, reported

__all__ = ["balance"]

BULK = {"to": "amq.topic/bulk", "from": "amq.topic/bulk", "fromcap": "topic", "name": "bulk"}
SHARED = {**QUEUE, "receivers": "2"}
PACED = {"to": "amq.fanout", "from": "amq.fanout", "fromcap": "topic", "name": "paced"}
PACED_RATE = 1_000
SIZE = 100
COLUMNS = (
    Column("messages/s in", "in", ",.0f"),
    Column("messages/s out", "out", ",.0f"),
    Column("more wait at the end", "grown", ",.0f"),
    Column("p50 ms", "p50_ms", ".2f"),
    Column("p99 ms", "p99_ms", ".2f"),
    Column("p99.9 ms", "p99.9_ms", ".2f"),
    Column("sent late, p99 ms", "late_p99_ms", ".2f"),
)


def balance(seconds: float, rounds: int) -> int:
    """Measure and report; the exit code."""
    with place() as folder, penstock(folder) as broker:
        before = machine.described(folder)
        beside: dict[str, dict[str, float]] = {}
        jobs = [
            Job("1,000/s", "alone", partial(_one, broker, PACED, PACED_RATE, seconds)),
            Job("full speed", "alone", partial(_one, broker, BULK, 0, seconds)),
            Job("50 producers", "alone", partial(_one, broker, BULK, 0, seconds, senders=50)),
            Job("200 producers", "alone", partial(_one, broker, BULK, 0, seconds, senders=200)),
            Job("50 to 2 consumers", "alone", partial(_one, broker, SHARED, 0, seconds, senders=50)),
            Job("1,000/s", "beside full speed", partial(_both, broker, seconds, beside)),
            Job("full speed", "beside 1,000/s", lambda: beside.pop("bulk", {})),
            Job("1,000/s", "beside ten producers", partial(_both, broker, seconds, beside, senders=10)),
            Job("ten producers", "beside 1,000/s", lambda: beside.pop("bulk", {})),
            Job("1,000/s", "beside a backlog", partial(_beside_backlog, broker, seconds, beside)),
            Job("ten producers", "no consumer", lambda: beside.pop("bulk", {})),
            Job("ten producers", "to 10 subscriptions", partial(_to_ten, broker, seconds)),
            *(Job(job.case, "beside ten producers", job.run) for job in little_credit_jobs([broker], seconds)),
        ]
        runs = interleaved(jobs, rounds)
    return reported(
        "balance", before, [(runs, COLUMNS)], {}, {"p99 of 1,000/s, beside full speed to alone": _ratio(runs)},
        heads=("flow", "beside"),
    )  # fmt: skip


def _one(broker: Broker, where: Mapping[str, str], rate: int, seconds: float, *, senders: int = 1) -> dict[str, float]:
    options = {
        **where, "senders": senders, "size": SIZE, "durable": 0, "rate": rate, "seconds": seconds, "warmup": 1.5
    }  # fmt: skip
    return _told(load(broker, options, first=True))


def _both(broker: Broker, seconds: float, beside: dict[str, dict[str, float]], *, senders: int = 1) -> dict[str, float]:
    """The steady flow's figures; those of the flow at full speed are left in `beside`."""
    with ThreadPoolExecutor() as pool:
        bulk = pool.submit(_one, broker, BULK, 0, seconds, senders=senders)
        paced = pool.submit(_one, broker, PACED, PACED_RATE, seconds)
        beside["bulk"] = bulk.result()
        return paced.result()


def _beside_backlog(broker: Broker, seconds: float, beside: dict[str, dict[str, float]]) -> dict[str, float]:
    """The steady flow's figures while ten producers fill a queue that nobody reads; theirs are left in `beside`."""
    shared = {**broker.queue, "size": SIZE, "durable": 0, "rate": 0}
    filling = {**shared, "senders": 10, "receivers": 0, "copies": 0, "warmup": 1.0, "seconds": seconds}
    with ThreadPoolExecutor() as pool:
        bulk = pool.submit(load, broker, filling)
        paced = pool.submit(_one, broker, PACED, PACED_RATE, seconds)
        came = bulk.result().window
        found = paced.result()
    load(broker, {**shared, "senders": 0, "receivers": 1, "warmup": 0, "seconds": 2 * seconds})
    beside["bulk"] = {"in": came.accepted / came.seconds}
    return found


def _to_ten(broker: Broker, seconds: float) -> dict[str, float]:
    """Each subscription gets every message: what goes out is that of one of them."""
    shared = {"to": "amq.fanout", "from": "amq.fanout", "fromcap": "topic", "size": SIZE, "durable": 0, "rate": 0}
    found = apart(broker, seconds, shared, 10, 10, 1_000)
    return {**found, "out": found["out"] / 10}


def _told(found: Measured) -> dict[str, float]:
    part = found.window
    return {
        "in": part.accepted / part.seconds,
        "out": part.received / part.seconds,
        "grown": part.accepted - part.received,
        **{f"{name}_ms": percentile(found.latency, share) / 1e6
           for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))},
        **({"late_p99_ms": percentile(found.late, 0.99) / 1e6} if found.late else {}),
    }  # fmt: skip


def _ratio(runs: list[Run]) -> str:
    p99 = {row.broker: row.figures.get("p99_ms") for row in medians(runs) if row.case == "1,000/s"}
    alone, beside = p99.get("alone"), p99.get("beside full speed")
    return f"{beside / alone:.1f} times" if alone and beside else "a measurement failed"
