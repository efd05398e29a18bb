"""`hack/bench flow`: one producer, one consumer, at full speed; Penstock beside a stock reactor broker, in rounds.

Penstock's messages go through a topic and a durable subscription. The stock broker keeps nothing on disk.
"""

from __future__ import annotations

from functools import partial

from benching import machine
from benching.bar_chart import Bar, bars
from benching.brokers import Broker, penstock, stock, topic
from benching.results import Column, Run, medians
from benching.rounds import Job, interleaved, load, place, reported

__all__ = ["BODIES", "COLOURS", "COLUMNS", "chart", "flow", "one_flow"]

BODIES = (
    ("100 B volatile", 100, 0),
    ("1 KiB volatile", 1024, 0),
    ("100 B durable", 100, 1),
    ("1 KiB durable", 1024, 1),
)
"""Case, bytes, durable."""
COLUMNS = (
    Column("messages/s", "rate", ",.0f"),
    Column("broker us/message", "broker_us", ".1f"),
    Column("client us/message", "client_us", ".2f"),
)
COLOURS = ("#054fb9", "#c44601", "#5b7c00", "#8b5fbf", "#b0357a", "#777777")


def flow(seconds: float, rounds: int) -> int:
    """Measure and report; the exit code."""
    with place() as folder, penstock(folder) as ours, stock(folder) as theirs:
        before = machine.described(folder)
        jobs = [
            Job(case, broker.name, partial(one_flow, broker, where, seconds, size=size, durable=durable))
            for case, size, durable in BODIES
            for broker, where in ((ours, topic("bench")), (theirs, dict(theirs.queue)))
            if broker is ours or not durable
        ]
        runs = interleaved(jobs, rounds)
    drawn = chart("Processor time of a message, 1 producer and 1 consumer", "us", medians(runs), "broker_us")
    return reported("flow", before, [(runs, COLUMNS)], {"flow": drawn})


def one_flow(broker: Broker, where: dict[str, str], seconds: float, **options: str | float) -> dict[str, float]:
    """One run at full speed; counted until the last message is accepted and received."""
    return load(broker, {**where, "warmup": 0, "seconds": seconds, **options}).flow()


def chart(title: str, unit: str, rows: list[Run], figure: str) -> str:
    """Bars, grouped by case, a colour for each broker."""
    colours = dict(zip(dict.fromkeys(row.broker for row in rows), COLOURS, strict=False))
    shown = [row for row in rows if figure in row.figures]
    return bars(title, unit, [Bar(row.case, row.broker, colours[row.broker], row.figures[figure]) for row in shown])
