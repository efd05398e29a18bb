"""`hack/bench reconnects`: thousands of clients reconnect over TLS and SCRAM while messages flow; how much the messages
are delayed.

The flow's delays run from the moment at which a message was due, so that nothing that held it back is left out; they
hold what its own process waited for a processor, which is shown beside them. Source: docs/reference/performance.md: the
99th percentile stays under 50 ms.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

PARTS = Path(__file__).resolve().parent
TESTS = PARTS.parent.parent / "tests"
CALM_SECONDS = 5
GOAL_MS = 50


@dataclass(frozen=True)
class Delays:
    """Of the flow, over some seconds; milliseconds, the worst second's each."""

    seconds: int
    rate: float
    slow: float
    """Share of messages that took longer than the goal."""
    p50: float
    p99: float
    highest: float
    late: float

    @classmethod
    def of(cls, lines: list[dict[str, float]]) -> Delays:
        if not lines:
            raise SystemExit("the flow wrote nothing")
        messages = sum(line["messages"] for line in lines)
        slow = sum(line["over_50"] for line in lines) / messages
        worst = {name: max(line[name] for line in lines) for name in ("p50", "p99", "max", "late")}
        return cls(len(lines), messages / len(lines), slow, worst["p50"], worst["p99"], worst["max"], worst["late"])

    def __str__(self) -> str:
        return (
            f"{self.rate:8,.0f} messages/s over {self.seconds} s, {self.slow:.2%} over {GOAL_MS} ms; worst second: "
            f"p50 {self.p50:.1f}, p99 {self.p99:.1f}, highest {self.highest:.1f} ms (sender {self.late:.1f} ms late)"
        )


def reconnects(connections: int, at_once: int, rate: int) -> int:
    """Print the delays without and with reconnecting clients; return 1 if the 99th percentile breaks the goal."""
    sys.path.insert(0, str(TESTS))
    from support.broker_process import BrokerProcess
    from support.certificates import Authority

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        authority = Authority(folder)
        issued = authority.issue("broker")
        tls = {"certificate": str(issued.certificate), "key": str(issued.key)}
        settings: dict[str, object] = {
            "listeners": [{"name": "amqps", "address": "127.0.0.1:0", "tls": tls, "saslMechanisms": ["SCRAM-SHA-256"]}],
            "authentication": {"users": {"ann": "secret"}, "anonymous": True},
        }
        with BrokerProcess(folder / "data", dev=False, settings=settings) as broker:
            return _measure(
                broker.addresses, broker.pid, authority.ca, folder / "flow.jsonl", connections, at_once, rate
            )


def _measure(
    addresses: dict[str, str], pid: int, ca: Path, report: Path, connections: int, at_once: int, rate: int
) -> int:
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    host, _, port = addresses["amqp"].rpartition(":")
    flow = subprocess.Popen(
        [sys.executable, str(PARTS / "paced_flow.py"), host, port, "amq.topic/paced", str(rate), str(report)],
        stdin=subprocess.PIPE,
        env=environment,
    )
    try:
        time.sleep(CALM_SECONDS + 1)
        calm = _lines(report)[1:]
        secure = addresses["amqps"].rpartition(":")[2]
        arguments = [secure, str(ca), "ann", "secret", str(connections), str(at_once)]
        command = [sys.executable, str(PARTS / "storm.py"), *arguments]
        before_ms = _waited_ms(pid)
        ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
        waited_ms = _waited_ms(pid) - before_ms
        stormy = _lines(report)[len(calm) + 1 :]
    finally:
        assert flow.stdin is not None
        flow.stdin.close()
        flow.wait(20)
    if ran.returncode:
        raise SystemExit("the storm failed")
    storm = json.loads(ran.stdout)
    before, during = Delays.of(calm), Delays.of(stormy)
    print(f"calm   {before}")
    print(f"storm  {during}")
    per_second = storm["connections"] / storm["seconds"]
    print(
        f"       {storm['connections']:,} logins over TLS and SCRAM in {storm['seconds']:.1f} s ({per_second:,.0f}/s, "
        f"{at_once} at once); the slowest took {storm['slowest_ms']:.0f} ms"
    )
    every = sorted(line["p99"] for line in stormy)
    print(f"       99th percentile of each second: median {statistics.median(every):.1f} ms, worst {every[-1]:.1f} ms")
    print(f"       the broker waited {waited_ms / storm['seconds'] / 10:.0f} % of the time for a processor")
    return int(during.slow > 0.01)


def _waited_ms(pid: int) -> float:
    """How long a process was ready to run and did not: others had the processors."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e6


def _lines(report: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in report.read_text().splitlines()]
