"""A broker that can't be fetched for a comparison is named with the reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from benching import peer_archives
from benching.peer_archives import Missing


@pytest.fixture(autouse=True)
def without_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has been fetched, and there is nothing to fetch it with."""
    monkeypatch.setattr(peer_archives, "PEERS", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))


def test_artemis_and_broker_j_need_maven() -> None:
    for home in (peer_archives.artemis_home, peer_archives.broker_j_home):
        with pytest.raises(Missing, match=r"there is no mvn: apt-get install"):
            home()


def test_rabbitmq_needs_root_and_mmdebstrap() -> None:
    reason = "there is no mmdebstrap: apt-get install" if os.getuid() == 0 else "can be entered by root alone"
    with pytest.raises(Missing, match=reason):
        peer_archives.rabbitmq_root()


def test_a_tool_that_fails_is_told_with_what_it_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mvn", "java"):
        (tmp_path / name).write_text("#!/bin/sh\necho\necho no such artifact\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    with pytest.raises(Missing, match=r"mvn -q -B failed: no such artifact"):
        peer_archives.artemis_home()


def test_what_was_fetched_is_not_fetched_again(tmp_path: Path) -> None:
    (tmp_path / "apache-artemis-2.56.0" / "bin").mkdir(parents=True)
    assert peer_archives.artemis_home() == tmp_path / "apache-artemis-2.56.0"
