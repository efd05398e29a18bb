"""`hack/bench balance`: one producer and one consumer at full speed: what comes in, what goes out, and what waits.

Then the same beside a steady flow of 1,000 messages per second on another exchange, against that flow alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benching.brokers import PARTS, TESTS, Broker, cpu_seconds, penstock

__all__ = ["LEAST_SECONDS", "balance"]

BULK = "amq.topic/bulk"
PACED = "amq.fanout"
PACED_RATE = 1_000
CLIENT_NICE = -15
WARM_SECONDS = 1.5
"""At the beginning of a phase, which do not count."""
LEAST_SECONDS = 6
"""Of a phase: with fewer the steady flow has no full second that counts."""

Line = dict[str, Any]


def balance(seconds: int) -> None:
    """Print the figures of each phase, of so many seconds."""
    with tempfile.TemporaryDirectory() as name, penstock(Path(name)) as broker:
        folder = Path(name)
        with _paced(broker, folder / "alone") as alone:
            time.sleep(seconds)
        calm = _told_paced(alone, "1,000/s alone")
        with _bulk(broker, folder / "bulk") as reports:
            before, began = cpu_seconds(broker.pids[0]), time.monotonic()
            time.sleep(seconds)
            share = (cpu_seconds(broker.pids[0]) - before) / (time.monotonic() - began)
        _tell_bulk("bulk alone", reports, share)
        with _paced(broker, folder / "beside") as beside, _bulk(broker, folder / "both") as reports:
            time.sleep(seconds)
        _tell_bulk("bulk beside 1,000/s", reports, None)
        disturbed = _told_paced(beside, "1,000/s beside bulk")
        print(f"p99 of 1,000/s beside bulk: {disturbed / calm:.1f} times that alone")


@contextmanager
def _client(program: str, broker: Broker, arguments: Sequence[str]) -> Generator[None]:
    command = [sys.executable, str(PARTS / program), broker.host, broker.port, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    client = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    with contextlib.suppress(PermissionError):  # the broker is to be what is slow; others than root go without
        os.setpriority(os.PRIO_PROCESS, client.pid, CLIENT_NICE)
    try:
        yield
    finally:
        client.communicate()
    if client.returncode:
        raise SystemExit(f"{program} failed: {client.returncode}")


@contextmanager
def _paced(broker: Broker, report: Path) -> Generator[Path]:
    with _client("paced_flow.py", broker, [PACED, str(PACED_RATE), str(report)]):
        yield report


@contextmanager
def _bulk(broker: Broker, prefix: Path) -> Generator[tuple[Path, Path]]:
    came, went = prefix.with_suffix(".in"), prefix.with_suffix(".out")
    with (
        _client("saturating.py", broker, [BULK, "consume", str(went)]),
        _client("saturating.py", broker, [BULK, "produce", str(came)]),
    ):
        yield came, went


def _lines(report: Path) -> list[Line]:
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    return [each for each in lines if "at" not in each or each["at"] >= lines[0]["at"] + WARM_SECONDS]


def _tell_bulk(label: str, reports: tuple[Path, Path], share: float | None) -> None:
    came, went = _lines(reports[0]), _lines(reports[1])
    rate_in, rate_out = (
        (lines[-1]["count"] - lines[0]["count"]) / (lines[-1]["at"] - lines[0]["at"]) for lines in (came, went)
    )
    delays = sorted(delay for line in went for delay in line["delays"])
    depths = [_depth(each, went) for each in came]
    print(f"{label}: {rate_in:,.0f}/s in, {rate_out:,.0f}/s out", end="")
    print(f", {share:.0%} of a processor, {share / rate_out * 1e6:.1f} us/message" if share else "")
    print(f"  depth, each second: {' '.join(f'{depth:,.0f}' for depth in depths[::10])}; highest {max(depths):,.0f}")
    print(f"  delay: p50 {_share(delays, 0.5):.1f} ms, p99 {_share(delays, 0.99):.1f} ms", flush=True)


def _depth(line: Line, went: list[Line]) -> float:
    """Accepted and not yet received, between two lines of the consumer's report."""
    before = max((each for each in went if each["at"] <= line["at"]), key=lambda each: each["at"], default=went[0])
    after = min((each for each in went if each["at"] > line["at"]), key=lambda each: each["at"], default=went[-1])
    span = after["at"] - before["at"]
    part = (line["at"] - before["at"]) / span if span else 0.0
    return float(max(line["count"] - before["count"] - part * (after["count"] - before["count"]), 0.0))


def _told_paced(report: Path, label: str) -> float:
    """Print the delays of the paced flow; the median of each second's p99."""
    lines = _lines(report)[2:]
    p50, p99 = (statistics.median(line[figure] for line in lines) for figure in ("p50", "p99"))
    late = statistics.median(line["late"] for line in lines)
    print(f"{label}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, highest {max(line['max'] for line in lines):.1f} ms", end="")
    print(f" (the sender itself was late by {late:.1f} ms)", flush=True)
    return float(p99)


def _share(ordered: list[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0
