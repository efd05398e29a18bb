"""`hack/bench latency`: how long durable messages of 1 KiB take at a steady rate, from when each was due.

The loop is open: a message is due whether the broker keeps up or not, and its time counts from that moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from benching import machine
from benching.brokers import Broker, penstock, topic
from benching.flow import COLOURS
from benching.log_chart import Line, LogChart
from benching.results import Column, Run, medians
from benching.rounds import Job, interleaved, load, place, reported

__all__ = ["COLUMNS", "PERCENTILES", "RATES", "latency", "latency_chart", "latency_jobs"]

RATES = (1_000, 5_000, 50_000)
PERCENTILES = ("p50", "p90", "p99", "p99.9")
COLUMNS = (
    Column("delivered/s", "rate", ",.0f"),
    *(Column(f"{name} ms", f"{name}_ms", ".2f") for name in PERCENTILES),
    Column("sent late, p99 ms", "late_p99_ms", ".2f"),
    Column("broker us/message", "broker_us", ".1f"),
)


def latency(rates: Sequence[int], seconds: float, rounds: int) -> int:
    """Measure and report; the exit code."""
    with place() as folder, penstock(folder) as broker:
        before = machine.described(folder)
        runs = interleaved(latency_jobs([(broker, topic("bench"))], rates, seconds), rounds)
    lines = [Line(name, COLOURS[at], _points(medians(runs), f"{name}_ms")) for at, name in enumerate(PERCENTILES)]
    return reported(
        "latency", before, [(runs, COLUMNS)], {"latency": _drawn("Latency of durable messages of 1 KiB", lines)}
    )


def latency_jobs(
    brokers: Sequence[tuple[Broker, Mapping[str, str]]], rates: Sequence[int], seconds: float
) -> list[Job]:
    """Each broker, at each rate."""
    return [
        Job(f"{rate:,}/s", broker.name, partial(_one, broker, where, rate, seconds))
        for rate in rates
        for broker, where in brokers
    ]


def latency_chart(rows: Sequence[Run], percentile: str) -> str:
    """One percentile of several brokers against the rate."""
    names = list(dict.fromkeys(row.broker for row in rows))
    lines = [
        Line(name, colour, _points([row for row in rows if row.broker == name], f"{percentile}_ms"))
        for name, colour in zip(names, COLOURS, strict=False)
    ]
    return _drawn(f"{percentile} of the latency of durable messages of 1 KiB", lines)


def _one(broker: Broker, where: Mapping[str, str], rate: int, seconds: float) -> dict[str, float]:
    return load(broker, {**where, "rate": rate, "seconds": seconds}).latencies(rate)


def _points(rows: Sequence[Run], figure: str) -> list[tuple[float, float]]:
    timed = [row for row in rows if row.case.endswith("/s") and figure in row.figures]
    return [(int(row.case[:-2].replace(",", "")), row.figures[figure]) for row in timed]


def _drawn(title: str, lines: Sequence[Line]) -> str:
    return LogChart(title, "messages per second", (3, 5), (-1, 3), " ms").drawn(lines)
