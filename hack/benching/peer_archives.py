"""The brokers that Penstock is compared with, fetched into build/peers by the ordinary clients of Maven and Debian."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from benching.results import BUILD

__all__ = ["ARTEMIS", "BROKER_J", "RABBITMQ", "Missing", "artemis_home", "broker_j_home", "rabbitmq_root"]

PEERS = BUILD.parent / "peers"
ARTEMIS, BROKER_J, RABBITMQ = "Artemis 2.56.0", "Broker-J 10.1.0", "RabbitMQ 4 quorum"
FETCH_SECONDS = 900


class Missing(Exception):
    """A peer can't be had; the text is the reason."""


def artemis_home() -> Path:
    """Where its distribution is. Raises Missing."""
    return _from_maven("org.apache.artemis:apache-artemis:2.56.0:tar.gz:bin", "apache-artemis-2.56.0")


def broker_j_home() -> Path:
    """Where its distribution is. Raises Missing."""
    return _from_maven("org.apache.qpid:apache-qpid-broker-j:10.1.0:tar.gz:bin", "qpid-broker/10.1.0")


def rabbitmq_root() -> Path:
    """A folder with the Debian release that has RabbitMQ 4, to be entered by chroot. Raises Missing."""
    root = PEERS / "rabbitmq"
    if (root / "complete").exists():
        return root
    if os.getuid() != 0:
        raise Missing("a Debian in a folder can be entered by root alone")
    if shutil.which("mmdebstrap") is None:
        raise Missing("there is no mmdebstrap: apt-get install mmdebstrap")
    PEERS.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(root, ignore_errors=True)
    _run(["mmdebstrap", "--quiet", "--variant=apt", "--include=rabbitmq-server", "trixie", str(root)])
    (root / "complete").touch()
    return root


def _from_maven(artifact: str, folder: str) -> Path:
    home = PEERS / folder
    if (home / "bin").exists():
        return home
    for tool in ("mvn", "java"):
        if shutil.which(tool) is None:
            raise Missing(f"there is no {tool}: apt-get install maven default-jdk-headless")
    archives = PEERS / "archives"
    _run(["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={archives}"])
    _, name, version, packaging, classifier = artifact.split(":")
    with tarfile.open(archives / f"{name}-{version}-{classifier}.{packaging}") as archive:
        archive.extractall(PEERS, filter="data")
    return home


def _run(command: list[str]) -> None:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS)
    except subprocess.TimeoutExpired:
        raise Missing(f"{command[0]} did not end within {FETCH_SECONDS} s") from None
    if ran.returncode:
        said = [line for line in (ran.stdout + ran.stderr).splitlines() if line.strip()]
        raise Missing(f"{' '.join(command[:3])} failed: {said[0][:200] if said else ran.returncode}")
