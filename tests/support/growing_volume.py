"""A Broker's volume grows while clients work, on a storage whose volumes have a real size.

What docs/how-to/grow-a-volume.md says is done as it is printed. Before it the volume is filled until the broker has no
room for more, so that what is accepted afterwards can only be on what the volume has got.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Final, cast

from e2e.kube import ROOT, wait_for
from support.followed_page import Page
from support.installed_operator import MINUTE, Team, whole
from support.numbered_traffic import Traffic

from penstock_api.management import EntityType

__all__ = ["COMMANDS", "PAGE", "begin", "grow", "refuses", "traffic_of"]

PAGE: Final = ROOT / "docs/how-to/grow-a-volume.md"
COMMANDS: Final = (
    "kubectl -n shop get pvc data-main-0 ledger-main-0",
    "kubectl get storageclass -o custom-columns",
    """kubectl -n shop patch broker main --type merge -p '{"spec": {"storage": {"size": "50Gi"}}}'""",
    "kubectl -n shop get broker main -o jsonpath='{.status.storage}'",
    "kubectl -n shop wait broker main --for=jsonpath",
)
CLASS: Final = "expandable"
SMALL: Final = "400Mi"
LARGE: Final = "50Gi"
"""As the page says."""
LARGEST: Final = "100Gi"
"""More than the storage gives."""
HEAVY: Final = 64 * 1024
PATIENCE: Final = 5 * MINUTE


def begin(team: Team) -> Traffic:
    """Make a Broker with small volumes, and begin traffic: a producer and a consumer of `billing`."""
    storage = {"size": SMALL, "ledgerSize": SMALL, "storageClassName": CLASS}
    broker, exchange, billing, *_ = whole(storage=storage)
    about = {"apiVersion": "penstock.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "archive"}}
    team.apply(broker, exchange, billing, {**about, "spec": {"brokerRef": {"name": "main"}}})
    team.wait_ready("broker/main", "exchange/orders", "subscription/billing", "pq/archive", seconds=PATIENCE)
    return traffic_of(team)


def traffic_of(team: Team) -> Traffic:
    """No client yet."""
    return Traffic(f"amqp://{team.field('service', 'main-amqp', 'spec', 'clusterIP')}:5672")


def grow(team: Team, traffic: Traffic, page: Page) -> None:
    """Fill the volume, enlarge it, and fill it beyond what it was. Raises AssertionError and TimeoutError."""
    pod = _pod(team)
    small = _bytes(team)
    page.say(f"the broker says that its volume has {small >> 20} MiB")
    traffic.consume("billing", "orders", subscription="billing")
    traffic.produce("steady", "orders/eu.1", size=200, pause=0.02)
    traffic.produce("heavy", "archive", size=HEAVY, pause=0)
    wait_for("a volume that is full", lambda: traffic.goes_on() and _level(team) == "Full", PATIENCE)
    full = traffic.count("heavy") * HEAVY >> 20
    page.say(f"Full: {full} MiB of heavy messages are accepted, {len(traffic.refused)} messages were refused")
    began = time.monotonic()
    page.does(*COMMANDS)
    page.say(f"after {time.monotonic() - began:.1f} s the claim has {LARGE}")
    wait_for("the broker to see it", lambda: _bytes(team) > 40 << 30, MINUTE)
    page.say(f"after {time.monotonic() - began:.1f} s the broker says that its volume has {_bytes(team) >> 20} MiB")
    beyond = lambda: traffic.goes_on() and traffic.count("heavy") * HEAVY > small * 1.2  # noqa: E731
    wait_for("messages beyond the old size", beyond, PATIENCE)
    page.say(f"{traffic.count('heavy') * HEAVY >> 20} MiB of heavy messages are accepted, more than the old volume had")
    traffic.stop("heavy", "steady")
    steady = [each for each in traffic.accepted if each.startswith("steady-")]
    wait_for("each message of billing", lambda: not traffic.missing(steady), PATIENCE)
    assert traffic.failures == [], "a client was disconnected"
    assert _pod(team) == pod, "the pod is another one, or has been restarted"
    wait_for("the growth to be over", lambda: team.reason("broker", "main", "StorageResizing") == ("", ""), MINUTE)
    assert team.is_ready("broker", "main")
    page.say(f"{len(steady)} messages of billing were accepted and have come; no connection ended; the pod is the same")


def refuses(team: Team, page: Page) -> None:
    """A smaller size is refused, and so is one that the storage can't give; the way back is open in both cases."""
    _resize(team, SMALL)
    wait_for("the refusal", lambda: team.reason("broker", "main", "Ready") == ("False", "ShrinkRefused"), MINUTE)
    page.say(team.message("broker", "main", "Ready"))
    _resize(team, LARGE)
    team.wait_ready("broker/main")
    _resize(team, LARGEST)
    failed = ("True", "ExpansionFailed")
    wait_for("the failure", lambda: team.reason("broker", "main", "StorageResizing") == failed, PATIENCE)
    page.say(team.message("broker", "main", "StorageResizing"))
    _resize(team, "51Gi")
    wait_for(
        "a smaller growth instead",
        lambda: team.field("broker", "main", "status", "storage", "data") == {"requested": "51Gi", "capacity": "51Gi"},
        2 * PATIENCE,
    )
    team.wait_ready("broker/main")
    wait_for("the growth to be over", lambda: team.reason("broker", "main", "StorageResizing") == ("", ""), MINUTE)
    page.say("51Gi instead of what the storage could not give: done")


def _resize(team: Team, size: str) -> None:
    change = {"spec": {"storage": {"size": size}}}
    team.kube.kubectl("patch", "broker", "main", "--type=merge", "-p", json.dumps(change))


def _pod(team: Team) -> tuple[object, list[object]]:
    """Its uid, and how often each container has been restarted."""
    found = cast("list[Any]", team.field("pod", "main-0", "status", "containerStatuses") or [])
    return team.field("pod", "main-0", "metadata", "uid"), [it["restartCount"] for it in found]


def _bytes(team: Team) -> int:
    return int(asyncio.run(_state(team))["volumeBytes"])


def _level(team: Team) -> str:
    return str(asyncio.run(_state(team))["storageLevel"])


async def _state(team: Team) -> Any:
    client = await team.management()
    try:
        return await client.read(EntityType.BROKER)
    finally:
        await client.close()
