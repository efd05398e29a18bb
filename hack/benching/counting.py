"""`hack/bench count`: what one message on the topic path costs, in numbers that a loaded machine does not change."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benching.scenarios import Scenario

RUN = Path(__file__).resolve().parent / "counted_run.py"
BASELINE = Path(__file__).resolve().parent / "baseline.json"
TOLERANCE = 0.10
STRAY_SYNCS = 0.005
"""Per message: a whole run may have one lazy sync more or less without a change of the code."""

Figures = dict[str, dict[str, float]]


def count(scenarios: tuple[Scenario, ...]) -> Figures:
    """Per case and message: instructions (clients included), the broker's calls into the C engine, fdatasyncs."""
    figures: Figures = {}
    # Counts do not change when the machine is busy: two at a time.
    with ThreadPoolExecutor(2) as pool:
        for scenario, row in zip(scenarios, pool.map(_count_one, scenarios), strict=True):
            figures[scenario.name] = row
            unit = "MiB" if scenario.mebibytes else "message"
            print(f"{scenario.name:26} {row['instructions']:>9,.0f} instructions", end="  ")
            if "calls" in row:
                print(f"{row['calls']:6.2f} engine calls  {row['fdatasyncs']:.4f} fdatasyncs", end=" ")
            print(f"per {unit}", flush=True)
    return figures


def _count_one(scenario: Scenario) -> dict[str, float]:
    figures: dict[str, float] = {"instructions": round(_instructions(scenario) / scenario.units)}
    if not scenario.mebibytes:  # else they depend on how many bytes the kernel hands over at once
        calls = subprocess.run(_command(scenario, "calls"), check=True, capture_output=True, text=True)
        figures |= json.loads(calls.stdout)
    return figures


def _command(scenario: Scenario, what: str) -> list[str]:
    return [sys.executable, str(RUN), scenario.name, what]


def _instructions(scenario: Scenario) -> int:
    with tempfile.TemporaryDirectory() as folder:
        # Starting up is ten times what is counted, and counting slows it down as much as the rest.
        options = ["--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/out"]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        command = ["valgrind", *options, *_command(scenario, "instructions")]
        ran = subprocess.run(command, capture_output=True, text=True, env=environment)
    found = re.search(r"Collected : (\d+)", ran.stderr)
    if ran.returncode or found is None:
        raise SystemExit(f"callgrind failed:\n{ran.stderr[-2000:]}")
    return int(found[1])


def compare(figures: Figures) -> int:
    """0 if nothing costs over a tenth more than the baseline, and everything counted is in it."""
    baseline: Figures = json.loads(BASELINE.read_text())
    unknown = sorted(set(figures) - set(baseline))
    if unknown:
        print("NOT IN THE BASELINE:", ", ".join(unknown))
        return 1
    worse = [
        f"{name}: {what} {value:,.4g} where the baseline has {baseline[name][what]:,.4g}"
        for name, row in figures.items()
        for what, value in row.items()
        if value > baseline[name][what] * (1 + TOLERANCE) + (STRAY_SYNCS if what == "fdatasyncs" else 0)
    ]
    for line in worse:
        print("MORE THAN THE BASELINE:", line)
    return int(bool(worse))


def write_baseline(figures: Figures) -> None:
    """Replace the figures of what was counted; others stay."""
    known: Figures = json.loads(BASELINE.read_text())
    BASELINE.write_text(json.dumps({**known, **figures}, indent=2) + "\n")
