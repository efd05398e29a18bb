"""Plays the parts of hack/soak/reach on the running node, and says what was not as the pages say."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from e2e.local_demo import build_clients
from kube import binaries, preflight
from kube.additions import ADDED_BY, NEEDS, add
from kube.node import Cluster
from kube.settings import addresses, folders
from support import reach_balancer, reach_issuers, reach_policies
from support.cluster_images import images
from support.reach_stage import HOME, Stage, StoryError, set_stage

__all__ = ["lacks", "run"]

Say = Callable[[str], None]

PLAYS: Final[Mapping[str, Callable[[Stage], None]]] = {
    "policies": reach_policies.play,
    "issuers": reach_issuers.play,
    "balancer": reach_balancer.play,
}


def lacks(parts: Sequence[str]) -> str:
    """What this machine lacks for these parts, with the cure; empty if nothing. Raises Failure if the node lacks it."""
    places = folders()
    unbuilt = bool(binaries.missing(places, binaries.ADDITIONS))
    preflight.check(places, preflight.CLUSTER + NEEDS, builds_go=unbuilt, disk_gib=4, install=False)
    if "issuers" in parts and not (shutil.which("mvn") and shutil.which("javac")):
        return "not on the PATH: a JDK and Maven (on Debian: apt-get install -y default-jdk-headless maven)"
    return ""


def run(parts: Sequence[str], environment: Mapping[str, str], work: Path, registry: str, say: Say) -> int:
    """Play the parts; 1 if one was not as the pages say, which is told."""
    places = folders()
    cluster = Cluster(places, addresses(), binaries.build(places, binaries.ADDITIONS))
    stage = Stage(environment, work, say, images().broker)
    if "issuers" in parts:
        build_clients(work / "maven.log")
    is_set = "deployment" in stage.kube(HOME).kubectl("get", "deployments", "--output=name")
    if not is_set:
        set_stage(stage, registry)
    for part in parts:
        stage.tell(f"--- {part}")
        for program in ADDED_BY[part]:
            add(cluster, program)
        try:
            PLAYS[part](stage)
        except (StoryError, TimeoutError, AssertionError, subprocess.CalledProcessError) as error:
            stage.tell(f"NOT as the pages say, in {part}: {error}")
            return 1
    stage.tell("all was as the pages say")
    return 0
