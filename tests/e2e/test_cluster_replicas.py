"""Two operators on a real cluster: one leads by the Lease and the other waits, Ready; it goes on when the leader is
killed or replaced, and there are never two leaders.

It is an installation of its own, of single namespaces (`watchNamespaces`), so that the operator of
tests/operator/installed and this one never reconcile the same resources. Such an operator may not watch children, so it
lists them; and its Role in a namespace goes before the resources when that is deleted: with this the tests begin and
end.
"""

from __future__ import annotations

import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from e2e import node_processes
from e2e.kube import pick, wait_for
from support.installed_operator import MINUTE, Installation, Team, open_installation

pytestmark = pytest.mark.cluster

LEASE_SECONDS = 15
A_FEW_SECONDS = 15
"""What a busy node may take longer than the 18 seconds that are documented."""


@dataclass(slots=True)
class Operators:
    """The operators of an installation, as its pods, its Lease and their metrics show them."""

    installation: Installation
    seen: set[int] = field(default_factory=set[int])
    """How many operators said at the same time that they lead, over all looks."""

    @property
    def lease_name(self) -> str:
        """The Lease of the release."""
        return f"{self.installation.release}-penstock-operator"

    def lease(self) -> dict[str, Any]:
        """The spec of the Lease."""
        found = pick(self.installation.home.get("lease", self.lease_name), "spec")
        return cast("dict[str, Any]", found or {})

    def pods(self) -> list[Any]:
        """The pods that are not leaving."""
        found = cast("list[Any]", pick(self.installation.home.get("pods"), "items") or [])
        return [pod for pod in found if pick(pod, "metadata", "deletionTimestamp") is None]

    def leaders(self) -> list[str]:
        """The names of the pods whose gauge says that they lead. A pod that does not answer says nothing."""
        names = [str(pick(pod, "metadata", "name")) for pod in self.pods() if says_that_it_leads(pod)]
        self.seen.add(len(names))
        return names

    def are_two_ready(self) -> bool:
        """Whether two operators are Ready, and the one that the Lease names is one of them."""
        ready = [pod for pod in self.pods() if pick(pod, "status", "containerStatuses", 0, "ready") is True]
        names = {str(pick(pod, "metadata", "name")) for pod in ready}
        return len(names) == 2 and self.lease().get("holderIdentity") in names

    def holder(self) -> Any:
        """The pod that holds the Lease."""
        name = self.lease()["holderIdentity"]
        return next(pod for pod in self.pods() if pick(pod, "metadata", "name") == name)


def says_that_it_leads(pod: Any) -> bool:
    """Whether the gauge of this operator is 1."""
    try:
        url = f"http://{pick(pod, 'status', 'podIP')}:8080/metrics"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return "\npenstock_operator_leading 1.0\n" in answer.read().decode()
    except OSError:
        return False


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    with open_installation(namespaced=True, replicas="2") as made:
        yield made


@pytest.fixture
def operators(installation: Installation) -> Iterator[Operators]:
    made = Operators(installation)
    wait_for("two operators of which one leads", made.are_two_ready, 3 * MINUTE)
    yield made
    assert made.seen <= {0, 1}, "two operators said at the same time that they lead"


@pytest.fixture(scope="module")
def team(installation: Installation) -> Iterator[Team]:
    with installation.team() as made:
        made.apply_whole()
        made.wait_ready()
        yield made


def declared(team: Team, name: str) -> None:
    """A new Subscription is Ready: whoever leads writes, and declares on the broker."""
    spec = {"brokerRef": {"name": "main"}, "exchangeRef": {"name": "orders"}, "bindingKeys": ["#"]}
    about = {"name": name, "namespace": team.kube.namespace}
    team.apply({"apiVersion": "penstock.dev/v1alpha1", "kind": "Subscription", "metadata": about, "spec": spec})
    team.wait_ready(f"subscription/{name}", seconds=2 * MINUTE)


def test_children_that_are_deleted_are_back(team: Team) -> None:
    team.kube.kubectl("delete", "service", "orders-x", "main-amqp")
    wait_for("the Services to be back", lambda: team.field("service", "main-amqp", "metadata", "name"), MINUTE)
    wait_for("the Exchange's Service", lambda: team.field("service", "orders-x", "metadata", "name"), MINUTE)


def test_one_leads_and_the_other_is_ready_and_waits(operators: Operators, team: Team) -> None:
    declared(team, "first")
    assert operators.leaders() == [operators.lease()["holderIdentity"]]
    (waiting,) = (pod for pod in operators.pods() if not says_that_it_leads(pod))
    with urllib.request.urlopen(f"http://{pick(waiting, 'status', 'podIP')}:8080/readyz", timeout=30) as answer:
        assert answer.read().decode() == f"ready, and waits: {operators.lease()['holderIdentity']} leads\n"


def test_the_other_leads_and_writes_when_the_leader_s_pod_is_lost(operators: Operators, team: Team) -> None:
    """Its process stands still, and its pod is removed with kill -9, as after the loss of a node: nothing gives the
    Lease back, and the container is not started again in the same pod.
    """
    before, leader = operators.lease(), operators.holder()
    uid, name = str(pick(leader, "metadata", "uid")), str(pick(leader, "metadata", "name"))
    pid = wait_for("the leader's process", lambda: node_processes.of_container(uid, "operator"), MINUTE)
    node_processes.freeze(pid)
    killed = time.monotonic()
    operators.installation.home.kubectl("delete", "pod", name, "--force", "--grace-period=0", "--wait=false")

    def another_leads() -> bool:
        leaders = operators.leaders()
        return bool(leaders) and leaders != [name]

    wait_for("another leader", another_leads, LEASE_SECONDS + 3 + A_FEW_SECONDS)
    now = operators.lease()
    sys.stdout.write(f"another operator led {time.monotonic() - killed:.1f} s after the kill\n")
    assert now["leaseTransitions"] == before["leaseTransitions"] + 1
    # Not before the lease was over. The times in the record are those of one node's clock here.
    assert moment(now["acquireTime"]) - moment(before["renewTime"]) >= timedelta(seconds=LEASE_SECONDS)
    declared(team, "after-the-kill")


def test_a_rolling_upgrade_hands_over_at_once(operators: Operators, team: Team) -> None:
    """Each leader that ends gives the Lease back, so the next one does not wait for its end."""
    before = operators.lease()
    pods = {pick(pod, "metadata", "uid") for pod in operators.pods()}
    operators.installation.install(replicas="2", **{"podAnnotations.test": "upgraded"})
    wait_for("two operators of which one leads", operators.are_two_ready, 3 * MINUTE)
    operators.leaders()
    assert pods.isdisjoint({pick(pod, "metadata", "uid") for pod in operators.pods()}), "both were replaced"
    after = operators.lease()
    assert after["leaseTransitions"] - before["leaseTransitions"] in (1, 2)
    declared(team, "after-the-upgrade")
    finds_no_bug(operators)


def test_deletion_of_the_whole_namespace(operators: Operators, team: Team) -> None:
    team.kube.kubectl("delete", "namespace", team.kube.namespace, "--timeout=120s")
    finds_no_bug(operators)


def finds_no_bug(operators: Operators) -> None:
    for pod in operators.pods():
        log = operators.installation.home.kubectl("logs", str(pick(pod, "metadata", "name")), "--tail=-1")
        assert "because of a bug" not in log


def moment(text: str) -> datetime:
    """A time of a Lease."""
    return datetime.fromisoformat(text).astimezone(UTC)
