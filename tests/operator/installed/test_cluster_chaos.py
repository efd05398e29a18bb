"""JMS clients on a cluster, first while the broker's pod is deleted, and then through two minutes of chaos.

For a moment after a pod was deleted its Service still leads to its address, which does not answer any more. The clients
have the options that docs/how-to/jms.md recommends, which limit such an attempt
(docs/decisions/107-addresses-of-deleted-pods.md). The seed of the chaos is in PENSTOCK_CHAOS_SEED, or 1;
`hack/soak/chaos` runs it for an hour.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, cast

import pytest
from e2e.kube import pick, wait_for
from support import chaos_run
from support.installed_operator import MINUTE, Installation, Team

pytestmark = pytest.mark.cluster

BACK_SECONDS = 3
DELETIONS = 2
CHAOS_SECONDS = 120


@pytest.fixture(scope="module")
def team(installation: Installation) -> Iterator[Team]:
    with installation.team() as made:
        made.apply_whole()
        made.wait_ready()
        yield made


@pytest.fixture(scope="module")
def traffic(team: Team, tmp_path_factory: pytest.TempPathFactory) -> Iterator[chaos_run.Clients]:
    with chaos_run.clients(team, tmp_path_factory.mktemp("jms")) as made:
        yield made


def replace_pod(team: Team) -> None:
    """Delete the broker's pod as a drain does, and wait until its successor serves."""
    before = team.field("pod", "main-0", "metadata", "uid")
    team.kube.kubectl("delete", "pod", "main-0", "--wait=false")

    def serves() -> bool:
        pod = team.kube.get("pod", "main-0")
        statuses = cast("list[Any]", pick(pod, "status", "containerStatuses") or [])
        ready = any(pick(each, "name") == "broker" and pick(each, "ready") for each in statuses)
        return pick(pod, "metadata", "uid") not in (None, before) and ready

    wait_for("the pod's successor to serve", serves, 5 * MINUTE)


def test_jms_clients_are_back_when_the_successor_of_a_deleted_pod_serves(
    team: Team, traffic: chaos_run.Clients
) -> None:
    for _ in range(DELETIONS):
        traffic.go_on(MINUTE)
        replace_pod(team)
        traffic.go_on(BACK_SECONDS)


def test_after_chaos_all_is_as_declared_and_nothing_accepted_is_lost(
    installation: Installation, team: Team, traffic: chaos_run.Clients, capfd: pytest.CaptureFixture[str]
) -> None:
    def say(text: str) -> None:
        with capfd.disabled():
            print(text, flush=True)  # noqa: T201  # minutes long; and it is progress to hack/test

    seed = int(os.environ.get("PENSTOCK_CHAOS_SEED", "1"))
    figures = chaos_run.cause(installation, team, traffic, seed, CHAOS_SECONDS, say)
    say(f"seed {seed}: {figures}")
    assert len(figures.faults) >= chaos_run.SETTLED_EACH
    assert figures.accepted > 0
