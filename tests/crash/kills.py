"""Kill a broker again and again under load, and say what was lost. Used by the tests and by hack/soak/crash."""

import json
import random
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from broker.log.crash_points import BEFORE, BEHIND, WITHIN
from crash.crash_load import Load, Refused, Silence
from crash.load_client import Closed, Gone
from crash.lossy_files import Tally, Work
from support.broker_forks import fork_broker
from support.fork_server import ForkedProcess
from support.waiting import until

SEGMENT_BYTES = 4 * 1024 * 1024
SMALL_SEGMENT_BYTES = 1024 * 1024
"""So that segments are recycled and compacted between two kills."""
START_SECONDS = 300
END_SECONDS = 300
TALLIED = ("counted", "lossy")
"""File layers that know what is synced, and that `Victim.arm` works with."""
POINTED = ("points", "lossy-points", "failing-points")
"""File layers that know at which point of its work the log is."""
POINTS = [
    (point, when)
    for point in (
        "put",
        "copy",
        "ack",
        "topology",
        "checkpoint",
        "seal",
        "segment header",
        "segment over",
        "spare filled",
    )
    for when in (BEFORE, WITHIN, BEHIND)
] + [
    (point, when)
    for point in ("named", "names synced", "recycled", "spare synced", "synced")
    for when in (BEFORE, BEHIND)
]
"""The points that are passed under this load."""
MOST_AFTER_EBB = 3_000
"""Fewer than so many messages are accepted between an ebb and the kill."""
MOST_ACCEPTS = 60_000
"""After so many the broker is killed although it has not come to the point."""


@dataclass
class Outcome:
    """`unsynced`: kills with blocks written that no returned fdatasync covered.

    `seconds`: those under load, without restarts.
    """

    kills: int = 0
    unsynced: int = 0
    accepted: int = 0
    receipts: int = 0
    repeated: int = 0
    seconds: float = 0.0
    churn: dict[str, int] = field(default_factory=dict[str, int])
    lacking: dict[str, int] = field(default_factory=dict[str, int])
    violations: list[str] = field(default_factory=list[str])
    points: dict[str, int] = field(default_factory=dict[str, int])
    """How many kills each point met."""
    work: Counter[Work] = field(default_factory=Counter[Work])
    """What compaction and paging did, in all lives of the broker."""

    @property
    def rate(self) -> float:
        """Durable messages accepted per second under load, each going to three subscriptions."""
        return self.accepted / self.seconds if self.seconds else 0.0

    @property
    def idle(self) -> list[str]:
        """The work that was not done at all, so that no kill can have met it."""
        return [work.told for work in Work if not self.work[work]]

    @property
    def is_clean(self) -> bool:
        """Nothing accepted is lacking, nothing was seen that must not be."""
        return not any(self.lacking.values()) and not self.violations


