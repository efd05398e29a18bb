"""Runs one command of an installation, says how far it is, and when it fails, why and what to do.

hack/env calls it before there is a .venv: it needs nothing but Python's own library.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

__all__ = ["FAILED", "LACKING", "Display", "Trouble", "doing", "install", "trouble"]

FAILED: Final = 1
LACKING: Final = 3
"""Exit code if this machine lacks something: here the network, or space."""
LOOK_SECONDS: Final = 0.25
"""How often the log is read: a terminal shows the seconds."""
LINE_SECONDS: Final = 10.0
"""How often a line is written where the lines stay, as in a file."""
TAIL_LINES: Final = 15
ERASE: Final = "\r\x1b[K"


@dataclass(frozen=True)
class Trouble:
    """Why an installation failed, what to do, and the exit code."""

    cause: str
    cure: str
    code: int = FAILED


NETWORK_CURE: Final = (
    "look at the connection; behind a proxy set HTTPS_PROXY, and for a package index of your own PIP_INDEX_URL "
    "(`pip config list` shows what pip uses)"
)
TROUBLES: Final = (  # the first that is found counts: pip says at last only that it found no package
    (
        r"No space left on device|\[Errno 28\]|Disk quota exceeded",
        Trouble(
            "the disk is full",
            "free some space; TMPDIR and PIP_CACHE_DIR name folders on another disk for what pip keeps for a while",
            LACKING,
        ),
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLCertVerificationError",
        Trouble(
            "the certificate of the package index is not trusted",
            "set PIP_CERT to the file with your organisation's certificate authority",
            LACKING,
        ),
    ),
    (
        r"connection broken by|Temporary failure in name resolution|NewConnectionError|ReadTimeoutError|ProxyError"
        r"|IncompleteRead|Could not fetch URL",
        Trouble("the package index cannot be reached", NETWORK_CURE, LACKING),
    ),
    (
        r"Temporary failure resolving|Failed to fetch|Could not connect to",
        Trouble(
            "Debian's packages cannot be reached", "look at the connection; behind a proxy set http_proxy", LACKING
        ),
    ),
    (
        r"Could not get lock",
        Trouble("another program installs Debian packages", "wait until it has ended"),
    ),
    (
        r"DO NOT MATCH THE HASHES",
        Trouble(
            "a package is not the one that the lock file names",
            "remove what was cut off with `.venv/bin/python -m pip cache purge`; else the package index changes files",
        ),
    ),
    (
        r"Could not find a version that satisfies|No matching distribution found",
        Trouble(
            "the package index does not have a locked version, or not for this Python and processor",
            "set PIP_INDEX_URL to an index that has it, or PENSTOCK_PYTHON to another Python",
        ),
    ),
    (
        r"error: command '\S*(cc|gcc|clang)\S*' failed|fatal error: .*\.h: No such file",
        Trouble(
            "the C compiler refused a source file", "the log has its message; a missing header needs its -dev package"
        ),
    ),
    (
        r"Permission denied|\[Errno 13\]",
        Trouble(
            "this user may not write a file", "the log names it; make this user its owner, or remove .venv as root"
        ),
    ),
    (
        r"No module named (pip|ensurepip)",
        Trouble(".venv was not made to its end", "remove .venv, and call the command again"),
    ),
)


def trouble(text: str) -> Trouble | None:
    """What the output of a command that failed tells, if it is known."""
    return next((known for pattern, known in TROUBLES if re.search(pattern, text)), None)


def doing(text: str, packages: int) -> str:
    """What pip does now, by its output so far; empty if that does not tell. `packages`: how many it will install."""
    done = len(re.findall(r"^(?:Collecting|Ignoring|Requirement already satisfied:?) ", text, re.MULTILINE))
    now = package = ""
    for line in text.splitlines():
        if found := re.match(r"Collecting ([\w.-]+)==(\S+)", line):
            now = package = f"package {done} of {packages}: {found[1]} {found[2]}"
        elif found := re.match(r"\s+(?:Downloading|Using cached) (\S+) (?:\S+ )*\(([\d.]+ \w+)\)", line):
            now = f"package {done} of {packages}: {found[1]} ({found[2]})"
        elif found := re.match(r"\s+(Installing build dependencies|Getting requirements|Preparing metadata)", line):
            now = f"{package}, {found[1].lower()}"
        elif found := re.match(r"\s+Building wheel for ([\w.-]+)", line):
            now = f"building {found[1]}"
        elif line.startswith("Installing collected packages:"):
            count = len(line.split(","))
            now = f"copying {count} package{'s' if count > 1 else ''} into .venv"
        elif "connection broken by" in line:
            now = "the package index does not answer; pip tries again"
    return now


@dataclass(slots=True)
class Display:
    """Writes what is done now, behind the minutes and seconds since the installation began.

    `width`: columns of the terminal, on which one line changes; None for a file, to which a line is added every ten
    seconds. `now`: the seconds since the installation began.
    """

    name: str
    out: TextIO
    width: int | None
    now: Callable[[], float]
    _about: str = ""
    _last: str = ""
    _wrote: float = 0.0

    def begins(self, about: str, note: str = "") -> None:
        """A step begins; `note` is said once."""
        self._about, self._last = about, about
        self._write(f"{about} ({note})" if note else about)

    def goes_on(self, what: str) -> None:
        """The step goes on, and is at `what` (empty: it does not say)."""
        if self.width is not None:
            text = f"{self._line(self._about)}{': ' if what else ''}{what}"
            self._put(f"{ERASE}{text[: self.width - 1]}")
        elif self.now() - self._wrote >= LINE_SECONDS:
            what = what or self._about
            self._write(f"  still {what}" if what == self._last else f"  {what}")
            self._last = what

    def ends(self) -> None:
        """The step has ended; what stays is the line with which it began."""
        if self.width is not None:
            self._put(ERASE)

    def _write(self, text: str) -> None:
        self._wrote = self.now()
        self._put(f"{self._line(text)}\n")

    def _line(self, text: str) -> str:
        seconds = int(self.now())
        return f"{self.name}: [{seconds // 60}:{seconds % 60:02}] {text}"

    def _put(self, text: str) -> None:
        self.out.write(text)
        self.out.flush()


def install(about: str, command: list[str], log: Path, display: Display, *, note: str = "", packages: int = 0) -> int:
    """Run a command with its output appended to `log`. Returns 0, or says why it failed and returns an exit code."""
    log.parent.mkdir(parents=True, exist_ok=True)
    display.begins(about, note)
    with log.open("ab") as output:
        start = output.tell()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    try:
        while (code := _ended(process)) is None:
            display.goes_on(doing(_said(log, start), packages))
    finally:
        display.ends()
        if process.poll() is None:  # Ctrl-C reaches it too
            process.terminate()
            process.wait()
    if code == 0:
        return 0
    said = _said(log, start)
    known = trouble(said)
    if known is None:
        known = Trouble(f"{Path(command[0]).name} ended with exit code {code}", "the lines above say more")
        display.out.writelines(f"    {line}\n" for line in said.splitlines()[-TAIL_LINES:])
    display.out.write(f"{display.name}: failed: {about}: {known.cause}.\n")
    display.out.write(f"{display.name}: what to do: {known.cure}; then call it again. All output is in {log}\n")
    return known.code


def _ended(process: subprocess.Popen[bytes]) -> int | None:
    """The exit code, if the process ends before it is time to look again."""
    try:
        return process.wait(LOOK_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def _said(log: Path, start: int) -> str:
    return log.read_bytes()[start:].decode(errors="replace")


def display_for(name: str, since: float) -> Display:
    """The display for this process's standard error. `since`: seconds since 1970."""
    is_terminal = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    width = shutil.get_terminal_size().columns if is_terminal else None
    return Display(name, sys.stderr, width, lambda: max(0.0, time.time() - since))


def main() -> int:
    """Run the command of the command line."""
    parser = argparse.ArgumentParser("installing.py", description=__doc__)
    parser.add_argument("--log", type=Path, required=True, help="file to which the output is appended")
    parser.add_argument("--since", type=float, required=True, help="when the installation began, seconds since 1970")
    parser.add_argument("--packages", type=int, default=0, help="how many packages pip will install")
    parser.add_argument("--note", default="", help="what is said once about it")
    parser.add_argument("about", help="what the command does")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    display = display_for("hack/env", options.since)
    return install(options.about, options.command, options.log, display, note=options.note, packages=options.packages)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("hack/env: interrupted; call it again, and it goes on with what pip has kept", file=sys.stderr)
        sys.exit(130)
