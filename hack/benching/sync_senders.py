"""`hack/bench sync`: producers that each wait for the accept of a durable message of 1 KiB before they send the next.

What the disk allows is measured in the same round: if every producer waits, so many messages can at best be in one
fdatasync, and nothing is accepted before it is over. So is what disk and sockets allow together: a server in C that
does nothing but receive, sync and answer (sync_echo.c).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from benching import machine
from benching.brokers import Broker, penstock, topic
from benching.flow import COLOURS
from benching.load_client import synced_echoes
from benching.log_chart import Line, LogChart
from benching.results import Column, Run, medians, relative
from benching.rounds import Job, interleaved, load, place, reported

__all__ = ["COLUMNS", "ECHO", "LIMIT", "SENDERS", "chart", "sync", "sync_jobs"]

SENDERS = (1, 10, 50, 200)
LIMIT = "fdatasync limit"
ECHO = "syncing C echo server"
LIMIT_SECONDS = 1.0
COLUMNS = (
    Column("accepts/s", "rate", ",.0f"),
    Column("of fdatasync", "share", ".0%"),
    Column("of the echo", "of_echo", ".0%"),
    Column("p50 ms", "p50_ms", ".2f"),
    Column("p99 ms", "p99_ms", ".2f"),
    Column("broker us/message", "broker_us", ".1f"),
)


def sync(senders: Sequence[int], seconds: float, rounds: int, disk_milliseconds: int) -> int:
    """Measure and report; the exit code. `disk_milliseconds`: what each write of the disk takes longer."""
    with place(disk_milliseconds) as folder, penstock(folder) as broker:
        before = machine.described(folder)
        runs = interleaved(sync_jobs(folder, [(broker, topic("bench"))], senders, seconds), rounds)
    runs = relative(relative(runs, LIMIT, "rate", "share"), ECHO, "rate", "of_echo")
    return reported("sync", before, [(runs, COLUMNS)], {"sync": chart(medians(runs))})


def sync_jobs(
    folder: Path, brokers: Sequence[tuple[Broker, Mapping[str, str]]], senders: Sequence[int], seconds: float
) -> list[Job]:
    """The limit and each broker, for each number of producers."""
    jobs: list[Job] = []
    for count in senders:
        case = f"{count} waiting"
        jobs.append(Job(case, LIMIT, partial(_limit, folder, count)))
        jobs.append(Job(case, ECHO, partial(synced_echoes, folder / "echo", count, LIMIT_SECONDS)))
        jobs += [Job(case, broker.name, partial(_waiting, broker, where, count, seconds)) for broker, where in brokers]
    return jobs


def chart(rows: Sequence[Run]) -> str:
    """Accepts per second against producers."""
    points: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.case.endswith(" waiting") and "rate" in row.figures:
            points.setdefault(row.broker, []).append((int(row.case.split()[0]), row.figures["rate"]))
    lines = [Line(name, colour, found) for (name, found), colour in zip(points.items(), COLOURS[::-1], strict=False)]
    title = "Durable messages accepted per second, against the producers that wait for each accept"
    return LogChart(title, "producers that wait for each accept", (0, 3), (2, 6), "/s").drawn(lines)


def _limit(folder: Path, count: int) -> dict[str, float]:
    rate, each = machine.disk_limit(folder, count, LIMIT_SECONDS)
    return {"rate": rate, "p50_ms": each * 1e3}


def _waiting(broker: Broker, where: Mapping[str, str], count: int, seconds: float) -> dict[str, float]:
    return load(broker, {**where, "senders": count, "window": 1, "seconds": seconds}).answers()
