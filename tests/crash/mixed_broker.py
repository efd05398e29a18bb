"""The broker under a mixed load, as a process that is killed: `python -m crash.mixed_broker FOLDER FILES`.

FILES is aio or lossy, as for `killed_broker`; its segments are small and its messages may be larger than they are.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

from crash.killed_broker import files_for
from crash.lossy_files import Tally
from support.waiting import until

from penstock_broker import main
from penstock_broker.settings.settings import BrokerSettings, ListenerSettings, LogSettings, ManagementListener

__all__ = ["MixedBroker"]

SEGMENT_BYTES = 2 * 1024 * 1024
TESTS = Path(__file__).resolve().parent.parent


class MixedBroker:
    """One data folder, and the process that serves it now."""

    def __init__(self, folder: Path, files: str) -> None:
        self._folder, self._files = folder, files
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def management(self) -> str:
        """Where everything is allowed."""
        return f"unix:{self._folder / 'management.sock'}"

    @property
    def said(self) -> str:
        """What the processes wrote."""
        return (self._folder / "broker.log").read_text()

    def start(self) -> None:
        """Start, and wait until it listens."""
        ready = self._folder / "ready.json"
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "crash.mixed_broker", str(self._folder), self._files]
        with (self._folder / "broker.log").open("ab") as log:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
            self._process = process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        until(lambda: ready.exists() or process.poll() is not None, "the broker to start")
        if process.poll() is not None:
            raise RuntimeError(f"the broker did not start:\n{self.said[-4000:]}")
        self.port = int(json.loads(ready.read_text())["amqp"].rpartition(":")[2])

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        """Nothing is left running, however the test ended."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def run(folder: Path, kind: str) -> int:
    settings = BrokerSettings(
        listeners=(ListenerSettings(address="127.0.0.1:0"),),
        management=ManagementListener(address=f"unix:{folder / 'management.sock'}"),
        log=LogSettings(segment_bytes=SEGMENT_BYTES),
        max_message_bytes=8 * 1024 * 1024,
    ).for_dev()
    files = files_for(kind, Tally(folder / "tally"))
    return main.serve(settings, folder / "data", ready_file=folder / "ready.json", files=files)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    sys.exit(run(Path(sys.argv[1]), sys.argv[2]))
