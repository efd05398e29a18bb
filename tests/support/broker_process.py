"""A real broker process for tests: started on ephemeral ports, waited for, stopped or killed, its data folder kept.

    with BrokerProcess(tmp_path / "data", dev=True) as broker:
        connect(broker.url)
        broker.kill()
        broker.start()

Whoever uses it needs no fixture; `broker_process` in tests/broker/conftest.py wraps it.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import yaml
from support.broker_forks import fork_broker
from support.fork_server import ForkedProcess

__all__ = ["BrokerProcess"]

START_SECONDS = 300.0
STOP_SECONDS = 300.0
"""Only a test that fails waits so long."""

# Segments are written full of zeros before they are used: small ones start quickly.
_SMALL: dict[str, object] = {"log": {"segmentBytes": 8 * 1024 * 1024}, "maxMessageBytes": 2 * 1024 * 1024}


class BrokerProcess:
    """One broker, as often as it is started. `settings` is its configuration file, over small log segments; `module`
    has a `run` as that of `penstock_broker.main`."""

    def __init__(
        self,
        data: Path,
        *,
        dev: bool = True,
        listen: Sequence[str] = ("127.0.0.1:0",),
        management: bool = True,
        settings: dict[str, object] | None = None,
        module: str = "penstock_broker.main",
    ) -> None:
        self.data = data
        self.log_file = data.with_name(f"{data.name}.log")
        self.addresses: dict[str, str] = {}
        """Name of listener -> address, of the last start."""
        self.process: ForkedProcess | None = None
        data.mkdir(parents=True, exist_ok=True)
        self._module = module
        self._ready = data.with_name(f"{data.name}.ready.json")
        self._arguments: dict[str, object] = {
            "data": str(data),
            "listen": list(listen),
            "dev": dev,
            "probes": "127.0.0.1:0",
            "ready_file": str(self._ready),
        }
        if management:
            self._arguments["management"] = f"unix:{data.with_name(f'{data.name}.sock')}"
        config = data.with_name(f"{data.name}.yaml")
        config.write_text(yaml.safe_dump({**_SMALL, **(settings or {})}))
        self._arguments["config"] = str(config)

    def __enter__(self) -> BrokerProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None:
            self.kill()

    @property
    def url(self) -> str:
        """amqp://HOST:PORT of the first client listener."""
        return f"amqp://{self.addresses['amqp']}"

    @property
    def port(self) -> int:
        """TCP port of the first client listener."""
        return int(self.addresses["amqp"].rpartition(":")[2])

    @property
    def management(self) -> str:
        """unix:PATH, everything allowed."""
        return self.addresses["management"]

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self.process is not None
        return self.process.pid

    def start(self, seconds: float = START_SECONDS) -> None:
        """Start, and wait until it takes connections. Raises `AssertionError` with its log if it does not in time."""
        assert self.process is None, "it runs already"
        self._ready.unlink(missing_ok=True)
        self.process = fork_broker(self._arguments, self.log_file, self._module)
        deadline = time.monotonic() + seconds
        while not self._ready.exists():
            code = self.process.poll()
            assert code is None, f"the broker ended with {code}:\n{self.log()}"
            assert time.monotonic() < deadline, f"the broker is not ready:\n{self.log()}"
            time.sleep(0.01)  # a condition of another process: there is nothing to wait on but the file
        self.addresses = json.loads(self._ready.read_text())

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(STOP_SECONDS)
        self.process = None
        return code

    def kill(self) -> None:
        """SIGKILL. The data folder stays as the process left it."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(STOP_SECONDS)
        self.process = None

    def log(self) -> str:
        """What it wrote so far, over all starts."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def resident_bytes(self) -> int:
        """Its memory."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
