"""Brokers for the benchmarks: Penstock as it is installed, and proton's stock reactor. Each runs as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["PARTS", "QUEUE", "TESTS", "Broker", "cpu_seconds", "penstock", "started", "stock", "topic"]

PARTS = Path(__file__).resolve().parent
TESTS = PARTS.parent.parent / "tests"
START_SECONDS = 120
STOP_SECONDS = 60
QUEUE = {"to": "bench", "from": "bench", "tocap": "queue", "fromcap": "queue"}
_PENSTOCK = """
import sys
from pathlib import Path
from penstock_broker import main
config = Path(sys.argv[3]) if len(sys.argv) > 3 else None
sys.exit(main.run(
    data=Path(sys.argv[1]), listen=["127.0.0.1:0"], dev=True, ready_file=Path(sys.argv[2]), config=config
))
"""


@dataclass(frozen=True)
class Broker:
    """A broker that runs. `queue`: the options with which load.c uses a durable queue of it."""

    name: str
    pids: tuple[int, ...]
    host: str
    port: str
    queue: Mapping[str, str] = field(default_factory=lambda: QUEUE)
    tls_port: str = ""
    note: str = ""
    """What else there is to know of it."""

    @property
    def reached(self) -> dict[str, str]:
        """Options of load.c."""
        return {"host": self.host, "port": self.port, "pids": ",".join(map(str, self.pids))}


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def topic(key: str) -> dict[str, str]:
    """Options of load.c for a durable subscription of Penstock's."""
    address = f"amq.topic/{key}"
    return {
        "to": address, "from": address, "fromcap": "topic,shared,global", "name": f"{key}|global", "lasting": "1"
    }  # fmt: skip


@contextmanager
def started(
    name: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Generator[int]:
    """Run a process, and end it; yields its id."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
        )
    try:
        yield process.pid
        if process.poll() is not None:
            raise SystemExit(f"{name} ended on its own:\n{log.read_text()[-2000:]}")
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _text_of(ready: Path, name: str, pid: int, log: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while not ready.exists() or not ready.read_text():
        if not Path(f"/proc/{pid}/exe").exists() or time.monotonic() > deadline:
            raise SystemExit(f"{name} did not start:\n{log.read_text()[-2000:]}")
        time.sleep(0.05)  # a condition of another process: there is nothing to wait on but the file
    return ready.read_text()


@contextmanager
def penstock(folder: Path, config: Path | None = None) -> Generator[Broker]:
    """With its default settings, but that every client may connect; `config` may add listeners."""
    ready, log = folder / "penstock.ready", folder / "penstock.log"
    command = [
        sys.executable,
        "-c",
        _PENSTOCK,
        str(folder / "penstock"),
        str(ready),
        *([str(config)] if config else []),
    ]
    with started("penstock", command, log) as pid:
        addresses = json.loads(_text_of(ready, "penstock", pid, log))
        host, _, port = addresses["amqp"].rpartition(":")
        yield Broker("Penstock", (pid,), host, port, tls_port=addresses.get("amqps", "").rpartition(":")[2])


@contextmanager
def stock(folder: Path) -> Generator[Broker]:
    """A broker as proton's Python examples suggest it, in memory."""
    ready, log = folder / "stock.ready", folder / "stock.log"
    with started("stock reactor", [sys.executable, str(PARTS / "stock_broker.py"), str(ready)], log) as pid:
        host, _, port = _text_of(ready, "the stock reactor", pid, log).rpartition(":")
        yield Broker("stock reactor", (pid,), host, port)
