"""Volumes that grow on a real cluster: its admission, its garbage collector and its StatefulSet controller.

The local node has no storage that can expand, so the test does what a storage does in the end: it writes the capacity.
"""

from __future__ import annotations

import asyncio
import functools
import json
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from e2e.kube import wait_for
from support.installed_operator import MINUTE, Installation, Team

from penstock_api.management import EntityType

pytestmark = pytest.mark.cluster

CLAIMS = ("data-main-0", "ledger-main-0")
TOGETHER = 10 * MINUTE
"""Brokers that start together on a busy node take longer than one, and a test may not fail for that."""


@pytest.fixture(scope="module")
def storage_class(installation: Installation) -> Iterator[str]:
    """A class of its own, whose claims may ask for more."""
    name = f"grows-{secrets.token_hex(3)}"
    made: Any = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
    made |= {"provisioner": "penstock.dev/folder", "volumeBindingMode": "WaitForFirstConsumer"}
    installation.home.kubectl("apply", "-f", "-", stdin=json.dumps({**made, "allowVolumeExpansion": True}))
    yield name
    installation.home.kubectl("delete", "storageclass", name)


@pytest.fixture(scope="module")
def teams(installation: Installation, storage_class: str) -> Iterator[dict[str, Team]]:
    """Brokers that start together: two on the class that grows, by what becomes of their claims when they are deleted,
    and one on the default class, whose volumes stay as they are.
    """
    sizes = {"size": "1Gi", "ledgerSize": "512Mi"}
    growing = {**sizes, "storageClassName": storage_class}
    storages = {"Retain": growing, "Delete": {**growing, "whenDeleted": "Delete"}, "fixed": sizes}
    with ExitStack() as stack:
        made = {name: stack.enter_context(installation.team()) for name in storages}
        for name, storage in storages.items():
            made[name].apply_whole(storage=storage)
        yield made


def resize(team: Team, **sizes: str) -> None:
    team.kube.kubectl("patch", "broker", "main", "--type=merge", "-p", json.dumps({"spec": {"storage": sizes}}))


def gives_space(team: Team, claim: str) -> None:
    """What the controller of a storage writes when it has enlarged a volume."""
    size = str(team.field("pvc", claim, "spec", "resources", "requests", "storage"))
    volume = str(team.field("pvc", claim, "spec", "volumeName"))
    capacity = {"capacity": {"storage": size}}
    team.kube.kubectl("patch", "pv", volume, "--type=merge", "-p", json.dumps({"spec": capacity}))
    team.kube.kubectl(
        "patch", "pvc", claim, "--subresource=status", "--type=merge", "-p", json.dumps({"status": capacity})
    )


def grow(team: Team, old: str) -> None:
    """Ask for more space, and give it once the new StatefulSet has adopted the pod of the one with the uid `old`."""
    resize(team, size="2Gi", ledgerSize="1Gi")
    wait_for(
        "a StatefulSet with the new sizes",
        lambda: templates(team) == ["2Gi", "1Gi"] and team.field("statefulset", "main", "metadata", "uid") != old,
        MINUTE,
    )
    new = team.field("statefulset", "main", "metadata", "uid")
    wait_for("the pod to be adopted", lambda: owner(team, "pod", "main-0") == new, MINUTE)
    wait_for("the resize to be told", lambda: team.reason("broker", "main", "StorageResizing")[0] == "True", MINUTE)
    gives_space(team, "data-main-0")
    gives_space(team, "ledger-main-0")
    wait_for("the end", lambda: team.reason("broker", "main", "StorageResizing") == ("", ""), MINUTE)


@pytest.mark.parametrize("when_deleted", ["Retain", "Delete"])
async def test_a_volume_grows_and_no_client_is_disconnected(teams: dict[str, Team], when_deleted: str) -> None:
    team = teams[when_deleted]
    team.wait_ready(seconds=TOGETHER)
    assert (
        team.field("statefulset", "main", "spec", "persistentVolumeClaimRetentionPolicy", "whenDeleted") == when_deleted
    )
    pod = str(team.field("pod", "main-0", "metadata", "uid"))
    old = str(team.field("statefulset", "main", "metadata", "uid"))
    claims = [team.field("pvc", name, "metadata", "uid") for name in CLAIMS]
    client = await team.management()
    await asyncio.to_thread(grow, team, old)  # the client goes on meanwhile, so that silence would be the broker's
    assert team.field("broker", "main", "status", "storage") == {
        "data": {"requested": "2Gi", "capacity": "2Gi"},
        "ledger": {"requested": "1Gi", "capacity": "1Gi"},
    }
    assert team.is_ready("broker", "main")
    assert team.field("pod", "main-0", "metadata", "uid") == pod
    assert [team.field("pvc", name, "metadata", "uid") for name in CLAIMS] == claims
    assert (await client.read(EntityType.BROKER))["epoch"] == 1, "the connection from before is still served"
    await client.close()


def test_what_can_t_be_had_changes_nothing_and_the_way_back_is_open(teams: dict[str, Team]) -> None:
    team = teams["fixed"]
    team.wait_ready(seconds=TOGETHER)
    old = team.field("statefulset", "main", "metadata", "uid")
    for size, reason in (("2Gi", "ExpansionNotAllowed"), ("512Mi", "ShrinkRefused")):
        resize(team, size=size)
        wait_for(f"{reason} to be told", functools.partial(is_refused, team, reason), MINUTE)
        assert team.field("pvc", "data-main-0", "spec", "resources", "requests", "storage") == "1Gi"
        resize(team, size="1Gi")
        team.wait_ready("broker/main")
    assert team.field("statefulset", "main", "metadata", "uid") == old


def is_refused(team: Team, reason: str) -> bool:
    """Whether the Broker is not Ready for this reason."""
    return team.reason("broker", "main", "Ready") == ("False", reason)


def templates(team: Team) -> list[Any]:
    """The sizes in the templates of the StatefulSet."""
    found: list[Any] = team.field("statefulset", "main", "spec", "volumeClaimTemplates") or []
    return [it["spec"]["resources"]["requests"]["storage"] for it in found]


def owner(team: Team, kind: str, name: str) -> Any:
    """The uid of the object's owner."""
    return team.field(kind, name, "metadata", "ownerReferences", 0, "uid")
