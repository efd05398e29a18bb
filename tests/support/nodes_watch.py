"""What is seen of nodes, pods and volumes while a fault lasts, with the time of each change."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from e2e.jms_tool import Board
from kube import sandbox
from kube.node import Cluster

__all__ = ["Changes", "Flow", "Writers", "attached"]

LOOK_SECONDS: Final = 0.2
CONDITIONS: Final = '{{range .status.conditions}}{{.type}}={{.status}}/{{.reason}} {{end}}{{"\\n"}}'
PLACE: Final = (
    "{{.metadata.name}} on {{.spec.nodeName}}"
    '{{range .status.conditions}}{{if eq .type "Ready"}} ready={{.status}}{{end}}{{end}}'
    '{{with .metadata.deletionTimestamp}} to end at {{.}}{{end}}{{"\\n"}}'
)
"""A line for each change of an object."""


class Changes:
    """Lines of `kubectl get --watch` about some objects, told when they differ from the last ones."""

    def __init__(self, environment: Mapping[str, str], tell: Callable[[str], None], *words: str, form: str) -> None:
        command = ["kubectl", *words, "--watch", f"--output=go-template={form}"]
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        self._tell, self._name = tell, next(word for word in words if "/" in word or word == "pods")
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        last = ""
        for line in self._process.stdout:
            if line != last:
                self._tell(f"    {self._name}: {line.strip()}")
            last = line

    def end(self) -> None:
        """Watch no longer."""
        self._process.kill()
        self._process.wait()
        self._reader.join()


@dataclass(slots=True)
class _Watch:
    """Looks again and again in a thread of its own."""

    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def begin(self) -> None:
        """Look from now on."""
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Look no longer."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _go_on(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        """One look."""
        raise NotImplementedError


@dataclass(slots=True)
class Flow(_Watch):
    """When messages were accepted and received, to find how long there were none."""

    board: Board = field(default_factory=Board)
    _counts: tuple[int, int] = (0, 0)
    _moved: float = field(default_factory=time.monotonic)
    _longest: float = 0

    def look(self) -> None:
        """Note the time if both more was accepted and more received than when it was noted last."""
        with self.board.lock:
            counts = len(self.board.tally.accepted), len(self.board.tally.receipts)
        now = time.monotonic()
        if counts[0] > self._counts[0] and counts[1] > self._counts[1]:
            self._longest = max(self._longest, now - self._moved)
            self._counts, self._moved = counts, now

    def take_longest(self) -> float:
        """The longest time without messages since this was asked last; what lasts still counts."""
        longest = max(self._longest, time.monotonic() - self._moved)
        self._longest = 0
        return longest


def attached(mounts: str) -> set[str]:
    """The volumes of a CSI driver that are mounted, by the text of a node's /proc/PID/mountinfo.

    A volume has the same name on every node.
    """
    places = (line.split()[4] for line in mounts.splitlines())
    return {Path(place).parent.name for place in places if place.endswith("/globalmount")}


@dataclass(slots=True)
class Writers(_Watch):
    """Which node has which volume mounted; no volume may be on two nodes at once."""

    nodes: Callable[[], Iterable[Cluster]] = tuple
    twice: list[str] = field(default_factory=list[str])

    def look(self) -> None:
        """Compare what the nodes have mounted at this moment."""
        owners: dict[str, str] = {}
        for node in self.nodes():
            for volume in self._on(node):
                if volume in owners:
                    self.twice.append(f"{volume} on {owners[volume]} and on {node.folders.node}")
                owners[volume] = node.folders.node

    @staticmethod
    def _on(node: Cluster) -> set[str]:
        running = sandbox.running(node.folders)
        if running is None:
            return set()
        try:
            return attached(Path(f"/proc/{running.pid}/mountinfo").read_text())
        except OSError:  # it has ended meanwhile
            return set()
