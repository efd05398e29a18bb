"""The project's images in the node of hack/cluster, built and loaded once for all tests of a run.

    from support.cluster_images import images

    broker = images().broker

Needs the node to be up (`hack/cluster up`). Sources that change while tests run change nothing: the first call decides.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["Images", "images"]

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Images:
    """Full image names, as a manifest gives them. The three have one tag."""

    broker: str
    operator: str
    lag: str

    @property
    def tag(self) -> str:
        return self.broker.rpartition(":")[2]


@cache
def images() -> Images:
    """Builds what changed and loads it. Raises `AssertionError` with what hack/images said if that fails."""
    done = subprocess.run(["hack/images", "load"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    broker, operator, lag = done.stdout.split()
    return Images(broker, operator, lag)
