"""A Broker is backed up with messages in it, its cluster goes, and another cluster gets it back.

What docs/how-to/backup-and-restore.md says is done as it is printed, with a snapshot of the volume by CSI.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

from e2e.kube import ROOT, pick, wait_for
from support.followed_page import Page
from support.growing_volume import traffic_of
from support.installed_operator import MINUTE, Team

__all__ = ["COMMANDS", "MANIFESTS", "PAGE", "Backup", "back_up", "restore"]

PAGE: Final = ROOT / "docs/how-to/backup-and-restore.md"
PATIENCE: Final = 5 * MINUTE
QUEUED: Final = 500
"""Messages that wait in each place when the backup is made."""
PLACES: Final = ("billing", "archive")
MAKE, OTHER_CLUSTER = "Make one", "Restore into another cluster"
"""Sections of the page."""
SNAPSHOT: Final = ("kind: VolumeSnapshot", "persistentVolumeClaimName")
SNAPSHOT_THERE: Final = ("kind: VolumeSnapshotContent",)
CLAIM: Final = ("kind: PersistentVolumeClaim", "dataSource")
WAIT: Final = "kubectl -n shop wait volumesnapshot main-data"
SAVE: Final = ("kubectl -n shop get broker,pex,psub,pq -o yaml", "kubectl -n shop get secret main-ca")
CONTENT: Final = "kubectl -n shop get volumesnapshot main-data -o jsonpath"
HANDLE: Final = "kubectl get volumesnapshotcontent CONTENT"
NAMESPACE: Final = "kubectl create namespace shop"
APPLY: Final = ("kubectl -n shop apply -f main-ca.json", "kubectl -n shop apply -f resources.yaml")
ADOPT: Final = (
    "kubectl -n shop annotate broker main penstock.dev/adoption=OtherCluster",
    "kubectl -n shop wait psub,pq --all",
    "kubectl -n shop annotate broker main penstock.dev/adoption-",
)
ORPHANS: Final = "kubectl -n shop get broker main -o jsonpath='{.status.orphans}'"
MANIFESTS: Final = (SNAPSHOT, SNAPSHOT_THERE, CLAIM)
COMMANDS: Final = {MAKE: (WAIT, *SAVE, CONTENT, HANDLE), OTHER_CLUSTER: (NAMESPACE, *APPLY, *ADOPT, ORPHANS)}
"""By section: the words with which they begin."""


@dataclass(frozen=True, slots=True)
class Backup:
    """What has to be there after the restore."""

    before: list[str]
    """Messages that were accepted before the snapshot was asked for."""
    perhaps: list[str]
    """Messages that were accepted later."""
    consumed: set[str]
    """Messages that were received and accepted before."""
    instance: object
    authority: str | None


def back_up(team: Team, page: Page, consumed: set[str]) -> Backup:
    """Queue messages, and make a backup while more of them come. Files are in the folder of the page."""
    traffic = traffic_of(team)
    for name, address in zip(PLACES, ("orders/eu.1", "archive"), strict=True):
        traffic.produce(name, address, size=500, pause=0.005)
    wait_for(
        "messages that wait", lambda: traffic.goes_on() and all(traffic.count(it) >= QUEUED for it in PLACES), PATIENCE
    )
    before = list(traffic.accepted)
    page.applies(*SNAPSHOT)
    page.does(WAIT, section=MAKE)
    traffic.stop()
    page.does(*SAVE, section=MAKE)
    page.instead["CONTENT"] = page.does(CONTENT, section=MAKE)
    page.instead["HANDLE"] = page.does(HANDLE, section=MAKE)
    page.instead["20Gi"] = str(team.field("pvc", "data-main-0", "status", "capacity", "storage"))
    assert traffic.failures == [], "a client was disconnected by the snapshot"
    later = traffic.accepted[len(before) :]
    page.say(f"{len(before)} messages were accepted before the snapshot, {len(later)} later")
    instance = team.field("broker", "main", "status", "instanceId")
    return Backup(before, later, consumed, instance, team.kube.secret("main-ca", "tls.crt"))


def restore(team: Team, page: Page, backup: Backup) -> None:
    """Do what the page says in a cluster that has an operator and nothing of the Broker."""
    page.does(NAMESPACE, section=OTHER_CLUSTER)
    page.applies(*SNAPSHOT_THERE)
    page.applies(*CLAIM)
    page.does(*APPLY, section=OTHER_CLUSTER)
    taken = lambda: {_reason(it) for it in _resources(team)} == {"DuplicateSubscription"}  # noqa: E731
    wait_for("the marks of the old cluster to be seen", taken, 2 * PATIENCE)
    page.does(*ADOPT, section=OTHER_CLUSTER)
    team.wait_ready("broker/main", "exchange/orders", "subscription/billing", "pq/archive")
    orphans = page.does(ORPHANS, section=OTHER_CLUSTER)
    assert orphans in ("", "[]"), orphans
    assert team.field("broker", "main", "status", "instanceId") == backup.instance
    assert team.kube.secret("main-ca", "tls.crt") == backup.authority, "clients have to trust another CA"
    _consume(team, page, backup)


def _consume(team: Team, page: Page, backup: Backup) -> None:
    traffic = traffic_of(team)
    traffic.consume("archive", "archive")
    traffic.consume("billing", "orders", subscription="billing")
    wait_for("each message of the backup", lambda: traffic.goes_on() and not traffic.missing(backup.before), PATIENCE)
    traffic.stop()
    assert traffic.failures == []
    assert traffic.repeated() == []
    assert not set(traffic.received) & backup.consumed, "a message came again that was consumed before the backup"
    later = set(traffic.received) - set(backup.before)
    assert later <= set(backup.perhaps)
    page.say(
        f"each of {len(backup.before)} messages has come once, and {len(later)} that were accepted during the copy"
    )


def _resources(team: Team) -> list[Any]:
    return cast("list[Any]", pick(team.kube.get("psub,pq"), "items") or [])


def _reason(resource: Any) -> object:
    conditions = cast("list[Any]", pick(resource, "status", "conditions") or [])
    return next((it["reason"] for it in conditions if it["type"] == "Ready"), None)