class Victim:
    """The broker process. `files`: which file layer it has, see killed_broker. `is_small`: its segments are small, and
    it pages small backlogs."""

    def __init__(self, folder: Path, files: str, *, is_small: bool = False) -> None:
        self.folder, self.files = folder, files
        self._is_small = is_small
        self.tally = Tally(folder / "tally")
        self._process: ForkedProcess | None = None

    def start(self) -> tuple[str, int]:
        """Start and wait until it listens; the address."""
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        self.tally.reset()
        arguments: dict[str, object] = {
            "data": str(self.folder / "data"),
            "files": self.files,
            "ready_file": str(ready),
            "tally": str(self.folder / "tally"),
            "segment_bytes": SMALL_SEGMENT_BYTES if self._is_small else SEGMENT_BYTES,
            "pages_early": self._is_small,
        }
        process = self._process = fork_broker(arguments, self.folder / "broker.log", "crash.killed_broker")

        def listens() -> bool:
            if process.poll() is not None:
                said = (self.folder / "broker.log").read_text()[-4000:]
                raise RuntimeError(f"the broker did not start (exit code {process.poll()}):\n{said}")
            return ready.exists()

        until(listens, "the broker to listen", START_SECONDS)
        host, _, port = json.loads(ready.read_text())["amqp"].rpartition(":")
        return host, int(port)

    def resident_bytes(self) -> int:
        """What it has in memory now."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024

    def arm(self) -> None:
        """Let it kill itself behind the next block it writes. For the tallied file layers."""
        assert self.files in TALLIED
        self.tally.arm()

    def arm_at(self, point: str, when: str) -> None:
        """Let it kill itself at this point. For the file layers that know points."""
        assert self.files in POINTED
        self.tally.arm_at(point, when)

    def ended(self) -> bool:
        """Wait for what `arm` brings about; True if written blocks were not synced at that moment."""
        assert self._process is not None
        assert self._process.wait(END_SECONDS) == -signal.SIGKILL
        return self._is_unsynced()

    def kill(self) -> bool:
        """kill -9; True if written blocks were not synced at that moment."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        return self._is_unsynced()

    def _is_unsynced(self) -> bool:
        written, synced = self.tally.read()
        return written > synced

    def stacks(self) -> str:
        """Where the broker is now: the end of what it says when it is asked."""
        assert self._process is not None
        self._process.send_signal(signal.SIGUSR1)
        log = self.folder / "broker.log"
        with suppress(TimeoutError):  # a process that is dead has nothing to say
            until(lambda: "most recent call first" in log.read_text()[-8000:], "its stacks", 5)
        return log.read_text()[-8000:]

    def end(self) -> None:
        """Nothing is left running, however the test ended."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def kill_often(
    folder: Path,
    files: str,
    kills: int,
    seed: int,
    *,
    between: tuple[int, int] = (3000, 15000),
    seconds: float = 0.0,
    met: Counter[str] | None = None,
) -> Outcome:
    """`kills` times, and until `seconds` are over: load until a random number of accepts in `between`, kill, restart;
    then drain and compare.

    Where the file layer knows what is synced, half of the kills come right behind a write; the rest at any moment.
    `met`: how often each point was met in earlier calls; the one that was met least is tried next.
    """
    chance = random.Random(seed)
    met = Counter[str]() if met is None else met
    victim, load, outcome = Victim(folder, files, is_small=True), Load(seed), Outcome()
    deadline = time.monotonic() + seconds
    try:
        while outcome.kills < kills or time.monotonic() < deadline:
            load.start(*victim.start())
            _run(load, chance.randint(*between), outcome)
            if files in POINTED:
                turned = POINTS[outcome.kills % len(POINTS) :] + POINTS[: outcome.kills % len(POINTS)]
                at = min(turned, key=lambda point: met[" ".join(point)])
                outcome.unsynced += _kill_at(victim, load, at, outcome)
                met.update(outcome.points.keys() & {" ".join(at)})
            else:
                outcome.unsynced += _kill_at_some_time(victim, load, chance, outcome)
            outcome.kills += 1
            outcome.work += victim.tally.done()
            load.stop()
        load.start(*victim.start(), is_last=True)
        load.drain()
    except (Closed, Refused, Silence, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"{error}\nThe broker:\n{victim.stacks()}") from error
    finally:
        load.stop()
        victim.end()
    ledger = load.ledger
    outcome.accepted, outcome.receipts, outcome.repeated = ledger.accepts, ledger.receipts, ledger.repeated
    outcome.churn, outcome.lacking, outcome.violations = load.churn.counts, ledger.lacking(), ledger.violations
    return outcome


def _run(load: Load, accepts: int, outcome: Outcome) -> None:
    """Load until so many more messages are accepted."""
    began = time.monotonic()
    load.run(accepts)
    outcome.seconds += time.monotonic() - began


def _kill_at_some_time(victim: Victim, load: Load, chance: random.Random, outcome: Outcome) -> bool:
    """Kill the broker, in an ebb, or in the flood after it; true if written blocks were not synced then."""
    load.ebb(chance.choice((chance.random(), 1.0)))
    _run(load, chance.randrange(MOST_AFTER_EBB), outcome)
    if victim.files not in TALLIED or outcome.kills % 4 > 1:  # each other life has an ebb, see Load
        return victim.kill()
    victim.arm()
    load.run_until_gone()
    return victim.ended()


def _kill_at(victim: Victim, load: Load, at: tuple[str, str], outcome: Outcome) -> bool:
    """Have the broker end at this point; true if written blocks were not synced then."""
    victim.arm_at(*at)
    try:
        load.ebb(1.0)
        load.run(MOST_ACCEPTS)
    except Closed:
        raise
    except (Gone, ConnectionError):
        name = " ".join(at)
        outcome.points[name] = outcome.points.get(name, 0) + 1
        return victim.ended()
    return victim.kill()
