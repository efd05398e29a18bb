"""Causes of the alerts about the operator and the node, each begun and ended alone. Needs the node of hack/cluster."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import Final

from e2e.kube import command
from support.installed_operator import MINUTE, Installation

__all__ = ["OPERATOR_CAUSES"]

NODE_AWAY_SECONDS: Final = 3 * MINUTE
"""The node is called not ready after 50 seconds."""


@contextmanager
def _nobody_leads(installation: Installation) -> Generator[None]:
    """Somebody else holds the Lease, and renews it."""
    home, name = installation.home, f"{installation.release}-penstock-operator"
    stop = threading.Event()

    def hold() -> None:
        while not stop.wait(1):
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            spec = {"holderIdentity": "somebody-else", "leaseDurationSeconds": MINUTE, "renewTime": now}
            home.kubectl("patch", "lease", name, "--type=merge", "-p", json.dumps({"spec": spec}), check=False)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        home.kubectl("delete", "lease", name, check=False)


@contextmanager
def _node_lost(_: Installation) -> Generator[None]:
    """There is no kubelet for some minutes; what it has started runs on."""
    words = ("hack/cluster", "restart", "kubelet", f"--away={NODE_AWAY_SECONDS}")
    thread = threading.Thread(target=command, args=words)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@contextmanager
def _operator_blind(installation: Installation) -> Generator[None]:
    """Somebody removes the operator's right to list."""
    home, name = installation.home, f"{installation.release}-penstock-operator-resources"
    kept = json.loads(home.kubectl("get", "clusterrolebinding", name, "-o", "json"))
    kept["metadata"] = {key: kept["metadata"][key] for key in ("name", "labels", "annotations")}
    home.kubectl("delete", "clusterrolebinding", name)
    try:
        yield
    finally:
        home.kubectl("apply", "-f", "-", stdin=json.dumps(kept))


@contextmanager
def _operator_gone(installation: Installation) -> Generator[None]:
    """The operator is scaled to zero."""
    installation.scale_operator(0)
    try:
        yield
    finally:
        installation.scale_operator(1)


OPERATOR_CAUSES: Final[dict[str, Callable[[Installation], AbstractContextManager[None]]]] = {
    "PenstockNobodyLeads": _nobody_leads,
    "PenstockNodeLost": _node_lost,
    "PenstockOperatorBlind": _operator_blind,
    "PenstockOperatorGone": _operator_gone,
}
"""By alert, in the order in which they are caused."""
