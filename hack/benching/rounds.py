"""Runs measurements in turn, A-B-A-B, so that what else the machine does meets all of them alike; shows progress."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benching.brokers import Broker
from benching.load_client import LoadFailed, Measured, run_load
from benching.results import BUILD, Column, Run, keep, medians, table
from benching.slow_disk import slow_disk

__all__ = ["Job", "interleaved", "load", "place", "reported"]


class Job(NamedTuple):
    """What is measured in every round."""

    case: str
    broker: str
    run: Callable[[], Mapping[str, float]]


def load(broker: Broker, options: Mapping[str, str | float], *, first: bool = False) -> Measured:
    """The client on a broker. `first`: see `run_load`."""
    return run_load({**broker.reached, **options}, first=first)


def interleaved(jobs: Sequence[Job], rounds: int) -> list[Run]:
    """All jobs, one after the other, so many times. A run has no figures if its load failed."""
    runs: list[Run] = []
    began = time.monotonic()
    for number in range(1, rounds + 1):
        for at, job in enumerate(jobs):
            figures: Mapping[str, float] = {}
            try:
                figures = job.run()
            except LoadFailed as failure:
                print(f"  round {number}/{rounds}  {job.case}, {job.broker}: {failure}", flush=True)
            runs.append(Run(number, job.broker, job.case, figures))
            done = (number - 1) * len(jobs) + at + 1
            left = (time.monotonic() - began) / done * (rounds * len(jobs) - done)
            said = ", ".join(f"{name} {value:,.4g}" for name, value in figures.items())
            print(f"  round {number}/{rounds}  {job.case}, {job.broker}: {said}  ({left:.0f} s left)", flush=True)
    return runs


@contextmanager
def place(disk_milliseconds: int = 0) -> Generator[Path]:
    """A folder for the data of brokers, on the disk that all of them use: that of the repository, or one each write of
    which takes so much longer.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    with (
        slow_disk(BUILD, disk_milliseconds) if disk_milliseconds else nullcontext(BUILD) as disk,
        TemporaryDirectory(prefix="data-", dir=disk) as name,
    ):
        yield Path(name)


def reported(
    name: str,
    before: Mapping[str, object],
    parts: Sequence[tuple[Sequence[Run], Sequence[Column]]],
    charts: Mapping[str, str],
    notes: Mapping[str, object] | None = None,
    heads: tuple[str, str] = ("case", "broker"),
) -> int:
    """Print the machine and tables of medians, and keep all of it. `before`: the machine as it was at the beginning.
    `parts`: the runs of each table. `heads`: what its cases and brokers are. Returns the exit code: 1 if a measurement
    failed.
    """
    runs = [run for part, _ in parts for run in part]
    found = {**before, "load_at_end": os.getloadavg()[0], **(notes or {})}
    path = keep(name, found, runs, charts)
    print("\n" + "\n".join(f"{key}: {value}" for key, value in found.items()))
    for part, columns in parts:
        print("\n" + table(medians(part), columns, heads))
    kept = path.relative_to(BUILD.parent.parent)
    print(f"\nmedians of all rounds ({runs[-1].round}), which are kept in {kept}", flush=True)
    return int(any(not run.figures for run in runs))
