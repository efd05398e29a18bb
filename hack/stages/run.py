"""Runs stages, side by side as far as there are processors for them, and stops one that hangs.

A slow stage is never stopped: the only limit is on the time in which no test ends and nothing is printed.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stages.excerpt import excerpt
from stages.progress import VARIABLE, read_progress
from stages.running_line import RunningLine, elapsed, width_of
from stages.table import Stage, obstacle

__all__ = ["Outcome", "run_stages"]

ROOT = Path(__file__).resolve().parents[2]
POLL_SECONDS = 0.1
END_SECONDS = 30.0
"""How long a process may take to end after it was asked to."""
LEFT_SECONDS = 10.0
"""How long a process that a command started may outlive it."""
ENDED = re.compile(r"^\S+ end ", re.MULTILINE)
"""A line of the progress file."""
TAIL_BYTES = 2048
"""Of the end of a log, in which its last line is looked for."""
DOING = 60
"""Characters of that line that are shown."""
YIELDED = 5
"""By how much the niceness of a stage rises that is not on the longest way through them. It has a third of the weight
then, and only where both want the same processor: the stages of the cluster wait most of the time.
"""
STOPPED = 124
"""Exit code of a command that was stopped, as that of timeout(1)."""
MAVEN_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For Maven's own Java. Each of its runs ends before what the second compiler does would pay."""


@dataclass(frozen=True)
class Outcome:
    """How a stage ended: `verdict` is passed, FAILED or NOT RUN; `passed` and `failed` count tests, or commands."""

    stage: str
    verdict: str
    seconds: float
    passed: int
    failed: int
    reason: str = ""
    excerpt: tuple[str, ...] = ()
    """Of the output of a stage that failed: what tells why."""
    busy_seconds: float = 0.0
    """Of processors, which its commands and the processes for which these waited have used; daemons are not in it."""


