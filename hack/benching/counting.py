"""`hack/bench count`: what one message on the topic path costs, in numbers that a loaded machine does not change."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

RUN = Path(__file__).resolve().parent / "counted_run.py"
BASELINE = Path(__file__).resolve().parent / "baseline.json"
FEW, MANY = 320, 2880
CASES = [(kind, size) for kind in ("volatile", "durable") for size in (100, 1024)]
TOLERANCE = 0.10

Figures = dict[str, dict[str, float]]


def count(cases: list[tuple[str, int]]) -> Figures:
    """Per case and message: instructions (clients included), the broker's calls into the C engine, fdatasyncs."""
    figures: Figures = {}
    for kind, size in cases:
        calls = subprocess.run(_command(kind, MANY, size, "calls"), check=True, capture_output=True, text=True)
        few, many = _instructions(kind, FEW, size), _instructions(kind, MANY, size)
        name = f"{kind} {size} B"
        figures[name] = {"instructions": round((many - few) / (MANY - FEW)), **json.loads(calls.stdout)}
        row = figures[name]
        print(f"{name:16} {row['instructions']:>9,.0f} instructions", end="  ")
        print(f"{row['calls']:6.2f} engine calls  {row['fdatasyncs']:.4f} fdatasyncs per message", flush=True)
    return figures


def _command(kind: str, messages: int, size: int, *rest: str) -> list[str]:
    return [sys.executable, str(RUN), kind, str(messages), str(size), *rest]


def _instructions(kind: str, messages: int, size: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        ran = subprocess.run(
            [*valgrind, *_command(kind, messages, size)], capture_output=True, text=True, env=environment
        )
    found = re.search(r"Collected : (\d+)", ran.stderr)
    if ran.returncode or found is None:
        raise SystemExit(f"callgrind failed:\n{ran.stderr[-2000:]}")
    return int(found[1])


def compare(figures: Figures) -> int:
    """0 if nothing costs over a tenth more than the baseline."""
    baseline: Figures = json.loads(BASELINE.read_text())
    worse = [
        f"{name}: {what} {value:,.4g} where the baseline has {baseline[name][what]:,.4g}"
        for name, row in figures.items()
        for what, value in row.items()
        if value > baseline[name][what] * (1 + TOLERANCE)
    ]
    for line in worse:
        print("MORE THAN THE BASELINE:", line)
    return int(bool(worse))


def write_baseline(figures: Figures) -> None:
    BASELINE.write_text(json.dumps(figures, indent=2) + "\n")
