"""The examples that work as a service does, in examples/clients: built, started, and listened to."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clients.example_clients import BUILD_SECONDS, EXAMPLES, JVM, finished, next_line, program
from support.broker_process import BrokerProcess

__all__ = ["WORKERS", "Worker", "billed", "build"]

USER: Final = "guest"
WORKERS: Final = ("spring-boot", "camel", "rust")
JDK, MAVEN = "apt-get install -y default-jdk-headless", "apt-get install -y maven default-jdk-headless"


@dataclass(frozen=True, slots=True)
class Worker:
    """How one of them is started; `stopped`: its exit code after SIGTERM; `rejects`: it has the outcome `rejected`."""

    consume: tuple[str, ...]
    publish: tuple[str, ...]
    folder: Path
    stopped: int
    rejects: bool

    @contextmanager
    def start(
        self, command: tuple[str, ...], broker: BrokerProcess, password: str = USER
    ) -> Generator[subprocess.Popen[str]]:
        """Start a command, its output a pipe; at the end it is killed, if it hasn't ended."""
        login = {"PENSTOCK_URL": broker.url, "PENSTOCK_USER": USER, "PENSTOCK_PASSWORD": password}
        with subprocess.Popen(
            command,
            cwd=self.folder,
            env={**os.environ, **login},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as run:
            try:
                yield run
            finally:
                run.kill()

    def publishes(self, count: int, broker: BrokerProcess) -> list[str]:
        """What it prints when it publishes so many orders; it has to end with exit code 0."""
        with self.start((*self.publish, str(count)), broker) as run:
            lines = finished(run)
            assert run.returncode == 0, lines
            return lines

    def ends(self, run: subprocess.Popen[str]) -> list[str]:
        """SIGTERM, as Kubernetes sends it: the rest of its output. The exit code has to be what its README says."""
        run.send_signal(signal.SIGTERM)
        lines = finished(run)
        assert run.returncode == self.stopped, lines
        return lines


def billed(run: subprocess.Popen[str], *wanted: str) -> list[str]:
    """All orders that it bills until each of these is among them, in order, without what it says beside them."""
    orders: list[str] = []
    while not set(wanted) <= set(orders):
        line = next_line(run)
        assert line or run.poll() is None, f"it ended after {orders}"
        if "billed " in line:
            orders.append(line.rpartition("billed ")[2].removesuffix(" (again)"))
    return orders


def build(name: str, folder: Path) -> Worker:
    """Build one of them outside the repository."""
    shutil.copytree(EXAMPLES / name, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("target"))
    if name == "rust":
        cargo = program("cargo", "Rust 1.85 or newer, by rustup")
        _run([cargo, "build", "--quiet", "--locked"], folder)
        binary = str(folder / "target" / "debug" / "orders")
        return Worker((binary, "consume"), (binary, "publish"), folder, stopped=0, rejects=True)
    mvn, java = program("mvn", MAVEN), program("java", JDK)
    if name == "spring-boot":
        _run([mvn, "-q", "-B", "package"], folder)
        start: tuple[str, ...] = (java, *JVM, "-jar", "target/orders.jar")
        return Worker(start, (*start, "publish"), folder, stopped=128 + signal.SIGTERM, rejects=False)
    _run([mvn, "-q", "-B", "process-classes"], folder)
    start = (java, *JVM, "-cp", "target/classes:target/lib/*", "orders.Orders")
    return Worker(start, (*start, "publish"), folder, stopped=128 + signal.SIGTERM, rejects=False)


def _run(command: list[str], folder: Path) -> None:
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=BUILD_SECONDS)
    assert built.returncode == 0, (built.stdout + built.stderr)[-2000:]
