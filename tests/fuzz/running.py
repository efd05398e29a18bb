"""Runs a target in a process of its own, from its seeds, and says what came of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from fuzz.targets import SEEDS

__all__ = ["Outcome", "fuzz", "fuzz_sanitized"]

TESTS = Path(__file__).resolve().parent.parent
HANG_SECONDS = 20
"""No input may take longer."""
MEMORY_MIB = 1024
"""More resident memory than that is a leak: the fuzzer itself takes about a hundred."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`finding` is what broke with the input that did it, or an empty string."""

    target: str
    runs: int
    peak_mib: int
    finding: str


def fuzz(target: str, folder: Path, *, seed: int, runs: int = -1, seconds: int = 0) -> Outcome:
    """Fuzz until `runs` inputs were tried or `seconds` are over (0: no limit). `folder` keeps corpus and findings.

    With `runs` alone the same seed tries the same inputs.
    """
    corpus = folder / target
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(SEEDS[target]):
        (corpus / f"seed-{number}").write_bytes(data)
    options = {
        "seed": seed,
        "runs": runs,
        "max_total_time": seconds,
        "timeout": HANG_SECONDS,
        "rss_limit_mb": MEMORY_MIB,
        "max_len": 4096,
        "print_final_stats": 1,
        "artifact_prefix": f"{folder}/{target}-",
    }
    done = subprocess.run(
        [sys.executable, "-m", "fuzz.fuzzed", target, *(f"-{name}={value}" for name, value in options.items()), corpus],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    said = done.stdout.decode(errors="replace")
    finding = "" if done.returncode == 0 else _finding(folder, target, said)
    return Outcome(target, _figure(said, "number_of_executed_units"), _figure(said, "peak_rss_mb"), finding)


def fuzz_sanitized(target: str, folder: Path, *, seed: int, runs: int, environment: dict[str, str]) -> str:
    """Try the corpus that `fuzz` left in `folder`, and `runs` mutations of it, in an environment of
    `sanitized.environment`. What broke with the input that did it, or an empty string.
    """
    command = [sys.executable, "-m", "fuzz.mutated", target, str(folder / target), str(seed), str(runs)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode == 0:
        return ""
    kept = folder / f"mutated-{target}"
    said = done.stdout.decode(errors="replace").splitlines()[-60:]
    return "\n".join([*said, f"{kept.name}: {kept.read_bytes()!r}" if kept.exists() else "no input"])


def _figure(said: str, name: str) -> int:
    found = re.search(rf"stat::{name}:\s*(\d+)", said)
    return int(found[1]) if found else 0


def _finding(folder: Path, target: str, said: str) -> str:
    inputs = [f"{path.name}: {path.read_bytes()!r}" for path in sorted(folder.glob(f"{target}-*")) if path.is_file()]
    return "\n".join([*said.splitlines()[-30:], *inputs])
