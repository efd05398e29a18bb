"""The operator on a real cluster, installed by its chart for the whole cluster: everything starts, is repaired and is
deleted within a minute.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from typing import cast

import pytest
import yaml
from e2e.kube import ROOT, pick, wait_for
from e2e.story import StoryError
from support.installed_operator import MINUTE, SUBSCRIPTIONS, Installation, Team, whole

from penstock_api.management import EntityType

pytestmark = pytest.mark.cluster

AT_ONCE = 20
"""Seconds. A watch tells the operator of a child that was changed; its lists come every two minutes."""
DELETIONS = 4
"""Tests that delete a Broker of their own."""
TOGETHER = 10 * MINUTE
"""Brokers that start together on a busy node take longer than one, and a test may not fail for that."""


@pytest.fixture
def team(installation: Installation) -> Iterator[Team]:
    """A namespace for a test that makes or ends its Broker."""
    with installation.team() as made:
        yield made


@pytest.fixture(scope="module")
def begun(installation: Installation) -> Iterator[list[Team]]:
    """Brokers that start together: those that tests delete start while the tests before work with `kept`."""
    with ExitStack() as stack:
        made = [stack.enter_context(installation.team()) for _ in range(1 + DELETIONS)]
        for each in made:
            each.apply_whole()
        yield made


@pytest.fixture(scope="module")
def kept(begun: list[Team]) -> Team:
    """A Broker that several tests disturb, one after the other: each leaves it as healthy as it was."""
    return begun.pop(0)


@pytest.fixture
def doomed(begun: list[Team]) -> Team:
    """A Broker for a test that deletes it: Ready, with all that whole.yaml has, and as no test has touched it."""
    made = begun.pop(0)
    made.wait_ready(seconds=TOGETHER)
    return made


@pytest.fixture
def healed(kept: Team) -> Team:
    """It is Ready, whatever the test before did to it."""
    kept.wait_ready(seconds=TOGETHER)
    return kept


async def declared_names(team: Team) -> list[str]:
    """The subscriptions that the broker reports."""
    management = await team.management()
    try:
        found = await management.query_all(EntityType.SUBSCRIPTION, attributes=["subscriptionName"])
        return sorted(str(row["subscriptionName"]) for row in found)
    finally:
        await management.close()


def test_everything_becomes_ready_in_whatever_order_it_comes(installation: Installation, team: Team) -> None:
    begin = datetime.now(UTC)
    team.apply(*reversed(whole()))
    team.wait_ready()
    assert asyncio.run(declared_names(team)) == ["billing", "fraud", "shipping-eu"]
    asyncio.run(team.connect_as_client())
    table = team.kube.kubectl("get", "psub").splitlines()
    assert table[0].split() == ["NAME", "EXCHANGE", "STATE", "LAG", "OLDEST", "FRESH", "READY", "REASON", "AGE"]
    assert table[1].split()[:2] == ["billing", "orders"]
    assert " True Ready " in " ".join(table[1].split()), "whatever the observer has said of its lag by now"
    assert team.field("exchange", "orders", "status", "address") == (
        f"amqps://orders-x.{team.kube.namespace}.svc:5671/orders"
    )
    services = [pick(one, "metadata", "name") for one in pick(team.kube.get("services"), "items") or []]  # type: ignore[attr-defined]  # JSON
    assert sorted(map(str, services)) == ["main-amqp", "main-management", "main-observer", "main-pods", "orders-x"]
    assert team.field("statefulset", "main", "spec", "podManagementPolicy") == "Parallel"
    assert team.field("pod", "main-0", "spec", "automountServiceAccountToken") is False
    assert team.reason("broker", "main", "LagAnalysisScheduled")[1] == "Suspended"
    # Tests before this one share the operator: namespaces that end refuse what is made in them, and an API server
    # that has just started, as in the chaos, forbids everything until it knows its roles.
    here = (team.kube.namespace, "at the cluster scope")
    refused = [line for line in installation.log(begin).splitlines() if "orbidden" in line]
    assert [line for line in refused if any(place in line for place in here)] == []
    # Neither defaults nor the operator make a difference that a GitOps tool would fight for ever.
    again = yaml.safe_dump_all(whole())
    for how in (["--server-side", "--field-manager=gitops"], ["--server-side=false"]):
        wait_for(f"no difference, {how}", partial(is_the_same, team, again, *how), MINUTE)
    audit_by_hand(installation, team)


def audit_by_hand(installation: Installation, team: Team) -> None:
    """The pod in the examples reaches the broker's management, and the observer with the lag job's token."""
    example = (ROOT / "examples/kubernetes/lag/by-hand.yaml").read_text()
    image = "localhost/penstock-lag"
    team.kube.kubectl("apply", "-f", "-", stdin=example.replace(f"{image} ", f"{image}:{installation.tag} "))
    team.kube.kubectl("wait", "pod/lag-by-hand", "--for=condition=Ready", "--timeout=60s")
    run = ("exec", "lag-by-hand", "--", "penstock", "lag")
    began = team.kube.kubectl(*run, "audit", "start", "billing", "--seconds", "60")
    assert "of psub:durable:global:billing: 0 messages are there" in began
    assert "0 records, ended by Request" in team.kube.kubectl(*run, "audit", "stop", "billing")
    observer = f"--observer=https://main-observer.{team.kube.namespace}.svc:8080"
    token = ("--token-file=/etc/penstock/lag/token", "--ca-file=/etc/penstock/lag/ca.crt")
    with pytest.raises(StoryError, match="there is no audit of 'fraud'"):
        team.kube.kubectl(*run, "audit", "report", "--subscription=fraud", observer, *token)
    team.kube.kubectl("delete", "pod", "lag-by-hand", "--wait=false", "--grace-period=0")


def is_the_same(team: Team, text: str, *how: str) -> bool:
    """Whether applying the manifest would change nothing. A status that is written while kubectl compares does not
    count.
    """
    try:
        return team.kube.kubectl("diff", *how, "-f", "-", stdin=text) == ""
    except StoryError as told:
        if "failed with code 1:" not in str(told):
            raise
        return False


def test_drift_of_children_and_of_topology_is_healed(healed: Team) -> None:
    healed.kube.kubectl("delete", "service", "orders-x", "main-amqp")
    patch = json.dumps({"spec": {"publishNotReadyAddresses": False}})
    healed.kube.kubectl("patch", "service", "main-management", "--type=merge", "--patch", patch)
    wait_for("the Services to be back", lambda: healed.field("service", "main-amqp", "metadata", "name"), AT_ONCE)
    wait_for("the Exchange's Service", lambda: healed.field("service", "orders-x", "metadata", "name"), AT_ONCE)
    wait_for(
        "publishNotReadyAddresses",
        lambda: healed.field("service", "main-management", "spec", "publishNotReadyAddresses"),
        AT_ONCE,
    )
    healed.kube.kubectl("delete", "configmap", "main-ca", "main-config")
    wait_for("what clients trust", lambda: healed.field("configmap", "main-ca", "data", "ca.crt"), AT_ONCE)
    wait_for("the settings", lambda: healed.field("configmap", "main-config", "data"), AT_ONCE)
    healed.kube.kubectl("delete", "statefulset", "main", "--cascade=orphan")
    wait_for("the StatefulSet", lambda: healed.field("statefulset", "main", "metadata", "name"), AT_ONCE)

    async def remove() -> None:
        management = await healed.management()
        await management.delete(EntityType.SUBSCRIPTION, "psub:durable:global:fraud")
        await management.close()

    asyncio.run(remove())
    wait_for("the subscription to be declared again", lambda: "fraud" in asyncio.run(declared_names(healed)), MINUTE)


def test_a_lost_volume_is_declared_anew_within_a_minute(healed: Team) -> None:
    before = healed.field("broker", "main", "status", "instanceId")
    healed.kube.kubectl("delete", "pvc", "data-main-0", "--wait=false")
    healed.kube.kubectl("delete", "pod", "main-0", "--wait=false")

    def renewed() -> bool:
        return healed.field("broker", "main", "status", "instanceId") not in (before, None)

    wait_for("another instance", renewed, MINUTE)
    healed.wait_ready()
    assert asyncio.run(declared_names(healed)) == ["billing", "fraud", "shipping-eu"]


def observer_waits_for(team: Team) -> str | None:
    """The reason for which the container of the observer does not run, as the kubelet says."""
    statuses = cast("list[dict[str, object]]", team.field("pod", "main-0", "status", "containerStatuses") or [])
    for status in statuses:
        if status["name"] == "observer":
            reason = pick(status, "state", "waiting", "reason")
            return None if reason is None else str(reason)
    return None


def test_the_observer_crashes_in_a_loop_and_clients_connect(healed: Team) -> None:
    healed.kube.kubectl("annotate", "broker", "main", "penstock.dev/paused=true")
    wait_for("the pause", lambda: healed.reason("broker", "main", "ReconciliationPaused")[0] == "True", MINUTE)
    crash = {"spec": {"template": {"spec": {"containers": [{"name": "observer", "args": ["no-such-verb"]}]}}}}
    healed.kube.kubectl("patch", "statefulset", "main", "--patch", json.dumps(crash))
    wait_for("the kubelet to call it a loop", lambda: observer_waits_for(healed) == "CrashLoopBackOff", 3 * MINUTE)
    healed.look()  # nothing watches pods, and the operator may have looked when this one was made
    wait_for(
        "the observer to crash",
        lambda: healed.reason("broker", "main", "ObserverFailing")[1] == "CrashLoopBackOff",
        MINUTE,
    )
    # The pod was replaced, so the operator has to reach the new broker first; from then on the crashes change nothing.
    healed.wait_ready("broker/main")
    for _ in range(10):
        asyncio.run(healed.connect_as_client())
    assert healed.is_ready("broker", "main")
    healed.kube.kubectl("annotate", "broker", "main", "penstock.dev/paused-")
    wait_for("the observer to be well", lambda: healed.reason("broker", "main", "ObserverFailing")[0] == "", 4 * MINUTE)


def test_scaled_to_zero_and_back(healed: Team) -> None:
    healed.kube.kubectl("scale", "broker/main", "--replicas=0")
    wait_for("no pod", lambda: healed.kube.get("pod", "main-0") is None, MINUTE)
    wait_for(
        "the Subscription to say so",
        lambda: healed.reason("subscription", "billing", "Ready") == ("False", "BrokerStopped"),
        MINUTE,
    )
    wait_for(
        "the Broker to say so", lambda: healed.reason("broker", "main", "Ready") == ("True", "ScaledToZero"), MINUTE
    )
    healed.kube.kubectl("scale", "broker/main", "--replicas=1")
    healed.wait_ready()


def test_an_upgrade_of_the_operator_rolls_no_broker(installation: Installation, healed: Team) -> None:
    uid = healed.field("pod", "main-0", "metadata", "uid")
    installation.install(**{"brokerImage.tag": "newer"})
    wait_for(
        "the offer of the newer image",
        lambda: healed.reason("broker", "main", "VersionAligned") == ("False", "UpdateAvailable"),
        MINUTE,
    )
    installation.install()
    wait_for(
        "the older image to be the default again",
        lambda: healed.reason("broker", "main", "VersionAligned") == ("True", "Pinned"),
        MINUTE,
    )
    assert healed.field("pod", "main-0", "metadata", "uid") == uid


def test_a_foreign_object_is_never_adopted(team: Team) -> None:
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "main-amqp", "labels": {"mine": "true"}},
        "spec": {"ports": [{"port": 80}]},
    }
    team.apply(foreign)
    team.apply_whole()
    wait_for("the Broker to stall", lambda: team.reason("broker", "main", "Stalled") == ("True", "NameTaken"), MINUTE)
    assert team.kube.get("statefulset", "main") is None
    assert team.field("service", "main-amqp", "spec", "ports", 0, "port") == 80
    team.kube.kubectl("delete", "service", "main-amqp")
    team.wait_ready()


def test_deletion_broker_first(doomed: Team) -> None:
    doomed.kube.kubectl("delete", "broker/main", "--timeout=60s")
    doomed.kube.kubectl("delete", "exchange,subscription", "--all", "--timeout=60s")
    wait_for("the children to go", lambda: doomed.are_gone("statefulsets", "services"), MINUTE)
    assert doomed.field("pvc", "data-main-0", "metadata", "name") == "data-main-0"


def test_deletion_exchange_first(doomed: Team) -> None:
    doomed.kube.kubectl("delete", "exchange/orders", "--wait=false")
    wait_for(
        "the Exchange to wait for its Subscriptions",
        lambda: doomed.reason("exchange", "orders", "DeletionBlocked") == ("True", "BindingsExist"),
        MINUTE,
    )
    doomed.kube.kubectl("delete", "subscription", "--all", "--timeout=60s")
    doomed.kube.kubectl("wait", "--for=delete", "exchange/orders", "--timeout=60s")
    assert asyncio.run(declared_names(doomed)) == []


def test_deletion_of_the_whole_namespace(doomed: Team) -> None:
    doomed.kube.kubectl("delete", "namespace", doomed.kube.namespace, "--timeout=60s")


def test_deletion_while_the_operator_is_away(installation: Installation, doomed: Team) -> None:
    try:
        installation.scale_operator(0)
        doomed.kube.kubectl("delete", "broker/main", "--timeout=60s")
        doomed.kube.kubectl("delete", "exchange,subscription", "--all", "--wait=false")
        assert doomed.field("subscription", SUBSCRIPTIONS[0], "metadata", "deletionTimestamp") is not None
    finally:
        installation.scale_operator(1)
    wait_for("everything to end", lambda: doomed.are_gone("exchanges", "subscriptions"), MINUTE)


def test_what_is_protected_is_not_deleted(installation: Installation) -> None:
    with installation.team() as team:
        team.apply_whole(replicas=0)
        wait_for("the finalizer", lambda: team.field("subscription", "billing", "metadata", "finalizers"), MINUTE)
        team.kube.kubectl("annotate", "subscription", "billing", "penstock.dev/delete-protection=true")

        def refused() -> bool:
            try:
                team.kube.kubectl("delete", "subscription", "billing", "--dry-run=server")
            except StoryError as error:
                return "billing is protected" in str(error)
            return False

        wait_for("the policy to refuse", refused, MINUTE)
        team.kube.kubectl("annotate", "subscription", "billing", "penstock.dev/delete-protection-")
        team.kube.kubectl("delete", "subscription", "billing", "--timeout=60s")
