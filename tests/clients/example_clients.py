"""The examples that users copy, as processes: one language's commands, and how to wait for what they print."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from support.broker_process import BrokerProcess

from penstock_cli.up import declarations
from penstock_cli.up.manifest_folder import read
from penstock_cli.up.topology import declared

__all__ = [
    "BUILD_SECONDS",
    "EXAMPLES",
    "JVM",
    "SECONDS",
    "Client",
    "declare_examples",
    "finished",
    "next_line",
    "program",
]

_ROOT: Final = Path(__file__).resolve().parents[2]
EXAMPLES: Final = _ROOT / "examples" / "clients"
# With one level of compilation and no second thread for it, a JVM that lives for seconds takes half the processor time.
JVM: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
SECONDS: Final = 300
BUILD_SECONDS: Final = 800


@dataclass(frozen=True, slots=True)
class Client:
    """How one language's commands are started; `tells`: its library lets `unsubscribe` know what the broker answers;
    `goes_on`: it connects again to a broker that comes back.
    """

    prefix: tuple[str, ...]
    suffix: str
    folder: Path
    tells: bool
    goes_on: bool

    def command(self, name: str, *arguments: str) -> list[str]:
        return [*self.prefix, name + self.suffix, *arguments]

    @contextmanager
    def start(self, name: str, *arguments: str) -> Generator[subprocess.Popen[str]]:
        """Start a command, its standard output a pipe; at the end it is killed, if it hasn't ended."""
        with subprocess.Popen(
            self.command(name, *arguments), cwd=self.folder, stdout=subprocess.PIPE, text=True
        ) as run:
            try:
                yield run
            finally:
                run.kill()

    def lines(self, name: str, *arguments: str) -> list[str]:
        """What a command prints until it ends."""
        with self.start(name, *arguments) as process:
            return finished(process)


def finished(process: subprocess.Popen[str]) -> list[str]:
    """The rest of a client's output, which has to end."""
    return process.communicate(timeout=SECONDS)[0].splitlines()


def next_line(process: subprocess.Popen[str]) -> str:
    """The next line that a client prints; it has to end otherwise."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def program(name: str, packages: str) -> str:
    """Where a program is; fails with the line that installs it."""
    found = shutil.which(name)
    if found is None:
        pytest.fail(f"{name} is needed: {packages}")
    return found


async def declare_examples(broker: BrokerProcess) -> None:
    """The resources of examples/local, as `penstock up` declares them."""
    path = Path(broker.management.removeprefix("unix:"))
    await declarations.declare(path, declared(read(_ROOT / "examples" / "local")), float(SECONDS))
