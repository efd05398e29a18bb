"""`hack/bench lag`: the lag job as users run it, beside DuckDB and Polars on the same files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benching.lag_chart import chart
from benching.process_cost import Cost, cost_of

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "lag-bench"
PACKAGES = ROOT / "build" / "bench-packages"
REQUIREMENTS = ROOT / "requirements" / "bench.lock"
RESULTS = CACHE / "results.json"
CLASSES = CACHE / "classes"
MODES = ((" bare", ""), ("", str(CLASSES)))
"""Java without and with an archive of Spark's classes, which the lag image has."""
THREADS = 2
SIZES = ((34, 9), (1_000, 90), (10_000, 90), (10_000, 3_000))
"""Subscriptions and polls: 306 rows, 90,090, 900,090 and 30,003,000."""
_START = """
from penstock_lag.session import Needs, local_session
with local_session(Needs("start", rows=1)):
    pass
"""


@dataclass(frozen=True, slots=True)
class Line:
    """One engine on one size."""

    rows: int
    engine: str
    cpu_seconds: float
    wall_seconds: float
    peak_mebibytes: int
    load: float = 0.0
    """Of the machine, over its last minute: above THREADS it did other work, which makes processor time longer, too."""


def lag(sizes: Sequence[tuple[int, int]], memory: str) -> int:
    """Measure, print, and draw the chart. Returns 1 if the engines do not agree."""
    CACHE.mkdir(parents=True, exist_ok=True)
    _install()
    sys.path.insert(0, str(PACKAGES))
    from benching.lag_ledger import LedgerSize, make_ledger

    subprocess.run([sys.executable, "-m", "penstock_lag.class_archive", str(CLASSES)], check=True, capture_output=True)
    print(f"{'rows':>10}  {'engine':<12} {'CPU s':>8} {'wall s':>8} {'MiB':>6} {'load':>6} {'beyond':>7}", flush=True)
    lines = [_spark(0, mode, classes, ["-c", _START]) for mode, classes in MODES]
    start = {mode: line.cpu_seconds for (mode, _), line in zip(MODES, lines, strict=True)}
    agreed = True
    for subscriptions, polls in sizes:
        size = LedgerSize(subscriptions, polls)
        folder = make_ledger(CACHE, size)
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
            of_job = Path(scratch) / "result.json"
            job = _job(folder, size.window_seconds, of_job, memory)
            lines += [_spark(size.rows, mode, classes, job, start[mode]) for mode, classes in MODES]
            expected = _figures(of_job)
            for engine in ("duckdb", "polars"):
                output = Path(scratch) / f"{engine}.json"
                script = [sys.executable, str(Path(__file__).with_name("lag_rivals.py")), engine]
                cost = _measured(engine, [*script, str(folder), str(output), str(THREADS)])
                lines.append(_told(size.rows, engine, cost))
                agreed &= _agrees(engine, expected, json.loads(output.read_text()), size.window_seconds)
    _keep(lines)
    return 0 if agreed else 1


def _install() -> None:
    """DuckDB, Polars and NumPy at their locked versions, for this command alone."""
    if (PACKAGES / "duckdb").exists():
        return
    words = ["--quiet", "--no-deps", "--require-hashes", "--target", str(PACKAGES), "--requirement", str(REQUIREMENTS)]
    subprocess.run([sys.executable, "-m", "pip", "install", *words], check=True)


def _job(folder: Path, window: int, output: Path, memory: str) -> list[str]:
    words = ["--ledger", str(folder), "--broker", "main", "--namespace", "shop", "--run-name", "bench"]
    words += ["--window", str(max(window, 1)), "--no-publish", "--output", str(output), "--memory", memory]
    return ["-m", "penstock_lag", *words]


def _spark(rows: int, mode: str, classes: str, words: Sequence[str], start: float | None = None) -> Line:
    """Also tells how much it is beyond the start of Spark, which was measured with the same options of Java."""
    name = f"{'spark' if rows else 'start'}{mode}"
    cost = _measured(name, [sys.executable, *words], {"PENSTOCK_LAG_CLASSES": classes})
    return _told(rows, name, cost, "" if start is None else f"{cost.cpu_seconds - start:7.1f}")


def _measured(name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Cost:
    cost = cost_of(command, CACHE / f"{name}.log", {"PYTHONPATH": str(PACKAGES), **(environment or {})})
    if cost.exit_code != 0:
        raise SystemExit(f"{name} ended with {cost.exit_code}:\n{cost.errors}")
    return cost


def _told(rows: int, engine: str, cost: Cost, beyond: str = "") -> Line:
    cpu_seconds, wall_seconds = round(cost.cpu_seconds, 1), round(cost.wall_seconds, 1)
    line = Line(rows, engine, cpu_seconds, wall_seconds, cost.peak_bytes >> 20, round(os.getloadavg()[0], 1))
    figures = f"{cpu_seconds:>8} {wall_seconds:>8} {line.peak_mebibytes:>6} {line.load:>6}"
    print(f"{rows:>10,}  {engine:<12} {figures} {beyond}", flush=True)
    return line


def _figures(document: Path) -> dict[str, dict[str, int]]:
    return {lag["queueName"]: lag for lag in json.loads(document.read_bytes())["subscriptions"]}


def _agrees(
    engine: str, job: Mapping[str, Mapping[str, int]], found: Mapping[str, Sequence[int]], seconds: int
) -> bool:
    """The same subscriptions with the same figures, as far as the document has them: rates are per minute there."""
    from penstock_lag_rules.trend import per_minute

    wrong = sorted(set(job) ^ set(found))
    for name in set(job) & set(found):
        messages, ready, in_flight, consumers, enqueued, acked, _, _ = found[name]
        other = (messages, ready, in_flight, consumers)
        other += (per_minute(enqueued, seconds * 1000), per_minute(acked, seconds * 1000))
        keys = ("messages", "ready", "inFlight", "consumers", "arrivalPerMinute", "settledPerMinute")
        if tuple(job[name][key] for key in keys) != other:
            wrong.append(name)
    if wrong:
        print(f"{engine} does not agree on {len(wrong)} subscriptions, such as {wrong[0]}")
    return not wrong


def _keep(lines: Sequence[Line]) -> None:
    """Figures of sizes that were not measured now stay as they were."""
    known = [Line(**line) for line in json.loads(RESULTS.read_text())] if RESULTS.exists() else []
    fresh = {(line.rows, line.engine) for line in lines}
    merged = sorted(
        [*lines, *(line for line in known if (line.rows, line.engine) not in fresh)], key=lambda line: line.rows
    )
    RESULTS.write_text(json.dumps([asdict(line) for line in merged], indent=1))
    points = {
        name: [(x.rows, x.cpu_seconds) for x in merged if x.engine == name] for name in ("spark", "duckdb", "polars")
    }
    path = CACHE / "lag-cost.svg"
    path.write_text(chart(points))
    print(f"chart: {path}")
