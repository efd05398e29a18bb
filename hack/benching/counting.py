"""`hack/bench count`: what one message on the topic path costs, in numbers that a loaded machine does not change."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benching.scenarios import DEEPER, SCENARIOS, Scenario

RUN = Path(__file__).resolve().parent / "counted_run.py"
SWITCH = Path(__file__).resolve().parent / "callgrind.c"
BASELINE = Path(__file__).resolve().parent / "baseline.json"
TOLERANCE = 0.02
COPIES = "glibc.cpu.x86_rep_movsb_threshold=1073741824:glibc.cpu.x86_rep_stosb_threshold=1073741824"
"""Large copies, and zeros, are not one instruction of the processor, which callgrind counts as one per byte."""
STRAY = {"calls": 0.005, "fdatasyncs": 0.005}
"""Per message, without a change of the code: a whole run may have one lazy sync more or less, and how many bytes of a
large batch the kernel hands over at once decides how often the engine is called for it.
"""
AGAIN = 2
"""How often a scenario that is too dear is counted again: what else happens in the process can only add to a figure."""

Figures = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class Excess:
    """A figure of a scenario that is higher than it may be, and the sentence that says so."""

    scenario: str
    sentence: str


def count(scenarios: tuple[Scenario, ...]) -> Figures:
    """Per case and message: the broker's instructions, calls into the C engine, and fdatasyncs."""
    figures: Figures = {}
    # How many bytes the kernel hands over at once changes the calls of long messages.
    calls = _calls(tuple(each for each in scenarios if not each.mebibytes))
    for scenario, instructions in _instructions(scenarios):
        row = {"instructions": float(round(instructions / scenario.units)), **calls.get(scenario.name, {})}
        figures[scenario.name] = row
        unit = "MiB" if scenario.mebibytes else "message"
        print(f"{scenario.name:38} {row['instructions']:>9,.0f} instructions", end="  ")
        if "calls" in row:
            print(f"{row['calls']:6.2f} engine calls  {row['fdatasyncs']:.4f} fdatasyncs", end=" ")
        print(f"per {unit}", flush=True)
    for name, ratio in _ratios(figures):
        print(f"{name:38} {ratio:9.2f} of what it takes while all is in memory; at most {DEEPER}", flush=True)
    return figures


def _ratios(figures: Figures) -> Iterator[tuple[str, float]]:
    """What each scenario of a deep backlog takes of the one with which it is compared, if both were counted."""
    for each in SCENARIOS:
        if each.shallow and each.name in figures and each.shallow in figures:
            yield each.name, figures[each.name]["instructions"] / figures[each.shallow]["instructions"]


def _command(*what: str, scenarios: tuple[Scenario, ...]) -> list[str]:
    return [sys.executable, str(RUN), *what, *(each.name for each in scenarios)]


def _calls(scenarios: tuple[Scenario, ...]) -> Figures:
    ran = subprocess.run(_command("calls", scenarios=scenarios), capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(f"a scenario failed:\n{ran.stderr[-2000:]}")
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    return {row["scenario"]: {"calls": row["calls"], "fdatasyncs": row["fdatasyncs"]} for row in rows}


def _instructions(scenarios: tuple[Scenario, ...]) -> Iterator[tuple[Scenario, int]]:
    """Each scenario with its instructions, as soon as they are known."""
    by_name = {each.name: each for each in scenarios}
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "errors").open("w+") as errors:
        library = f"{folder}/callgrind.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, str(SWITCH)], check=True)
        # Starting up is many times what is counted, and counting would slow it down as much as the rest.
        options = [
            "--tool=callgrind",
            "--instr-atstart=no",
            "--collect-atstart=no",
            f"--callgrind-out-file={folder}/%p",
        ]
        command = ["valgrind", *options, *_command("instructions", library, scenarios=scenarios)]
        environment = {**os.environ, "PYTHONHASHSEED": "0", "GLIBC_TUNABLES": COPIES}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment) as ran:
            assert ran.stdout is not None
            for line in ran.stdout:
                row = json.loads(line)
                yield by_name[row["scenario"]], _total(Path(folder) / str(row["pid"]))
        if ran.returncode:
            errors.seek(0)
            raise SystemExit(f"callgrind failed:\n{errors.read()[-2000:]}")


def _total(profile: Path) -> int:
    """The instructions in a file that callgrind wrote: in its last line."""
    found = re.findall(r"^totals: (\d+)$", profile.read_text(), re.MULTILINE)
    if not found or found[-1] == "0":
        raise SystemExit("callgrind counted nothing")
    return int(found[-1])


def smallest(figures: Figures, again: Figures) -> Figures:
    """The smaller of both figures where a scenario was counted again."""
    return {
        name: {what: min(value, again.get(name, row)[what]) for what, value in row.items()}
        for name, row in figures.items()
    }


def excesses(figures: Figures, baseline: Figures) -> list[Excess]:
    """What costs over a fiftieth more than the baseline, or what a message of a deep backlog costs beyond `DEEPER`."""
    worse = [
        Excess(name, f"MORE THAN THE BASELINE: {name}: {what} {value:,.4g} where it has {baseline[name][what]:,.4g}")
        for name, row in figures.items()
        for what, value in row.items()
        if value > baseline[name][what] * (1 + TOLERANCE) + STRAY.get(what, 0)
    ]
    too_deep = [
        Excess(name, f"MORE THAN {DEEPER} OF WHAT IT TAKES IN MEMORY: {name}: {ratio:.2f}")
        for name, ratio in _ratios(figures)
        if ratio > DEEPER * (1 + TOLERANCE)
    ]
    return worse + too_deep


def compare(
    figures: Figures, baseline: Figures | None = None, recount: Callable[[tuple[Scenario, ...]], Figures] = count
) -> int:
    """0 if everything counted is in the baseline (that of the file unless given) and nothing exceeds what it may cost.
    A scenario that does is counted again, by `recount`, and the smallest figures stand.
    """
    if baseline is None:
        baseline = json.loads(BASELINE.read_text())
    unknown = sorted(set(figures) - set(baseline))
    if unknown:
        print("NOT IN THE BASELINE:", ", ".join(unknown))
        return 1
    for _ in range(AGAIN):
        found = excesses(figures, baseline)
        if not found:
            break
        for each in found:
            print(f"{each.sentence}; counted again:", flush=True)
        dear = {each.scenario for each in found}
        figures = smallest(figures, recount(tuple(each for each in SCENARIOS if each.name in dear)))
    found = excesses(figures, baseline)
    for each in found:
        print(each.sentence)
    return int(bool(found))


def write_baseline(figures: Figures) -> None:
    """Replace the figures of what was counted; others stay."""
    known: Figures = json.loads(BASELINE.read_text())
    BASELINE.write_text(json.dumps({**known, **figures}, indent=2) + "\n")
