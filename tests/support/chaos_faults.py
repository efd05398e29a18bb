"""Faults of a node that take seconds, for chaos in which one comes while the last one is still felt.

Each is a function of an installation, a namespace, and a share between 0 and 1 that says how long it lasts. None of
them waits for what follows from it. Clients are connected by the cluster IP of the Service `main-amqp`, so this one
stays. Needs the node of hack/cluster, and root.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Final

from e2e.kube import command, wait_for
from support.chaos_checks import kill, kill_operator
from support.installed_operator import MINUTE, Installation, Team

from penstock_amqp.client.errors import ManagementError
from penstock_amqp.sasl.client import NotAuthenticated
from penstock_api.management import EntityType

__all__ = ["FAULTS", "Fault"]

Fault = Callable[[Installation, Team, float], None]

_LONGEST_AWAY_SECONDS: Final = 15


def operator_killed(installation: Installation, _team: Team, _share: float) -> None:
    """The operator's process is killed."""
    kill_operator(installation)


def operator_pod_deleted(installation: Installation, _team: Team, _share: float) -> None:
    """The operator's pod is deleted as a drain does."""
    installation.home.kubectl("delete", "pod", "-l", "app.kubernetes.io/name=penstock-operator", "--wait=false")


def broker_killed(_installation: Installation, team: Team, _share: float) -> None:
    """The broker's process is killed."""
    kill(team, "main-0", "broker")


def observer_killed(_installation: Installation, team: Team, _share: float) -> None:
    """The observer's process is killed."""
    kill(team, "main-0", "observer")


def pod_deleted(_installation: Installation, team: Team, _share: float) -> None:
    """The broker's pod is deleted as a drain does."""
    team.kube.kubectl("delete", "pod", "main-0", "--wait=false", "--ignore-not-found")


def pod_forced(_installation: Installation, team: Team, _share: float) -> None:
    """The broker's pod is deleted by force: its successor may start while the old process still runs."""
    team.kube.kubectl("delete", "pod", "main-0", "--force", "--grace-period=0", "--wait=false", "--ignore-not-found")


def api_server_away(installation: Installation, _team: Team, share: float) -> None:
    """There is no API server for up to fifteen seconds."""
    _restart(installation, "kube-apiserver", share)


def etcd_away(installation: Installation, _team: Team, share: float) -> None:
    """There is no etcd for up to fifteen seconds: the API server answers with errors, and its watches are cut."""
    _restart(installation, "etcd", share)


def kubelet_killed(installation: Installation, _team: Team, _share: float) -> None:
    """The kubelet is killed and started again."""
    _restart(installation, "kubelet", 0)


def containerd_killed(installation: Installation, _team: Team, _share: float) -> None:
    """The container runtime is killed and started again."""
    _restart(installation, "containerd", 0)


def services_deleted(_installation: Installation, team: Team, _share: float) -> None:
    """Services of the Broker and of the Exchange are deleted."""
    names = ("main-pods", "main-management", "main-observer", "orders-x")
    team.kube.kubectl("delete", "service", *names, "--ignore-not-found", "--wait=false")


def configuration_deleted(_installation: Installation, team: Team, _share: float) -> None:
    """The ConfigMaps of the Broker are deleted."""
    team.kube.kubectl("delete", "configmap", "main-ca", "main-config", "--ignore-not-found", "--wait=false")


def stateful_set_deleted(_installation: Installation, team: Team, _share: float) -> None:
    """The StatefulSet is deleted, and its pod stays."""
    team.kube.kubectl("delete", "statefulset", "main", "--cascade=orphan", "--ignore-not-found")


def service_changed(_installation: Installation, team: Team, _share: float) -> None:
    """Somebody changes a Service."""
    patch = json.dumps({"spec": {"publishNotReadyAddresses": False}})
    team.kube.kubectl("patch", "service", "main-pods", "--type=merge", "--patch", patch, check=False)


def topology_removed(_installation: Installation, team: Team, _share: float) -> None:
    """Somebody removes subscriptions on the broker."""

    async def remove() -> None:
        management = await team.management()
        try:
            for name in ("shipping-eu", "fraud"):
                await management.delete(EntityType.SUBSCRIPTION, f"psub:durable:global:{name}")
        finally:
            await management.close()

    def is_removed() -> bool:
        try:
            asyncio.run(remove())
        except ManagementError:
            return True  # it is not there
        except (OSError, TimeoutError, NotAuthenticated):
            return False
        return True

    wait_for("the broker to answer", is_removed, 2 * MINUTE)


def _restart(installation: Installation, daemon: str, share: float) -> None:
    command("hack/cluster", "restart", daemon, f"--away={share * _LONGEST_AWAY_SECONDS:.1f}")
    wait_for("the API server", lambda: installation.home.kubectl("get", "pods", "-o", "name", check=False), 2 * MINUTE)


FAULTS: Final[dict[str, Fault]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        operator_killed,
        operator_pod_deleted,
        broker_killed,
        observer_killed,
        pod_deleted,
        pod_forced,
        api_server_away,
        etcd_away,
        kubelet_killed,
        containerd_killed,
        services_deleted,
        configuration_deleted,
        stateful_set_deleted,
        service_changed,
        topology_removed,
    )
}
"""By name."""
