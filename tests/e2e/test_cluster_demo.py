"""hack/demo --cluster as a test, on the node of hack/cluster: every assertion is the story's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e import cluster_demo, local_demo

pytestmark = pytest.mark.cluster


def test_from_kubectl_apply_to_lag(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def say(text: str) -> None:
        with capfd.disabled():
            print(text, flush=True)  # noqa: T201  # minutes long; whoever watches wants to see it move

    local_demo.build_clients(tmp_path / "maven.log")
    with cluster_demo.own_cluster(say) as cluster:
        cluster_demo.play(cluster, tmp_path, 10_000, say)
