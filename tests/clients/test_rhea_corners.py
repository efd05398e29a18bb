"""rhea beyond the examples: a footer before the body, drains, outcomes, replies by the relay, settling second."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from clients.example_clients import BUILD_SECONDS, EXAMPLES, SECONDS, program
from support.broker_process import BrokerProcess

pytestmark = pytest.mark.clients

SCRIPT = Path(__file__).with_name("rhea_corners.mjs")


def test_rhea_corners(tmp_path: Path) -> None:
    folder = tmp_path / "rhea"
    folder.mkdir()
    for file in (EXAMPLES / "node" / "package.json", EXAMPLES / "node" / "package-lock.json", SCRIPT):
        shutil.copy(file, folder)
    npm = program("npm", "apt-get install -y nodejs npm")
    subprocess.run([npm, "ci", "--silent"], cwd=folder, check=True, timeout=BUILD_SECONDS)
    with BrokerProcess(tmp_path / "data") as broker:
        command = [program("node", "apt-get install -y nodejs"), SCRIPT.name, str(broker.port)]
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    assert ran.stdout.splitlines() == [
        "footer accepted b 5",
        "drained only 0",
        "outcomes 0 0 1once",
        "reply m-1 HELLO",
        "second settled",
        "large accepted 1500000",
    ], ran.stderr
    assert ran.returncode == 0, ran.stderr
