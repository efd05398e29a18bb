"""Every pod of Penstock runs as a user of the namespace's range, as OpenShift's restricted-v2 has it, and under Pod
Security level restricted: broker and observer, operator, and the lag job.
"""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from e2e.kube import pick, wait_for
from e2e.story import StoryError
from support.installed_operator import MINUTE, Installation, Team
from support.uid_range import REFUSED, UID, pod, uid_range

pytestmark = pytest.mark.cluster


def numbers(team_or_home: Any, pod: str, container: str) -> list[str]:
    """User and group ids in a container."""
    text = team_or_home.kubectl("exec", pod, "-c", container, "--", "id")
    return [part.partition("=")[2].partition("(")[0] for part in text.split()[:2]]


def lag_runs(team: Team) -> list[Any]:
    """The pods of the Broker's lag job that have ended, with exit code."""
    pods = cast("list[Any]", pick(team.kube.get("pods", "-l", "batch.kubernetes.io/job-name"), "items") or [])
    ended = [pick(pod, "status", "containerStatuses", 0, "state", "terminated", "exitCode") for pod in pods]
    return [code for code in ended if code is not None]


def test_every_pod_runs_as_a_user_of_the_namespace_s_range(installation: Installation) -> None:
    with installation.team() as team, uid_range(team.kube):
        team.apply_whole(lagAnalysis={"backend": "CronJob", "intervalMinutes": 1})
        wait_for(
            "the refusal of a fixed user",
            lambda: REFUSED in team.kube.kubectl("get", "events"),
            MINUTE,
        )
        user = json.dumps({"spec": {"pod": {"user": "Namespace"}}})
        team.kube.kubectl("patch", "broker", "main", "--type=merge", "--patch", user)
        team.wait_ready(seconds=4 * MINUTE)
        for container in ("broker", "observer"):
            assert numbers(team.kube, "main-0", container) == [str(UID), "0"]
        wait_for("a run of the lag job to end", lambda: lag_runs(team) or None, 8 * MINUTE)
        assert lag_runs(team)[0] == 0
        wait_for("its result", lambda: team.field("broker", "main", "status", "lagAnalysis", "lastRunName"), 3 * MINUTE)


def test_the_operator_runs_as_a_user_of_the_namespace_s_range(installation: Installation) -> None:
    with uid_range(installation.home):
        installation.scale_operator(0)
        installation.scale_operator(1)
        pods = cast("list[Any]", pick(installation.home.get("pods"), "items"))
        (name,) = (str(pick(pod, "metadata", "name")) for pod in pods)
        assert numbers(installation.home, name, "operator") == [str(UID), "0"]
        with pytest.raises(StoryError, match=REFUSED):
            installation.home.kubectl("apply", "-f", "-", stdin=pod(user=10001))
