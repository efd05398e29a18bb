"""`hack/bench flow`: one producer, one consumer, at full speed; Penstock beside a stock reactor broker, in rounds."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PARTS = Path(__file__).resolve().parent
TESTS = PARTS.parent.parent / "tests"
_PENSTOCK = """
import sys
from pathlib import Path
from penstock_broker import main
sys.exit(main.run(data=Path(sys.argv[1]), listen=["127.0.0.1:0"], dev=True, ready_file=Path(sys.argv[2])))
"""


@dataclass(frozen=True)
class Peer:
    """A running broker and where it is reached. `address`: what is published to and received from."""

    name: str
    pid: int
    host: str
    port: str
    address: str


@contextmanager
def running(name: str, folder: Path) -> Iterator[Peer]:
    """Start a broker, wait until it listens, and end it."""
    ready = folder / f"{name}.ready"
    if name == "penstock":
        command, address = [sys.executable, "-c", _PENSTOCK, str(folder / "data"), str(ready)], "amq.topic/bench"
    else:
        command, address = [sys.executable, str(PARTS / "stock_broker.py"), str(ready)], "bench"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=(folder / f"{name}.log").open("w"))
    try:
        while not ready.exists() or not ready.read_text():
            if process.poll() is not None:
                raise SystemExit(f"{name} did not start:\n{(folder / f'{name}.log').read_text()[-2000:]}")
            time.sleep(0.05)
        text = ready.read_text()
        host, _, port = (json.loads(text)["amqp"] if name == "penstock" else text).rpartition(":")
        yield Peer(name, process.pid, host, port, address)
    finally:
        process.terminate()
        process.wait()


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def one_round(peer: Peer, messages: int, size: int, kind: str) -> tuple[float, float]:
    """(messages per second, broker CPU in microseconds per message)"""
    before = cpu_seconds(peer.pid)
    arguments = [peer.host, peer.port, peer.address, peer.address, str(messages), str(size), kind]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    ran = subprocess.run(
        [sys.executable, str(PARTS / "flow_load.py"), *arguments], capture_output=True, text=True, env=environment
    )
    if ran.returncode:
        raise SystemExit(f"the load on {peer.name} failed:\n{ran.stderr[-2000:]}")
    return messages / float(ran.stdout), (cpu_seconds(peer.pid) - before) / messages * 1e6


def flow(messages: int, rounds: int) -> None:
    """Print a table; the rounds are interleaved, all of them are shown, and the result is the median of the CPU time
    per message."""
    with (
        tempfile.TemporaryDirectory() as name,
        running("penstock", Path(name)) as ours,
        running("stock", Path(name)) as stock,
    ):
        for size in (100, 1024):
            figures: dict[str, list[tuple[float, float]]] = {}
            for _ in range(rounds):
                figures.setdefault("stock reactor, in memory", []).append(
                    one_round(stock, messages // 20, size, "volatile")
                )
                for kind in ("volatile", "durable"):
                    figures.setdefault(f"penstock, {kind}", []).append(one_round(ours, messages, size, kind))
            reference = statistics.median(cpu for _, cpu in figures["stock reactor, in memory"])
            for label, rows in figures.items():
                cpu = statistics.median(cpu for _, cpu in rows)
                rates = " ".join(f"{rate:,.0f}" for rate, _ in rows)
                share = f"1/{reference / cpu:.0f} of stock"
                print(f"{size:5} B  {label:26} {cpu:7.2f} us/message  {share}  messages/s: {rates}", flush=True)
