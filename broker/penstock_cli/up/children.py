"""Child processes that are kept running: start, wait, report an end, start again after a delay, end with the command.

A child has its own session, so that Ctrl-C in the terminal reaches `penstock up` alone, which then ends its children in
order. The output of each child goes to a log file. This module must not know what the children are.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock_api.failure import CannotRun, Misuse

__all__ = [
    "FIRST_SECONDS",
    "LONGEST_SECONDS",
    "STEADY_SECONDS",
    "Backoff",
    "ChildProcess",
    "keep_running",
    "run_once",
    "tail",
]


FIRST_SECONDS: Final = 0.1
LONGEST_SECONDS: Final = 10.0
STEADY_SECONDS: Final = 30.0
"""A child that ran for this long was healthy: if it ends, the delay before its next start is the shortest again."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delay before the next start."""

    seconds: float = FIRST_SECONDS

    def after(self, lived_seconds: float) -> Backoff:
        """The delay after the next one, given how long the child ran this time."""
        if lived_seconds >= STEADY_SECONDS:
            return Backoff()
        return Backoff(min(self.seconds * 2, LONGEST_SECONDS))


GRACE_SECONDS: Final = 20.0
"""Time between SIGTERM and SIGKILL."""
DEATH_SECONDS: Final = 2.0
"""A process that is dying has died by then."""
HOPELESS: Final = {each.exit_code: each for each in (Misuse, CannotRun)}
"""Exit codes of `penstock` after which another start would fail too: wrong settings, or a need of the machine."""
TOLD: Final = "penstock: "
"""What the last words of a `penstock` that can't run begin with."""
TAIL_LINES: Final = 15
LONGEST_LOG_BYTES: Final = 16 * 1024 * 1024
LOG_LOOK_SECONDS: Final = 10.0
"""Between two looks at how long a log is. What a child writes in this time may come on top."""
_SETPRIV: Final = shutil.which("setpriv")
_TIED: Final = (_SETPRIV, "--pdeathsig", "TERM", "--") if _SETPRIV else ()
"""Put before a command, so that the kernel sends SIGTERM to the child if this process is killed."""


@dataclass(frozen=True, slots=True)
class ChildProcess:
    """One process to run."""

    name: str
    command: tuple[str, ...]
    log: Path
    """File to which its output is appended; one that has grown long becomes NAME.1, which is written over."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables that it has beside those of this process."""


async def keep_running(
    child: ChildProcess,
    stop: asyncio.Event,
    say: Callable[[str], None],
    started: Callable[[int], Awaitable[None]],
) -> None:
    """Run a child until `stop` is set, again and again if it dies; `started(pid)` is awaited after each start.

    Raises:
        Misuse, CannotRun: the child says by this exit code that another start won't help.
    """
    backoff = Backoff()
    while not stop.is_set():
        since = time.monotonic()
        code = await _run_until(child, stop, started)
        if code is None:
            return
        kind = HOPELESS.get(code)
        if kind is not None:
            raise kind(f"{child.name} can't run:\n{reason(child.log)}", f"Its whole log: {child.log}")
        lived = time.monotonic() - since
        say(f"{child.name} {_ending(code)} after {lived:.0f} s; it starts again in {backoff.seconds:.1f} s")
        if await _set_within(stop, backoff.seconds):
            return
        backoff = backoff.after(lived)


async def run_once(child: ChildProcess, stop: asyncio.Event) -> int | None:
    """Run a child to its end and return its exit code; None if `stop` came first."""

    async def nothing(_pid: int) -> None: ...

    return await _run_until(child, stop, nothing)


async def _run_until(child: ChildProcess, stop: asyncio.Event, started: Callable[[int], Awaitable[None]]) -> int | None:
    _set_aside(child.log)
    with child.log.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *_TIED,
            *child.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, **child.environment},
            start_new_session=True,
        )
    ended = asyncio.create_task(process.wait())
    stopping = asyncio.create_task(stop.wait())
    starting = asyncio.ensure_future(started(process.pid))
    shortening = asyncio.create_task(_keep_short(child.log))
    try:
        await _first(ended, stopping, starting)
        return ended.result() if ended.done() else None
    finally:
        stopping.cancel()
        starting.cancel()
        await _end(process)
        shortening.cancel()
        await asyncio.wait({ended, starting, stopping, shortening})


async def _keep_short(log: Path) -> None:
    """A child may run for weeks; its log must not fill the disk meanwhile."""
    while True:
        await asyncio.sleep(LOG_LOOK_SECONDS)
        _set_aside(log)


def _set_aside(log: Path) -> None:
    """Empty a long log, whose lines go to NAME.1. The child holds it open for appending and goes on at its beginning.

    It writes there itself, not through this process, which may be stopped (Ctrl-Z) while the broker serves clients. So
    what it writes between the copy and the cut is lost. On a full disk the copy is what has to go.
    """
    if not log.exists() or log.stat().st_size <= LONGEST_LOG_BYTES:
        return
    aside = log.with_name(f"{log.name}.1")
    try:
        shutil.copyfile(log, aside)
    except OSError:
        aside.unlink(missing_ok=True)
    os.truncate(log, 0)


async def _first(ended: asyncio.Task[int], stopping: asyncio.Task[bool], starting: asyncio.Future[None]) -> None:
    """Wait for the end of the process or of the command; an exception of `started` is raised unless the process dies,
    because its death is then the reason: `started` sees it first, by a connection that ends.
    """
    waiting: set[asyncio.Future[Any]] = {ended, stopping, starting}
    while not ended.done() and not stopping.done():
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if starting in waiting and starting.done():
            waiting.remove(starting)
            if starting.exception() is not None:
                await asyncio.wait({ended, stopping}, timeout=DEATH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if not ended.done() and not stopping.done():
                    starting.result()


async def _end(process: asyncio.subprocess.Process) -> None:
    """SIGTERM, then SIGKILL to whatever is left of its group: a job may have started a JVM."""
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _ending(code: int) -> str:
    return f"exited with code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"


def reason(log: Path) -> str:
    """The last words of a `penstock` that can't run, indented; without such words the last lines of its log."""
    last = tail(log).splitlines()
    begins = [number for number, line in enumerate(last) if line.lstrip().startswith(TOLD)]
    return "\n".join(last[begins[-1] :]).replace(TOLD, "", 1) if begins else "\n".join(last)


def tail(log: Path) -> str:
    """The last lines of a log, indented, for an error message."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
    return "\n".join(f"    {line}" for line in lines)
