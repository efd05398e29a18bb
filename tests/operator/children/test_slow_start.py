"""The probes of the pod as the operator renders them, and what the broker answers during a slow start: who is ended?

The kubelet here follows the rules of Kubernetes ("Configure Liveness, Readiness and Startup Probes"): the startup probe
comes first and ends with its first success; then the liveness probe. A container is ended after `failureThreshold`
failures in a row. Time is the clock of `StartProgress`; the requests are real ones, at a real port.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.resources import broker

from penstock_broker.access import sockets
from penstock_broker.loop.start_probes import start_probes
from penstock_broker.loop.start_progress import StartProgress
from penstock_operator.children.stateful_set import PinnedPods, broker_stateful_set

HOUR = 3600
TIB = 1 << 40


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Kubelet:
    """Probes one container, and says when it ends it."""

    def __init__(self, container: dict[str, Any], get: Callable[[str], int]) -> None:
        self._probes = [container["startupProbe"], container["livenessProbe"]]
        self._get = get
        self._failures = 0
        self._due = 0.0
        self.ended_at: float | None = None

    def pass_time(self, now: float) -> None:
        """Do what is due."""
        if self.ended_at is not None or now < self._due:
            return
        probe = self._probes[0]
        self._due = now + probe["periodSeconds"]
        if 200 <= self._get(probe["httpGet"]["path"]) < 400:
            self._failures = 0
            self._probes = self._probes[-1:]
            return
        self._failures += 1
        if self._failures >= probe["failureThreshold"]:
            self.ended_at = now


class Start:
    """A broker that starts, its log on a slow disk, and the kubelet that watches it."""

    def __init__(self, clock: Clock, progress: StartProgress, address: tuple[str, int]) -> None:
        self.clock, self.progress, self._address = clock, progress, address
        manifest: Any = broker_stateful_set(broker(), PinnedPods(image="b:1", default_image="b:1", revision=1))[0]
        (container,) = (it for it in manifest["spec"]["template"]["spec"]["containers"] if it["name"] == "broker")
        self.kubelet = Kubelet(container, self.get)

    def get(self, path: str) -> int:
        connection = http.client.HTTPConnection(*self._address, timeout=60)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        finally:
            connection.close()

    def run(self, seconds: int, each_second: Callable[[int], None] = lambda _: None) -> None:
        for second in range(seconds):
            each_second(second)
            self.kubelet.pass_time(self.clock.now)
            self.clock.now += 1


@pytest.fixture
def start() -> Iterator[Start]:
    clock = Clock()
    progress = StartProgress(clock)
    port = sockets.bind("127.0.0.1:0")
    with port, start_probes(port, progress):
        yield Start(clock, progress, port.getsockname())


def test_a_recovery_of_an_hour_is_not_ended(start: Start) -> None:
    """A TiB at 290 MiB/s, of which each MiB is told; then an hour in which one queue after the other is filled."""
    start.run(HOUR, lambda second: start.progress.reading(second * TIB // HOUR, TIB))
    assert start.get("/readyz") == 503
    start.run(HOUR, lambda second: start.progress.restoring(second // 50, 72))
    assert start.kubelet.ended_at is None


def test_a_recovery_on_a_disk_that_gives_one_figure_in_55_seconds_is_not_ended(start: Start) -> None:
    start.run(HOUR, lambda second: start.progress.reading(second // 55, 1000))
    assert start.kubelet.ended_at is None


def test_a_recovery_that_stops_after_half_an_hour_is_ended_within_two_minutes(start: Start) -> None:
    """It has a minute, then six probes, ten seconds apart, must fail."""
    start.run(HOUR, lambda second: start.progress.reading(min(second, 1800), HOUR))
    assert start.kubelet.ended_at is not None
    assert 1860 < start.kubelet.ended_at <= 1920


def test_a_start_that_never_reads_anything_is_ended_within_two_minutes(start: Start) -> None:
    """The first answer ends the startup probe: that the process is there is known by then."""
    start.run(HOUR)
    assert start.kubelet.ended_at is not None
    assert 60 < start.kubelet.ended_at <= 120


def test_a_recovery_that_goes_on_after_a_hesitation_is_not_ended(start: Start) -> None:
    """The disk gives nothing for 100 seconds, twice."""

    def read(second: int) -> None:
        if second % 1000 >= 100:
            start.progress.reading(second, HOUR)

    start.run(2000, read)
    assert start.kubelet.ended_at is None
