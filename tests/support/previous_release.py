"""The release before this one (N-1), built from the commit that hack/releasing/previous-release names: its wheel and
its charts.

It is built once per commit, into build/previous.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Final

import yaml
from support.waiting import until

__all__ = ["ReleasedBroker", "previous_release", "previous_tree"]

ROOT: Final = Path(__file__).resolve().parents[2]
NAMED_IN: Final = ROOT / "hack" / "releasing" / "previous-release"


def commit() -> str:
    """The commit, in full. AssertionError if the repository does not have it."""
    (name,) = (line for line in NAMED_IN.read_text().splitlines() if line and not line.startswith("#"))
    found = _git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    assert found.returncode == 0, f"{name} of hack/releasing/previous-release is not here: git fetch --unshallow --tags"
    return found.stdout.decode().strip()


@cache
def previous_tree() -> Path:
    """Its files."""
    digest = commit()
    place = ROOT / "build" / "previous" / digest[:12] / "tree"
    with _alone(place):
        if not place.exists():
            packed = _git("archive", digest)
            assert packed.returncode == 0, packed.stderr.decode()
            unfinished = place.with_name(f"tree.{os.getpid()}")
            with tarfile.open(fileobj=BytesIO(packed.stdout)) as tar:
                tar.extractall(unfinished, filter="data")
            unfinished.rename(place)
    return place


@cache
def previous_release() -> Path:
    """A folder with the packages of its wheel, for `PYTHONPATH`."""
    tree = previous_tree()
    place = tree.with_name("packages")
    with _alone(place):
        if not place.exists():
            wheels = tree.with_name("wheels")
            command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(wheels)]
            built = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
            assert built.returncode == 0, built.stderr
            unfinished = place.with_name(f"packages.{os.getpid()}")
            with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
                wheel.extractall(unfinished)
            unfinished.rename(place)
    return place


@dataclass(slots=True)
class ReleasedBroker:
    """Brokers of two releases, one after the other, on one data folder, each with `penstock broker --dev`."""

    data: Path
    url: str = ""
    """amqp://HOST:PORT of the one that runs."""
    _process: subprocess.Popen[bytes] | None = None

    def start(self, packages: Path | None) -> None:
        """Start the release whose packages are in this folder, None: this one. Wait until it takes connections."""
        ready = self.data.with_suffix(".ready.json")
        ready.unlink(missing_ok=True)
        config = self.data.with_suffix(".yaml")
        config.write_text(
            yaml.safe_dump({"log": {"segmentBytes": 8 * 1024 * 1024}, "maxMessageBytes": 2 * 1024 * 1024})
        )
        path = "" if packages is None else str(packages)
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
        shown = [sys.executable, "-c", "import penstock_broker; print(penstock_broker.__file__)"]
        place = subprocess.run(shown, env=environment, capture_output=True, text=True, check=True).stdout
        assert Path(place).is_relative_to(packages or ROOT / "broker"), f"{place} would run"
        options = ["--data", self.data, "--config", config, "--listen", "127.0.0.1:0", "--ready-file", ready, "--dev"]
        with self.log_file.open("ab") as log:
            command = [sys.executable, "-m", "penstock_cli", "broker", *map(str, options)]
            self._process = subprocess.Popen(command, env=environment, stderr=log, stdin=subprocess.DEVNULL)

        def is_ready() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, f"the broker ended:\n{self.log_file.read_text()}"
            return ready.exists()

        until(is_ready, "the broker to take connections")
        self.url = f"amqp://{json.loads(ready.read_text())['amqp']}"

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    @property
    def log_file(self) -> Path:
        """What all of them wrote to standard error."""
        return self.data.with_suffix(".log")


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, check=False)


class _alone:
    """Two processes of pytest do not build the same thing at once."""

    def __init__(self, place: Path) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        self._file = place.with_suffix(".lock").open("w")

    def __enter__(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._file.close()
