"""The examples of each language, built once, and a broker for them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from clients.example_clients import BUILD_SECONDS, EXAMPLES, JVM, Client, declare_examples, program
from support.broker_process import BrokerProcess


@pytest.fixture(scope="session", params=("python", "node", "go", "maven"))
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Client:
    """The examples of one language, with what they need installed outside the repository."""
    folder = tmp_path_factory.mktemp("client")
    if request.param == "python":
        return Client((sys.executable, "-u"), ".py", EXAMPLES / "python", tells=True, goes_on=True)
    if request.param == "node":
        npm = program("npm", "apt-get install -y nodejs npm")
        shutil.copytree(EXAMPLES / "node", folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules"))
        subprocess.run([npm, "ci", "--silent"], cwd=folder, check=True, timeout=BUILD_SECONDS)
        return Client((program("node", "apt-get install -y nodejs"),), ".mjs", folder, tells=True, goes_on=True)
    if request.param == "maven":
        mvn = program("mvn", "apt-get install -y maven default-jdk-headless")
        shutil.copytree(EXAMPLES / "maven", folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("target"))
        subprocess.run([mvn, "-q", "-B", "process-classes"], cwd=folder, check=True, timeout=BUILD_SECONDS)
        java = program("java", "apt-get install -y default-jdk-headless")
        return Client(
            (java, *JVM, "-cp", "target/classes:target/lib/*", "orders.Main"), "", folder, tells=True, goes_on=False
        )
    go = program("go", "Go 1.25 or newer, from go.dev/dl")
    binary = folder / "client"
    subprocess.run([go, "build", "-o", str(binary), "."], cwd=EXAMPLES / "go", check=True, timeout=BUILD_SECONDS)
    return Client((str(binary),), "", folder, tells=False, goes_on=False)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    """A broker with the resources of examples/local, as `penstock up` declares them; it makes nothing by itself."""
    users: dict[str, object] = {"authentication": {"users": {"guest": "guest"}}}
    with BrokerProcess(tmp_path / "data", dev=False, settings=users, listen=["127.0.0.1:0"]) as process:
        await declare_examples(process)
        yield process
