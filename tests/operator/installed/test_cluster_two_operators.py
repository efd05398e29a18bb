"""Two operators, processes of this machine, that both see the namespace of a Broker: one manages it, the other leaves
it alone and says so; what they make is not written again and again, and one that is over is succeeded.

The tests share both operators, and run in this order.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from e2e.kube import ROOT, Kube, pick, wait_for
from support.installed_operator import MINUTE, Installation, Team, whole

pytestmark = pytest.mark.cluster

NAMES = ("one", "two")
LIST_SECONDS = 2
QUIET_SECONDS = 6
"""Both operators list everything three times meanwhile; two that fought wrote about once in each such period."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A process of an operator that watches one namespace."""

    name: str
    kube: Kube
    process: subprocess.Popen[bytes]
    log: Path

    def says(self, words: str) -> bool:
        """Whether its log has these words."""
        return words in self.log.read_text()


def start(kube: Kube, name: str, log: Path) -> Operator:
    options = {
        "namespaces": kube.namespace,
        "own-namespace": kube.namespace,
        "lease": name,
        "broker-image": "localhost/none",
        "lag-image": f"localhost/{name}",
        "cluster-domain": f"{name}.local",
        "liveness-port": "0",
        "resync-seconds": str(LIST_SECONDS),
    }
    words = [part for option, value in options.items() for part in (f"--{option}", value)]
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("broker", "operator"))
    environment = {**kube.environment, "PYTHONPATH": paths}
    command = [sys.executable, "-m", "penstock_cli", "operator", *words]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd=ROOT)
    return Operator(name, kube, process, log)


def recorded(team: Team) -> str:
    """The operator that the Broker names, without its namespace."""
    return str(team.field("broker", "main", "status", "operator") or "").rpartition("/")[2]


def versions(team: Team) -> dict[str, str]:
    """The resource versions of the Broker's children, and the operator that it names."""
    found = team.kube.get("secret,configmap,service,statefulset,cronjob,networkpolicy")
    children = cast("list[Any]", pick(found, "items") or [])
    own = [it for it in children if pick(it, "metadata", "ownerReferences")]
    seen = {f"{it['kind']}/{it['metadata']['name']}": str(it["metadata"]["resourceVersion"]) for it in own}
    return {**seen, "operator": recorded(team)}


def changes(team: Team, seconds: float) -> list[str]:
    """What was written within this time, as often as it was seen to change."""
    written: list[str] = []
    before, end = versions(team), time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(1)
        now = versions(team)
        written += [name for name in now if now[name] != before.get(name)]
        before = now
    return written


def events(team: Team) -> list[str]:
    found = cast("list[Any]", pick(team.kube.get("events"), "items") or [])
    return [str(it["message"]) for it in found if it.get("reason") == "ManagedByOtherOperator"]


@pytest.fixture(scope="module")
def team(installation: Installation) -> Iterator[Team]:
    installation.scale_operator(0)
    try:
        with installation.team() as made:
            lag = {"backend": "CronJob", "suspend": True}
            made.apply(*whole(lagAnalysis=lag, networkPolicy={}))
            yield made
    finally:
        installation.scale_operator(1)


@pytest.fixture(scope="module")
def operators(team: Team, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Operator]]:
    """Both operators, started at the same moment, each with a Lease of its own. They differ in what a certificate
    names and in the image of the lag job. A test may add others.
    """
    folder = tmp_path_factory.mktemp("operators")
    made = [start(team.kube, name, folder / f"{name}.log") for name in NAMES]
    try:
        yield made
    finally:
        for operator in made:
            operator.process.kill()
            operator.process.wait()


@pytest.fixture(scope="module")
def settled(team: Team, operators: list[Operator]) -> tuple[Operator, Operator]:
    """The operator that manages the Broker, and the one that leaves it alone."""
    wait_for("an operator to be recorded", lambda: recorded(team) in NAMES or None, 3 * MINUTE)
    (loser,) = (it for it in operators if it.name != recorded(team))
    wait_for("the other one to see that it lives", lambda: loser.says("leaves it alone"), MINUTE)
    (winner,) = (it for it in operators if it is not loser)
    wait_for("the pods", lambda: team.kube.get("statefulset", "main") is not None or None, MINUTE)
    return winner, loser


def test_of_two_operators_that_begin_together_one_manages_a_broker(
    team: Team, settled: tuple[Operator, Operator]
) -> None:
    winner, loser = settled
    assert changes(team, QUIET_SECONDS) == []
    (said,) = events(team)
    assert f"/{winner.name} manages this Broker" in said
    assert f"/{loser.name}, which sees it too, leaves it alone" in said
    assert not winner.says("leaves it alone")
    made = pick(team.kube.get("cronjob", "main-lag"), "spec", "jobTemplate", "spec", "template", "spec")
    assert pick(made, "containers", 0, "image") == f"localhost/{winner.name}"


def test_an_operator_whose_lease_is_gone_is_succeeded_and_comes_back_as_the_other_one(
    team: Team, operators: list[Operator], settled: tuple[Operator, Operator], tmp_path: Path
) -> None:
    winner, loser = settled
    winner.process.send_signal(signal.SIGTERM)
    assert winner.process.wait(timeout=MINUTE) == 0
    time.sleep(QUIET_SECONDS)
    # It may be about to come back with another image.
    assert recorded(team) == winner.name
    team.kube.kubectl("delete", "lease", winner.name)
    wait_for("the succession", lambda: recorded(team) == loser.name or None, 2 * MINUTE)
    operators.append(start(team.kube, winner.name, tmp_path / "again.log"))
    wait_for("the first one to see that the other lives", lambda: operators[-1].says("leaves it alone"), MINUTE)
    assert changes(team, QUIET_SECONDS) == []
    assert recorded(team) == loser.name
