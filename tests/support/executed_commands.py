"""Does what a page says, on this machine: its commands, one after the other, in a folder of their own.

A command is run as printed, but for what a reader would also write in another way: addresses, folders, `TOKEN`. Those
that serve go on until the page is at its end, and then have to end in order.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from support.page_commands import Shown
from support.waiting import until

__all__ = ["Reader"]

ROOT: Final = Path(__file__).resolve().parents[2]
SECONDS: Final = 300
"""Only a test that fails waits so long."""
UP: Final = re.compile(r"(\.venv/bin/)?penstock up ")
BROKER: Final = re.compile(r"(\.venv/bin/)?penstock broker .*--listen (\S+)")
EXPORT: Final = "export "


@dataclass(slots=True)
class Reader:
    """Somebody who follows a page. `folder` stands for the repository, with `.venv` and `examples`."""

    folder: Path
    instead: Mapping[str, str] = field(default_factory=dict[str, str])
    """What is written in another way, and how."""
    setting: str = ""
    """What the shell of this reader knows already, such as a variable."""
    before: Mapping[str, Callable[[Shown], None]] = field(default_factory=dict[str, Callable[[Shown], None]])
    """How a command begins before which something has to happen, and that."""
    _exports: list[str] = field(default_factory=list[str])
    _servers: list[tuple[subprocess.Popen[bytes], Path]] = field(
        default_factory=list[tuple[subprocess.Popen[bytes], Path]]
    )

    def __enter__(self) -> Reader:
        self.folder.mkdir(exist_ok=True)
        (self.folder / ".venv").mkdir()
        (self.folder / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
        shutil.copytree(ROOT / "examples" / "local", self.folder / "examples" / "local")
        return self

    def __exit__(self, *_: object) -> None:
        for server, _log in self._servers:
            server.kill()
            server.wait()

    def does(self, each: Shown) -> None:
        """Run a command.

        Raises:
            AssertionError: it failed, or printed something else than the page shows.
        """
        command = self.written(each.command)
        for start, happens in self.before.items():
            if each.command.startswith(start):
                happens(each)
        if each.command.startswith(EXPORT):
            self._exports.append(command)
        if UP.match(command) or BROKER.match(command):
            self._starts(each, command)
            return
        ran = self._run(command)
        assert ran.returncode == 0, f"$ {command}\n{ran.stdout}"
        if each.output:
            expected = _comparable(self.written("\n".join(each.output)))
            assert _comparable(ran.stdout) == expected, f"$ {command}\n{ran.stdout}"

    def succeeds(self, each: Shown) -> bool:
        """Whether a command succeeds now."""
        return self._run(self.written(each.command)).returncode == 0

    def ends(self) -> None:
        """Stop what serves.

        Raises:
            AssertionError: it did not end in order.
        """
        while self._servers:
            server, log = self._servers.pop()
            server.terminate()
            assert server.wait(SECONDS) == 0, log.read_text()

    def written(self, text: str) -> str:
        """A text of the page as this reader writes it."""
        for word, other in self.instead.items():
            text = text.replace(word, other)
        return text

    def _starts(self, each: Shown, command: str) -> None:
        log = self.folder / f"server-{len(self._servers)}.log"
        with log.open("wb") as output:
            started = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.folder, env=self._environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        self._servers.append((started, log))
        wanted = [self.written(line) for line in each.output] or ["the page on lag: "]
        serving = BROKER.match(command)

        def serves() -> bool:
            assert started.poll() is None, log.read_text()
            return _answers(serving[2]) if serving else all(line in log.read_text() for line in wanted)

        until(serves, command, SECONDS)

    def _run(self, command: str) -> subprocess.CompletedProcess[str]:
        """What it prints is what a terminal shows: standard output and standard error."""
        script = "\n".join(("set -o pipefail", self.setting, *self._exports, command))
        return subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder, env=self._environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=SECONDS,
        )  # fmt: skip

    def _environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        return {**inherited, "HOME": str(self.folder), "PATH": path}


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), SECONDS).close()
    except ConnectionRefusedError:
        return False
    return True


def _comparable(text: str) -> list[str]:
    """The lines; what a report counts differs from run to run."""
    return [re.sub(r"(?<=: )\d+( subscriptions, )\d+", r"N\1N", line.rstrip()) for line in text.splitlines()]
