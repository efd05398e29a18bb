"""The client of the benchmarks (load.c): compiled when it is first needed, run against a broker, its answer read.

Also `sync_echo.c`, a server and its clients in one: what sockets and disk allow.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benching.results import BUILD, percentile

__all__ = ["LoadFailed", "Measured", "Part", "compiled", "measured", "run_load", "synced_echoes"]

SOURCE = Path(__file__).resolve().parent / "load.c"
ECHO = SOURCE.with_name("sync_echo.c")
LIMIT_SECONDS = 600
AHEAD = -15
"""The niceness of a client that comes before others."""
KEPT_UP = 0.98
"""Share of the offered messages that a broker has to deliver within the measured time."""
Buckets = tuple[tuple[int, int], ...]


class LoadFailed(Exception):
    """There is no figure."""


@dataclass(frozen=True)
class Part:
    """A part of a run."""

    seconds: float
    sent: int
    accepted: int
    received: int
    broker_cpu: float
    """Processor time, seconds."""
    client_cpu: float


@dataclass(frozen=True)
class Measured:
    """What load.c printed. Nanoseconds in the buckets: see `results.percentile`."""

    window: Part
    """The measured seconds."""
    whole: Part
    """From the first message until the last one was accepted and received."""
    earlier: int
    """Messages that an earlier run had left. They are in no figure."""
    twice: int
    """Messages of this run that came once more, as a broker may deliver them."""
    latency: Buckets
    late: Buckets
    """How much later than due messages of an open loop were sent."""
    answer: Buckets
    """From a message to its accept, if a producer waits for it."""

    def flow(self) -> dict[str, float]:
        """Of a run at full speed: rate and processor time, from the first message to the last answer."""
        part = self.whole
        return {
            "rate": part.received / part.seconds,
            "broker_us": part.broker_cpu / part.received * 1e6,
            "client_us": part.client_cpu / part.received * 1e6,
        }

    def answers(self) -> dict[str, float]:
        """Of producers that wait for each accept."""
        part = self.window
        return {
            "rate": part.accepted / part.seconds,
            "p50_ms": percentile(self.answer, 0.5) / 1e6,
            "p99_ms": percentile(self.answer, 0.99) / 1e6,
            "broker_us": part.broker_cpu / max(part.accepted, 1) * 1e6,
        }

    def latencies(self, offered: float) -> dict[str, float]:
        """Of an open loop with so many messages per second. Without percentiles if the broker did not keep up: they
        would show how long the run was.
        """
        part = self.window
        figures = {"rate": part.received / part.seconds, "broker_us": part.broker_cpu / max(part.received, 1) * 1e6}
        if part.received < KEPT_UP * offered * part.seconds:
            return figures
        shares = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p99.9_ms": 0.999}
        times = {name: percentile(self.latency, share) / 1e6 for name, share in shares.items()}
        return {**figures, **times, "late_p99_ms": percentile(self.late, 0.99) / 1e6}


def measured(printed: str) -> Measured:
    """Raises LoadFailed if a message was lost, refused or never answered: such a run shows nothing."""
    found = json.loads(printed)
    for wrong in ("refused", "unanswered", "missing"):
        if found[wrong] > 0:
            raise LoadFailed(f"{found[wrong]} messages: {wrong}")
    buckets = {name: tuple((above, count) for above, count in found[name]) for name in ("latency", "late", "answer")}
    return Measured(
        Part(**found["window"]), Part(**found["whole"]), found["earlier"], max(0, -found["missing"]), **buckets
    )


def compiled(source: Path = SOURCE) -> Path:
    """The client, or another program, compiled anew if its source is newer. Raises SystemExit without a compiler."""
    program = BUILD / source.stem
    sources = [source, *source.parent.glob("*.h")]
    if program.exists() and program.stat().st_mtime > max(source.stat().st_mtime for source in sources):
        return program
    if shutil.which("cc") is None:
        raise SystemExit("the client of the benchmarks needs a C compiler: apt-get install gcc libc6-dev")
    BUILD.mkdir(parents=True, exist_ok=True)
    made = program.with_name(f"{source.stem}-{os.getpid()}")  # renamed when it is whole: several may compile it at once
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-std=gnu17", "-o", made, source], check=True)
    made.replace(program)
    return program


def run_load(options: Mapping[str, str | float], *, first: bool = False) -> Measured:
    """Run it. `first`: it gets a processor before others, if we may ask for that. Raises LoadFailed with what it
    says.
    """
    arguments = [f"{key}={value}" for key, value in options.items()]
    ahead = ["nice", "-n", str(AHEAD)] if first and os.geteuid() == 0 else []
    ran = subprocess.run([*ahead, compiled(), *arguments], capture_output=True, text=True, timeout=LIMIT_SECONDS)
    if ran.returncode:
        raise LoadFailed(f"{ran.stderr.strip()[-500:]} ({' '.join(arguments)})")
    found = measured(ran.stdout)
    if found.twice:
        print(f"  {found.twice} messages came twice", flush=True)
    return found


def synced_echoes(file: Path, connections: int, seconds: float) -> dict[str, float]:
    """How many messages of 1 KiB a second a server answers that does nothing but sync them, if each of `connections`
    clients waits for its answer before it sends the next: as `Measured.answers`. `file` is written, and removed.
    """
    command = [str(compiled(ECHO)), str(file), str(connections), str(seconds)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    if ran.returncode:
        raise LoadFailed(ran.stderr.strip()[-500:])
    found = json.loads(ran.stdout)
    times = tuple((above, count) for above, count in found["latency"])
    shares = {"p50_ms": 0.5, "p99_ms": 0.99}
    return {"rate": found["rate"], **{name: percentile(times, share) / 1e6 for name, share in shares.items()}}