class Run:
    """One stage that runs. Its output goes to its log, and with `before_output`, which is called before each part of
    it, to the terminal as it comes.
    """

    def __init__(
        self, stage: Stage, logs: Path, *, before_output: Callable[[], None] | None, clock: Callable[[], float]
    ) -> None:
        self.stage = stage
        self._before_output, self._clock = before_output, clock
        self.log = logs / f"{stage.name}.log"
        self._progress = logs / f"{stage.name}.progress"
        for file in (self.log, self._progress):
            file.unlink(missing_ok=True)
        self._output = self.log.open("wb")
        self.line_is_open = False
        """Whether what was printed last does not end a line."""
        self._hang = ""
        """Why the stage was stopped, empty if it was not."""
        self._commands = stage.split_commands()
        self._codes: list[int] = []
        self._busy_seconds = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._ended_at: float | None = None
        """When the running command ended, while processes that it started still hold its output."""
        self._noted = 0
        """How long the progress file was when we looked last."""
        self._started = self._moved = clock()

    def poll(self) -> bool:
        """Go on; False once the stage has ended."""
        if self._process is None and not self._start_next():
            return False
        assert self._process is not None
        at_end = self._copy()
        size = self._progress.stat().st_size if self._progress.exists() else 0
        now = self._clock()
        if size != self._noted:
            self._noted, self._moved = size, now
        before = busy_seconds()  # what `poll` adds is this command's, since it waits for no other
        code = self._process.poll()
        self._busy_seconds += busy_seconds() - before
        if code is None:
            if now - self._moved > self.stage.quiet_minutes * 60:
                minutes = f"{self.stage.quiet_minutes:g} minutes"
                self._hang = f"stopped, as nothing moved for {minutes}; {read_progress(self._progress)}"
                self._say(f"hack/test: {self._hang}")
                self._kill()
                self._finish(STOPPED)
        elif at_end:
            self._finish(code)
        elif self._ended_at is None:
            self._ended_at = time.monotonic()
        elif time.monotonic() - self._ended_at > LEFT_SECONDS:
            self._say("hack/test: the stage left a process behind")
            self._finish(code or 1)
        return True

    def _start_next(self) -> bool:
        """Start the next command that is to run. A cluster is taken down also after a failure."""
        while self._commands:
            command = self._commands.pop(0)
            if any(self._codes) and not (self.stage.cluster and command[-1] == "down"):
                continue
            self._say(f"$ {shlex.join(command)}")
            self._pipe, theirs = os.pipe()
            os.set_blocking(self._pipe, False)
            try:
                self._process = subprocess.Popen(
                    command if self.stage.cluster else ["nice", f"--adjustment={YIELDED}", *command],
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=theirs,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env=environment_of_stage(self._progress),
                )
            finally:
                os.close(theirs)
            self._ended_at = None
            self._moved = self._clock()
            return True
        return False

    def _copy(self) -> bool:
        """Copy what was printed; True at the end, which comes when no process has the output open any more."""
        while True:
            try:
                data = os.read(self._pipe, 65_536)
            except BlockingIOError:
                return False
            if not data:
                return True
            self._moved = self._clock()
            self._write(data)

    def _write(self, data: bytes) -> None:
        self.line_is_open = not data.endswith(b"\n")
        self._output.write(data)
        self._output.flush()
        if self._before_output is not None:
            self._before_output()
            sys.stdout.buffer.write(data)
            sys.stdout.flush()

    def _say(self, line: str) -> None:
        begin = "\n" if self.line_is_open else ""
        self._write(f"{begin}{line}\n".encode())

    def _kill(self) -> None:
        """End the command and all of its process group."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()

    def _finish(self, code: int) -> None:
        self._copy()
        os.close(self._pipe)
        self._codes.append(code)
        self._process = None

    def described(self) -> str:
        """The stage, for how long it has run, and how far it is: how many tests have ended, or its last line."""
        ended = len(ENDED.findall(self._progress.read_text(errors="replace"))) if self._noted else 0
        tests = f"{ended} test{'' if ended == 1 else 's'} ended"
        far = tests if self.stage.runs_pytest else _last_line(self.log)
        return f"{self.stage.name} {elapsed(self._clock() - self._started)}{f' ({far})' if far else ''}"

    def cancel(self) -> None:
        """The user has interrupted the command."""
        if self._process is not None:
            self._kill()
            self._finish(STOPPED)
        self._output.close()

    def outcome(self) -> Outcome:
        """The result of a stage that has ended."""
        self._output.close()
        seconds = self._clock() - self._started
        text = self.log.read_text(errors="replace")
        passed, failed = counted(text)
        bad = [code for code in self._codes if code]
        if bad:
            reason = f"{self._hang or f'exit code {bad[0]}'}; see {shortened(self.log)}"
            verdict, failed, lines = "FAILED", max(failed, 1), tuple(excerpt(text))
        elif self.stage.runs_pytest and not passed:
            verdict, failed, reason, lines = "NOT RUN", 1, "no test was selected", ()
        else:
            verdict, passed, failed, reason, lines = "passed", passed or len(self._codes), 0, "", ()
        return Outcome(self.stage.name, verdict, seconds, passed, failed, reason, lines, self._busy_seconds)


def run_stages(
    stages: list[Stage], logs: Path, *, cores: float = 1.0, clock: Callable[[], float] = time.monotonic
) -> list[Outcome]:
    """Run stages, side by side as far as they need no more processors than `cores`; one alone may need more.

    If the stage that makes .venv fails, those that need it are left out.
    Returns their outcomes, in the order in which they ended. The output of a single stage is printed as it comes, that
    of several when each ends, as a whole. While nothing is printed, a line names those that run, and how far they are.
    `clock`: seconds, by which stages are found to hang.
    """
    is_shown = len(stages) == 1
    waiting, running, outcomes = list(stages), list[Run](), list[Outcome]()
    width = None if is_shown else width_of(sys.stdout, os.environ.get("TERM", ""))  # nothing of its output is erased
    line = RunningLine(sys.stdout, width, clock)
    line.clear()
    try:
        while waiting or running:
            while (stage := next_of(waiting, [run.stage for run in running], cores)) is not None:
                waiting.remove(stage)
                line.clear()
                note = "" if is_shown else " (its output follows when it has ended)"
                print(f"\n== {stage.name}: {stage.about}{note}", flush=True)
                if reason := obstacle(stage):
                    outcomes.append(Outcome(stage.name, "NOT RUN", 0.0, 0, 1, reason))
                else:
                    running.append(Run(stage, logs, before_output=line.clear if is_shown else None, clock=clock))
            for run in [run for run in running if not run.poll()]:
                running.remove(run)
                outcomes.append(run.outcome())
                if run.stage.makes_venv and outcomes[-1].verdict != "passed":
                    waiting = [stage for stage in waiting if not stage.needs_venv]  # nothing else can run
                if not is_shown:
                    line.clear()
                    print(f"\n== {run.stage.name} has ended: {outcomes[-1].verdict}", flush=True)
                    sys.stdout.write(run.log.read_text(errors="replace"))
                    sys.stdout.flush()
            if running:
                line.show(lambda: _told(running, is_shown=is_shown))
            time.sleep(POLL_SECONDS)
    except BaseException:
        line.clear()
        for run in running:
            run.cancel()
        raise
    return outcomes


def _told(running: list[Run], *, is_shown: bool) -> str:
    """The stages that run, on a line of their own."""
    begin = "\n" if is_shown and running[0].line_is_open else ""
    return f"{begin}== running: {', '.join(run.described() for run in running)}"


def _last_line(log: Path) -> str:
    """What a stage has said last."""
    with log.open("rb") as said:
        said.seek(max(0, said.seek(0, os.SEEK_END) - TAIL_BYTES))
        lines = said.read().decode(errors="replace").split("\n")
    told = [line.strip() for line in lines if line.strip()]
    return "".join(each for each in told[-1] if each.isprintable())[:DOING] if told else ""


def busy_seconds() -> float:
    """What the children that were waited for, and theirs, have used of processors."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def environment_of_stage(progress: Path) -> dict[str, str]:
    """The environment of a stage's commands; `progress` is the file in which its tests note that they go on."""
    # Hundreds of brokers are started, and without stored bytecode each compiles every module again.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {"MAVEN_OPTS": MAVEN_OPTIONS, **inherited, VARIABLE: str(progress)}


def next_of(waiting: list[Stage], running: list[Stage], cores: float) -> Stage | None:
    """The first stage that may start beside those that run, None if there is none.

    A stage that needs more processors than there are starts when nothing else runs.
    """
    free = cores - sum(stage.cores for stage in running)
    maven_runs = any(stage.maven for stage in running)
    cluster_waits = any(stage.cluster for stage in running)
    venv_waits = any(stage.makes_venv for stage in (*waiting, *running))
    for stage in waiting:
        is_barred = (
            (stage.maven and maven_runs) or (stage.cluster and cluster_waits) or (stage.needs_venv and venv_waits)
        )
        if not is_barred and (stage.cores <= free or not running):
            return stage
        cluster_waits |= stage.cluster
    return None


def counted(text: str) -> tuple[int, int]:
    """Passed and failed tests by pytest's closing lines."""
    closing = [line for line in text.splitlines() if re.search(r"\bin [0-9.]+s\b", line)]
    found = re.findall(r"(\d+) (passed|failed|errors?)\b", "\n".join(closing))
    return (
        sum(int(count) for count, word in found if word == "passed"),
        sum(int(count) for count, word in found if word != "passed"),
    )


def shortened(path: Path) -> str:
    """A path as seen from the repository."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
