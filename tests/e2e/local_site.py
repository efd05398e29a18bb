"""A broker run by `penstock up` on this machine, as the story's site: its addresses, its death, its lag."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Final, cast

from e2e.page_visit import PageVisit
from e2e.story import StoryError
from support.waiting import found, until

from penstock_api import observer_api
from penstock_api.lag_result import LagResult

__all__ = ["LocalSite"]

START_SECONDS: Final = 300.0
LAG_SECONDS: Final = 900.0
FAILOVER: Final = "failover.reconnectDelay=50&failover.useReconnectBackOff=false&failover.maxReconnectAttempts=-1"
PREFETCH: Final = "jms.prefetchPolicy.all=100"
"""Small enough that neither consumer hoards; the client's default is 1000 (docs/how-to/jms.md)."""


class LocalSite:
    """`penstock up FOLDER` as a child process; `with` ends it whatever happens."""

    def __init__(
        self, manifests: Path, data: Path, *options: str, snapshot_seconds: int = 1, segment_seconds: int = 3
    ) -> None:
        self.data = data
        self._log = (data.parent / "up.log").open("ab")
        pace = ("--snapshot-seconds", str(snapshot_seconds), "--segment-seconds", str(segment_seconds))
        where = (str(manifests), "--data", str(data), "--listen", "127.0.0.1:0", "--listen-tls", "127.0.0.1:0")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock_cli", "up", *where, "--no-lag", *pace, *options],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )

    def __enter__(self) -> LocalSite:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._log.close()

    def state(self) -> Mapping[str, object]:
        """What `penstock up` tells in up.json; empty before it serves."""
        path = self.data / "up.json"
        return cast("Mapping[str, object]", json.loads(path.read_text())) if path.exists() else {}

    def pid(self, name: str) -> int | None:
        """Process id of `broker` or `observer`, once it serves."""
        pids = cast("Mapping[str, int]", self.state().get("pids", {}))
        return pids.get(name)

    def wait_until_serving(self, broker_other_than: int | None = None) -> None:
        """Return when broker and observer serve; the broker as another process than the given one."""

        def serves() -> bool:
            if self.process.poll() is not None:
                raise StoryError(f"penstock up has ended; see {self._log.name}")
            return self.pid("broker") not in (None, broker_other_than) and self.pid("observer") is not None

        until(serves, f"penstock up to serve; see {self._log.name}", START_SECONDS)

    def access(self, *, failover: bool) -> list[str]:
        """Options of the Java clients."""
        amqp = f"amqp://{self.state()['amqp']}"
        uri = f"failover:({amqp})?{PREFETCH}&{FAILOVER}" if failover else f"{amqp}?{PREFETCH}"
        return ["--uri", uri]

    def kill(self) -> str:
        """kill -9 the broker and wait until `penstock up` has it serving again."""
        pid = self.pid("broker")
        assert pid is not None
        started = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        self.wait_until_serving(broker_other_than=pid)
        return f"process {pid} killed, process {self.pid('broker')} serves after {time.monotonic() - started:.1f} s"

    def page(self) -> PageVisit:
        """How a person reaches the page."""
        return PageVisit(str(self.state()["observer"]), self._token())

    def _token(self) -> str:
        return (self.data / "observer.token").read_text(encoding="ascii").strip()

    def get(self, path: str) -> object:
        """JSON from the observer; waits while it says 503, which it does until it has seen the broker."""
        url = f"{self.state()['observer']}{path}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self._token()}"})

        def answer() -> object | None:
            try:
                with urllib.request.urlopen(request, timeout=10) as response:
                    return cast("object", json.load(response))
            except urllib.error.HTTPError as error:
                error.close()
                if error.code != HTTPStatus.SERVICE_UNAVAILABLE:
                    raise
                return None

        return found(answer, f"the observer to answer {path}", START_SECONDS)

    def depth(self, subscription: str) -> int:
        """Unsettled messages as the broker counts them now."""
        states = cast("list[dict[str, object]]", self.get(observer_api.SUBSCRIPTIONS))
        for state in states:
            if state["subscriptionName"] == subscription and state["scope"] == "Global" and state["durable"]:
                return int(cast("int", state["depth"]))
        raise StoryError(f"the observer knows no subscription {subscription!r}")

    def wait_for_segment(self, after_ms: int) -> int:
        """Wait until the ledger has a finished segment that reaches beyond a time; return how many there are."""

        def count() -> int | None:
            listing = cast("dict[str, list[dict[str, int]]]", self.get(observer_api.SEGMENTS))
            segments = listing["segments"]
            return len(segments) if any(segment["lastMs"] > after_ms for segment in segments) else None

        return found(count, "the observer to finish a ledger segment", START_SECONDS, every=0.1)

    def analyse(self, run_name: str, *options: str) -> LagResult:
        """Run the lag job once, as `penstock lag` does, and fetch its result from the observer."""
        command = [sys.executable, "-m", "penstock_cli", "lag", "--observer", str(self.state()["observer"])]
        command += ["--token-file", str(self.data / "observer.token"), "--broker", "shop", "--namespace", "default"]
        command += ["--run-name", run_name, *options]
        log = self.data.parent / "lag.log"
        with log.open("ab") as out:
            code = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, timeout=LAG_SECONDS).returncode
        if code != 0:
            raise StoryError(f"penstock lag ended with code {code}; see {log}")
        return LagResult.model_validate(self.get(observer_api.RESULTS.format(run_name=run_name)))
