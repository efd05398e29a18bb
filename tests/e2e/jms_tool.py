"""Runs the Java clients of tests/jms (Publish, Consume) as processes and follows what they report.

Each event of a client is one line on its standard output; a thread per client reads them into the tally. Who waits
looks at the tally every few hundredths of a second: conditions over whole sets are too dear to be asked at each event.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from e2e.tally import Receipt, Tally
from support.waiting import found

__all__ = ["Board", "Client", "build", "consume", "java", "publish", "why_maven_failed"]

PROJECT: Final = Path(__file__).resolve().parent.parent / "jms"
BUILD: Final = PROJECT.parent.parent / "build" / "jms_clients"
"""Not the folder of the project's tests, which may run at the same time."""
CLASSES: Final = "dev.penstock.jms.tool"
PATIENCE_SECONDS: Final = 600.0
LOOK_SECONDS: Final = 0.05
SAID_LINES: Final = 15
"""Of a failed client's log, shown with the failure."""


def build(run: Callable[[Sequence[str], Path], None]) -> None:
    """Compile the clients and fetch what they need, unless that is done; `run` executes a command in a folder."""
    sources = sorted([PROJECT / "pom.xml", *PROJECT.glob("src/main/**/*.*")])
    want = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    BUILD.mkdir(parents=True, exist_ok=True)
    stamp = BUILD / "tool.stamp"
    with (BUILD / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # stages of hack/test that run side by side share the clients
        if stamp.exists() and stamp.read_text() == want:
            return
        goals = ("compile", "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={BUILD}/lib")
        run(["mvn", "-q", "-B", f"-Dpenstock.build={BUILD}", *goals], PROJECT)
        stamp.write_text(want)


def why_maven_failed(said: str) -> str:
    """What Maven's output tells: the cause and what to do, or else its first errors."""
    if re.search("Could not transfer|Unknown host|Connection (refused|timed out)|Network is unreachable", said):
        return "Maven cannot reach its repository: look at the connection; ~/.m2/settings.xml names a proxy or a mirror"
    if "No space left on device" in said:
        return "the disk is full: Maven keeps what it downloads in ~/.m2"
    errors = [line.removeprefix("[ERROR] ").strip() for line in said.splitlines() if line.startswith("[ERROR] ")]
    return "\n".join(errors[:3]) or "Maven says no error"


def java(main: str, arguments: Sequence[str]) -> list[str]:
    """The command that runs one of the clients."""
    classpath = f"{BUILD / 'classes'}:{BUILD / 'lib'}/*"
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
    return ["java", *options, "-cp", classpath, f"{CLASSES}.{main}", *arguments]


class Board:
    """The tally that all clients write into."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.lock = threading.Lock()

    def wait_for(self, what: str, condition: Callable[[Tally], bool], seconds: float = PATIENCE_SECONDS) -> None:
        """Return when the condition holds.

        Raises:
            TimeoutError: it did not within the time.
        """

        def holds() -> bool | None:
            with self.lock:
                return condition(self.tally) or None

        found(holds, what, seconds, every=LOOK_SECONDS)


class Client:
    """One Java client process; `with` ends it whatever happens."""

    def __init__(self, board: Board, name: str, main: str, arguments: Sequence[str], log: Path) -> None:
        self.name = name
        self.ready = False
        self.interruptions = self.restorations = 0
        """How often failover has lost its connection, and how often it had one with all links again."""
        self.failures: list[str] = []
        self._board = board
        self._log = log.open("ab")
        self.process = subprocess.Popen(
            java(main, arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, name=f"read {name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._board.lock:
                self._note(line.split())

    def _note(self, words: list[str]) -> None:
        tally = self._board.tally
        match words:
            case ["accepted", id_]:
                tally.accepted.add(id_)
            case ["doubtful", id_, *_reason]:
                tally.doubtful.add(id_)
            case ["received", id_, count]:
                tally.receipts.append(Receipt(self.name, id_, int(count)))
            case ["settled", id_]:
                tally.settled.add(id_)
            case ["ready"]:
                self.ready = True
            case ["interrupted"]:
                self.interruptions += 1
            case ["restored"]:
                self.restorations += 1
            case ["failed", *reason]:
                self.failures.append(" ".join(reason))
            case _:
                pass  # closing counts, which the tally has already

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout, self._log):
            assert stream is not None
            stream.close()

    def wait_ready(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Return when a consumer has its link."""
        self._board.wait_for(f"{self.name} to attach", lambda _: self.ready or self.process.poll() is not None, seconds)
        if self.process.poll() is not None:
            self._reader.join()  # what it said last
        if not self.ready:
            raise RuntimeError(self._end())

    def wait_restored(self, times: int, seconds: float = PATIENCE_SECONDS) -> None:
        """Return when a consumer with failover has its link, after its connection was lost so many times at least."""

        def has_link() -> bool:
            return self.restorations >= times and self.restorations == self.interruptions

        what = f"{self.name} to attach again"
        self._board.wait_for(what, lambda _: has_link() or self.process.poll() is not None, seconds)
        if not has_link():
            raise RuntimeError(self._end())

    def stop(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Let a consumer close in good order."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.finish(seconds)

    def finish(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait for the end of a client that ends by itself.

        Raises:
            RuntimeError: it ended with an error.
        """
        code = self.process.wait(timeout=seconds)
        self._reader.join()
        if code != 0:
            raise RuntimeError(self._end())

    def _end(self) -> str:
        """How it ended, in its own words: the log's folder may be gone when somebody reads this."""
        self.process.wait()
        self._reader.join()
        said = Path(self._log.name).read_text(errors="replace").splitlines()[-SAID_LINES:]
        words = [f"{self.name} ended with code {self.process.returncode}; see {self._log.name}", *self.failures, *said]
        return "\n".join(words)


def publish(
    board: Board, name: str, access: Sequence[str], topic: str, count: int, log: Path, **more: object
) -> Client:
    """Start a producer; `access` is `--uri ...` and what else reaches the broker."""
    return Client(board, name, "Publish", [*access, *_options(topic=topic, name=name, count=count, **more)], log)


def consume(
    board: Board, name: str, access: Sequence[str], topic: str, subscription: str, log: Path, **more: object
) -> Client:
    """Start a consumer of a shared durable subscription."""
    return Client(board, name, "Consume", [*access, *_options(topic=topic, subscription=subscription, **more)], log)


def _options(**options: object) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
