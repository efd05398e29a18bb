"""Running commands quietly, one progress line per step, and errors that name cause and cure.

Progress goes to standard error, so that standard output is free for results.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

FAILED, USAGE, NOT_POSSIBLE = 1, 2, 3  # exit codes
TAIL_LINES = 15


class Failure(Exception):
    """Ends the command with a message for people and an exit code."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def step(what: str) -> Iterator[None]:
    """Prints `what`, and behind it the seconds it took or that it failed."""
    print(f"{what:<58}", end="", file=sys.stderr, flush=True)
    started = time.monotonic()
    try:
        yield
    except BaseException:
        say("failed")
        raise
    say(f"{time.monotonic() - started:6.1f} s")


def run(
    command: Sequence[str | Path],
    log: Path,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: bytes | None = None,
) -> None:
    """Runs a command with its output appended to `log`. Raises Failure with the log's end if it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        out.write(f"$ {' '.join(map(str, command))}\n".encode())
        out.flush()
        start = out.tell()
        done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=cwd, input=stdin, check=False)
    if done.returncode != 0:
        said = log.read_bytes()[start:].decode(errors="replace").splitlines()[-TAIL_LINES:]
        lines = "".join(f"\n    {line}" for line in said)
        raise Failure(f"{command[0]} ended with {done.returncode}; its last lines (all in {log}):{lines}")


def output(command: Sequence[str | Path], *, env: Mapping[str, str] | None = None) -> str:
    """What a command prints. Raises Failure with what it said if it fails."""
    done = subprocess.run(command, capture_output=True, env=env, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"{' '.join(map(str, command))}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout


def succeeds(command: Sequence[str | Path], *, env: Mapping[str, str] | None = None) -> bool:
    return subprocess.run(command, capture_output=True, env=env, check=False).returncode == 0


def wait_until(holds: Callable[[], bool], what: str, *, seconds: float, cure: str) -> None:
    """Asks five times a second. Raises Failure naming `what` and `cure` when the time is up."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise Failure(f"{what}: not within {seconds:.0f} s; {cure}")
        time.sleep(0.2)


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Holds an exclusive lock; says so if another command has it, and waits."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another command that holds {file}")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
